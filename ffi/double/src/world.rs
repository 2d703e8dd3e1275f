//! The whole state, under one lock, and the admission of a call.
//!
//! Invariants
//! - I1: a handle is given out once and never again, not even after a reset: a handle that is not in its
//!   table has been destroyed.
//! - I2: an operation is in exactly one place: a stream's queue, or `running` of its device.

use crate::client::Leftovers;
use crate::engine::{Op, Stream};
use crate::memory::Memory;
use core::cell::{Cell, RefCell};
use core::ffi::c_int;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// The values of `CUresult` that the double returns.
pub(crate) mod code {
    pub(crate) const INVALID_VALUE: i32 = 1;
    pub(crate) const OUT_OF_MEMORY: i32 = 2;
    pub(crate) const NOT_INITIALIZED: i32 = 3;
    pub(crate) const INVALID_DEVICE: i32 = 101;
    pub(crate) const INVALID_IMAGE: i32 = 200;
    pub(crate) const INVALID_CONTEXT: i32 = 201;
    pub(crate) const INVALID_HANDLE: i32 = 400;
    pub(crate) const NOT_FOUND: i32 = 500;
    pub(crate) const NOT_READY: i32 = 600;
    pub(crate) const CONTEXT_IS_DESTROYED: i32 = 709;
    pub(crate) const ALREADY_REGISTERED: i32 = 712;
    pub(crate) const NOT_REGISTERED: i32 = 713;
    pub(crate) const NOT_PERMITTED: i32 = 800;
    pub(crate) const CAPTURE_UNSUPPORTED: i32 = 900;
}

pub(crate) type Answer = Result<(), i32>;

/// The properties of a machine.
pub(crate) struct Settings {
    pub(crate) devices: u32,
    pub(crate) version: c_int,
    pub(crate) memory_bytes: u64,
    pub(crate) register_bytes: u64,
    /// The distance from the host's address of registered memory to the device's.
    pub(crate) mapped_at: u64,
}

impl Settings {
    const fn new() -> Settings {
        Settings { devices: 2, version: 13000, memory_bytes: 1 << 30, register_bytes: u64::MAX, mapped_at: 0 }
    }
}

/// One device, and its primary context.
#[derive(Default)]
pub(crate) struct Device {
    /// The context's handle; `None` before the first retain.
    pub(crate) context: Option<u64>,
    pub(crate) retained: u32,
    /// The sticky error that answers every call of the context.
    pub(crate) broken: Option<i32>,
    pub(crate) running: Option<Op>,
    /// The number of operations until one breaks the device, and the code.
    pub(crate) breaks: Option<(u64, i32)>,
}

/// An event: requested records and executed records.
pub(crate) struct Event {
    pub(crate) device: u32,
    pub(crate) recorded: u64,
    pub(crate) done: u64,
    /// A stream was told to wait for the latest record, so destroying the event early is no misuse.
    pub(crate) joined: bool,
    /// No call may name the event any more; it is removed when it has happened.
    pub(crate) destroyed: bool,
}

/// A registered kernel and the size of its parameters.
#[derive(Clone, Copy)]
pub(crate) struct Registered {
    pub(crate) run: crate::Kernel,
    pub(crate) args_bytes: usize,
}

/// A future error: the `nth` call of `name` from now on.
pub(crate) struct Fault {
    pub(crate) name: String,
    pub(crate) nth: u64,
    pub(crate) code: c_int,
    pub(crate) sticky: bool,
}

pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) initialised: bool,
    pub(crate) devices: Vec<Device>,
    pub(crate) memory: Memory,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) events: BTreeMap<u64, Event>,
    pub(crate) modules: BTreeMap<u64, u32>,
    /// Handle → module and kernel.
    pub(crate) functions: BTreeMap<u64, (u64, Registered)>,
    pub(crate) kernels: BTreeMap<String, Registered>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) calls: BTreeMap<&'static str, u64>,
    pub(crate) misuse: Vec<String>,
    /// A thread of the test captures a graph, in the mode "global".
    pub(crate) capturing: bool,
    /// Captured streams.
    pub(crate) captured: BTreeSet<u64>,
    /// The flags of the latest batch of copies.
    pub(crate) batch_flags: u32,
    /// Threads that have registered host memory.
    pub(crate) registering: Vec<ThreadId>,
    /// Steps that may still be taken; `None` for no limit.
    pub(crate) steps: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) executed: u64,
    /// The number of resets.
    pub(crate) epoch: u64,
    next_handle: u64,
}

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`, handles of default streams.
pub(crate) const LEGACY: u64 = 1;
pub(crate) const PER_THREAD: u64 = 2;

static WORLD: Mutex<World> = Mutex::new(World::new());
static PROGRESS: Condvar = Condvar::new();

thread_local! {
    static CONTEXTS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(0) };
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`, the last of the modes.
pub(crate) const RELAXED: u32 = 2;

/// Sets the calling thread's mode of capture, and returns the previous mode.
pub(crate) fn capture_mode(mode: u32) -> u32 {
    CAPTURE_MODE.replace(mode)
}

/// Whether a thread may make this call in any mode while another thread captures: calls that queue work
/// in streams, and calls about the thread itself.
fn is_safe(name: &str, need: Need) -> bool {
    const QUEUED: [&str; 6] =
        ["cuMemcpy", "cuMemset", "cuLaunch", "cuEventRecord", "cuStreamWaitEvent", "cuStreamWriteValue"];
    match need {
        Need::Nothing => true,
        Need::Init => !name.starts_with("cuDevicePrimaryCtx"),
        Need::Context => {
            name == "cuStreamIsCapturing" || QUEUED.iter().any(|queued| name.starts_with(queued))
        }
    }
}

pub(crate) fn lock() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the state has changed.
pub(crate) fn wait(world: MutexGuard<'static, World>) -> MutexGuard<'static, World> {
    PROGRESS.wait(world).unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn changed() {
    PROGRESS.notify_all();
}

/// The calling thread's stack of contexts.
pub(crate) fn contexts<R>(act: impl FnOnce(&mut Vec<u64>) -> R) -> R {
    CONTEXTS.with_borrow_mut(act)
}

/// Runs a caller's function; meanwhile the thread must not call the driver.
pub(crate) fn as_host_function(run: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    run();
    IN_HOST_FUNCTION.set(false);
}

/// The requirement of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: allowed before `cuInit`.
    Nothing,
    /// `cuInit`.
    Init,
    /// A context that is current, live and not broken.
    Context,
}

/// Makes one call of libcuda. `act` receives the device of the current context (0 if none is needed).
pub(crate) fn call(name: &'static str, need: Need, act: impl FnOnce(&mut World, u32) -> Answer) -> c_int {
    let mut world = lock();
    let answer = world.admit(name, need).and_then(|device| act(&mut world, device));
    drop(world);
    changed();
    answer.err().unwrap_or(0)
}

impl World {
    const fn new() -> World {
        World {
            settings: Settings::new(),
            initialised: false,
            devices: Vec::new(),
            memory: Memory::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            kernels: BTreeMap::new(),
            faults: Vec::new(),
            calls: BTreeMap::new(),
            misuse: Vec::new(),
            capturing: false,
            captured: BTreeSet::new(),
            batch_flags: 0,
            registering: Vec::new(),
            steps: None,
            seed: 0,
            executed: 0,
            epoch: 0,
            next_handle: 0x1000,
        }
    }

    /// Makes a new machine. Calls that wait for the old one learn that their context is gone.
    pub(crate) fn reset(&mut self) {
        let (epoch, next_handle) = (self.epoch + 1, self.next_handle);
        *self = World { epoch, next_handle, ..World::new() };
    }

    pub(crate) fn left(&self) -> Leftovers {
        Leftovers {
            contexts: self.devices.iter().map(|device| u64::from(device.retained)).sum(),
            allocations: self.memory.allocations.len() as u64,
            registrations: self.memory.registered.len() as u64,
            imports: self.memory.imports.len() as u64,
            streams: self.streams.keys().filter(|handle| **handle > PER_THREAD).count() as u64,
            events: self.events.values().filter(|event| !event.destroyed).count() as u64,
            modules: self.modules.len() as u64,
        }
    }

    pub(crate) fn handle(&mut self) -> u64 {
        self.next_handle += 16;
        self.next_handle
    }

    pub(crate) fn misused(&mut self, what: String) {
        self.misuse.push(what);
    }

    /// Counts misuse, and refuses with `code`.
    pub(crate) fn refuse<T>(&mut self, code: i32, what: String) -> Result<T, i32> {
        self.misused(what);
        Err(code)
    }

    pub(crate) fn admit(&mut self, name: &'static str, need: Need) -> Result<u32, i32> {
        *self.calls.entry(name).or_default() += 1;
        if IN_HOST_FUNCTION.get() {
            return self.refuse(code::NOT_PERMITTED, format!("{name} from within a host function"));
        }
        if need != Need::Nothing && !self.initialised {
            return Err(code::NOT_INITIALIZED);
        }
        if self.capturing && CAPTURE_MODE.get() != RELAXED && !is_safe(name, need) {
            return self.refuse(code::CAPTURE_UNSUPPORTED, format!("{name} broke another thread's capture"));
        }
        let device = match need {
            Need::Context => self.current(name)?,
            _ => 0,
        };
        if let Some((code, sticky)) = self.fault(name) {
            if sticky {
                self.break_device(device, code);
            }
            return Err(code);
        }
        match self.devices.get(device as usize).and_then(|device| device.broken) {
            Some(code) if need == Need::Context => Err(code),
            _ => Ok(device),
        }
    }

    /// Returns the device of the thread's context.
    fn current(&mut self, name: &str) -> Result<u32, i32> {
        let top = contexts(|stack| stack.last().copied());
        let device = top.and_then(|top| self.device_of(top));
        match device {
            Some(device) => Ok(device),
            None => self.refuse(code::INVALID_CONTEXT, format!("{name} with no context current")),
        }
    }

    pub(crate) fn device_of(&self, context: u64) -> Option<u32> {
        let at =
            self.devices.iter().position(|device| device.retained > 0 && device.context == Some(context));
        at.map(|at| at as u32)
    }

    fn fault(&mut self, name: &str) -> Option<(i32, bool)> {
        let mut found = None;
        self.faults.retain_mut(|fault| {
            if fault.name != name || found.is_some() {
                return true;
            }
            fault.nth -= 1;
            if fault.nth > 0 {
                return true;
            }
            found = Some((fault.code, fault.sticky));
            false
        });
        found
    }

    /// A sticky error: queued operations never happen, and from now on every call of the context answers
    /// with it.
    pub(crate) fn break_device(&mut self, device: u32, code: i32) {
        if let Some(device) = self.devices.get_mut(device as usize) {
            device.broken.get_or_insert(code);
        }
        for stream in self.streams.values_mut().filter(|stream| stream.device == device) {
            stream.queue = VecDeque::new();
        }
    }
}
