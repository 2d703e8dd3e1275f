//! What a test uses: finds the shared library, loads it in libcuda's place, has it alone, steers it.

use crate::Kernel;
use core::ffi::{CStr, c_int, c_void};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The double, loaded and had alone: tests of one process take turns.
pub struct Double {
    _turn: MutexGuard<'static, ()>,
    handle: *mut c_void,
}

/// What nobody has given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Leftovers {
    /// Primary contexts retained.
    pub contexts: u64,
    /// Allocations of device memory.
    pub allocations: u64,
    /// Registrations of host memory.
    pub registrations: u64,
    /// Imports that are open.
    pub imports: u64,
    /// Streams.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// Modules.
    pub modules: u64,
}

/// A CUDA 13.0 driver; 1 GiB a device; as much registered memory as one likes.
const VERSION: c_int = 13000;
const MEMORY_BYTES: u64 = 1 << 30;

static TURN: Mutex<()> = Mutex::new(());

/// The environment variable that names the file for the report.
pub(crate) const REPORT: &str = "KVDOUBLE_REPORT";
const REPORT_FILE: &str = "double.report";

const FILE: &str = "libkvstrata_cuda_double.so";

impl Double {
    /// A machine with two devices on which everything works. Whatever the last test left is forgotten.
    ///
    /// # Panics
    /// Without the shared library, or where a real libcuda was loaded before it.
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

    /// Where cargo has built the shared library, as a dependency of the test, example or program that is running.
    ///
    /// # Panics
    /// Where it is not there.
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

    /// Has a child process find the double in libcuda's place: by a link in `folder`, which is put into `LD_LIBRARY_PATH`. When it
    /// exits it leaves a report there, for [`verdict`](Double::verdict).
    ///
    /// # Errors
    /// The system's, from making the link.
    pub fn lend(folder: &Path, child: &mut Command) -> std::io::Result<()> {
        let link = folder.join("libcuda.so");
        if !link.exists() {
            std::os::unix::fs::symlink(Double::path(), link)?;
        }
        child.env("LD_LIBRARY_PATH", folder).env(REPORT, folder.join(REPORT_FILE));
        Ok(())
    }

    /// The end of a child process that exited by itself: nobody misused the driver, and all was given back.
    ///
    /// # Panics
    /// Where that is not so, or the child has left no report: it has not initialised the double.
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
        // SAFETY: a function pointer is as large as its address, and has the type of what lies there (the caller's promise).
        unsafe { core::mem::transmute_copy(&address) }
    }

    /// A new machine.
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

    /// A machine with so many devices; before anything is opened.
    pub fn devices(&self, devices: u32) {
        self.settings(devices, VERSION, MEMORY_BYTES, u64::MAX);
    }

    /// A machine with a driver of this version (13000 is 13.0); before anything is opened.
    pub fn version(&self, version: i32) {
        self.settings(2, version, MEMORY_BYTES, u64::MAX);
    }

    /// A machine whose devices have so much memory, and on which so much can be registered; before anything is opened.
    pub fn memory(&self, memory_bytes: u64, register_bytes: u64) {
        self.settings(2, VERSION, memory_bytes, register_bytes);
    }

    /// From now on the address of fresh device memory is that of the host memory behind it, so that a kernel which was compiled for the
    /// CPU can follow the pointers that it is given. What it does out of bounds, or after a free, the double does not see then.
    pub fn plain_addresses(&self) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() = unsafe { self.control(c"kvdouble_plain_addresses") };
        act();
    }

    /// Devices see registered memory so far from where the host does; 0 unless set.
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

    /// Whether some thread captures a graph in the mode "global". Meanwhile unsafe calls of threads that are not in the mode "relaxed"
    /// are refused with 900, and counted as misuse: the capture is broken.
    pub fn capture(&self, capturing: bool) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn(bool) = unsafe { self.control(c"kvdouble_capture") };
        act(capturing);
    }

    /// Whether this stream says that it is captured.
    pub fn capture_stream(&self, stream: u64, captured: bool) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn(u64, bool) = unsafe { self.control(c"kvdouble_capture_stream") };
        act(stream, captured);
    }

    /// The flags of the latest batch of copies.
    #[must_use]
    pub fn batch_flags(&self) -> u32 {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() -> u32 = unsafe { self.control(c"kvdouble_batch_flags") };
        act()
    }

    /// How many threads have registered host memory.
    #[must_use]
    pub fn registering(&self) -> usize {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() -> usize = unsafe { self.control(c"kvdouble_registering") };
        act()
    }

    /// Gives the first device the default streams that an engine uses: the legacy one (null, or 1), and one for all threads (2). They
    /// are streams as all others: nothing is in order with them of itself. Without this, using one is misuse.
    pub fn default_streams(&self) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() = unsafe { self.control(c"kvdouble_default_streams") };
        act();
    }

    /// From now on nothing is executed but by [`step`](Double::step).
    pub fn hold(&self) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() = unsafe { self.control(c"kvdouble_hold") };
        act();
    }

    /// Everything is executed again.
    pub fn release(&self) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() = unsafe { self.control(c"kvdouble_release") };
        act();
    }

    /// Executes so many operations, or as many as can be.
    pub fn step(&self, steps: u64) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn(u64) = unsafe { self.control(c"kvdouble_step") };
        act(steps);
    }

    /// Returns when nothing happens any more of itself.
    pub fn idle(&self) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() = unsafe { self.control(c"kvdouble_idle") };
        act();
    }

    /// Returns when `name` has been called so often.
    pub fn called(&self, name: &str, calls: u64) {
        type F = unsafe extern "C" fn(*const u8, usize, u64);
        // SAFETY: `control.rs`.
        let called = unsafe { self.control::<F>(c"kvdouble_called") };
        // SAFETY: pointer and length of one text.
        unsafe { called(name.as_ptr(), name.len(), calls) };
    }

    /// The `nth` call of `name` from now on answers with `code`, and does nothing.
    pub fn fail(&self, name: &str, nth: u64, code: i32) {
        self.fault(name, nth, code, false);
    }

    /// The same, and every later call of the same context answers with it too.
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

    /// The `nth` operation that the device executes from now on breaks it: a sticky error.
    pub fn break_at(&self, device: u32, nth: u64, code: i32) {
        // SAFETY: `control.rs`.
        let act: extern "C" fn(u32, u64, c_int) = unsafe { self.control(c"kvdouble_break") };
        act(device, nth, code);
    }

    /// How often `name` has been called.
    #[must_use]
    pub fn calls(&self, name: &str) -> u64 {
        type F = unsafe extern "C" fn(*const u8, usize) -> u64;
        // SAFETY: `control.rs`.
        let calls = unsafe { self.control::<F>(c"kvdouble_calls") };
        // SAFETY: pointer and length of one text.
        unsafe { calls(name.as_ptr(), name.len()) }
    }

    /// How often anything has been called.
    #[must_use]
    pub fn all_calls(&self) -> u64 {
        // SAFETY: `control.rs`.
        let act: extern "C" fn() -> u64 = unsafe { self.control(c"kvdouble_all_calls") };
        act()
    }

    /// How often the driver was misused since the last time that this was asked, and how for the first time.
    #[must_use]
    pub fn misuse(&self) -> (u64, String) {
        type F = unsafe extern "C" fn(*mut u8, usize, *mut usize) -> u64;
        // SAFETY: `control.rs`.
        let misuse = unsafe { self.control::<F>(c"kvdouble_misuse") };
        let (mut words, mut used) = ([0; 256], 0);
        // SAFETY: all three are ours, and as large as said.
        let count = unsafe { misuse(words.as_mut_ptr(), words.len(), &mut used) };
        (count, String::from_utf8_lossy(&words[..used]).into_owned())
    }

    /// What nobody has given back.
    #[must_use]
    pub fn left(&self) -> Leftovers {
        let mut left = Leftovers::default();
        // SAFETY: `control.rs`.
        let ask = unsafe { self.control::<unsafe extern "C" fn(*mut Leftovers)>(c"kvdouble_left") };
        // SAFETY: ours, and a struct of C in both copies of this crate.
        unsafe { ask(&mut left) };
        left
    }

    /// The host's address of device memory, for a kernel of a test; null where the addresses are in no allocation.
    #[must_use]
    pub fn translator(&self) -> extern "C" fn(u64, u64) -> *mut c_void {
        // SAFETY: `control.rs`.
        unsafe { self.control(c"kvdouble_translate") }
    }

    /// Device memory as it is at this moment, executed or not.
    ///
    /// # Panics
    /// Where the addresses are in no allocation.
    #[must_use]
    pub fn peek(&self, address: u64, bytes: usize) -> Vec<u8> {
        let place = self.translator()(address, bytes as u64).cast::<u8>();
        assert!(!place.is_null(), "{address:#x} + {bytes} is in no allocation");
        // SAFETY: inside one allocation, which lives until the next reset or free; a test peeks at rest.
        unsafe { core::slice::from_raw_parts(place, bytes) }.to_vec()
    }

    /// A kernel by name, for functions that are looked up from now on: `run(grid, block, parameters)`.
    ///
    /// # Safety
    /// `run` may be called from another thread, with a copy of the parameter struct of any launch by that name, which has `args_bytes`
    /// bytes.
    pub unsafe fn kernel(&self, name: &str, args_bytes: usize, run: Kernel) {
        type F = unsafe extern "C" fn(*const u8, usize, usize, Kernel);
        // SAFETY: `control.rs`.
        let register = unsafe { self.control::<F>(c"kvdouble_kernel") };
        // SAFETY: pointer and length of one text; the caller's promise.
        unsafe { register(name.as_ptr(), name.len(), args_bytes, run) };
    }

    /// The end of a test: nobody misused the driver, and all was given back.
    ///
    /// # Panics
    /// Where that is not so.
    pub fn finish(self) {
        self.finish_with(Leftovers::default());
    }

    /// The end of a test that breaks a device: nobody misused the driver, and this much was left on purpose.
    ///
    /// # Panics
    /// Where that is not so.
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
