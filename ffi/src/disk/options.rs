//! The options of a volume: path, size, backend, and the rest.

use super::backend::Backend;
use super::cipher::Key;
use super::error::VolumeError;
use super::file::{Kernel, System};
use super::format::{CHUNK_BYTES, Shape};
use crate::arena::{BLOCK_ALIGN_BYTES, HostArena};
use crate::gds::{DeviceSums, GdsDriver, GdsError, GdsOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Receives the progress of writing through: bytes done, bytes in all.
pub type Progress = Box<dyn FnMut(u64, u64) + Send>;

/// Which volume of a set this is.
#[derive(Debug, Clone)]
pub(super) struct Stripe {
    pub(super) index: u32,
    pub(super) count: u32,
    /// The next record's sequence number, for all volumes of the set.
    pub(super) sequence: Arc<AtomicU64>,
}

/// The options for device memory.
pub(super) struct Gds {
    pub(super) options: GdsOptions,
    /// Opens cuFile, or a stand-in for it.
    pub(super) open: OpenGds,
}

pub(super) type OpenGds = Box<dyn FnOnce(GdsOptions) -> Result<Arc<GdsDriver>, GdsError> + Send>;

/// Options of [`Volume::open`](super::Volume::open): the required ones are arguments of
/// [`new`](VolumeOptions::new), the rest have setters.
#[must_use]
pub struct VolumeOptions {
    pub(super) path: PathBuf,
    pub(super) slots: u32,
    pub(super) slot_bytes: usize,
    pub(super) backend: Backend,
    pub(super) require_direct: bool,
    pub(super) layout_fingerprint: u128,
    pub(super) model_fingerprint: u128,
    pub(super) reinitialize: bool,
    pub(super) table_delay: Duration,
    pub(super) trim: bool,
    pub(super) verify: bool,
    pub(super) key: Option<Key>,
    pub(super) stripe: Stripe,
    pub(super) depth: u32,
    pub(super) queue: usize,
    pub(super) piece_bytes: usize,
    pub(super) threads: usize,
    pub(super) keep: bool,
    pub(super) write_through: bool,
    pub(super) in_background: bool,
    pub(super) progress: Option<Progress>,
    pub(super) arenas: Vec<Arc<HostArena>>,
    /// The file system calls.
    pub(super) system: Box<dyn System>,
    pub(super) gds: Option<Gds>,
    pub(super) device_sums: Option<Arc<dyn DeviceSums>>,
    /// How often the file's name is checked.
    pub(super) watch_every: Duration,
}

impl VolumeOptions {
    /// A volume at `path` with `slots` slots of `slot_bytes` bytes.
    pub fn new(path: impl Into<PathBuf>, slots: u32, slot_bytes: usize) -> VolumeOptions {
        VolumeOptions {
            path: path.into(),
            slots,
            slot_bytes,
            backend: Backend::Auto,
            require_direct: false,
            layout_fingerprint: 0,
            model_fingerprint: 0,
            reinitialize: false,
            table_delay: Duration::from_millis(250),
            trim: false,
            verify: true,
            key: None,
            stripe: Stripe { index: 0, count: 1, sequence: Arc::new(AtomicU64::new(1)) },
            depth: 64,
            queue: 256,
            piece_bytes: 1 << 20,
            threads: 4,
            keep: false,
            write_through: false,
            in_background: false,
            progress: None,
            arenas: Vec::new(),
            system: Box::new(Kernel),
            gds: None,
            device_sums: None,
            watch_every: Duration::from_secs(5),
        }
    }

    /// Which backend; [`Backend::Auto`] unless set.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Whether to fail if the file system refuses O_DIRECT, whatever the backend. Otherwise the page
    /// cache holds a second copy of the transferred bytes, and a note says so.
    /// [`Backend::UringDirect`] implies it.
    pub fn require_direct(mut self, require: bool) -> Self {
        self.require_direct = require;
        self
    }

    /// The layout's fingerprint: everything that changes the meaning of a block's bytes, except the
    /// model. 0 unless set.
    pub fn layout_fingerprint(mut self, fingerprint: u128) -> Self {
        self.layout_fingerprint = fingerprint;
        self
    }

    /// The model's fingerprint: a volume of another model is refused. 0 unless set.
    pub fn model_fingerprint(mut self, fingerprint: u128) -> Self {
        self.model_fingerprint = fingerprint;
        self
    }

    /// Whether to forget a kept volume's blocks and give it these options; no unless set. A file that
    /// cannot be recognised as a former volume is refused all the same.
    pub fn reinitialize(mut self, reinitialize: bool) -> Self {
        self.reinitialize = reinitialize;
        self
    }

    /// Longest time before a change of the slot table is written. After a crash, blocks written within
    /// this time before it are misses. Longer means fewer writes. 250 ms unless set.
    pub fn table_delay(mut self, delay: Duration) -> Self {
        self.table_delay = delay;
        self
    }

    /// Whether forgotten slots are given back to the file system (a hole is punched); no unless set.
    /// Useful if the file system passes this on to a device that wears less for it. Writing to such slots
    /// again is slower, and the never-written parts of a file that is found stay unwritten.
    pub fn trim(mut self, trim: bool) -> Self {
        self.trim = trim;
        self
    }

    /// Unsafe for your users: payloads are not verified when they are read. The slot's record still
    /// has to name the block, but a torn, misdirected, lost or damaged write is served as if it
    /// were the block.
    pub fn skip_verification_unsafe(mut self, skip: bool) -> Self {
        self.verify = !skip;
        self
    }

    /// Encrypts the volume with a key (AES-256-GCM); not encrypted unless set. `docs/disk-format.md`
    /// lists what the file shows all the same. A volume made with another key, or without one, is refused
    /// until it is initialized again; old payloads then stay in the file until their slots are written.
    ///
    /// A payload is copied and encrypted in the thread that writes it, before the request is queued. So
    /// [`write`](super::Volume::write) takes a while, and waits when 64 MiB of copies (or two slots) are
    /// in use. The ring thread decrypts reads, and always verifies them, whatever
    /// [`skip_verification_unsafe`](VolumeOptions::skip_verification_unsafe) says.
    #[cfg(feature = "encryption")]
    pub fn key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// Maximum pieces in flight, 1 to 4096; 64 unless set.
    pub fn depth(mut self, pieces: u32) -> Self {
        self.depth = pieces;
        self
    }

    /// Maximum requests of each class that wait for the ring, 1 to 1048576; 256 unless set. A caller that
    /// finds its queue full waits.
    pub fn queue(mut self, requests: usize) -> Self {
        self.queue = requests;
        self
    }

    /// Larger requests are cut into pieces of this size, a multiple of 64 KiB; 1 MiB unless set.
    pub fn piece_bytes(mut self, bytes: usize) -> Self {
        self.piece_bytes = bytes;
        self
    }

    /// Threads of the blocking backend, 1 to 1024; 4 unless set.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Whether the file stays when the volume is dropped, and is reused if it exists; no unless
    /// set. A file that does not stay has no name from the start, so that it vanishes even if the
    /// process is killed.
    pub fn keep(mut self, keep: bool) -> Self {
        self.keep = keep;
        self
    }

    /// Whether to write the whole file once at creation. Writes into extents that were never written are
    /// slower, by a third and with five times the p99 on the NVMe drives that this was measured on. In a
    /// file that exists, only the never-written parts are written, since its creator may have been killed
    /// before the end; its blocks stay. This is skipped if the file system does not report such parts
    /// (FIEMAP), or if [`trim`](VolumeOptions::trim) is on.
    pub fn write_through(mut self, write_through: bool) -> Self {
        self.write_through = write_through;
        self
    }

    /// Whether to write the slots of the file, new or found, through later instead, while no
    /// requests are under way; [`VolumeStats::unfilled_bytes`](super::VolumeStats::unfilled_bytes)
    /// says how much is left.
    pub fn write_through_in_background(mut self, in_background: bool) -> Self {
        self.in_background = in_background;
        self
    }

    /// Sets the receiver of the progress of writing through.
    pub fn progress(mut self, progress: impl FnMut(u64, u64) + Send + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Registers an arena's memory with the ring, so that requests over it pin no pages. Optional:
    /// buffers of other arenas work too. So do buffers of this one if the memory-lock limit forbids the
    /// registration. Lent memory is never registered: its owner may unmap it sooner than the ring ends.
    pub fn register(mut self, arena: &Arc<HostArena>) -> Self {
        if !arena.is_lent() {
            self.arenas.push(Arc::clone(arena));
        }
        self
    }

    /// Has cuFile move the bytes of [`Volume::read_device`](super::Volume::read_device) and
    /// [`Volume::write_device`](super::Volume::write_device), past host memory; those calls are refused
    /// unless set. The volume serves host memory alone, and its description says why, if cuFile is
    /// missing or refuses, or would bounce and may not. So it does if slots are no multiple of 4096
    /// bytes, if the volume is encrypted or not [kept](VolumeOptions::keep), or if its file is open
    /// without O_DIRECT.
    pub fn gds(mut self, options: GdsOptions) -> Self {
        self.gds = Some(Gds { options, open: Box::new(GdsDriver::open) });
        self
    }

    /// How often the file's name is checked.
    #[cfg(test)]
    pub(super) fn watch_every(mut self, every: Duration) -> Self {
        self.watch_every = every;
        self
    }

    /// [`gds`](VolumeOptions::gds) with a stand-in for cuFile.
    #[cfg(test)]
    pub(super) fn gds_by(mut self, options: GdsOptions, open: OpenGds) -> Self {
        self.gds = Some(Gds { options, open });
        self
    }

    /// Sums payloads in device memory, [`CudaSums`](crate::cuda::CudaSums) for example; none unless set.
    /// Without it [`Volume::write_device`](super::Volume::write_device) is refused. So is
    /// [`Volume::read_device`](super::Volume::read_device), unless the volume [skips
    /// verification](VolumeOptions::skip_verification_unsafe).
    pub fn device_sums(mut self, sums: Arc<dyn DeviceSums>) -> Self {
        self.device_sums = Some(sums);
        self
    }

    /// Refuses options that are impossible on any machine.
    pub(super) fn check(&self) -> Result<(), VolumeError> {
        let refuse = |option, value: u64, rule| {
            let why = format!("is {value}; it must be {rule}");
            Err(VolumeError::Option { path: self.path.clone(), option, why })
        };
        if self.slots == 0 {
            return refuse("slots", 0, "at least 1");
        }
        if self.slot_bytes == 0 {
            return refuse("slot_bytes", 0, "at least 1");
        }
        if !(1..=4096).contains(&self.depth) {
            return refuse("depth", self.depth.into(), "1 to 4096");
        }
        if !(1..=1 << 20).contains(&self.queue) {
            return refuse("queue", self.queue as u64, "1 to 1048576");
        }
        if !(1..=1024).contains(&self.threads) {
            return refuse("threads", self.threads as u64, "1 to 1024");
        }
        if self.piece_bytes == 0
            || !self.piece_bytes.is_multiple_of(CHUNK_BYTES)
            || self.piece_bytes > 1 << 30
        {
            return refuse("piece_bytes", self.piece_bytes as u64, "a multiple of 65536, up to 1 GiB");
        }
        Ok(())
    }

    /// The shape of the file, for a device with this alignment.
    pub(super) fn shape(&self, alignment: usize) -> Result<Shape, VolumeError> {
        let shape = u32::try_from(self.slot_bytes).ok().zip(u32::try_from(alignment).ok());
        shape.and_then(|(slot_bytes, alignment)| Shape::new(self.slots, slot_bytes, alignment)).ok_or_else(
            || VolumeError::Option {
                path: self.path.clone(),
                option: "slots × slot_bytes",
                why: "exceeds the largest file, or a slot has 4 GiB or more; use fewer or smaller slots"
                    .to_owned(),
            },
        )
    }

    /// Bytes of the file, or None if no such volume is possible.
    #[must_use]
    pub fn file_bytes(&self) -> Option<u64> {
        self.shape(BLOCK_ALIGN_BYTES).ok().map(|shape| shape.file_bytes)
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
            .field("require_direct", &self.require_direct)
            .field("depth", &self.depth)
            .field("queue", &self.queue)
            .field("piece_bytes", &self.piece_bytes)
            .finish_non_exhaustive()
    }
}
