//! One device and its primary context, which the engine's own CUDA calls use too.
//!
//! Invariants
//! - I1: the context is retained from `open` to the drop of the [`CudaDevice`]; whatever is made in it holds
//!   the device.
//! - I2: a call that needs the context is made with it on top of the calling thread's stack of contexts
//!   ([`bound`](CudaDevice::bound)), and in the relaxed mode of capture (`capture.rs`); the thread finds its
//!   stack and its mode as they were afterwards: an engine's threads have contexts of their own.
//! - I3: from the first sticky error on the device is quarantined: no call of ours reaches the driver but
//!   those that give a thread its stack and its mode back. Memory that the device may still write is neither
//!   freed nor unregistered nor unmapped, but leaked and counted ([`leaked`](CudaDevice::leaked)), and the
//!   context is not released.
//! - I4: a process has one `CudaDevice` a context, so that all of it knows of the quarantine.

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

/// Memory of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemoryInfo {
    /// Bytes that nobody has.
    pub free_bytes: u64,
    /// Bytes that there are.
    pub total_bytes: u64,
}

/// What a quarantined device keeps for ever.
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
    /// What the driver did not take back yet.
    deferred: Deferred,
    /// Other processes' memory that is open here, so that it is opened once.
    pub(super) imports: Imports,
}

// SAFETY: a context may be pushed and released from any thread (the driver is thread-safe); the pointer is never followed here.
unsafe impl Send for CudaDevice {}
// SAFETY: as above; what changes behind `&CudaDevice` is atomic.
unsafe impl Sync for CudaDevice {}

thread_local! {
    /// The context that the innermost `bound` of this thread has pushed.
    static BOUND: Cell<CUcontext> = const { Cell::new(null_mut()) };
}

impl CudaDevice {
    /// Opens the device of this ordinal, or shares it with whoever in the process has it open (I4). Retains its primary context, which
    /// costs device memory if nobody in the process has one yet.
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
            // SAFETY: retained above, one time more than the device that is open will release it.
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

    /// What the device is.
    #[must_use]
    pub fn describe(&self) -> &DeviceDescription {
        &self.description
    }

    /// CUDA's number of it.
    #[must_use]
    pub fn ordinal(&self) -> u32 {
        self.description.ordinal
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> &Arc<CudaDriver> {
        &self.driver
    }

    /// Memory free and in all, now.
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

    /// The error that the device is quarantined for, if it is.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        self.fault.get().copied()
    }

    /// What was left to the device for ever (I3).
    #[must_use]
    pub fn leaked(&self) -> Leaked {
        // Relaxed: counters.
        Leaked { things: self.leaked_things.load(Relaxed), bytes: self.leaked_bytes.load(Relaxed) }
    }

    /// Runs `act` with the context bound to this thread, so that the calls of ours in it find it bound, which costs them one
    /// comparison instead of four calls of the driver. `act` leaves the thread's stack of contexts as it finds it, and its mode of
    /// stream capture, which is "relaxed" meanwhile.
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
        // Set back before the context is taken off.
        let _relaxed = CaptureRelaxed::new(self.driver.api());
        Ok(act())
    }

    /// Where the context is bound and somebody else's code has run, which may have left another one: binds it again.
    pub(super) fn rebind(&self) {
        if BOUND.get() == self.context && self.alive().is_ok() {
            // SAFETY: the context is retained (I1). It takes the place of what is on top, or becomes the first.
            let answer = unsafe { (self.driver.api().cuCtxSetCurrent)(self.context) };
            // Refused, the calls to come are, and say so.
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

    /// One call of the driver with the context bound.
    pub(super) fn call(
        &self,
        operation: &'static str,
        call: impl FnOnce(&Api) -> Code,
    ) -> Result<(), CudaError> {
        let answer = self.bound(|| call(self.driver.api()))?;
        self.checked(operation, answer)
    }

    /// A call's answer, told apart; a sticky one quarantines the device.
    fn checked(&self, operation: &'static str, answer: Code) -> Result<(), CudaError> {
        let Err(fault) = check(operation, answer) else { return Ok(()) };
        if !fault.code.is_sticky() {
            return Err(CudaError::Refused { device: self.ordinal(), fault });
        }
        match self.fault.set(fault) {
            Ok(()) => Err(CudaError::Sticky { device: self.ordinal(), fault }),
            // Somebody else was first; theirs is kept.
            Err(_) => self.alive(),
        }
    }

    /// Counts what is left to the device for ever.
    pub(super) fn leak(&self, bytes: u64) {
        // Relaxed: counters.
        self.leaked_things.fetch_add(1, Relaxed);
        self.leaked_bytes.fetch_add(bytes, Relaxed);
    }

    /// Leaves to the device for ever what it may still use: it is never dropped.
    pub(super) fn keep(&self, what: Box<dyn Any + Send>, bytes: u64) {
        self.leak(bytes);
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// Whether many copies may go by one call.
    pub(super) fn batches(&self) -> bool {
        // Relaxed: a hint; who does not see it yet is refused once more.
        self.driver.batch().is_some() && !self.batch_refused.load(Relaxed)
    }

    /// The driver has the call, and this device does not.
    pub(super) fn refuse_batches(&self) {
        // Relaxed: as above.
        self.batch_refused.store(true, Relaxed);
    }
}

/// What goes back to the driver (`back.rs`).
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
            self.deferred.push(back);
        }
    }

    /// Tries again what was refused for now. Nothing to do, it costs one load.
    pub(super) fn settle(&self) {
        for back in self.deferred.take_some() {
            if let Some(back) = self.try_back(back) {
                self.deferred.push(back);
            }
        }
    }

    /// The last one: what is refused now is left for ever.
    fn settle_for_good(&self) {
        self.settle();
        self.deferred.take_all().into_iter().for_each(|back| self.forget(back));
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

/// What dead devices have, of all devices: theirs until the process ends (I3).
static KEPT: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());

/// Devices that are open (I4).
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

/// Takes the context off the thread's stack, also when `act` panics.
struct Unbind<'a> {
    device: &'a CudaDevice,
    outer: CUcontext,
}

impl Drop for Unbind<'_> {
    fn drop(&mut self) {
        BOUND.set(self.outer);
        let mut popped = null_mut();
        // SAFETY: `popped` is ours; the context on top is the one that we pushed (I2). It frees nothing and waits for nothing, hence
        // also when the device is quarantined.
        let _ = unsafe { (self.device.driver.api().cuCtxPopCurrent_v2)(&mut popped) };
    }
}
