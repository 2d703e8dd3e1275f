//! Host memory that devices reach by themselves: an arena of ours, registered with the driver.
//!
//! Registering pins every page, under locks of the driver's, and one call above 512 GiB fails. So the pages
//! are made first (`populate.rs`). Then two threads register the arena in chunks and report progress.
//!
//! ```text
//!   arena   ├─ chunk 0 ─┼─ chunk 1 ─┼─ chunk 2 ─┼─ … ─┼─ rest ─┤      each thread takes the next chunk
//!   blocks  ├──┬──┬──┬──┼──┬──┬──┬──┼──┬──┬──┬──┼─ … ─┼──┬──┤        no block lies across two chunks
//! ```
//!
//! A copy's host memory must lie in one registration: the driver answers INVALID_VALUE to a copy that is
//! partly registered (JuliaGPU/CUDA.jl#258 quotes the manual), and `cudaMemcpyBatchAsync` failed for a
//! page across two (sgl-project/sglang#36798). Therefore chunks are whole blocks.
//!
//! Invariants
//! - I1: a chunk in `chunks` is registered, and is unregistered once, the latest first: when a
//!   registration fails, or on drop.
//! - I2: the arena outlives its registration. A transfer holds both until the device has answered; on a
//!   quarantined device neither is given back, nor unmapped.
//! - I3: from before the first chunk is registered until after the last one is unregistered, child
//!   processes have no part of the arena. Otherwise a fork would copy each pinned page at once (minutes,
//!   or ENOMEM), or, on older systems, leave the parent a copy that the device does not see.

use super::back::Thing;
use super::context::CudaDevice;
use super::error::{CudaError, Fault};
use super::numa::{self, Placement};
use super::populate::{by_threads, populate};
use crate::arena::{BlockRead, BlockWrite, HostArena, Unforked};
use core::fmt;
use core::num::NonZeroUsize;
use kvstrata_core::storage::{Storage, StorageKind};
use std::sync::Arc;
use std::thread;

/// The default and the maximum of a chunk's bytes. From 512 MiB on, the driver's own table of a call's
/// pages is so large that the kernel may have to move memory for it, under the driver's lock.
const CHUNK_BYTES: usize = 256 << 20;

/// The default maximum of threads. The kernel's clearing of pages bounds the rate, and a few threads
/// saturate it (a guess, to be measured on a machine with a device).
const THREADS: usize = 8;

/// Threads that register. They wait for one lock, and the second thread has its call ready when the first
/// releases it.
const REGISTERING: usize = 2;

/// `CU_MEMHOSTREGISTER_PORTABLE`: pinned for every context.
const PORTABLE: u32 = 1;
/// `CU_MEMHOSTREGISTER_DEVICEMAP`: kernels also reach it.
const DEVICE_MAP: u32 = 2;

/// Options for registering an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct PinOptions {
    threads: usize,
    chunk_bytes: usize,
}

impl PinOptions {
    /// Chunks of 256 MiB; pages are made by as many threads as there are processors, at most 8.
    pub fn new() -> PinOptions {
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS);
        PinOptions { threads, chunk_bytes: CHUNK_BYTES }
    }

    /// Sets the number of threads that make pages, at least 1; at most 2 of them register.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Sets the maximum bytes of a chunk: at least one block, and at most 256 MiB unless a block is larger.
    pub fn chunk_bytes(mut self, bytes: usize) -> Self {
        self.chunk_bytes = bytes.min(CHUNK_BYTES);
        self
    }
}

impl Default for PinOptions {
    fn default() -> PinOptions {
        PinOptions::new()
    }
}

/// An arena that devices reach.
pub struct PinnedStorage {
    device: Arc<CudaDevice>,
    arena: Arc<HostArena>,
    /// Held by each chunk's registration (I3).
    unforked: Arc<Unforked>,
    placement: Placement,
    mapped: bool,
    /// Addresses and sizes (I1).
    chunks: Vec<(usize, usize)>,
}

impl PinnedStorage {
    /// Maps an arena of `blocks` blocks of `block_bytes` bytes, zeroed, and registers it. The arena uses
    /// huge pages if there are any, and memory near the device if the machine has several nodes.
    /// `progress` receives bytes done and bytes in all; making a page counts as half its bytes. A child
    /// process (`fork`) does not get the arena: it faults on access.
    ///
    /// # Errors
    /// [`CudaError::Arena`] for a zero or impossible size, or if the arena cannot be kept from children;
    /// [`CudaError::Register`]; or the device is quarantined. Nothing is left then.
    pub fn allocate(
        device: &Arc<CudaDevice>,
        blocks: usize,
        block_bytes: usize,
        options: PinOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Arc<PinnedStorage>, CudaError> {
        let arena =
            HostArena::new(blocks, block_bytes).map_err(|why| CudaError::Arena { why: why.to_string() })?;
        let placement = arena.mapped().map_or(Placement::Unknown, |(base, bytes)| {
            numa::place(base.as_ptr().addr(), bytes, &device.describe().pci_bus_id)
        });
        PinnedStorage::pin(device, arena, (placement, true), options, progress)
    }

    /// Registers an existing arena, wherever its pages are. `progress` and child processes are as for
    /// [`allocate`](PinnedStorage::allocate).
    ///
    /// # Errors
    /// [`CudaError::Register`], or [`CudaError::Arena`] if the arena is lent, or cannot be kept from
    /// children. The arena stays as it was.
    pub fn register(
        device: &Arc<CudaDevice>,
        arena: Arc<HostArena>,
        options: PinOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Arc<PinnedStorage>, CudaError> {
        PinnedStorage::pin(device, arena, (Placement::Unknown, false), options, progress)
    }

    fn pin(
        device: &Arc<CudaDevice>,
        arena: Arc<HostArena>,
        (placement, fresh): (Placement, bool),
        options: PinOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Arc<PinnedStorage>, CudaError> {
        let Some((base, mapped_bytes)) = arena.mapped() else {
            let why = "lent memory cannot be registered, since its owner may unmap it; copy through an arena \
                       that `HostArena::new` has made";
            return Err(CudaError::Arena { why: why.to_owned() });
        };
        let base = base.as_ptr().expose_provenance();
        let unforked = arena.do_not_fork().map_err(|error| CudaError::Arena {
            why: format!(
                "madvise(MADV_DONTFORK) failed for the arena to register: {error}; allow this system call"
            ),
        })?;
        let (device_of, unforked) = (Arc::clone(device), Arc::new(unforked));
        let mut pinned = PinnedStorage {
            device: device_of,
            arena,
            unforked,
            placement,
            mapped: false,
            chunks: Vec::new(),
        };
        let (page, blocks_bytes) = (page_bytes(), pinned.arena.blocks() * pinned.arena.stride());
        let chunk_bytes = whole_blocks(options.chunk_bytes, pinned.arena.stride(), page);
        // The part of the mapping behind the last block belongs to no block.
        let cut = Cut { base, bytes: blocks_bytes.next_multiple_of(page).min(mapped_bytes), chunk_bytes };
        // For `progress`, a made page counts half of a registered one.
        let (all, mut made) = (cut.bytes as u64, 0);
        // SAFETY: the arena's mapping; a fresh one is ours alone.
        unsafe {
            populate(base, cut.bytes, fresh, options.threads, |bytes| {
                made += bytes as u64;
                progress(made / 2, all);
            })
        }?;
        // On failure `pinned` is dropped, which unregisters its chunks (I1).
        register_all(device, cut, options.threads, &mut pinned.chunks, &mut |done| {
            progress(all / 2 + done.div_ceil(2), all)
        })?;
        pinned.mapped = pinned.chunks.iter().try_fold(true, |mapped, (chunk, _)| {
            device_address(device, *chunk).map(|address| mapped && address == *chunk as u64)
        })?;
        Ok(Arc::new(pinned))
    }

    /// Returns the arena.
    #[must_use]
    pub fn arena(&self) -> &Arc<HostArena> {
        &self.arena
    }

    /// Returns the device with which the arena is registered.
    #[must_use]
    pub fn device(&self) -> &Arc<CudaDevice> {
        &self.device
    }

    /// Returns the origin of the arena's pages.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Whether kernels see the arena, at the host's own addresses. If devices have their own addresses
    /// for registered memory, chunks need not be adjacent there, and only copies reach the arena.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.mapped
    }

    /// Returns the start and the end of each chunk: no copy may lie across two chunks.
    pub(super) fn registered(&self) -> impl Iterator<Item = (u64, u64)> {
        self.chunks.iter().map(|(address, bytes)| (*address as u64, (address + bytes) as u64))
    }

    /// Returns a host address as a kernel sees it.
    pub(super) fn kernel_address(&self, host: u64) -> Result<u64, CudaError> {
        if self.mapped { Ok(host) } else { Err(CudaError::NotMapped) }
    }

    /// Checks that the block belongs to this arena, so that devices reach it.
    pub(super) fn has_read(&self, block: &BlockRead) -> Result<(), CudaError> {
        self.has(block.arena(), "block to be read")
    }

    pub(super) fn has_write(&self, block: &BlockWrite) -> Result<(), CudaError> {
        self.has(block.arena(), "block to be written")
    }

    fn has(&self, arena: &Arc<HostArena>, what: &'static str) -> Result<(), CudaError> {
        if Arc::ptr_eq(arena, &self.arena) { Ok(()) } else { Err(CudaError::NotRegistered { what }) }
    }
}

/// Memory, and its division into chunks.
#[derive(Clone, Copy)]
struct Cut {
    base: usize,
    bytes: usize,
    chunk_bytes: usize,
}

impl Cut {
    fn chunks(self) -> usize {
        self.bytes.div_ceil(self.chunk_bytes)
    }

    fn chunk(self, at: usize) -> (usize, usize) {
        let offset = at * self.chunk_bytes;
        (self.base + offset, self.chunk_bytes.min(self.bytes - offset))
    }
}

/// Returns the most bytes up to `most` that are whole blocks of `stride` bytes and whole pages; if there
/// are none, the least such number.
fn whole_blocks(most: usize, stride: usize, page: usize) -> usize {
    // A page is a power of two, and so is its greatest common divisor with the stride.
    let shared = 1 << stride.trailing_zeros().min(page.trailing_zeros());
    let unit = stride.saturating_mul(page / shared);
    unit.saturating_mul((most / unit).max(1))
}

fn page_bytes() -> usize {
    // SAFETY: takes and returns numbers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Registers chunk after chunk into `done`, until all are registered or one is refused.
fn register_all(
    device: &Arc<CudaDevice>,
    cut: Cut,
    threads: usize,
    done: &mut Vec<(usize, usize)>,
    progress: &mut dyn FnMut(u64),
) -> Result<(), CudaError> {
    let (mut done_bytes, mut failed) = (0, None);
    by_threads(
        cut.chunks(),
        threads.min(REGISTERING),
        |at| register(device, cut.chunk(at)),
        |answer| match answer {
            Ok(chunk) => {
                done.push(chunk);
                done_bytes += chunk.1 as u64;
                progress(done_bytes);
            }
            Err(error) => {
                failed.get_or_insert(error);
            }
        },
    )?;
    match failed {
        None => Ok(()),
        Some(CudaError::Refused { fault, .. }) => Err(refused(cut.bytes as u64, done_bytes, fault)),
        Some(other) => Err(other),
    }
}

fn refused(asked_bytes: u64, done_bytes: u64, fault: Fault) -> CudaError {
    CudaError::Register { asked_bytes, done_bytes, lock_limit: lock_limit(), fault }
}

fn register(device: &CudaDevice, chunk: (usize, usize)) -> Result<(usize, usize), CudaError> {
    let (address, bytes) = chunk;
    let pointer = core::ptr::with_exposed_provenance_mut(address);
    device.call("cuMemHostRegister", |api| {
        // SAFETY: the chunk is part of a mapping that the arena holds (I2). Pinning it changes nothing
        // visible to Rust.
        unsafe { (api.cuMemHostRegister_v2)(pointer, bytes, PORTABLE | DEVICE_MAP) }
    })?;
    Ok(chunk)
}

/// Returns the device's address of registered memory.
fn device_address(device: &CudaDevice, host: usize) -> Result<u64, CudaError> {
    let mut address = 0;
    device.call("cuMemHostGetDevicePointer", |api| {
        let pointer = core::ptr::with_exposed_provenance_mut(host);
        // SAFETY: `address` is ours; the memory is registered, and mapped for devices.
        unsafe { (api.cuMemHostGetDevicePointer_v2)(&mut address, pointer, 0) }
    })?;
    Ok(address)
}

/// Returns the soft limit on locked memory; `None` if it is unlimited.
fn lock_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (asked == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

impl Drop for PinnedStorage {
    fn drop(&mut self) {
        for (address, bytes) in self.chunks.drain(..).rev() {
            let thing = Thing::Registration(core::ptr::with_exposed_provenance_mut(address));
            // The registration holds the arena too (I2, I3).
            let unforked = Arc::clone(&self.unforked);
            // SAFETY: registered by us (I1), and nothing is in flight: transfers hold `self` (I2).
            unsafe { self.device.give_back(thing, bytes as u64, Some(unforked)) };
        }
    }
}

impl Storage for PinnedStorage {
    fn kind(&self) -> StorageKind {
        StorageKind::Pinned
    }

    fn base_address(&self) -> u64 {
        self.arena.base_address()
    }

    fn size_bytes(&self) -> u64 {
        self.arena.size_bytes()
    }
}

impl fmt::Debug for PinnedStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PinnedStorage { device, arena, placement, chunks, .. } = self;
        write!(f, "PinnedStorage({} bytes in {} chunks, {placement}", arena.size_bytes(), chunks.len())?;
        write!(f, ", device:{})", device.ordinal())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_has_at_most_256_mib() {
        assert_eq!(PinOptions::new().chunk_bytes, 256 << 20);
        assert_eq!(PinOptions::new().chunk_bytes(usize::MAX).chunk_bytes, 256 << 20);
        assert_eq!(PinOptions::new().chunk_bytes(5).chunk_bytes, 5);
    }

    #[test]
    fn chunks_are_whole_blocks_and_whole_pages() {
        const KIB: usize = 1 << 10;
        assert_eq!(whole_blocks(1 << 30, 4 * KIB, 4 * KIB), 1 << 30);
        assert_eq!(whole_blocks(1 << 30, 12 * KIB, 4 * KIB), ((1 << 30) / (12 * KIB)) * 12 * KIB);
        // Pages of 64 KiB: three of them are 16 blocks.
        assert_eq!(whole_blocks(200 * KIB, 12 * KIB, 64 * KIB), 192 * KIB);
        assert_eq!(whole_blocks(100 * KIB, 12 * KIB, 64 * KIB), 192 * KIB, "at least that");
        assert_eq!(whole_blocks(1, 3 << 30, 4 * KIB), 3 << 30);
        assert_eq!(whole_blocks(0, 4 * KIB, 4 * KIB), 4 * KIB);
    }
}
