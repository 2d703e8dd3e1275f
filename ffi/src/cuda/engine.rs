//! Order between the engine's own streams and events and ours. The waits are queued, and only the
//! device waits.
//!
//! ```text
//!   engine's stream   ── kernels write KV ─●───────────────────────◄── kernels read KV ──
//!                                          │ wait_for_stream        │ hold_stream
//!   queue's stream    ─────────────────────►── copies ──────────────●─────────────────────
//! ```
//!
//! One event of the queue carries every mark: a waiting stream waits for the mark that the event had at
//! the call, and the event may be recorded again. So after the first mark nothing is created or
//! allocated. Events of other processes (IPC) are not opened here.
//!
//! Invariants
//! - I1: a mark is recorded and waited for under its lock, so no other mark is recorded in between.

use super::context::CudaDevice;
use super::error::CudaError;
use super::event::CudaEvent;
use super::queue::TransferQueue;
use super::sys::{CUevent, CUstream};
use core::any::Any;
use core::ffi::c_void;
use core::fmt;
use std::sync::{Arc, PoisonError};

/// A foreign stream: a `CUstream` or, equally, a `cudaStream_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineStream(*mut c_void);

// SAFETY: a stream may be used from any thread (the driver is thread-safe); the pointer is never
// followed here.
unsafe impl Send for EngineStream {}
// SAFETY: as above.
unsafe impl Sync for EngineStream {}

impl EngineStream {
    /// The default stream, as a null handle denotes it: the legacy one.
    pub const NULL: EngineStream = EngineStream(core::ptr::null_mut());
    /// `CU_STREAM_LEGACY`: waits for all blocking streams of the device, and they for it.
    pub const LEGACY: EngineStream = EngineStream(core::ptr::without_provenance_mut(1));
    /// `CU_STREAM_PER_THREAD`: the calling thread's own default stream.
    pub const PER_THREAD: EngineStream = EngineStream(core::ptr::without_provenance_mut(2));

    /// Wraps the engine's handle of a stream.
    #[must_use]
    pub fn of(handle: *mut c_void) -> EngineStream {
        EngineStream(handle)
    }

    fn raw(self) -> CUstream {
        self.0.cast()
    }
}

/// A stream that its owner has lent. The lender has promised its lifetime, so callers order with it
/// without unsafe code.
#[derive(Clone)]
pub struct LentStream {
    device: Arc<CudaDevice>,
    stream: EngineStream,
    _owner: Arc<dyn Any + Send + Sync>,
}

impl LentStream {
    /// Takes a foreign stream that lives at least until `owner` is dropped.
    ///
    /// # Safety
    /// The stream belongs to the device and lives as long as `owner`. It is not
    /// [`PER_THREAD`](EngineStream::PER_THREAD), which is a different stream for each calling thread. No
    /// capture of it begins during a call that orders with it; a capture that has begun is detected.
    pub unsafe fn lend(
        device: &Arc<CudaDevice>,
        stream: EngineStream,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> LentStream {
        LentStream { device: Arc::clone(device), stream, _owner: owner }
    }

    /// Returns the stream, if it belongs to the queue's device.
    fn of(&self, queue: &TransferQueue) -> Result<EngineStream, CudaError> {
        let (found, wanted) = (&self.device, queue.device());
        if Arc::ptr_eq(found, wanted) {
            return Ok(self.stream);
        }
        let (found, wanted) = (found.ordinal(), wanted.ordinal());
        Err(CudaError::WrongDevice { what: "the stream", found, wanted })
    }
}

impl fmt::Debug for LentStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LentStream({:?}, of device:{})", self.stream.0, self.device.ordinal())
    }
}

/// A foreign event: a `CUevent` or, equally, a `cudaEvent_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineEvent(*mut c_void);

// SAFETY: as for streams.
unsafe impl Send for EngineEvent {}
// SAFETY: as above.
unsafe impl Sync for EngineEvent {}

impl EngineEvent {
    /// Wraps the engine's handle of an event.
    #[must_use]
    pub fn of(handle: *mut c_void) -> EngineEvent {
        EngineEvent(handle)
    }

    fn raw(self) -> CUevent {
        self.0.cast()
    }
}

/// `CU_STREAM_CAPTURE_STATUS_NONE`.
const NOT_CAPTURED: u32 = 0;

impl TransferQueue {
    /// Makes all work that is queued here from now on wait for the work that the engine's stream has
    /// queued so far.
    ///
    /// # Errors
    /// [`CudaError::Capturing`]; or the driver refuses, because the stream belongs to another device.
    ///
    /// # Safety
    /// The stream is live, belongs to this queue's device, and no capture of it begins during the call.
    pub unsafe fn wait_for_stream(&self, stream: EngineStream) -> Result<(), CudaError> {
        self.mark(|device, event| {
            is_not_captured(device, stream)?;
            // SAFETY: both are live.
            unsafe { record(device, event.raw(), stream.raw()) }?;
            self.stream().wait_for(event)
        })
    }

    /// Makes all work that the engine's stream queues from now on wait for the work that is queued here
    /// so far.
    ///
    /// # Errors
    /// As for [`wait_for_stream`](TransferQueue::wait_for_stream).
    ///
    /// # Safety
    /// As for [`wait_for_stream`](TransferQueue::wait_for_stream).
    pub unsafe fn hold_stream(&self, stream: EngineStream) -> Result<(), CudaError> {
        self.mark(|device, event| {
            is_not_captured(device, stream)?;
            event.record(self.stream())?;
            // SAFETY: both are live.
            unsafe { wait(device, stream.raw(), event.raw()) }
        })
    }

    /// [`wait_for_stream`](TransferQueue::wait_for_stream) for a stream that was lent.
    ///
    /// # Errors
    /// As there, and [`CudaError::WrongDevice`].
    pub fn wait_for_lent(&self, stream: &LentStream) -> Result<(), CudaError> {
        let stream = stream.of(self)?;
        // SAFETY: the lender has promised it in `lend`.
        unsafe { self.wait_for_stream(stream) }
    }

    /// [`hold_stream`](TransferQueue::hold_stream) for a stream that was lent.
    ///
    /// # Errors
    /// As there, and [`CudaError::WrongDevice`].
    pub fn hold_lent(&self, stream: &LentStream) -> Result<(), CudaError> {
        let stream = stream.of(self)?;
        // SAFETY: as above.
        unsafe { self.hold_stream(stream) }
    }

    /// Makes all work that is queued here from now on wait for the event's last recording; if it was
    /// never recorded, for nothing.
    ///
    /// # Errors
    /// The driver refuses.
    ///
    /// # Safety
    /// The event is live, and was not recorded in a captured stream.
    pub unsafe fn wait_for_event(&self, event: EngineEvent) -> Result<(), CudaError> {
        // SAFETY: both are live.
        self.mark(|device, _| unsafe { wait(device, self.stream().raw(), event.raw()) })
    }

    /// Runs `act` with exclusive use of the queue's mark (I1).
    fn mark(
        &self,
        act: impl FnOnce(&CudaDevice, &CudaEvent) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let shared = self.shared();
        let device = shared.device();
        let mut mark = shared.mark.lock().unwrap_or_else(PoisonError::into_inner);
        if mark.is_none() {
            *mark = Some(CudaEvent::new(device)?);
        }
        match &*mark {
            // The context is bound once for all calls of `act`.
            Some(event) => device.bound(|| act(device, event))?,
            None => Ok(()),
        }
    }
}

/// Refuses a captured stream: its mark would take our stream into the graph, and our mark would break
/// the capture.
fn is_not_captured(device: &CudaDevice, stream: EngineStream) -> Result<(), CudaError> {
    let mut status = NOT_CAPTURED;
    let asked = device.call("cuStreamIsCapturing", |api| match api.cuStreamIsCapturing {
        // SAFETY: the stream is live (the callers' promise); `status` is ours.
        Some(ask) => unsafe { ask(stream.raw(), &mut status) },
        None => 0,
    });
    match asked {
        Ok(()) if status == NOT_CAPTURED => Ok(()),
        Ok(()) => Err(CudaError::Capturing),
        // The default stream answers this while a stream that it waits for is captured.
        Err(CudaError::Refused { fault, .. }) if fault.code.is_capture() => Err(CudaError::Capturing),
        Err(other) => Err(other),
    }
}

/// # Safety
/// Both are live.
unsafe fn record(device: &CudaDevice, event: CUevent, stream: CUstream) -> Result<(), CudaError> {
    // SAFETY: the caller's promise; the driver checks that they are of one context.
    device.call("cuEventRecord", |api| unsafe { (api.cuEventRecord)(event, stream) })
}

/// # Safety
/// Both are live.
unsafe fn wait(device: &CudaDevice, stream: CUstream, event: CUevent) -> Result<(), CudaError> {
    // SAFETY: the caller's promise.
    device.call("cuStreamWaitEvent", |api| unsafe { (api.cuStreamWaitEvent)(stream, event, 0) })
}
