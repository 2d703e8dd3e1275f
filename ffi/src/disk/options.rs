//! What a volume is to be: path, size, backend.

use super::error::VolumeError;
use crate::arena::{BLOCK_ALIGN_BYTES, HostArena};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a volume moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// The first of the others that works.
    #[default]
    Auto,
    /// io_uring and O_DIRECT; an error where either is refused.
    UringDirect,
    /// io_uring through the page cache; an error where io_uring is refused.
    UringBuffered,
    /// pread and pwrite by a few threads; O_DIRECT where the file system takes it.
    Blocking,
}

impl core::fmt::Display for Backend {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Backend::Auto => "auto",
            Backend::UringDirect => "io_uring with O_DIRECT",
            Backend::UringBuffered => "io_uring, buffered",
            Backend::Blocking => "pread/pwrite threads",
        })
    }
}

/// Told how far writing through has come: bytes done, bytes in all.
pub type Progress = Box<dyn FnMut(u64, u64) + Send>;

/// Options of [`Volume::create`](super::Volume::create). Required ones in [`new`](VolumeOptions::new), the
/// rest as setters.
#[must_use]
pub struct VolumeOptions {
    pub(super) path: PathBuf,
    pub(super) slots: u32,
    pub(super) slot_bytes: usize,
    pub(super) backend: Backend,
    pub(super) header_bytes: u64,
    pub(super) depth: u32,
    pub(super) queue: usize,
    pub(super) piece_bytes: usize,
    pub(super) threads: usize,
    pub(super) overwrite: bool,
    pub(super) keep: bool,
    pub(super) write_through: bool,
    pub(super) progress: Option<Progress>,
    pub(super) arenas: Vec<Arc<HostArena>>,
}

impl VolumeOptions {
    /// A volume at `path` with `slots` slots of `slot_bytes` bytes.
    pub fn new(path: impl Into<PathBuf>, slots: u32, slot_bytes: usize) -> VolumeOptions {
        VolumeOptions {
            path: path.into(),
            slots,
            slot_bytes,
            backend: Backend::Auto,
            header_bytes: 0,
            depth: 64,
            queue: 256,
            piece_bytes: 1 << 20,
            threads: 4,
            overwrite: false,
            keep: false,
            write_through: false,
            progress: None,
            arenas: Vec::new(),
        }
    }

    /// Which backend; [`Backend::Auto`] unless set.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Bytes left free before slot 0, rounded up to the alignment; 0 unless set.
    pub fn header_bytes(mut self, bytes: u64) -> Self {
        self.header_bytes = bytes;
        self
    }

    /// Pieces in flight at most, 1 to 4096; 64 unless set.
    pub fn depth(mut self, pieces: u32) -> Self {
        self.depth = pieces;
        self
    }

    /// Requests that wait for the ring at most, of each direction; a caller that finds its queue full waits.
    /// 256 unless set.
    pub fn queue(mut self, requests: usize) -> Self {
        self.queue = requests;
        self
    }

    /// Larger requests are cut into pieces of this size, a multiple of 4096; 1 MiB unless set.
    pub fn piece_bytes(mut self, bytes: usize) -> Self {
        self.piece_bytes = bytes;
        self
    }

    /// Threads of the blocking backend; 4 unless set.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Whether a file that is there already may be overwritten; no unless set.
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Whether the file stays when the volume is dropped; no unless set. One that does not stay has no name
    /// from the start, so that it vanishes even if the process is killed.
    pub fn keep(mut self, keep: bool) -> Self {
        self.keep = keep;
        self
    }

    /// Whether to write the whole file once at creation: writes into extents that were never written are
    /// slower, by a third and with five times the p99 on the NVMe drives that this was measured on.
    pub fn write_through(mut self, write_through: bool) -> Self {
        self.write_through = write_through;
        self
    }

    /// Told how far writing through has come.
    pub fn progress(mut self, progress: impl FnMut(u64, u64) + Send + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Registers an arena's memory with the ring, so that requests over it pin no pages. Optional: buffers
    /// of other arenas work too, and so do these where the memory-lock limit forbids it.
    pub fn register(mut self, arena: &Arc<HostArena>) -> Self {
        self.arenas.push(Arc::clone(arena));
        self
    }

    /// Refuses what is impossible whatever the machine.
    pub(super) fn check(&self) -> Result<(), VolumeError> {
        let refuse = |option, why: &str| {
            Err(VolumeError::Option { path: self.path.clone(), option, why: why.to_owned() })
        };
        if self.slots == 0 {
            return refuse("slots", "must be at least 1");
        }
        if self.slot_bytes == 0 {
            return refuse("slot_bytes", "must be at least 1");
        }
        if !(1..=4096).contains(&self.depth) {
            return refuse("depth", "must be 1 to 4096");
        }
        if self.queue == 0 {
            return refuse("queue", "must be at least 1");
        }
        if self.piece_bytes == 0
            || !self.piece_bytes.is_multiple_of(BLOCK_ALIGN_BYTES)
            || self.piece_bytes > 1 << 30
        {
            return refuse("piece_bytes", "must be a multiple of 4096, up to 1 GiB");
        }
        Ok(())
    }

    pub(super) fn geometry(&self, alignment: usize) -> Result<Geometry, VolumeError> {
        Geometry::new(self.slots, self.slot_bytes, self.header_bytes, alignment).ok_or_else(|| {
            VolumeError::Option {
                path: self.path.clone(),
                option: "slots × slot_bytes",
                why: "is more than a file can hold; use fewer or smaller slots".to_owned(),
            }
        })
    }

    /// The volume's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl core::fmt::Debug for VolumeOptions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("VolumeOptions")
            .field("path", &self.path)
            .field("slots", &self.slots)
            .field("slot_bytes", &self.slot_bytes)
            .field("backend", &self.backend)
            .field("depth", &self.depth)
            .field("queue", &self.queue)
            .field("piece_bytes", &self.piece_bytes)
            .finish_non_exhaustive()
    }
}

/// Where the slots lie in the file.
///
/// ```text
///   0        origin                                            file_bytes
///   ├ header ┼ slot 0 ───────┬pad┼ slot 1 ───────┬pad┼ … ──────┤
///            │◄ slot_bytes ─►│   │
///            │◄──── stride ─────►│      stride, origin: multiples of the alignment
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) slots: u32,
    pub(super) slot_bytes: usize,
    pub(super) stride: usize,
    pub(super) origin: u64,
    pub(super) file_bytes: u64,
}

impl Geometry {
    /// None where the file would be longer than a file can be.
    pub(super) fn new(
        slots: u32,
        slot_bytes: usize,
        header_bytes: u64,
        alignment: usize,
    ) -> Option<Geometry> {
        let stride = slot_bytes.checked_next_multiple_of(alignment)?;
        let origin = header_bytes.checked_next_multiple_of(alignment as u64)?;
        let file_bytes = u64::from(slots).checked_mul(stride as u64)?.checked_add(origin)?;
        (file_bytes <= i64::MAX as u64).then_some(Geometry { slots, slot_bytes, stride, origin, file_bytes })
    }

    /// Where a slot starts; the slot is in range.
    pub(super) fn offset(&self, slot: u32) -> u64 {
        debug_assert!(slot < self.slots);
        self.origin + u64::from(slot) * self.stride as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_header_are_rounded_up_to_the_alignment() {
        let geometry = Geometry::new(10, 5000, 100, 4096).expect("fits");
        assert_eq!((geometry.stride, geometry.origin, geometry.file_bytes), (8192, 4096, 4096 + 10 * 8192));
        assert_eq!(geometry.offset(9), 4096 + 9 * 8192);
        let exact = Geometry::new(3, 512, 0, 512).expect("fits");
        assert_eq!((exact.stride, exact.origin, exact.file_bytes), (512, 0, 1536));
    }

    #[test]
    fn sizes_that_no_file_has_are_refused() {
        assert!(Geometry::new(u32::MAX, usize::MAX / 2, 0, 512).is_none());
        assert!(Geometry::new(1, usize::MAX, 0, 512).is_none());
        assert!(Geometry::new(1, 1, u64::MAX, 512).is_none());
        assert!(Geometry::new(1 << 31, 1 << 32, 0, 512).is_none());
    }
}
