//! Streams by purpose. Each has its own order of work; none waits for the legacy default stream.
//!
//! The priority concerns kernels only: of pending kernels, the one with the greater priority goes first.
//! Copies between host and device have no priority (`cuStreamCreateWithPriority`, notes): the copy
//! engines execute them in the order in which they become ready.

use super::back::Thing;
use super::context::CudaDevice;
use super::error::CudaError;
use super::sys::CUstream;
use core::ffi::c_void;
use core::fmt;
use core::ptr::null_mut;
use std::sync::Arc;

/// The purpose of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Copies away from the device. No request waits for them: their kernels have the least priority.
    Offload,
    /// Copies towards the device. A request waits for them: their kernels have the greatest priority.
    Onboard,
    /// Copies between the disk's buffers and the device: priority in the middle.
    Staging,
}

impl Purpose {
    /// Returns the priority in the device's range. The least priority is the larger number.
    fn priority(self, least: i32, greatest: i32) -> i32 {
        match self {
            Purpose::Offload => least,
            Purpose::Onboard => greatest,
            Purpose::Staging => i32::midpoint(least, greatest),
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Purpose::Offload => "offload",
            Purpose::Onboard => "onboard",
            Purpose::Staging => "staging",
        })
    }
}

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

/// A stream. Work that is queued when it is dropped is still executed.
pub struct CudaStream {
    device: Arc<CudaDevice>,
    stream: CUstream,
    purpose: Purpose,
}

// SAFETY: a stream may be used from any thread (the driver is thread-safe); the pointer is never
// followed here.
unsafe impl Send for CudaStream {}
// SAFETY: as above; nothing changes behind `&CudaStream`.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    /// Creates a stream of the device.
    ///
    /// # Errors
    /// [`CudaError`]: the driver refuses.
    pub fn new(device: &Arc<CudaDevice>, purpose: Purpose) -> Result<CudaStream, CudaError> {
        let (mut least, mut greatest) = (0, 0);
        device.call("cuCtxGetStreamPriorityRange", |api| {
            // SAFETY: both are ours.
            unsafe { (api.cuCtxGetStreamPriorityRange)(&mut least, &mut greatest) }
        })?;
        let mut stream = null_mut();
        device.call("cuStreamCreateWithPriority", |api| {
            // SAFETY: `stream` is ours.
            unsafe {
                (api.cuStreamCreateWithPriority)(&mut stream, NON_BLOCKING, purpose.priority(least, greatest))
            }
        })?;
        Ok(CudaStream { device: Arc::clone(device), stream, purpose })
    }

    /// Returns the stream's device.
    #[must_use]
    pub fn device(&self) -> &Arc<CudaDevice> {
        &self.device
    }

    /// Returns the stream's purpose.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    pub(super) fn raw(&self) -> CUstream {
        self.stream
    }

    /// Returns the driver's handle (`CUstream`, the runtime's `cudaStream_t`), for other libraries to
    /// queue in. It ends with the stream.
    #[must_use]
    pub fn handle(&self) -> *mut c_void {
        self.stream.cast()
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        // SAFETY: made by us and destroyed once; the driver releases it when its work is done.
        unsafe { self.device.give_back(Thing::Stream(self.stream), 0, None) };
    }
}

impl fmt::Debug for CudaStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaStream({} of device:{})", self.purpose, self.device.ordinal())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awaited_purpose_has_the_highest_priority() {
        let order = [Purpose::Onboard, Purpose::Staging, Purpose::Offload];
        assert_eq!(order.map(|purpose| purpose.priority(0, -5)), [-5, -2, 0]);
        assert_eq!(order.map(|purpose| purpose.priority(0, 0)), [0; 3], "a device without priorities");
    }
}
