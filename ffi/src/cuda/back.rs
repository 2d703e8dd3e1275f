//! Objects that go back to the driver: at once, later, or never.
//!
//! ```text
//!   drop ─► give back ─┬─ taken
//!                      ├─ refused for now (the engine captures) ─► deferred: the next caller tries again
//!                      └─ refused, or the device is dead ─► leaked and counted, with all that it holds
//! ```
//!
//! Invariants
//! - I1: a thing is in one place, and the objects that it holds live until the driver has taken it back:
//!   an arena stays mapped as long as it is registered.
//! - I2: no lock is held while the driver is called or owners are dropped.

use super::sys::{Api, CUevent, CUmodule, CUstream, Code};
use core::any::Any;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A driver object that this crate has made.
pub(super) enum Thing {
    Memory(u64),
    Import(u64),
    Registration(*mut c_void),
    Stream(CUstream),
    Event(CUevent),
    Module(CUmodule),
}

// SAFETY: any thread may give it back (the driver is thread-safe); no pointer is followed here.
unsafe impl Send for Thing {}

impl Thing {
    pub(super) fn operation(&self) -> &'static str {
        match self {
            Thing::Memory(_) => "cuMemFree",
            Thing::Import(_) => "cuIpcCloseMemHandle",
            Thing::Registration(_) => "cuMemHostUnregister",
            Thing::Stream(_) => "cuStreamDestroy",
            Thing::Event(_) => "cuEventDestroy",
            Thing::Module(_) => "cuModuleUnload",
        }
    }

    /// # Safety
    /// As for `CudaDevice::give_back`, with the context bound.
    pub(super) unsafe fn call(&self, api: &Api) -> Code {
        match *self {
            // SAFETY: the caller's promise, here and below.
            Thing::Memory(address) => unsafe { (api.cuMemFree_v2)(address) },
            // SAFETY: as above.
            Thing::Import(address) => unsafe { (api.cuIpcCloseMemHandle)(address) },
            // SAFETY: as above.
            Thing::Registration(pointer) => unsafe { (api.cuMemHostUnregister)(pointer) },
            // SAFETY: as above.
            Thing::Stream(stream) => unsafe { (api.cuStreamDestroy_v2)(stream) },
            // SAFETY: as above.
            Thing::Event(event) => unsafe { (api.cuEventDestroy_v2)(event) },
            // SAFETY: as above.
            Thing::Module(module) => unsafe { (api.cuModuleUnload)(module) },
        }
    }
}

/// A thing on its way back, its bytes, and the objects that must outlive it.
pub(super) struct Return {
    pub(super) thing: Thing,
    pub(super) bytes: u64,
    pub(super) holds: Option<Arc<dyn Any + Send + Sync>>,
}

/// Things that the device will take back later.
#[derive(Default)]
pub(super) struct Deferred {
    some: AtomicBool,
    list: Mutex<Vec<Return>>,
}

impl Deferred {
    fn lock(&self) -> MutexGuard<'_, Vec<Return>> {
        // Nothing panics under the lock.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a thing that was refused for now.
    pub(super) fn push(&self, back: Return) {
        self.lock().push(back);
        // Relaxed, here and below: a hint; a caller that does not see it yet leaves the list to the
        // next caller.
        self.some.store(true, Relaxed);
    }

    /// Takes all deferred things, if the hint says that there are some. Otherwise it costs one load.
    pub(super) fn take_some(&self) -> Vec<Return> {
        if !self.some.load(Relaxed) {
            return Vec::new();
        }
        self.some.store(false, Relaxed);
        self.take_all()
    }

    /// Takes all deferred things.
    pub(super) fn take_all(&self) -> Vec<Return> {
        core::mem::take(&mut *self.lock())
    }
}
