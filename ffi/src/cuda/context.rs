//! One device and its primary context, which the engine's own CUDA calls use too.
//!
//! Invariants
//! - I1: the context is retained from `open` to the drop of the [`CudaDevice`]; every object made in it
//!   holds the device.
//! - I2: a call that needs the context is made with the context on top of the calling thread's stack of
//!   contexts ([`bound`](CudaDevice::bound)), and in the relaxed mode of capture (`capture.rs`). Afterwards
//!   the thread's stack and mode are as before: an engine's threads have contexts of their own.
//! - I3: from the first sticky error on, the device is quarantined: no call of ours reaches the driver,
//!   except those that restore a thread's stack and mode. Memory that the device may still write is not
//!   freed, unregistered or unmapped, but leaked and counted ([`leaked`](CudaDevice::leaked)), and the
//!   context is not released.
//! - I4: a process has one `CudaDevice` per context, so that the whole process knows of the quarantine.

use super::back::{Deferred, Return, Thing};
use super::capture::Relaxed as CaptureRelaxed;
use super::description::{DeviceDescription, describe};
use super::driver::CudaDriver;
use super::error::{CudaError, Fault, check};
use super::imports::Imports;
use super::sys::{Api, CUcontext, CUdevice, Code};
use core::any::Any;
use core::cell::Cell;
use core::fmt;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// The amount of a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemoryInfo {
    /// Free bytes.
    pub free_bytes: u64,
    /// All bytes.
    pub total_bytes: u64,
}

/// The objects that a quarantined device keeps for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leaked {
    /// Allocations, registrations, imports, streams, events, modules and transfers.
    pub things: u64,
    /// Bytes of device and host memory among them.
    pub bytes: u64,
}

/// A device, and its primary context.
pub struct CudaDevice {
    driver: Arc<CudaDriver>,
    device: CUdevice,
    context: CUcontext,
    description: DeviceDescription,
    fault: OnceLock<Fault>,
    leaked_things: AtomicU64,
    leaked_bytes: AtomicU64,
    batch_refused: AtomicBool,
    /// Objects that the driver did not take back yet.
    deferred: Deferred,
    /// Other processes' memory that is open here; each is opened once.
    pub(super) imports: Imports,
}

// SAFETY: a context may be pushed and released from any thread (the driver is thread-safe); the pointer
// is never followed here.
unsafe impl Send for CudaDevice {}
// SAFETY: as above; all that changes behind `&CudaDevice` is atomic or behind a lock.
unsafe impl Sync for CudaDevice {}

thread_local! {
    /// The context that this thread's innermost `bound` has pushed.
    static BOUND: Cell<CUcontext> = const { Cell::new(null_mut()) };
}

impl CudaDevice {
    /// Opens the device of this ordinal, or shares the `CudaDevice` that the process has open (I4).
    /// Retains the primary context, which costs device memory if the process has none yet.
    ///
    /// # Errors
    /// [`CudaError`]: there is no such device, or the driver refuses it.
    pub fn open(driver: &Arc<CudaDriver>, ordinal: u32) -> Result<Arc<CudaDevice>, CudaError> {
        let (device, description) = describe(driver.api(), driver.describe().devices, ordinal)?;
        let api = driver.api();
        let _relaxed = CaptureRelaxed::new(api);
        let mut context = null_mut();
        // SAFETY: `context` is ours, and `device` is the driver's.
        let answer = unsafe { (api.cuDevicePrimaryCtxRetain)(&mut context, device) };
        check("cuDevicePrimaryCtxRetain", answer)
            .map_err(|fault| CudaError::Refused { device: ordinal, fault })?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|device| device.strong_count() > 0);
        if let Some(device) = open.iter().filter_map(Weak::upgrade).find(|open| open.context == context) {
            // SAFETY: retained above, in addition to the retain that the open device will release.
            let _ = unsafe { (api.cuDevicePrimaryCtxRelease_v2)(device.device) };
            return Ok(device);
        }
        let opened = Arc::new(CudaDevice {
            driver: Arc::clone(driver),
            device,
            context,
            description,
            fault: OnceLock::new(),
            leaked_things: AtomicU64::new(0),
            leaked_bytes: AtomicU64::new(0),
            batch_refused: AtomicBool::new(false),
            deferred: Deferred::default(),
            imports: Imports::default(),
        });
        open.push(Arc::downgrade(&opened));
        Ok(opened)
    }

    /// Returns the device's properties.
    #[must_use]
    pub fn describe(&self) -> &DeviceDescription {
        &self.description
    }

    /// Returns CUDA's number of the device.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.description.ordinal
    }

    /// Returns the driver.
    #[must_use]
    pub fn driver(&self) -> &Arc<CudaDriver> {
        &self.driver
    }

    /// Returns the free and the total memory, now.
    ///
    /// # Errors
    /// [`CudaError`]: the driver refuses, or the device is quarantined.
    pub fn memory(&self) -> Result<DeviceMemoryInfo, CudaError> {
        let (mut free, mut total) = (0, 0);
        self.call("cuMemGetInfo", |api| {
            // SAFETY: both are ours.
            unsafe { (api.cuMemGetInfo_v2)(&mut free, &mut total) }
        })?;
        Ok(DeviceMemoryInfo { free_bytes: free as u64, total_bytes: total as u64 })
    }

    /// Returns the error for which the device is quarantined, if it is.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        self.fault.get().copied()
    }

    /// Returns the counts of objects that the device keeps for ever (I3).
    #[must_use]
    pub fn leaked(&self) -> Leaked {
        // Relaxed: counters.
        Leaked { things: self.leaked_things.load(Relaxed), bytes: self.leaked_bytes.load(Relaxed) }
    }

    /// Runs `act` with the context bound to this thread. Our calls inside `act` find it bound, so each
    /// costs one comparison instead of four driver calls. `act` must leave the thread's stack of contexts
    /// as it finds it, and also its mode of stream capture, which is "relaxed" meanwhile.
    ///
    /// # Errors
    /// [`CudaError`]: the driver refuses, or the device is quarantined; `act` has not run.
    pub fn bound<R>(&self, act: impl FnOnce() -> R) -> Result<R, CudaError> {
        self.alive()?;
        if BOUND.get() == self.context {
            return Ok(act());
        }
        // SAFETY: the context is retained (I1).
        let answer = unsafe { (self.driver.api().cuCtxPushCurrent_v2)(self.context) };
        self.checked("cuCtxPushCurrent", answer)?;
        let _unbind = Unbind { device: self, outer: BOUND.replace(self.context) };
        // The mode is restored before the context is popped.
        let _relaxed = CaptureRelaxed::new(self.driver.api());
        Ok(act())
    }

    /// Binds the context again after foreign code has run inside `bound`, because that code may have left
    /// another context.
    pub(super) fn rebind(&self) {
        if BOUND.get() == self.context && self.alive().is_ok() {
            // SAFETY: the context is retained (I1). It replaces the context on top, or becomes the first.
            let answer = unsafe { (self.driver.api().cuCtxSetCurrent)(self.context) };
            // If this is refused, the next calls are refused too, and report it.
            let _ = self.checked("cuCtxSetCurrent", answer);
        }
    }

    /// Refuses if the device is quarantined.
    pub(super) fn alive(&self) -> Result<(), CudaError> {
        match self.fault.get() {
            None => Ok(()),
            Some(fault) => Err(CudaError::Quarantined { device: self.ordinal(), fault: *fault }),
        }
    }

    /// Makes one driver call with the context bound.
    pub(super) fn call(
        &self,
        operation: &'static str,
        call: impl FnOnce(&Api) -> Code,
    ) -> Result<(), CudaError> {
        let answer = self.bound(|| call(self.driver.api()))?;
        self.checked(operation, answer)
    }

    /// Classifies a call's answer; a sticky answer quarantines the device.
    fn checked(&self, operation: &'static str, answer: Code) -> Result<(), CudaError> {
        let Err(fault) = check(operation, answer) else { return Ok(()) };
        if !fault.code.is_sticky() {
            return Err(CudaError::Refused { device: self.ordinal(), fault });
        }
        match self.fault.set(fault) {
            Ok(()) => Err(CudaError::Sticky { device: self.ordinal(), fault }),
            // Another thread was first; its fault is kept.
            Err(_) => self.alive(),
        }
    }

    /// Counts an object that the device keeps for ever.
    pub(super) fn leak(&self, bytes: u64) {
        // Relaxed: counters.
        self.leaked_things.fetch_add(1, Relaxed);
        self.leaked_bytes.fetch_add(bytes, Relaxed);
    }

    /// Gives the device, for ever, an object that it may still use: it is never dropped.
    pub(super) fn keep(&self, what: Box<dyn Any + Send>, bytes: u64) {
        self.leak(bytes);
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// Whether many copies may go by one call.
    pub(super) fn batches(&self) -> bool {
        // Relaxed: a hint; a caller that does not see it yet is refused once more.
        self.driver.batch().is_some() && !self.batch_refused.load(Relaxed)
    }

    /// Notes that the driver has the call and this device does not.
    pub(super) fn refuse_batches(&self) {
        // Relaxed: as above.
        self.batch_refused.store(true, Relaxed);
    }
}

/// Objects that go back to the driver (`back.rs`).
impl CudaDevice {
    /// Gives an object back to the driver. Its `holds` are dropped when the driver has taken it, or never.
    ///
    /// # Safety
    /// Made by us in this device's context, given back only here, and not used by anything in flight.
    pub(super) unsafe fn give_back(
        &self,
        thing: Thing,
        bytes: u64,
        holds: Option<Arc<dyn Any + Send + Sync>>,
    ) {
        self.settle();
        if let Some(back) = self.try_back(Return { thing, bytes, holds }) {
            self.deferred.push(back);
        }
    }

    /// Tries again to give back deferred objects. Without any, it costs one load.
    pub(super) fn settle(&self) {
        for back in self.deferred.take_some() {
            if let Some(back) = self.try_back(back) {
                self.deferred.push(back);
            }
        }
    }

    /// Tries for the last time: objects that are refused now are left for ever.
    fn settle_for_good(&self) {
        self.settle();
        self.deferred.take_all().into_iter().for_each(|back| self.forget(back));
    }

    /// Gives an object back. Returns it unchanged if the driver refused it for now.
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

/// The objects kept for dead devices, of all devices, until the process ends (I3).
static KEPT: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());

/// Open devices (I4).
static OPEN: Mutex<Vec<Weak<CudaDevice>>> = Mutex::new(Vec::new());

impl Drop for CudaDevice {
    fn drop(&mut self) {
        self.settle_for_good();
        if self.fault.get().is_none() {
            let _relaxed = CaptureRelaxed::new(self.driver.api());
            // SAFETY: retained once, released once (I1).
            let _ = unsafe { (self.driver.api().cuDevicePrimaryCtxRelease_v2)(self.device) };
        }
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDevice")
            .field("description", &self.description)
            .field("fault", &self.fault.get())
            .finish_non_exhaustive()
    }
}

/// Pops the context off the thread's stack, even if `act` panics.
struct Unbind<'a> {
    device: &'a CudaDevice,
    outer: CUcontext,
}

impl Drop for Unbind<'_> {
    fn drop(&mut self) {
        BOUND.set(self.outer);
        let mut popped = null_mut();
        // SAFETY: `popped` is ours; the context on top is the one that we pushed (I2). The call frees
        // nothing and waits for nothing, so it is made even if the device is quarantined.
        let _ = unsafe { (self.device.driver.api().cuCtxPopCurrent_v2)(&mut popped) };
    }
}
