//! A tier in pageable host memory. Below the pinned host tier, it holds more blocks than may be pinned.
//!
//! ```text
//!   read, write ──► queue ──► threads: copy between the slot and the buffer, and sum ──► landing
//! ```
//!
//! A slot keeps the hash, the length and the sum of its block. A read is rejected if its bytes have
//! another sum. Buffers may lie anywhere: the bytes are copied.
//!
//! Invariants
//! - I1: each request is answered: by a thread, or by its landing when the queue is dropped.
//! - I2: a block is registered after its bytes and its sum are in the slot.

use kvstrata_core::{
    BlockId, BlockPool, BlockRef, ConfigError, EvictedBlock, ImmutableBlock, MutableBlock, PoolConfig,
    SequenceHash,
};
use kvstrata_ffi::arena::{ArenaError, BlockRead, BlockWrite, HostArena};
use kvstrata_ffi::disk::sum_of_payload;
use kvstrata_ffi::process::Origin;
use kvstrata_tiers::transfer::{
    Cause, Erases, Erasing, Extras, Failure, Landed, Reserve, Sizes, TierFacts, TierPort, TierRead, TierWrite,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::{fmt, io, mem};

/// Why the tier cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryTierError {
    /// The pool cannot be made.
    #[error(transparent)]
    Pool(#[from] ConfigError),
    /// The memory cannot be allocated.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// A thread cannot be started.
    #[error(
        "cannot start thread {number} of the memory tier: {source}; use fewer threads, or raise ulimit -u"
    )]
    Spawn {
        /// The thread's number, from 0.
        number: usize,
        /// The system's error.
        source: io::Error,
    },
}

/// A tier in pageable host memory.
pub struct MemoryTier {
    shared: Arc<Shared>,
    /// `None` once the tier is dropped.
    queue: Option<mpsc::Sender<Request>>,
    threads: Vec<JoinHandle<()>>,
    origin: Origin,
}

struct Shared {
    pool: BlockPool,
    arena: Arc<HostArena>,
    /// By slot: the block that is stored there.
    stored: Mutex<Box<[Option<Stored>]>>,
    requests: Mutex<mpsc::Receiver<Request>>,
}

/// The block of a slot.
#[derive(Debug, Clone, Copy)]
struct Stored {
    hash: SequenceHash,
    bytes: usize,
    sum: u64,
}

enum Request {
    Read(TierRead),
    Write(TierWrite),
}

impl MemoryTier {
    /// Makes a tier with the pool's blocks, each of `block_bytes` bytes, and with threads that copy.
    ///
    /// # Errors
    /// [`MemoryTierError`], if the pool, the memory or a thread cannot be made.
    pub fn new(pool: PoolConfig, block_bytes: usize, threads: usize) -> Result<MemoryTier, MemoryTierError> {
        let blocks = pool.blocks() as usize;
        let (queue, requests) = mpsc::channel();
        let shared = Arc::new(Shared {
            pool: BlockPool::new(pool)?,
            arena: HostArena::new(blocks, block_bytes)?,
            stored: Mutex::new(vec![None; blocks].into()),
            requests: Mutex::new(requests),
        });
        let mut tier = MemoryTier { shared, queue: Some(queue), threads: Vec::new(), origin: Origin::here() };
        for number in 0..threads.max(1) {
            let shared = Arc::clone(&tier.shared);
            let named = thread::Builder::new().name(format!("kvstrata-memory-{number}"));
            // If this fails, the tier's drop ends the threads started so far.
            let thread = named.spawn(move || shared.run());
            tier.threads.push(thread.map_err(|source| MemoryTierError::Spawn { number, source })?);
        }
        Ok(tier)
    }

    /// Returns the memory of the slots, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn arena(&self) -> &Arc<HostArena> {
        &self.shared.arena
    }

    fn ask(&self, request: Request) {
        if let Some(queue) = &self.queue {
            // The threads outlive the queue's sender. If a send fails, the request's landing answers it.
            let _ = queue.send(request);
        }
    }
}

impl Drop for MemoryTier {
    fn drop(&mut self) {
        // A forked child has none of the threads.
        if !self.origin.is_here() {
            return mem::forget(mem::take(&mut self.threads));
        }
        self.queue = None;
        let this = thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != this) {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for MemoryTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryTier({} blocks, {} threads)", self.shared.pool.capacity(), self.threads.len())
    }
}

impl Shared {
    fn run(&self) {
        loop {
            // A statement of its own: the lock is held while a thread waits, but not while it copies.
            let next = self.requests.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(request) = next else { return };
            // A landing is caller code. The panic hook has reported its panic.
            let _ = catch_unwind(AssertUnwindSafe(|| match request {
                Request::Read(read) => self.read(read),
                Request::Write(write) => self.write(write),
            }));
        }
    }

    fn read(&self, read: TierRead) {
        let TierRead { token, slot, hash, mut buffer, landing, .. } = read;
        let outcome = self.bring(slot, hash, &mut buffer);
        let outcome: Result<BlockWrite, Failure> = match outcome {
            Ok(()) => Ok(buffer),
            Err(cause) => {
                drop(buffer);
                Err(Failure::of(cause))
            }
        };
        landing.land(Landed::Read(token, outcome));
    }

    fn bring(&self, slot: BlockId, hash: SequenceHash, buffer: &mut [u8]) -> Result<(), Cause> {
        let held = self.arena.read(slot.index()).map_err(|_| Cause::Busy)?;
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner)[slot.index()];
        let Stored { bytes, sum, .. } = stored.filter(|stored| stored.hash == hash).ok_or(Cause::Rejected)?;
        if buffer.len() != bytes {
            return Err(Cause::Buffer);
        }
        buffer.copy_from_slice(held.get(..bytes).ok_or(Cause::Rejected)?);
        if sum_of_payload(buffer) == sum { Ok(()) } else { Err(Cause::Rejected) }
    }

    fn write(&self, write: TierWrite) {
        let TierWrite { token, slot, name, bytes, sum, landing } = write;
        let kept = self.keep(slot, name.hash, &bytes, sum);
        let outcome: Result<BlockRead, Failure> = match kept {
            Ok(()) => Ok(bytes),
            Err(cause) => {
                drop(bytes);
                Err(Failure::of(cause))
            }
        };
        landing.land(Landed::Write(token, outcome));
    }

    /// Puts the block into the slot and registers it (I2). A duplicate is not kept: its slot becomes
    /// free.
    fn keep(&self, slot: BlockId, hash: SequenceHash, bytes: &[u8], sum: Option<u64>) -> Result<(), Cause> {
        let owned = self.pool.adopt_mutable(slot).map_err(|_| Cause::Busy)?;
        let target = self.arena.write(slot.index()).map_err(|_| Cause::Busy)?;
        if target.len() < bytes.len() {
            return Err(Cause::Buffer);
        }
        let mut target = target.first(bytes.len());
        target.copy_from_slice(bytes);
        // Summed in the slot, so that any later corruption is found.
        let sum = sum.unwrap_or_else(|| sum_of_payload(&target));
        let stored = Stored { hash, bytes: bytes.len(), sum };
        drop(target);
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)[slot.index()] = Some(stored);
        let complete = owned.complete(hash).map_err(|_| Cause::Busy)?;
        drop(self.pool.register(complete, None));
        Ok(())
    }
}

impl TierPort for MemoryTier {
    fn pool(&self) -> &BlockPool {
        &self.shared.pool
    }

    fn facts(&self) -> TierFacts {
        let (pool, arena) = (&self.shared.pool, &self.shared.arena);
        TierFacts::new(format!("pageable memory, {} blocks, {}", pool.capacity(), arena.backing()))
    }

    fn find(&self, hash: SequenceHash, uses: bool) -> Option<ImmutableBlock<'_>> {
        let pool = &self.shared.pool;
        if uses { pool.lookup(hash) } else { pool.find(hash) }
    }

    fn reserve(&self, which: Reserve, slots: &mut Vec<BlockId>) {
        let pool = &self.shared.pool;
        match which {
            Reserve::Some(wanted) => {
                let (mut free, mut victims) = (Vec::new(), Vec::new());
                let _ = pool.allocate_free(pool.free().min(wanted), &mut free);
                pool.evict(wanted - free.len(), &mut victims);
                let taken = free.into_iter().chain(victims.into_iter().map(EvictedBlock::into_mutable));
                slots.extend(taken.map(MutableBlock::into_id));
            }
            Reserve::This(block) => {
                slots.extend(pool.take_out(block).ok().map(|taken| taken.into_mutable().into_id()));
            }
        }
    }

    fn read(&self, read: TierRead) {
        self.ask(Request::Read(read));
    }

    fn write(&self, write: TierWrite) {
        self.ask(Request::Write(write));
    }

    fn release(&self, slot: BlockId) {
        drop(self.shared.pool.adopt_mutable(slot));
    }

    fn forget(&self, block: BlockRef) {
        let _ = self.shared.pool.unregister(block);
    }

    fn extras(&self) -> Extras<'_> {
        Extras { erases: Some(self), sizes: Some(self), ..Extras::default() }
    }
}

impl Sizes for MemoryTier {
    fn bytes_of(&self, block: BlockId) -> usize {
        let stored = self.shared.stored.lock().unwrap_or_else(PoisonError::into_inner);
        stored.get(block.index()).copied().flatten().map_or(0, |stored| stored.bytes)
    }
}

impl Erases for MemoryTier {
    /// Erases in the call itself: a block takes as long as a copy of it.
    fn erase(&self, slots: Vec<BlockId>, zero: bool) -> Erasing {
        let mut kept = Vec::new();
        for slot in slots {
            self.shared.stored.lock().unwrap_or_else(PoisonError::into_inner)[slot.index()] = None;
            if zero {
                match self.shared.arena.write(slot.index()) {
                    Ok(mut bytes) => bytes.fill(0),
                    Err(_) => kept.push(slot),
                }
            }
        }
        Box::pin(std::future::ready(kept))
    }
}
