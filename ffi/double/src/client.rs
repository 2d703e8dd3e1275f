//! The test's interface: finds the shared library, loads it in libcuda's place, holds it exclusively,
//! controls it.

use crate::Kernel;
use core::ffi::{CStr, c_int, c_void};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The double, loaded and held exclusively: tests of one process take turns.
pub struct Double {
    _turn: MutexGuard<'static, ()>,
    handle: *mut c_void,
}

/// Counts of objects that were not given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Leftovers {
    /// Primary contexts retained.
    pub contexts: u64,
    /// Allocations of device memory.
    pub allocations: u64,
    /// Registrations of host memory.
    pub registrations: u64,
    /// Open imports.
    pub imports: u64,
    /// Streams.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// Modules.
    pub modules: u64,
}

/// A CUDA 13.0 driver; 1 GiB per device; no limit on registered memory.
const VERSION: c_int = 13000;
const MEMORY_BYTES: u64 = 1 << 30;

static TURN: Mutex<()> = Mutex::new(());

/// The environment variable that names the file for the report.
pub(crate) const REPORT: &str = "KVDOUBLE_REPORT";
const REPORT_FILE: &str = "double.report";

const FILE: &str = "libkvstrata_cuda_double.so";

impl Double {
    /// Makes a machine with two devices, on which every call succeeds. Anything that the last test left
    /// is forgotten.
    ///
    /// # Panics
    /// If the shared library is missing, or a real libcuda was loaded before it.
    #[must_use]
    pub fn new() -> Double {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let path = CString::new(Double::path().as_os_str().as_bytes()).expect("a path without NUL");
        // SAFETY: a library of this workspace, whose initialisers are Rust's own.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        assert!(!handle.is_null(), "{FILE} does not load: {}", last_error());
        // SAFETY: a C string; the library is loaded already, if it is the one that the name leads to.
        let by_name = unsafe { libc::dlopen(c"libcuda.so".as_ptr(), libc::RTLD_NOW) };
        assert!(by_name == handle, "libcuda.so leads to another library than the double");
        let double = Double { _turn: turn, handle };
        double.reset();
        double
    }

    /// Returns the path at which cargo has built the shared library, as a dependency of the running test,
    /// example or program.
    ///
    /// # Panics
    /// If the library is not there.
    #[must_use]
    pub fn path() -> PathBuf {
        let program = std::env::current_exe().expect("a running program has a path");
        let folders = program.ancestors().skip(1).take(2);
        let places = folders.flat_map(|folder| [folder.join(FILE), folder.join("deps").join(FILE)]);
        let found: Vec<_> = places.collect();
        match found.iter().find(|path| path.is_file()) {
            Some(path) => path.clone(),
            None => panic!("the test double is in none of {found:?}; `cargo test` builds it"),
        }
    }

    /// Makes a child process find the double in libcuda's place, by a link in `folder`, which is put into
    /// `LD_LIBRARY_PATH`. At its exit the child leaves a report there, for [`verdict`](Double::verdict).
    ///
    /// # Errors
    /// The system's error from making the link.
    pub fn lend(folder: &Path, child: &mut Command) -> std::io::Result<()> {
        let link = folder.join("libcuda.so");
        if !link.exists() {
            std::os::unix::fs::symlink(Double::path(), link)?;
        }
        child.env("LD_LIBRARY_PATH", folder).env(REPORT, folder.join(REPORT_FILE));
        Ok(())
    }

    /// Checks the end of a child process that exited by itself: the driver was not misused, and
    /// everything was given back.
    ///
    /// # Panics
    /// If a check fails, or the child has left no report because it has not initialised the double.
    pub fn verdict(folder: &Path) {
        let path = folder.join(REPORT_FILE);
        let report = std::fs::read_to_string(&path).expect("a report: the child has initialised the double");
        std::fs::remove_file(path).expect("removed");
        assert_eq!(report, format!("{:?}", (0, "", Leftovers::default())));
    }

    /// # Safety
    /// `F` is the type of the function of that name in `control.rs`.
    unsafe fn control<F: Copy>(&self, name: &CStr) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle is of a library that is never unloaded.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?} is not in the library");
        // SAFETY: a function pointer is as large as its address, and its type is that of the function
        // there (the caller's promise).
        unsafe { core::mem::transmute_copy(&address) }
    }

    /// Makes a new machine.
    pub fn reset(&self) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() = unsafe { self.control(c"kvdouble_reset") };
        act();
    }

    fn settings(&self, devices: u32, version: c_int, memory_bytes: u64, register_bytes: u64) {
        type F = extern "C" fn(u32, c_int, u64, u64);
        // SAFETY: `control.rs`.
        let act: F = unsafe { self.control(c"kvdouble_settings") };
        act(devices, version, memory_bytes, register_bytes);
    }

    /// Makes a machine with this many devices; before anything is opened.
    pub fn devices(&self, devices: u32) {
        self.settings(devices, VERSION, MEMORY_BYTES, u64::MAX);
    }

    /// Makes a machine with a driver of this version (13000 is 13.0); before anything is opened.
    pub fn version(&self, version: i32) {
        self.settings(2, version, MEMORY_BYTES, u64::MAX);
    }

    /// Makes a machine whose devices have this much memory, and on which this many bytes can be
    /// registered; before anything is opened.
    pub fn memory(&self, memory_bytes: u64, register_bytes: u64) {
        self.settings(2, VERSION, memory_bytes, register_bytes);
    }

    /// From now on the address of fresh device memory is that of the host memory behind it, so a kernel
    /// compiled for the CPU can follow its pointers. The double then does not see accesses out of bounds
    /// or after a free.
    pub fn plain_addresses(&self) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() = unsafe { self.control(c"kvdouble_plain_addresses") };
        act();
    }

    /// Sets the distance between the devices' and the host's addresses of registered memory. Default: 0.
    pub fn mapped_at(&self, bytes: u64) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn(u64) = unsafe { self.control(c"kvdouble_mapped_at") };
        act(bytes);
    }

    /// Chooses the order between streams; 0 for the oldest first.
    pub fn seed(&self, seed: u64) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn(u64) = unsafe { self.control(c"kvdouble_seed") };
        act(seed);
    }

    /// Sets whether some thread captures a graph in the mode "global". Meanwhile unsafe calls of threads that
    /// are not in the mode "relaxed" are refused with 900, and counted as misuse: they break the capture.
    pub fn capture(&self, capturing: bool) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn(bool) = unsafe { self.control(c"kvdouble_capture") };
        act(capturing);
    }

    /// Sets whether this stream reports that it is captured.
    pub fn capture_stream(&self, stream: u64, captured: bool) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn(u64, bool) = unsafe { self.control(c"kvdouble_capture_stream") };
        act(stream, captured);
    }

    /// Returns the flags of the latest batch of copies.
    #[must_use]
    pub fn batch_flags(&self) -> u32 {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() -> u32 = unsafe { self.control(c"kvdouble_batch_flags") };
        act()
    }

    /// Returns the number of threads that have registered host memory.
    #[must_use]
    pub fn registering(&self) -> usize {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() -> usize = unsafe { self.control(c"kvdouble_registering") };
        act()
    }

    /// Gives the first device the default streams that an engine uses: the legacy one (null, or 1), and
    /// one for all threads (2). They are streams like all others: nothing is implicitly ordered with
    /// them. Without this call, using one is misuse.
    pub fn default_streams(&self) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() = unsafe { self.control(c"kvdouble_default_streams") };
        act();
    }

    /// From now on operations are executed only by [`step`](Double::step).
    pub fn hold(&self) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() = unsafe { self.control(c"kvdouble_hold") };
        act();
    }

    /// Operations are executed again without `step`.
    pub fn release(&self) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() = unsafe { self.control(c"kvdouble_release") };
        act();
    }

    /// Executes this many operations, or as many as possible.
    pub fn step(&self, steps: u64) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn(u64) = unsafe { self.control(c"kvdouble_step") };
        act(steps);
    }

    /// Returns when nothing more happens without a call.
    pub fn idle(&self) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() = unsafe { self.control(c"kvdouble_idle") };
        act();
    }

    /// Returns when `name` has been called this often.
    pub fn called(&self, name: &str, calls: u64) {
        type F = unsafe extern "C" fn(*const u8, usize, u64);
        // SAFETY: `control.rs`.
        let called = unsafe { self.control::<F>(c"kvdouble_called") };
        // SAFETY: pointer and length of one text.
        unsafe { called(name.as_ptr(), name.len(), calls) };
    }

    /// Makes the `nth` call of `name` from now on answer with `code`, and do nothing.
    pub fn fail(&self, name: &str, nth: u64, code: i32) {
        self.fault(name, nth, code, false);
    }

    /// As [`fail`](Double::fail), and every later call of the same context answers with `code`, too.
    pub fn fail_for_good(&self, name: &str, nth: u64, code: i32) {
        self.fault(name, nth, code, true);
    }

    fn fault(&self, name: &str, nth: u64, code: i32, sticky: bool) {
        type F = unsafe extern "C" fn(*const u8, usize, u64, c_int, bool);
        // SAFETY: `control.rs`.
        let fail = unsafe { self.control::<F>(c"kvdouble_fail") };
        // SAFETY: pointer and length of one text.
        unsafe { fail(name.as_ptr(), name.len(), nth, code, sticky) };
    }

    /// Makes the `nth` operation that the device executes from now on break it: a sticky error.
    pub fn break_at(&self, device: u32, nth: u64, code: i32) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn(u32, u64, c_int) = unsafe { self.control(c"kvdouble_break") };
        act(device, nth, code);
    }

    /// Returns the number of calls of `name`.
    #[must_use]
    pub fn calls(&self, name: &str) -> u64 {
        type F = unsafe extern "C" fn(*const u8, usize) -> u64;
        // SAFETY: `control.rs`.
        let calls = unsafe { self.control::<F>(c"kvdouble_calls") };
        // SAFETY: pointer and length of one text.
        unsafe { calls(name.as_ptr(), name.len()) }
    }

    /// Returns the number of all calls.
    #[must_use]
    pub fn all_calls(&self) -> u64 {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() -> u64 = unsafe { self.control(c"kvdouble_all_calls") };
        act()
    }

    /// Returns the number of misuses since the last query, and the description of the first.
    #[must_use]
    pub fn misuse(&self) -> (u64, String) {
        type F = unsafe extern "C" fn(*mut u8, usize, *mut usize) -> u64;
        // SAFETY: `control.rs`.
        let misuse = unsafe { self.control::<F>(c"kvdouble_misuse") };
        let (mut words, mut used) = ([0; 256], 0);
        // SAFETY: all three are ours, with the sizes given.
        let count = unsafe { misuse(words.as_mut_ptr(), words.len(), &mut used) };
        (count, String::from_utf8_lossy(&words[..used]).into_owned())
    }

    /// Returns the counts of objects that were not given back.
    #[must_use]
    pub fn left(&self) -> Leftovers {
        let mut left = Leftovers::default();
        // SAFETY: `control.rs`.
        let ask = unsafe { self.control::<unsafe extern "C" fn(*mut Leftovers)>(c"kvdouble_left") };
        // SAFETY: ours, and a struct of C in both copies of this crate.
        unsafe { ask(&mut left) };
        left
    }

    /// Returns a function that gives the host's address of device memory, for a kernel of a test; null if
    /// the addresses are in no allocation.
    #[must_use]
    pub fn translator(&self) -> extern "C" fn(u64, u64) -> *mut c_void {
        // SAFETY: `control.rs`.
        unsafe { self.control(c"kvdouble_translate") }
    }

    /// Returns device memory as it is at this moment, executed or not.
    ///
    /// # Panics
    /// If the addresses are in no allocation.
    #[must_use]
    pub fn peek(&self, address: u64, bytes: usize) -> Vec<u8> {
        let place = self.translator()(address, bytes as u64).cast::<u8>();
        assert!(!place.is_null(), "{address:#x} + {bytes} is in no allocation");
        // SAFETY: inside one allocation, which lives until the next reset or free; a test peeks at rest.
        unsafe { core::slice::from_raw_parts(place, bytes) }.to_vec()
    }

    /// Registers a kernel by name, for functions that are looked up from now on: `run(grid,
    /// block, parameters)`.
    ///
    /// # Safety
    /// `run` may be called from another thread, with a copy of the parameter struct of any launch by that
    /// name; the struct has `args_bytes` bytes.
    pub unsafe fn kernel(&self, name: &str, args_bytes: usize, run: Kernel) {
        type F = unsafe extern "C" fn(*const u8, usize, usize, Kernel);
        // SAFETY: `control.rs`.
        let register = unsafe { self.control::<F>(c"kvdouble_kernel") };
        // SAFETY: pointer and length of one text; the caller's promise.
        unsafe { register(name.as_ptr(), name.len(), args_bytes, run) };
    }

    /// Ends a test: checks that the driver was not misused, and that everything was given back.
    ///
    /// # Panics
    /// If a check fails.
    pub fn finish(self) {
        self.finish_with(Leftovers::default());
    }

    /// Ends a test that breaks a device: checks that the driver was not misused, and that exactly `left`
    /// is left.
    ///
    /// # Panics
    /// If a check fails.
    pub fn finish_with(self, left: Leftovers) {
        let (misuse, first) = self.misuse();
        assert_eq!(misuse, 0, "the driver was misused: {first}");
        assert_eq!(self.left(), left, "what is left");
        self.reset();
    }
}

impl Default for Double {
    fn default() -> Double {
        Double::new()
    }
}

fn last_error() -> String {
    // SAFETY: gives null or a C string of this thread's.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "unknown error".to_owned();
    }
    // SAFETY: not null, hence such a string.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}
