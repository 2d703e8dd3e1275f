//! Host memory that devices reach by themselves: an arena of ours, registered with the driver.
//!
//! Pinning touches every page, which takes minutes for hundreds of GiB in one call, and one call above 512 GiB fails. So
//! an arena is registered in chunks, by several threads, and says how far it is.
//!
//! ```text
//!   arena   ├─ chunk 0 ─┼─ chunk 1 ─┼─ chunk 2 ─┼─ … ─┼─ rest ─┤      each thread takes the next chunk
//!   blocks  ├──┬──┬──┬──┼──┬──┬──┬──┼──┬──┬──┬──┼─ … ─┼──┬──┤        none lies across two: whether a copy may, no manual says
//! ```
//!
//! Invariants
//! - I1: a chunk in `chunks` is registered, and unregistered once, latest first: when one fails, or on drop.
//! - I2: the arena outlives its registration. A transfer holds both until the device has answered; on a quarantined device neither is
//!   given back, nor unmapped.

use super::context::CudaDevice;
use super::error::{CudaError, Fault};
use super::numa::{self, Placement};
use crate::arena::{BlockRead, BlockWrite, HostArena};
use core::fmt;
use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use kvstrata_core::storage::{Storage, StorageKind};
use std::sync::{Arc, mpsc};
use std::thread;

/// A chunk unless set: so many that threads share them evenly, so few that a call's own cost is nothing beside touching 1 GiB, and
/// small enough that progress is seen.
const CHUNK_BYTES: usize = 1 << 30;

/// Threads at most unless set: pinning is bound by the kernel's clearing of pages, which a few threads saturate (a guess, to be
/// measured on a machine with a device).
const THREADS: usize = 8;

/// `CU_MEMHOSTREGISTER_PORTABLE`: pinned for every context.
const PORTABLE: u32 = 1;
/// `CU_MEMHOSTREGISTER_DEVICEMAP`: kernels reach it too.
const DEVICE_MAP: u32 = 2;

/// How an arena is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct PinOptions {
    threads: usize,
    chunk_bytes: usize,
}

impl PinOptions {
    /// Chunks of 1 GiB, by as many threads as there are processors, at most 8.
    pub fn new() -> PinOptions {
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS);
        PinOptions { threads, chunk_bytes: CHUNK_BYTES }
    }

    /// So many threads; at least 1.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Chunks of at most so many bytes, and of at least one block.
    pub fn chunk_bytes(mut self, bytes: usize) -> Self {
        self.chunk_bytes = bytes;
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
    placement: Placement,
    mapped: bool,
    /// Addresses and sizes (I1).
    chunks: Vec<(usize, usize)>,
}

impl PinnedStorage {
    /// Maps an arena of `blocks` blocks of `block_bytes` bytes, zeroed, in huge pages where there are any, near the device where the
    /// machine has several nodes, and registers it. `progress` is told bytes done and in all after each chunk.
    ///
    /// # Errors
    /// [`CudaError::Arena`] for a zero or impossible size; [`CudaError::Register`], or the device is quarantined. Nothing is
    /// left then.
    pub fn allocate(
        device: &Arc<CudaDevice>,
        blocks: usize,
        block_bytes: usize,
        options: PinOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Arc<PinnedStorage>, CudaError> {
        let arena =
            HostArena::new(blocks, block_bytes).map_err(|why| CudaError::Arena { why: why.to_string() })?;
        let (base, bytes) = arena.mapped();
        let placement = numa::place(base.as_ptr().addr(), bytes, &device.describe().pci_bus_id);
        PinnedStorage::pin(device, arena, placement, options, progress)
    }

    /// Registers an arena that there is, wherever its pages are.
    ///
    /// # Errors
    /// [`CudaError::Register`]; the arena stays as it was.
    pub fn register(
        device: &Arc<CudaDevice>,
        arena: Arc<HostArena>,
        options: PinOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Arc<PinnedStorage>, CudaError> {
        PinnedStorage::pin(device, arena, Placement::Unknown, options, progress)
    }

    fn pin(
        device: &Arc<CudaDevice>,
        arena: Arc<HostArena>,
        placement: Placement,
        options: PinOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Arc<PinnedStorage>, CudaError> {
        let (base, mapped_bytes) = arena.mapped();
        let base = base.as_ptr().expose_provenance();
        let device_of = Arc::clone(device);
        let mut pinned =
            PinnedStorage { device: device_of, arena, placement, mapped: false, chunks: Vec::new() };
        let (page, blocks_bytes) = (page_bytes(), pinned.arena.blocks() * pinned.arena.stride());
        let chunk_bytes = whole_blocks(options.chunk_bytes, pinned.arena.stride(), page);
        // What is mapped behind the last block is no block's.
        let cut = Cut { base, bytes: blocks_bytes.next_multiple_of(page).min(mapped_bytes), chunk_bytes };
        // On failure `pinned` is dropped, and with it what is registered (I1).
        register_all(device, cut, options.threads, &mut pinned.chunks, progress)?;
        pinned.mapped = pinned.chunks.iter().try_fold(true, |mapped, (chunk, _)| {
            device_address(device, *chunk).map(|address| mapped && address == *chunk as u64)
        })?;
        Ok(Arc::new(pinned))
    }

    /// The arena.
    #[must_use]
    pub fn arena(&self) -> &Arc<HostArena> {
        &self.arena
    }

    /// The device that it is registered with.
    #[must_use]
    pub fn device(&self) -> &Arc<CudaDevice> {
        &self.device
    }

    /// Where its pages come from.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Whether kernels see the arena, and at the host's own addresses. Where devices have their own addresses for registered
    /// memory, chunks need not be adjacent in them, and only copies reach the arena.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.mapped
    }

    /// Its chunks, from and to: whether a copy may lie across two, no manual says.
    pub(super) fn registered(&self) -> impl Iterator<Item = (u64, u64)> {
        self.chunks.iter().map(|(address, bytes)| (*address as u64, (address + bytes) as u64))
    }

    /// A host address as a kernel sees it.
    pub(super) fn kernel_address(&self, host: u64) -> Result<u64, CudaError> {
        if self.mapped { Ok(host) } else { Err(CudaError::NotMapped) }
    }

    /// Whether the block is one of this arena's, so that devices reach it.
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

/// Memory, and how it is cut.
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

/// The most bytes up to `most` that are whole blocks of `stride` bytes and whole pages; the least such number if that is more.
fn whole_blocks(most: usize, stride: usize, page: usize) -> usize {
    // A page is a power of two, and so is what it shares with the stride.
    let shared = 1 << stride.trailing_zeros().min(page.trailing_zeros());
    let unit = stride.saturating_mul(page / shared);
    unit.saturating_mul((most / unit).max(1))
}

fn page_bytes() -> usize {
    // SAFETY: takes and gives numbers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Registers chunk after chunk into `done`, until all are or one is refused.
fn register_all(
    device: &Arc<CudaDevice>,
    cut: Cut,
    threads: usize,
    done: &mut Vec<(usize, usize)>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), CudaError> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    let serve = |tell: mpsc::Sender<_>| {
        // Relaxed, here and below: what has been done is told by the channel.
        while !stop.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= cut.chunks() {
                return;
            }
            let answer = register(device, cut.chunk(at));
            stop.fetch_or(answer.is_err(), Ordering::Relaxed);
            if tell.send(answer).is_err() {
                return;
            }
        }
    };
    let mut done_bytes = 0;
    let mut failed = None;
    thread::scope(|scope| {
        for started in 0..threads.min(cut.chunks()) {
            let (tell, serve) = (tell.clone(), &serve);
            let thread = thread::Builder::new().name("kvstrata-pin".to_owned());
            match thread.spawn_scoped(scope, move || serve(tell)) {
                Ok(_) => {}
                // Fewer do it too.
                Err(_) if started > 0 => break,
                Err(error) => failed = Some(CudaError::Thread { errno: error.raw_os_error().unwrap_or(0) }),
            }
        }
        drop(tell);
        // Ends when the last thread has: a chunk that was begun is always told of.
        for answer in told {
            match answer {
                Ok(chunk) => {
                    done.push(chunk);
                    done_bytes += chunk.1 as u64;
                    progress(done_bytes, cut.bytes as u64);
                }
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
    });
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
        // SAFETY: the chunk is part of a mapping that the arena holds (I2). Pinning it changes nothing that Rust sees.
        unsafe { (api.cuMemHostRegister_v2)(pointer, bytes, PORTABLE | DEVICE_MAP) }
    })?;
    Ok(chunk)
}

/// The device's address of registered memory.
fn device_address(device: &CudaDevice, host: usize) -> Result<u64, CudaError> {
    let mut address = 0;
    device.call("cuMemHostGetDevicePointer", |api| {
        let pointer = core::ptr::with_exposed_provenance_mut(host);
        // SAFETY: `address` is ours; the memory is registered, and mapped for devices.
        unsafe { (api.cuMemHostGetDevicePointer_v2)(&mut address, pointer, 0) }
    })?;
    Ok(address)
}

/// The soft limit; none where there is none.
fn lock_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (asked == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

impl Drop for PinnedStorage {
    fn drop(&mut self) {
        let mut kept_bytes = 0;
        for (address, bytes) in self.chunks.drain(..).rev() {
            let pointer = core::ptr::with_exposed_provenance_mut(address);
            let given = self.device.call("cuMemHostUnregister", |api| {
                // SAFETY: registered by us (I1), and nothing is in flight: transfers hold `self` (I2).
                unsafe { (api.cuMemHostUnregister)(pointer) }
            });
            if given.is_err() {
                kept_bytes += bytes as u64;
            }
        }
        if kept_bytes > 0 {
            // The device may still write there (I2).
            self.device.keep(Box::new(Arc::clone(&self.arena)), kept_bytes);
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
