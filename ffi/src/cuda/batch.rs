//! A batch: the memory that a transfer touches, and the pieces that it copies.
//!
//! A batch owns the memory that it touches: guards of arena blocks, ranges of device memory. After
//! submission it belongs to the transfer. It comes back when the device has answered, with all its
//! vectors, so the next batch needs no allocation.
//!
//! ```text
//!   held     [ device range ][ block guard ][ … ]         one region each, named by its RegionId
//!   pieces   region + offset ──► region + offset, bytes    checked when they are added
//!   rows     the same, `height` times at a pitch
//! ```
//!
//! Invariants
//! - I1: a piece or row lies inside its regions, which the batch holds. Its target is device memory or a
//!   block borrowed for writing.
//! - I2: pieces are copied in no particular order. Overlapping targets are the caller's mistake, and get
//!   bytes of either source.

use super::code::CudaCode;
use super::context::CudaDevice;
use super::copy::{Direction, Line, Rows};
use super::driver::BatchCall;
use super::error::CudaError;
use super::memory::DeviceRange;
use super::pinned::PinnedStorage;
use super::stream::CudaStream;
use super::sys::{
    CUmemLocation, CUmemLocationType, CUmemcpyAttributes, CUmemcpyFlags, CUmemcpySrcAccessOrder,
};
use crate::arena::{BlockRead, BlockWrite};
use core::any::Any;
use core::fmt;
use kvstrata_core::plan::{Family, Piece};
use std::sync::Arc;

/// A region of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionId(usize);

/// An owner that a batch holds.
pub enum Held {
    /// Device memory.
    Device(DeviceRange),
    /// A block of registered host memory, to be read.
    Read(BlockRead, Arc<PinnedStorage>),
    /// A block of registered host memory, to be written.
    Write(BlockWrite, Arc<PinnedStorage>),
    /// Any object that must live until the transfer ends.
    Other(Arc<dyn Any + Send + Sync>),
}

/// Pieces to be copied, and the owners of their memory.
#[derive(Default)]
pub struct Batch {
    held: Vec<Held>,
    /// Addresses and sizes, as the driver's own batch call takes them; `directions` has the direction of
    /// each piece.
    targets: Vec<u64>,
    sources: Vec<u64>,
    sizes: Vec<usize>,
    directions: Vec<Direction>,
    rows: Vec<Rows>,
    bytes: u64,
    /// The number of blocks whose device address differs from their host address. The call for many
    /// copies would take their host addresses for the device's (sgl-project/sglang#40232); the calls for
    /// single copies do not.
    unmapped: usize,
}

impl Batch {
    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Batch {
        Batch::default()
    }

    fn hold_region(&mut self, held: Held) -> RegionId {
        self.held.push(held);
        RegionId(self.held.len() - 1)
    }

    /// Adds device memory, to be read or written.
    pub fn device(&mut self, range: DeviceRange) -> RegionId {
        self.hold_region(Held::Device(range))
    }

    /// Adds a block to be read.
    ///
    /// # Errors
    /// [`CudaError::NotRegistered`] if the block belongs to another arena; the block is dropped then.
    pub fn read(&mut self, block: BlockRead, pinned: &Arc<PinnedStorage>) -> Result<RegionId, CudaError> {
        pinned.has_read(&block)?;
        self.unmapped += usize::from(!pinned.is_mapped());
        Ok(self.hold_region(Held::Read(block, Arc::clone(pinned))))
    }

    /// Adds a block to be written.
    ///
    /// # Errors
    /// [`CudaError::NotRegistered`] if the block belongs to another arena; the block is dropped then.
    pub fn write(&mut self, block: BlockWrite, pinned: &Arc<PinnedStorage>) -> Result<RegionId, CudaError> {
        pinned.has_write(&block)?;
        self.unmapped += usize::from(!pinned.is_mapped());
        Ok(self.hold_region(Held::Write(block, Arc::clone(pinned))))
    }

    /// Adds an object that must live until the device has answered.
    pub fn keep(&mut self, other: Arc<dyn Any + Send + Sync>) {
        self.held.push(Held::Other(other));
    }

    /// Returns the side and the address of a part of a region, if the region has `span` bytes there.
    fn place(
        &mut self,
        region: RegionId,
        offset: u64,
        span: u64,
        target: bool,
    ) -> Result<(bool, u64), CudaError> {
        let outside = |what, limit| Err(CudaError::OutOfRange { what, offset, bytes: span, limit });
        let (what, on_device, base, limit) = match self.held.get_mut(region.0) {
            Some(Held::Device(range)) => ("device memory", true, range.address(), range.size_bytes()),
            Some(Held::Write(block, _)) => {
                let base = block.io_pointer().as_ptr().expose_provenance() as u64;
                ("block", false, base, block.len() as u64)
            }
            Some(Held::Read(block, _)) if !target => {
                let base = block.io_pointer().as_ptr().expose_provenance() as u64;
                ("block", false, base, block.len() as u64)
            }
            Some(Held::Read(..)) => return outside("block, which is borrowed for reading", 0),
            Some(Held::Other(_)) | None => return outside("batch's regions", 0),
        };
        if offset > limit || span > limit - offset {
            return outside(what, limit);
        }
        Ok((on_device, base + offset))
    }

    /// Copies `bytes` from one region to another; at least one of the two is on the device.
    ///
    /// # Errors
    /// [`CudaError::OutOfRange`], also if both regions are host memory; [`CudaError::ZeroBytes`].
    pub fn copy(&mut self, from: (RegionId, u64), to: (RegionId, u64), bytes: u64) -> Result<(), CudaError> {
        if bytes == 0 {
            return Err(CudaError::ZeroBytes { what: "piece" });
        }
        let (source, target) =
            (self.place(from.0, from.1, bytes, false)?, self.place(to.0, to.1, bytes, true)?);
        self.directions.push(direction(source.0, target.0, from.1, bytes)?);
        self.sources.push(source.1);
        self.targets.push(target.1);
        self.sizes.push(bytes as usize);
        self.bytes += bytes;
        Ok(())
    }

    /// Copies `height` rows of `width` bytes, `from_pitch` and `to_pitch` bytes apart.
    ///
    /// # Errors
    /// [`CudaError::OutOfRange`], [`CudaError::ZeroBytes`], [`CudaError::Pitch`].
    pub fn copy_rows(
        &mut self,
        from: (RegionId, u64),
        to: (RegionId, u64),
        (width, height): (u64, u64),
        (from_pitch, to_pitch): (u64, u64),
    ) -> Result<(), CudaError> {
        if width == 0 || height == 0 {
            return Err(CudaError::ZeroBytes { what: "rows" });
        }
        let pitch = from_pitch.min(to_pitch);
        if pitch < width {
            return Err(CudaError::Pitch { width, pitch });
        }
        let span = |pitch: u64| pitch.saturating_mul(height - 1).saturating_add(width);
        let source = self.place(from.0, from.1, span(from_pitch), false)?;
        let target = self.place(to.0, to.1, span(to_pitch), true)?;
        let direction = direction(source.0, target.0, from.1, width)?;
        self.rows.push(Rows {
            direction,
            source: source.1,
            target: target.1,
            width,
            height,
            from_pitch,
            to_pitch,
        });
        self.bytes += width * height;
        Ok(())
    }

    /// Adds a piece of a plan.
    ///
    /// # Safety
    /// Both ends of the piece are memory of the direction's sides. The batch will hold that memory when
    /// it is submitted, and may reach it this way.
    pub(super) unsafe fn add_piece(&mut self, direction: Direction, Piece { src, dst, bytes }: Piece) {
        self.directions.push(direction);
        self.sources.push(src);
        self.targets.push(dst);
        self.sizes.push(bytes as usize);
        self.bytes += bytes;
    }

    /// Adds pieces of a plan that lie at equal distances, as one copy.
    ///
    /// # Safety
    /// As for [`add_piece`](Batch::add_piece), for all pieces and the bytes between them.
    pub(super) unsafe fn add_family(&mut self, direction: Direction, family: &Family) {
        let Family { first, count, src_stride, dst_stride } = *family;
        let (width, height) = (first.bytes, u64::from(count));
        let (from_pitch, to_pitch) = (src_stride, dst_stride);
        self.rows.push(Rows {
            direction,
            source: first.src,
            target: first.dst,
            width,
            height,
            from_pitch,
            to_pitch,
        });
        self.bytes += width * height;
    }

    /// Returns the present size of the batch.
    pub(super) fn mark(&self) -> Mark {
        Mark { held: self.held.len(), sizes: self.sizes.len(), rows: self.rows.len(), bytes: self.bytes }
    }

    /// Removes everything added since the mark.
    pub(super) fn rewind(&mut self, mark: &Mark) {
        self.held.truncate(mark.held);
        self.directions.truncate(mark.sizes);
        self.sources.truncate(mark.sizes);
        self.targets.truncate(mark.sizes);
        self.sizes.truncate(mark.sizes);
        self.rows.truncate(mark.rows);
        self.bytes = mark.bytes;
    }

    /// Returns the bytes to be copied.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of pieces to be copied. The rows of one call count as one piece.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.sizes.len() + self.rows.len()
    }

    /// Returns the owners that the batch holds.
    #[must_use]
    pub fn held(&self) -> &[Held] {
        &self.held
    }

    /// Empties the batch and returns the owners that it held, in the order in which they were added.
    pub fn release(&mut self) -> impl Iterator<Item = Held> + use<'_> {
        self.targets.clear();
        self.sources.clear();
        self.sizes.clear();
        self.directions.clear();
        self.rows.clear();
        (self.bytes, self.unmapped) = (0, 0);
        self.held.drain(..)
    }

    /// Checks that all device memory of the batch belongs to the device.
    pub(super) fn is_of(&self, device: &Arc<CudaDevice>) -> Result<(), CudaError> {
        for held in &self.held {
            if let Held::Device(range) = held
                && !Arc::ptr_eq(range.storage().device(), device)
            {
                let (found, wanted) = (range.storage().device().ordinal(), device.ordinal());
                return Err(CudaError::WrongDevice { what: "the memory", found, wanted });
            }
        }
        Ok(())
    }

    /// Returns the address of a part of a device region, for fills.
    pub(super) fn device_address(&mut self, at: (RegionId, u64), bytes: u64) -> Result<u64, CudaError> {
        match self.place(at.0, at.1, bytes, true)? {
            (true, address) => Ok(address),
            (false, _) => {
                Err(CudaError::OutOfRange { what: "device regions", offset: at.1, bytes, limit: 0 })
            }
        }
    }

    /// Returns the address of a part of any region as a kernel sees it.
    pub(super) fn kernel_address(
        &mut self,
        at: (RegionId, u64),
        bytes: u64,
        target: bool,
    ) -> Result<u64, CudaError> {
        let (on_device, address) = self.place(at.0, at.1, bytes, target)?;
        match self.held.get(at.0.0) {
            Some(Held::Read(_, pinned) | Held::Write(_, pinned)) if !on_device => {
                pinned.kernel_address(address)
            }
            _ => Ok(address),
        }
    }

    /// Queues every piece; if `singly`, by one call per piece. `issued` says whether anything was queued,
    /// even if a later piece is refused.
    ///
    /// # Safety
    /// The batch lives, and keeps what it holds, until the stream has answered.
    pub(super) unsafe fn issue(
        &mut self,
        stream: &CudaStream,
        singly: bool,
        issued: &mut bool,
    ) -> Result<(), CudaError> {
        if !singly && self.sizes.len() > 1 && self.unmapped == 0 && stream.device().batches() {
            // SAFETY: the caller's promise.
            match unsafe { self.issue_batch(stream) } {
                Ok(()) => *issued = true,
                Err(CudaError::Refused { fault, .. }) if fault.code == CudaCode::NOT_SUPPORTED => {
                    stream.device().refuse_batches();
                    // SAFETY: the caller's promise.
                    unsafe { self.issue_lines(stream, issued) }?;
                }
                Err(other) => {
                    // The manual does not say whether pieces before the refused one are queued.
                    *issued = true;
                    return Err(other);
                }
            }
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.issue_lines(stream, issued) }?;
        }
        for rows in &self.rows {
            // SAFETY: inside memory that the batch holds (I1), and it holds it until the stream has answered.
            unsafe { stream.copy_rows(rows) }?;
            *issued = true;
        }
        Ok(())
    }

    /// # Safety
    /// As for `issue`.
    unsafe fn issue_lines(&self, stream: &CudaStream, issued: &mut bool) -> Result<(), CudaError> {
        let pieces = self.targets.iter().zip(&self.sources).zip(&self.sizes).zip(&self.directions);
        for (((target, source), bytes), direction) in pieces {
            let line = Line { direction: *direction, target: *target, source: *source, bytes: *bytes };
            // SAFETY: inside memory that the batch holds (I1), and it holds it until the stream has answered.
            unsafe { stream.copy_line(line) }?;
            *issued = true;
        }
        Ok(())
    }

    /// # Safety
    /// As for `issue`.
    unsafe fn issue_batch(&mut self, stream: &CudaStream) -> Result<(), CudaError> {
        let mut attributes = attributes(&self.directions);
        let (mut start, mut failed) = (0, 0);
        let batch = stream.device().driver().batch();
        stream.device().call("cuMemcpyBatchAsync", |_| {
            let (targets, sources) = (self.targets.as_mut_ptr(), self.sources.as_mut_ptr());
            let (sizes, count) = (self.sizes.as_mut_ptr(), self.sizes.len());
            match batch {
                // SAFETY: the arrays have `count` targets, sources and sizes, and one attribute holds for
                // all from the first on. The memory is the batch's (I1) until the stream has answered.
                // The driver copies the arrays before it returns.
                Some(BatchCall::Plain(copy)) => unsafe {
                    copy(targets, sources, sizes, count, &mut attributes, &mut start, 1, stream.raw())
                },
                // SAFETY: as above; `failed` is ours.
                Some(BatchCall::Failing(copy)) => unsafe {
                    let failed = &mut failed;
                    copy(targets, sources, sizes, count, &mut attributes, &mut start, 1, failed, stream.raw())
                },
                None => CudaCode::NOT_SUPPORTED.number(),
            }
        })
    }
}

/// The size of a batch at a moment. Plans add nothing to [`Batch::unmapped`].
pub(super) struct Mark {
    held: usize,
    sizes: usize,
    rows: usize,
    bytes: u64,
}

/// Returns the attributes of a batch: its sources are read in stream order, not earlier. It has no
/// location hints; those are for managed memory.
///
/// Copies between host and device prefer the copy engine: from CUDA 13.1 on the default may take SMs from
/// the model. If a piece stays on the device the default applies, because there the copy engine is slower
/// (NVIDIA/nccl#2177). Pieces of both kinds come in any order and one attribute covers a run of pieces,
/// so mixed batches get the default.
fn attributes(directions: &[Direction]) -> CUmemcpyAttributes {
    let on_device = directions.contains(&Direction::DeviceToDevice);
    CUmemcpyAttributes {
        srcAccessOrder: CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        srcLocHint: NOWHERE,
        dstLocHint: NOWHERE,
        flags: if on_device { 0 } else { PREFER_OVERLAP_WITH_COMPUTE },
    }
}

const PREFER_OVERLAP_WITH_COMPUTE: u32 = CUmemcpyFlags::CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE as u32;
const NOWHERE: CUmemLocation =
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID, id: 0 };

fn direction(
    source_on_device: bool,
    target_on_device: bool,
    offset: u64,
    bytes: u64,
) -> Result<Direction, CudaError> {
    match (source_on_device, target_on_device) {
        (false, true) => Ok(Direction::HostToDevice),
        (true, false) => Ok(Direction::DeviceToHost),
        (true, true) => Ok(Direction::DeviceToDevice),
        (false, false) => Err(CudaError::OutOfRange { what: "device regions", offset, bytes, limit: 0 }),
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Held::Device(range) => range.fmt(f),
            Held::Read(block, _) => write!(f, "block {} to be read", block.block()),
            Held::Write(block, _) => write!(f, "block {} to be written", block.block()),
            Held::Other(_) => f.write_str("something kept"),
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({} pieces of {} bytes in all, {:?})", self.pieces(), self.bytes, self.held)
    }
}
