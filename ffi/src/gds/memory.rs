//! Device memory that cuFile reaches: a foreign allocation, held while it is registered or in flight.
//!
//! ```text
//!   base                    offset          offset + bytes              base + size
//!   ├───────────────────────┼── DeviceRange ──┼─────────────────────────────┤
//!   └──────────────── GdsBuffer: registered as a whole ─────────────────────┘
//! ```
//!
//! Invariants
//! - I1: a range lies inside its buffer.
//! - I2: the owner is dropped after the buffer is deregistered, and the buffer is deregistered after its
//!   last range is gone.

use super::driver::{GdsDriver, refused};
use super::error::{GdsError, OutOfRange};
use core::any::Any;
use core::ffi::c_void;
use core::fmt;
use std::sync::Arc;

/// An allocation on a device, kept alive by its owner.
pub struct DeviceMemory {
    base: u64,
    bytes: usize,
    owner: Arc<dyn Any + Send + Sync>,
}

impl DeviceMemory {
    /// Describes `bytes` bytes at the device address `base`, which stay allocated at least until `owner`
    /// is dropped.
    ///
    /// # Safety
    /// The bytes are one allocation of CUDA's (`cuMemAlloc`, `cudaMalloc`) on the device of the
    /// [`GdsDriver`]. They live as long as `owner`, and no Rust reference reaches them: during a read,
    /// cuFile writes them at any time.
    pub unsafe fn new(base: u64, bytes: usize, owner: Arc<dyn Any + Send + Sync>) -> DeviceMemory {
        DeviceMemory { base, bytes, owner }
    }
}

/// Device memory known to cuFile. If it is registered, it is deregistered when its last range is gone.
pub struct GdsBuffer {
    memory: DeviceMemory,
    driver: Arc<GdsDriver>,
    registered: bool,
}

impl GdsBuffer {
    /// Registers the memory, so that drives write it without a copy on the device. It takes as many bytes
    /// of the window (BAR1, `nvidia-smi -q`) through which devices on the bus see each other; the window
    /// may be small.
    ///
    /// # Errors
    /// [`GdsError::BufferRefused`] or [`GdsError::Cuda`]; the memory's owner is dropped then.
    pub fn register(driver: &Arc<GdsDriver>, memory: DeviceMemory) -> Result<Arc<GdsBuffer>, GdsError> {
        let DeviceMemory { base, bytes, .. } = memory;
        let status = {
            let _entered = driver.enter().map_err(|code| GdsError::Cuda {
                operation: "cuCtxPushCurrent",
                device: driver.describe().device,
                code,
            })?;
            // SAFETY: the allocation is live and CUDA's (`DeviceMemory::new`), and its context is current.
            unsafe { (driver.api().buffer_register)(base as *const c_void, bytes, 0) }
        };
        match refused(status) {
            None => Ok(GdsBuffer::of(driver, memory, true)),
            Some(code) => Err(GdsError::BufferRefused { bytes, code }),
        }
    }

    /// Leaves the memory unregistered: cuFile then copies through its own buffers on the device.
    #[must_use]
    pub fn unregistered(driver: &Arc<GdsDriver>, memory: DeviceMemory) -> Arc<GdsBuffer> {
        GdsBuffer::of(driver, memory, false)
    }

    fn of(driver: &Arc<GdsDriver>, memory: DeviceMemory, registered: bool) -> Arc<GdsBuffer> {
        Arc::new(GdsBuffer { memory, driver: Arc::clone(driver), registered })
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.memory.bytes
    }

    /// Returns the driver of the buffer.
    #[must_use]
    pub fn driver(&self) -> &Arc<GdsDriver> {
        &self.driver
    }

    /// Returns a part of the buffer, for a volume. Offsets and lengths that are multiples of 4096 go
    /// direct; cuFile copies others through its own buffers.
    ///
    /// # Errors
    /// [`OutOfRange`].
    pub fn range(self: &Arc<Self>, offset: usize, bytes: usize) -> Result<DeviceRange, OutOfRange> {
        let limit = self.memory.bytes;
        match offset.checked_add(bytes) {
            Some(end) if end <= limit => Ok(DeviceRange { buffer: Arc::clone(self), offset, bytes }),
            _ => Err(OutOfRange { offset, bytes, limit }),
        }
    }
}

impl Drop for GdsBuffer {
    fn drop(&mut self) {
        if !self.registered {
            return;
        }
        let _entered = self.driver.enter();
        // SAFETY: registered once, at this address; no transfer is under way, since each holds the
        // buffer (I2).
        let _ = unsafe { (self.driver.api().buffer_deregister)(self.memory.base as *const c_void) };
    }
}

impl fmt::Debug for GdsBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GdsBuffer")
            .field("base", &format_args!("{:#x}", self.memory.base))
            .field("bytes", &self.memory.bytes)
            .field("registered", &self.registered)
            .field("owners", &Arc::strong_count(&self.memory.owner))
            .finish()
    }
}

/// Part of a [`GdsBuffer`]. A volume's request owns it until cuFile has answered for the last time.
#[derive(Debug)]
pub struct DeviceRange {
    buffer: Arc<GdsBuffer>,
    offset: usize,
    bytes: usize,
}

impl DeviceRange {
    /// Returns the length in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the start of the range in its buffer.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the range's buffer.
    #[must_use]
    pub fn buffer(&self) -> &Arc<GdsBuffer> {
        &self.buffer
    }

    /// Returns the device address of the first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.buffer.memory.base + self.offset as u64
    }

    /// Returns a share of a part of the range, for one call; `None` if the range has no such part. The
    /// range stays the owner: a share only holds the memory and serves the owner's request.
    pub(crate) fn share(&self, offset: usize, bytes: usize) -> Option<DeviceRange> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        inside.then(|| DeviceRange { buffer: Arc::clone(&self.buffer), offset: self.offset + offset, bytes })
    }

    pub(super) fn base(&self) -> *mut c_void {
        self.buffer.memory.base as *mut c_void
    }

    pub(super) fn driver(&self) -> &GdsDriver {
        &self.buffer.driver
    }
}
