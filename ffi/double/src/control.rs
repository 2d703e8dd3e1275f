//! `kvdouble_*`: queries and settings of tests. They are not part of libcuda; their presence
//! distinguishes the double from the real one.
//!
//! Texts go in as pointer and length, and come out in the caller's buffer; numbers are passed as they are.

use crate::client::{Leftovers, REPORT};
use crate::engine::Stream;
use crate::world::{Fault, LEGACY, PER_THREAD, Registered, changed, lock, wait};
use core::ffi::{c_int, c_void};
use std::collections::VecDeque;

/// # Safety
/// `text` is the caller's, for `bytes` bytes.
unsafe fn text(text: *const u8, bytes: usize) -> String {
    // SAFETY: the function's contract.
    String::from_utf8_lossy(unsafe { core::slice::from_raw_parts(text, bytes) }).into_owned()
}

/// Makes a new machine, after running operations have ended.
#[unsafe(no_mangle)]
extern "C" fn kvdouble_reset() {
    let mut world = lock();
    while world.devices.iter().any(|device| device.running.is_some()) {
        world = wait(world);
    }
    world.reset();
    changed();
}

/// Sets the properties of the machine; before `cuInit`.
#[unsafe(no_mangle)]
extern "C" fn kvdouble_settings(devices: u32, version: c_int, memory_bytes: u64, register_bytes: u64) {
    let mut world = lock();
    world.settings.devices = devices;
    world.settings.version = version;
    world.settings.memory_bytes = memory_bytes;
    world.settings.register_bytes = register_bytes;
}

/// From now on, device addresses are the host's.
#[unsafe(no_mangle)]
extern "C" fn kvdouble_plain_addresses() {
    lock().memory.plain = true;
}

/// Sets the distance between the devices' and the host's addresses of registered memory.
#[unsafe(no_mangle)]
extern "C" fn kvdouble_mapped_at(bytes: u64) {
    lock().settings.mapped_at = bytes;
}

/// Chooses the order between streams; 0 for the oldest first.
#[unsafe(no_mangle)]
extern "C" fn kvdouble_seed(seed: u64) {
    lock().seed = seed;
}

/// Sets whether a thread of the test captures a graph, in the mode "global".
#[unsafe(no_mangle)]
extern "C" fn kvdouble_capture(capturing: bool) {
    lock().capturing = capturing;
}

/// Sets whether a stream is captured.
#[unsafe(no_mangle)]
extern "C" fn kvdouble_capture_stream(stream: u64, captured: bool) {
    let mut world = lock();
    match captured {
        true => world.captured.insert(stream),
        false => world.captured.remove(&stream),
    };
}

/// Returns the flags of the latest batch of copies.
#[unsafe(no_mangle)]
extern "C" fn kvdouble_batch_flags() -> u32 {
    lock().batch_flags
}

/// Returns the number of threads that have registered host memory.
#[unsafe(no_mangle)]
extern "C" fn kvdouble_registering() -> usize {
    lock().registering.len()
}

/// The first device has default streams from now on.
#[unsafe(no_mangle)]
extern "C" fn kvdouble_default_streams() {
    let mut world = lock();
    for handle in [LEGACY, PER_THREAD] {
        world.streams.insert(handle, Stream { device: 0, destroyed: false, queue: VecDeque::new() });
    }
}

/// Executes nothing more on its own.
#[unsafe(no_mangle)]
extern "C" fn kvdouble_hold() {
    lock().steps = Some(0);
}

/// Executes everything again.
#[unsafe(no_mangle)]
extern "C" fn kvdouble_release() {
    lock().steps = None;
    changed();
}

/// Executes this many operations, or as many as possible, and then returns.
#[unsafe(no_mangle)]
extern "C" fn kvdouble_step(steps: u64) {
    let mut world = lock();
    world.steps = Some(steps);
    changed();
    while !world.is_idle() {
        world = wait(world);
    }
    world.steps = Some(0);
}

/// Returns when nothing more happens without a call.
#[unsafe(no_mangle)]
extern "C" fn kvdouble_idle() {
    let mut world = lock();
    while !world.is_idle() {
        world = wait(world);
    }
}

/// Returns when `name` has been called this often since the reset.
#[unsafe(no_mangle)]
unsafe extern "C" fn kvdouble_called(name: *const u8, bytes: usize, calls: u64) {
    // SAFETY: the caller's.
    let name = unsafe { text(name, bytes) };
    let mut world = lock();
    while world.calls.get(&*name).copied().unwrap_or(0) < calls {
        world = wait(world);
    }
}

/// Makes the `nth` call of `name` from now on answer with `code`, without doing anything.
#[unsafe(no_mangle)]
unsafe extern "C" fn kvdouble_fail(name: *const u8, bytes: usize, nth: u64, code: c_int, sticky: bool) {
    // SAFETY: the caller's.
    let name = unsafe { text(name, bytes) };
    lock().faults.push(Fault { name, nth: nth.max(1), code, sticky });
}

/// Makes the `nth` operation that the device executes from now on break it.
#[unsafe(no_mangle)]
extern "C" fn kvdouble_break(device: u32, nth: u64, code: c_int) {
    if let Some(device) = lock().devices.get_mut(device as usize) {
        device.breaks = Some((nth.max(1), code));
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kvdouble_calls(name: *const u8, bytes: usize) -> u64 {
    // SAFETY: the caller's.
    let name = unsafe { text(name, bytes) };
    lock().calls.get(&*name).copied().unwrap_or(0)
}

/// Returns the number of calls of all functions together.
#[unsafe(no_mangle)]
extern "C" fn kvdouble_all_calls() -> u64 {
    lock().calls.values().sum()
}

/// Returns the number of misuses, and the first one's description, as much as fits. Forgets them.
#[unsafe(no_mangle)]
unsafe extern "C" fn kvdouble_misuse(first: *mut u8, room: usize, used: *mut usize) -> u64 {
    let misuse = core::mem::take(&mut lock().misuse);
    let words = misuse.first().map_or(&b""[..], |words| words.as_bytes());
    let bytes = words.len().min(room);
    // SAFETY: the caller's, for `room` bytes.
    unsafe { first.copy_from_nonoverlapping(words.as_ptr(), bytes) };
    // SAFETY: the caller's.
    unsafe { used.write(bytes) };
    misuse.len() as u64
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kvdouble_left(left: *mut Leftovers) {
    // SAFETY: the caller's.
    unsafe { left.write(lock().left()) };
}

/// At a child process's end, writes misuse and leftovers into the file that its parent has named.
pub(crate) extern "C" fn report() {
    if let Some(path) = std::env::var_os(REPORT) {
        let world = lock();
        let first = world.misuse.first().map_or("", String::as_str);
        // Without the file the parent fails; this process has no other remedy.
        let _ = std::fs::write(path, format!("{:?}", (world.misuse.len(), first, world.left())));
    }
}

/// Returns the host's address of device memory, for kernels that are functions of a test; null if there
/// is none.
#[unsafe(no_mangle)]
extern "C" fn kvdouble_translate(address: u64, bytes: u64) -> *mut c_void {
    lock().memory.place((address, bytes)).map_or(core::ptr::null_mut(), |place| place.pointer().cast())
}

/// Registers a kernel by name, for every module that is loaded from now on. Its parameters are copied
/// when it is launched.
#[unsafe(no_mangle)]
unsafe extern "C" fn kvdouble_kernel(name: *const u8, bytes: usize, args_bytes: usize, run: crate::Kernel) {
    // SAFETY: the caller's.
    let name = unsafe { text(name, bytes) };
    lock().kernels.insert(name, Registered { run, args_bytes });
}
