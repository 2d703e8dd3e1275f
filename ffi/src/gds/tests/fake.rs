//! A stand-in for cuFile and CUDA: two tables of functions, "device" memory on the host, a log of the calls.
//!
//! Like the real ones, the functions take no context of their own, so the process has one stand-in. A
//! test that holds a [`Fake`] has exclusive use of it.

use super::super::driver::{GdsDriver, GdsOptions};
use super::super::error::GdsError;
use super::super::memory::DeviceMemory;
use super::super::sys::{
    CONTROL_ALLOW_COMPAT, CuFileApi, CudaApi, CudaContext, Descriptor, Handle, Properties, Status,
};
use core::any::Any;
use core::cell::Cell;
use core::ffi::{c_int, c_uint, c_void};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Init,
    Retain(c_int),
    Release(c_int),
    Compat(bool),
    Open,
    Close,
    Register,
    Deregister,
    BufferRegister(usize),
    BufferDeregister,
    /// Bytes, offset in the file, offset in the buffer.
    Read(usize, i64, i64),
    Write(usize, i64, i64),
    /// A call that needs the context did not find it.
    NoContext,
    /// An owner has freed its memory.
    Freed,
}

/// The outcome of a transfer.
pub(crate) enum Answer {
    /// Moves all requested bytes.
    All,
    /// Moves at most these bytes.
    Part(usize),
    /// Moves nothing and answers with this number.
    Number(isize),
    /// Moves nothing, sets `errno`, answers −1.
    Errno(c_int),
    /// Reports that it has begun, waits for its release, then moves all bytes.
    Held(mpsc::Sender<()>, mpsc::Receiver<()>),
}

/// Decides by the transfer's sequence number.
type Plan = Box<dyn FnMut(usize) -> Answer + Send>;

pub(crate) struct World {
    pub(super) log: Vec<Event>,
    pub(super) init: c_int,
    pub(super) open: c_int,
    pub(crate) register: c_int,
    pub(super) buffer_register: c_int,
    pub(super) properties: Properties,
    /// Whether compatibility mode is allowed, in an open driver.
    compat: bool,
    staged: Option<bool>,
    /// Opens minus closes.
    uses: usize,
    pub(super) plan: Plan,
    transfers: usize,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);
static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Whether a device's context is current on this thread.
pub(crate) fn context_is_current() -> bool {
    DEPTH.get() > 0
}

/// The stand-in, held exclusively.
pub(crate) struct Fake {
    _turn: MutexGuard<'static, ()>,
    pub(super) api: CuFileApi,
}

fn world<R>(act: impl FnOnce(&mut World) -> R) -> R {
    let mut world = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    act(world.as_mut().expect("a test holds the stand-in"))
}

impl Fake {
    /// A cuFile 1.19 with an nvidia-fs module. Every call succeeds.
    pub(crate) fn new() -> Fake {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let properties = Properties {
            nvfs_major: 2,
            nvfs_minor: 25,
            max_direct_io_kib: 16384,
            control_flags: CONTROL_ALLOW_COMPAT,
            ..Properties::default()
        };
        *WORLD.lock().unwrap_or_else(PoisonError::into_inner) = Some(World {
            log: Vec::new(),
            init: 0,
            open: 0,
            register: 0,
            buffer_register: 0,
            properties,
            compat: false,
            staged: None,
            uses: 0,
            plan: Box::new(|_| Answer::All),
            transfers: 0,
        });
        Fake { _turn: turn, api: CUFILE }
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut World)) {
        world(change);
    }

    pub(crate) fn plan(&self, plan: impl FnMut(usize) -> Answer + Send + 'static) {
        world(|world| world.plan = Box::new(plan));
    }

    /// Makes the transfer of this number, counted from now, wait; all others pass. Returns two ends: one
    /// hears that the transfer has begun, one releases it.
    pub(crate) fn hold(&self, number: usize) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (there, is_there) = mpsc::channel();
        let (go, gone) = mpsc::channel();
        let mut ends = Some((there, gone));
        world(|world| world.transfers = 0);
        self.plan(move |n| match ends.take_if(|_| n == number) {
            Some((there, gone)) => Answer::Held(there, gone),
            None => Answer::All,
        });
        (is_there, go)
    }

    /// Returns the calls since the last look.
    pub(crate) fn log(&self) -> Vec<Event> {
        world(|world| core::mem::take(&mut world.log))
    }

    /// Returns the transfers among those calls.
    pub(crate) fn transfers(&self) -> Vec<Event> {
        let wanted = |event: &Event| matches!(event, Event::Read(..) | Event::Write(..) | Event::NoContext);
        self.log().into_iter().filter(wanted).collect()
    }

    pub(crate) fn open(&self, options: GdsOptions) -> Result<Arc<GdsDriver>, GdsError> {
        self.opener()(options)
    }

    /// Returns an opener of such a driver. It works on any thread while the test holds the stand-in.
    pub(crate) fn opener(
        &self,
    ) -> impl FnOnce(GdsOptions) -> Result<Arc<GdsDriver>, GdsError> + Send + use<> {
        let api = self.api;
        move |options| GdsDriver::open_with(api, CUDA, options)
    }

    pub(crate) fn driver(&self) -> Arc<GdsDriver> {
        self.open(GdsOptions::new(0)).expect("the stand-in works")
    }
}

/// "Device" memory: an allocation that logs when its last owner frees it.
pub(crate) struct Allocation {
    address: *mut u8,
    bytes: usize,
}

// SAFETY: only the functions below use the address, in tests that order their accesses.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    pub(crate) fn new(bytes: usize) -> Arc<Allocation> {
        // SAFETY: no test asks for zero bytes.
        let address = unsafe { alloc_zeroed(Allocation::layout(bytes)) };
        assert!(!address.is_null());
        Arc::new(Allocation { address, bytes })
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 4096).expect("a size of a test's")
    }

    /// Describes the memory for cuFile.
    pub(crate) fn memory(self: &Arc<Self>) -> DeviceMemory {
        self.memory_of(Arc::<Allocation>::clone(self))
    }

    /// The same with another owner that keeps this one.
    pub(crate) fn memory_of(&self, owner: Arc<dyn Any + Send + Sync>) -> DeviceMemory {
        // SAFETY: the bytes live as long as `self`, which `owner` keeps, and no reference to them exists.
        unsafe { DeviceMemory::new(self.address as u64, self.bytes, owner) }
    }

    pub(crate) fn fill(&self, byte_at: impl Fn(usize) -> u8) {
        for at in 0..self.bytes {
            // SAFETY: within the allocation.
            let byte = unsafe { self.address.add(at) };
            // SAFETY: as above; the test has no transfer under way.
            unsafe { byte.write(byte_at(at)) };
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.get(0, self.bytes)
    }

    /// Returns a part of the memory that no transfer touches.
    pub(crate) fn get(&self, offset: usize, bytes: usize) -> Vec<u8> {
        assert!(offset + bytes <= self.bytes);
        let mut out = vec![0; bytes];
        // SAFETY: within the allocation.
        let start = unsafe { self.address.add(offset) };
        // SAFETY: as above, and initialised from the start; the test has no transfer of these bytes
        // under way.
        unsafe { start.copy_to_nonoverlapping(out.as_mut_ptr(), bytes) };
        out
    }

    /// Sets a part of the memory that no transfer touches.
    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.bytes);
        // SAFETY: within the allocation.
        let start = unsafe { self.address.add(offset) };
        // SAFETY: as above; the test has no transfer of these bytes under way.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        world(|world| world.log.push(Event::Freed));
        // SAFETY: allocated with this layout in `new`, and freed once.
        unsafe { dealloc(self.address, Allocation::layout(self.bytes)) }
    }
}

// ---- cuFile ----

const fn status(code: c_int) -> Status {
    Status { code, cuda: 0 }
}

unsafe extern "C" fn driver_open() -> Status {
    world(|world| {
        world.log.push(Event::Open);
        // As in the real cuFile, a setting holds for one open, and only the first open reads it.
        if world.uses == 0 {
            world.compat = world.staged.take().unwrap_or(true);
        }
        world.uses += usize::from(world.open == 0);
        status(world.open)
    })
}

unsafe extern "C" fn driver_close() -> Status {
    world(|world| {
        world.log.push(Event::Close);
        world.uses = world.uses.checked_sub(1).expect("as often closed as opened");
    });
    status(0)
}

unsafe extern "C" fn driver_properties(out: *mut Properties) -> Status {
    // SAFETY: the caller's own.
    unsafe { *out = world(|world| world.properties) };
    status(0)
}

unsafe extern "C" fn handle_register(out: *mut Handle, descriptor: *mut Descriptor) -> Status {
    // SAFETY: the caller's own.
    let descriptor = unsafe { *descriptor };
    assert_eq!((descriptor.kind, descriptor.fs_ops.is_null()), (1, true));
    // SAFETY: the kind says that it is the descriptor.
    let fd = unsafe { descriptor.handle.fd };
    // SAFETY: the caller's own. The handle is the descriptor, off by one so as not to be null.
    unsafe { *out = (fd as usize + 1) as Handle };
    world(|world| {
        world.log.push(Event::Register);
        status(world.register)
    })
}

unsafe extern "C" fn handle_deregister(_handle: Handle) {
    world(|world| world.log.push(Event::Deregister));
}

fn needs_context() {
    if !context_is_current() {
        world(|world| world.log.push(Event::NoContext));
    }
}

unsafe extern "C" fn buffer_register(_base: *const c_void, bytes: usize, _flags: c_int) -> Status {
    needs_context();
    world(|world| {
        world.log.push(Event::BufferRegister(bytes));
        status(world.buffer_register)
    })
}

unsafe extern "C" fn buffer_deregister(_base: *const c_void) -> Status {
    needs_context();
    world(|world| world.log.push(Event::BufferDeregister));
    status(0)
}

/// Returns the bytes to move, or an immediate answer.
fn decide(event: Event, bytes: usize) -> Result<usize, isize> {
    needs_context();
    let answer = world(|world| {
        world.log.push(event);
        world.transfers += 1;
        (world.plan)(world.transfers - 1)
    });
    match answer {
        Answer::All => Ok(bytes),
        Answer::Part(part) => Ok(part.min(bytes)),
        Answer::Number(number) => Err(number),
        Answer::Errno(errno) => {
            // SAFETY: has no conditions.
            let place = unsafe { libc::__errno_location() };
            // SAFETY: the thread's own.
            unsafe { place.write(errno) };
            Err(-1)
        }
        Answer::Held(there, go) => {
            there.send(()).expect("the test waits");
            // If the sender is gone, the test has ended, and so has the hold.
            let _ = go.recv();
            Ok(bytes)
        }
    }
}

/// Returns the bytes to move for a part, in the unit of O_DIRECT.
fn whole(part: usize, bytes: usize) -> usize {
    part.next_multiple_of(4096).min(bytes)
}

unsafe extern "C" fn read(
    handle: Handle,
    base: *mut c_void,
    bytes: usize,
    file_offset: libc::off_t,
    offset: libc::off_t,
) -> libc::ssize_t {
    let fd = handle as usize as c_int - 1;
    // SAFETY: cuFile's caller keeps the memory, and its offset within it.
    let target = unsafe { base.byte_offset(offset as isize) };
    match decide(Event::Read(bytes, file_offset, offset), bytes) {
        // SAFETY: as above.
        Ok(part) => unsafe { libc::pread(fd, target, whole(part, bytes), file_offset) }.min(part as isize),
        Err(answer) => answer,
    }
}

unsafe extern "C" fn write(
    handle: Handle,
    base: *const c_void,
    bytes: usize,
    file_offset: libc::off_t,
    offset: libc::off_t,
) -> libc::ssize_t {
    let fd = handle as usize as c_int - 1;
    // SAFETY: cuFile's caller keeps the memory, and its offset within it.
    let source = unsafe { base.byte_offset(offset as isize) };
    match decide(Event::Write(bytes, file_offset, offset), bytes) {
        // SAFETY: as above.
        Ok(part) => unsafe { libc::pwrite(fd, source, whole(part, bytes), file_offset) }.min(part as isize),
        Err(answer) => answer,
    }
}

unsafe extern "C" fn version(out: *mut c_int) -> Status {
    // SAFETY: the caller's own.
    unsafe { *out = 1190 };
    status(0)
}

unsafe extern "C" fn set_bool(parameter: c_int, value: bool) -> Status {
    assert_eq!(parameter, 1);
    world(|world| {
        world.log.push(Event::Compat(value));
        if world.uses > 0 {
            return status(5026);
        }
        world.staged = Some(value);
        status(0)
    })
}

unsafe extern "C" fn get_bool(parameter: c_int, out: *mut bool) -> Status {
    assert_eq!(parameter, 1);
    // SAFETY: the caller's own.
    unsafe { *out = world(|world| world.compat) };
    status(0)
}

const CUFILE: CuFileApi = CuFileApi {
    driver_open,
    driver_properties,
    handle_register,
    handle_deregister,
    buffer_register,
    buffer_deregister,
    read,
    write,
    driver_close,
    driver_close_v2: Some(driver_close),
    version: Some(version),
    set_bool: Some(set_bool),
    get_bool: Some(get_bool),
};

// ---- CUDA ----

unsafe extern "C" fn init(flags: c_uint) -> c_int {
    assert_eq!(flags, 0);
    world(|world| {
        world.log.push(Event::Init);
        world.init
    })
}

/// There are two devices; for others CUDA answers 101, invalid device.
unsafe extern "C" fn device(out: *mut c_int, ordinal: c_int) -> c_int {
    if !(0..2).contains(&ordinal) {
        return 101;
    }
    // SAFETY: the caller's own.
    unsafe { *out = ordinal };
    0
}

unsafe extern "C" fn context_retain(out: *mut CudaContext, device: c_int) -> c_int {
    world(|world| world.log.push(Event::Retain(device)));
    // SAFETY: the caller's own.
    unsafe { *out = (device as usize + 1) as CudaContext };
    0
}

unsafe extern "C" fn context_release(device: c_int) -> c_int {
    world(|world| world.log.push(Event::Release(device)));
    0
}

unsafe extern "C" fn context_push(context: CudaContext) -> c_int {
    assert!(!context.is_null());
    DEPTH.set(DEPTH.get() + 1);
    0
}

unsafe extern "C" fn context_pop(_out: *mut CudaContext) -> c_int {
    DEPTH.set(DEPTH.get() - 1);
    0
}

const CUDA: CudaApi = CudaApi { init, device, context_retain, context_release, context_push, context_pop };
