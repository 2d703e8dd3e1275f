//! Single copies and fills, queued in a stream. [`Batch`](super::Batch) calls them for its pieces.

use super::error::CudaError;
use super::stream::CudaStream;
use super::sys::{CUDA_MEMCPY2D, CUmemorytype};
use core::ptr::{null, null_mut, with_exposed_provenance, with_exposed_provenance_mut};

/// The direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Onboard.
    HostToDevice,
    /// Offload.
    DeviceToHost,
    /// Within a device's memory.
    DeviceToDevice,
}

impl Direction {
    /// All directions.
    pub const ALL: [Direction; 3] =
        [Direction::HostToDevice, Direction::DeviceToHost, Direction::DeviceToDevice];

    /// Returns the direction's name in files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Direction::HostToDevice => "host to device",
            Direction::DeviceToHost => "device to host",
            Direction::DeviceToDevice => "device to device",
        }
    }
}

/// One piece. Its host addresses are registered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    pub(super) direction: Direction,
    pub(super) target: u64,
    pub(super) source: u64,
    pub(super) bytes: usize,
}

/// Rows of `width` bytes, one pitch apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    pub(super) direction: Direction,
    pub(super) target: u64,
    pub(super) source: u64,
    pub(super) width: u64,
    pub(super) height: u64,
    pub(super) from_pitch: u64,
    pub(super) to_pitch: u64,
}

impl CudaStream {
    /// Queues one piece.
    ///
    /// # Safety
    /// Source and target are memory of the direction's sides. Until the stream has answered, they live,
    /// and no other access conflicts. Host memory is registered.
    pub(super) unsafe fn copy_line(&self, line: Line) -> Result<(), CudaError> {
        let Line { direction, target, source, bytes } = line;
        match direction {
            Direction::HostToDevice => self.device().call("cuMemcpyHtoDAsync", |api| {
                // SAFETY: the caller's promise.
                unsafe {
                    (api.cuMemcpyHtoDAsync_v2)(
                        target,
                        with_exposed_provenance(source as usize),
                        bytes,
                        self.raw(),
                    )
                }
            }),
            Direction::DeviceToHost => self.device().call("cuMemcpyDtoHAsync", |api| {
                // SAFETY: the caller's promise.
                unsafe {
                    (api.cuMemcpyDtoHAsync_v2)(
                        with_exposed_provenance_mut(target as usize),
                        source,
                        bytes,
                        self.raw(),
                    )
                }
            }),
            Direction::DeviceToDevice => self.device().call("cuMemcpyDtoDAsync", |api| {
                // SAFETY: the caller's promise.
                unsafe { (api.cuMemcpyDtoDAsync_v2)(target, source, bytes, self.raw()) }
            }),
        }
    }

    /// Queues rows.
    ///
    /// # Safety
    /// As for `copy_line`, for each row.
    pub(super) unsafe fn copy_rows(&self, rows: &Rows) -> Result<(), CudaError> {
        let host = CUmemorytype::CU_MEMORYTYPE_HOST;
        let device = CUmemorytype::CU_MEMORYTYPE_DEVICE;
        let (from, to) = match rows.direction {
            Direction::HostToDevice => (host, device),
            Direction::DeviceToHost => (device, host),
            Direction::DeviceToDevice => (device, device),
        };
        let on =
            |kind: CUmemorytype, wanted: CUmemorytype, address: u64| if kind == wanted { address } else { 0 };
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: from,
            srcHost: match from == host {
                true => with_exposed_provenance(rows.source as usize),
                false => null(),
            },
            srcDevice: on(from, device, rows.source),
            srcArray: null_mut(),
            srcPitch: rows.from_pitch as usize,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: to,
            dstHost: match to == host {
                true => with_exposed_provenance_mut(rows.target as usize),
                false => null_mut(),
            },
            dstDevice: on(to, device, rows.target),
            dstArray: null_mut(),
            dstPitch: rows.to_pitch as usize,
            WidthInBytes: rows.width as usize,
            Height: rows.height as usize,
        };
        self.device().call("cuMemcpy2DAsync", |api| {
            // SAFETY: `copy` is ours, and the driver reads it before the call returns; the caller
            // promises the memory.
            unsafe { (api.cuMemcpy2DAsync_v2)(&copy, self.raw()) }
        })
    }

    /// Fills device memory.
    ///
    /// # Safety
    /// As for `copy_line`, for the target.
    pub(super) unsafe fn fill(&self, target: u64, bytes: u64, byte: u8) -> Result<(), CudaError> {
        self.device().call("cuMemsetD8Async", |api| {
            // SAFETY: the caller's promise.
            unsafe { (api.cuMemsetD8Async)(target, byte, bytes as usize, self.raw()) }
        })
    }
}
