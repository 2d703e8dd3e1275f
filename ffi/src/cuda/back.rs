//! What goes back to the driver: at once, later, or never.
//!
//! ```text
//!   drop ─► give back ─┬─ taken
//!                      ├─ refused for now (a capture of the engine's) ─► deferred: tried again by whoever comes next
//!                      └─ refused, or the device is dead ─► leaked and counted, with what it holds
//! ```
//!
//! Invariants
//! - I1: a thing is in one place, and what it holds lives until the driver has taken it back: an arena stays mapped as long as it is
//!   registered.
//! - I2: the driver is called, and owners are dropped, under no lock.

use super::context::CudaDevice;
use super::error::CudaError;
use super::sys::{Api, CUevent, CUmodule, CUstream, Code};
use core::any::Any;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Something of the driver's that we have made.
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
    fn operation(&self) -> &'static str {
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
    /// As for [`CudaDevice::give_back`], with the context bound.
    unsafe fn call(&self, api: &Api) -> Code {
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

/// A thing on its way back, its bytes, and what must outlive it.
struct Return {
    thing: Thing,
    bytes: u64,
    holds: Option<Arc<dyn Any + Send + Sync>>,
}

/// What a device is to be given back when it takes it.
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
}

impl CudaDevice {
    /// Gives something back to the driver; what it `holds` is dropped when the driver has taken it, or never.
    ///
    /// # Safety
    /// Made by us in this device's context, given back here alone, and nothing that is in flight uses it.
    pub(super) unsafe fn give_back(
        &self,
        thing: Thing,
        bytes: u64,
        holds: Option<Arc<dyn Any + Send + Sync>>,
    ) {
        self.settle();
        if let Some(back) = self.try_back(Return { thing, bytes, holds }) {
            self.deferred.lock().push(back);
            // Relaxed, here and below: a hint; who does not see it yet leaves the list to who comes next.
            self.deferred.some.store(true, Relaxed);
        }
    }

    /// Tries again what was refused for now. Nothing to do, it costs one load.
    pub(super) fn settle(&self) {
        if self.deferred.some.load(Relaxed) {
            self.deferred.some.store(false, Relaxed);
            let list = core::mem::take(&mut *self.deferred.lock());
            for back in list {
                if let Some(back) = self.try_back(back) {
                    self.deferred.lock().push(back);
                    self.deferred.some.store(true, Relaxed);
                }
            }
        }
    }

    /// The last one: what is refused now is left for ever.
    pub(super) fn settle_for_good(&self) {
        self.settle();
        let list = core::mem::take(&mut *self.deferred.lock());
        list.into_iter().for_each(|back| self.forget(back));
    }

    /// What was refused for now, as it was.
    fn try_back(&self, back: Return) -> Option<Return> {
        // SAFETY: the promise of `give_back`; the driver has not taken it yet, or it would not be here.
        match self.call(back.thing.operation(), |api| unsafe { back.thing.call(api) }) {
            Ok(()) => {}
            Err(CudaError::Refused { fault, .. }) if fault.code.is_passing() => return Some(back),
            Err(_) => self.forget(back),
        }
        None
    }

    fn forget(&self, back: Return) {
        match back.holds {
            Some(holds) => self.keep(Box::new(holds), back.bytes),
            None => self.leak(back.bytes),
        }
    }
}
