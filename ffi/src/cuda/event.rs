//! Events without timing, from a bounded pool: created once, used over and over.
//!
//! Invariants
//! - I1: an event is in the pool only if none of the work that it was recorded behind is under way. A
//!   caller that takes an event either sees it happen and gives it back, or leaks it.

use super::back::Thing;
use super::code::CudaCode;
use super::context::CudaDevice;
use super::error::CudaError;
use super::stream::CudaStream;
use super::sys::CUevent;
use core::fmt;
use core::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// `CU_EVENT_BLOCKING_SYNC`: a waiting thread sleeps.
const BLOCKING_SYNC: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;

/// A mark in a stream.
pub struct CudaEvent {
    device: Arc<CudaDevice>,
    event: CUevent,
}

// SAFETY: an event may be used from any thread (the driver is thread-safe); the pointer is never
// followed here.
unsafe impl Send for CudaEvent {}
// SAFETY: as above; nothing changes behind `&CudaEvent`.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// Creates an event. It counts as happened until it is recorded.
    ///
    /// # Errors
    /// [`CudaError`]: the driver refuses.
    pub fn new(device: &Arc<CudaDevice>) -> Result<CudaEvent, CudaError> {
        let mut event = null_mut();
        device.call("cuEventCreate", |api| {
            // SAFETY: `event` is ours.
            unsafe { (api.cuEventCreate)(&mut event, BLOCKING_SYNC | DISABLE_TIMING) }
        })?;
        Ok(CudaEvent { device: Arc::clone(device), event })
    }

    /// Records the event: it happens when all work that is now in the stream has been executed.
    ///
    /// # Errors
    /// [`CudaError`]: the driver refuses.
    pub fn record(&self, stream: &CudaStream) -> Result<(), CudaError> {
        self.device.call("cuEventRecord", |api| {
            // SAFETY: both are live; the driver checks that they are of one context.
            unsafe { (api.cuEventRecord)(self.event, stream.raw()) }
        })
    }

    /// Whether the event has happened. Does not wait.
    ///
    /// # Errors
    /// [`CudaError`]: the work that it was recorded behind has failed, or the driver refuses.
    pub fn has_happened(&self) -> Result<bool, CudaError> {
        let asked = self.device.call("cuEventQuery", |api| {
            // SAFETY: the event is live.
            unsafe { (api.cuEventQuery)(self.event) }
        });
        match asked {
            Ok(()) => Ok(true),
            Err(CudaError::Refused { fault, .. }) if fault.code == CudaCode::NOT_READY => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Blocks the thread until the event has happened. For threads with no other task.
    ///
    /// # Errors
    /// [`CudaError`]: the work that it was recorded behind has failed, or the driver refuses.
    pub fn wait(&self) -> Result<(), CudaError> {
        self.device.call("cuEventSynchronize", |api| {
            // SAFETY: the event is live.
            unsafe { (api.cuEventSynchronize)(self.event) }
        })
    }

    pub(super) fn raw(&self) -> CUevent {
        self.event
    }

    /// Leaves the event to a device that may still signal it.
    pub(super) fn leak(self) {
        let device = Arc::clone(&self.device);
        device.keep(Box::new(self), 0);
    }
}

impl CudaStream {
    /// Makes all work queued from now on wait for the work that the event was recorded behind.
    ///
    /// # Errors
    /// [`CudaError`]: the driver refuses.
    pub fn wait_for(&self, event: &CudaEvent) -> Result<(), CudaError> {
        self.device().call("cuStreamWaitEvent", |api| {
            // SAFETY: both are live, and the driver checks their contexts.
            unsafe { (api.cuStreamWaitEvent)(self.raw(), event.raw(), 0) }
        })
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // SAFETY: made by us and destroyed once; the driver releases it when it has happened.
        unsafe { self.device.give_back(Thing::Event(self.event), 0, None) };
    }
}

impl fmt::Debug for CudaEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaEvent(of device:{})", self.device.ordinal())
    }
}

/// Events that are created when first needed, and used again.
#[derive(Debug)]
pub struct EventPool {
    device: Arc<CudaDevice>,
    state: Mutex<State>,
    limit: usize,
}

#[derive(Debug)]
struct State {
    idle: Vec<CudaEvent>,
    /// Existing events, idle or taken.
    made: usize,
}

impl EventPool {
    /// Creates a pool of at most `limit` events.
    #[must_use]
    pub fn new(device: &Arc<CudaDevice>, limit: usize) -> EventPool {
        let state = Mutex::new(State { idle: Vec::with_capacity(limit), made: 0 });
        EventPool { device: Arc::clone(device), state, limit }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an event, an idle one if there is one.
    ///
    /// # Errors
    /// [`CudaError::Full`] if all are taken; or the driver refuses to create one.
    pub fn take(&self) -> Result<CudaEvent, CudaError> {
        let mut state = self.lock();
        if let Some(event) = state.idle.pop() {
            return Ok(event);
        }
        if state.made == self.limit {
            return Err(CudaError::Full { what: "events", limit: self.limit });
        }
        let event = CudaEvent::new(&self.device)?;
        state.made += 1;
        Ok(event)
    }

    /// Takes back an event that has happened, or was not recorded (I1).
    pub fn give(&self, event: CudaEvent) {
        self.lock().idle.push(event);
    }

    /// Forgets an event that will never happen, so that another can be created.
    pub(super) fn leak(&self, event: CudaEvent) {
        event.leak();
        self.lock().made -= 1;
    }

    /// Returns the number of existing events, idle or taken.
    #[must_use]
    pub fn made(&self) -> usize {
        self.lock().made
    }
}
