//! A CUDA device's memory behind the device port: copies go through a few pinned blocks, and each copy
//! waits for its completion.
//!
//! ```text
//!   caller's bytes ──► bounce block (pinned) ──► device block          copy_in, a bounce block at a time
//!   caller's bytes ◄── bounce block (pinned) ◄── device block          copy_out
//! ```
//!
//! The port's callers offer any host memory, which the device cannot reach. A caller with registered
//! memory uses a [`TransferQueue`](crate::cuda::TransferQueue) instead and copies once.
//!
//! Invariants
//! - I1: a copy takes the device block's borrow word first: of two conflicting copies, one gets
//!   [`DeviceError::Busy`]. The transfer holds the word too, so a block whose copy was given up at its
//!   deadline stays busy until the device has answered.
//! - I2: a bounce block is used by one copy at a time, or by a transfer that was given up at its
//!   deadline. The arena's own borrow words ensure this even if such a block is back in `idle`.

use crate::arena::BorrowWords;
use crate::cuda::{
    Batch, CudaDevice, CudaError, DeviceStorage, Held, PinOptions, PinnedStorage, Purpose, QueueOptions,
    TransferQueue,
};
use core::fmt;
use core::time::Duration;
use kvstrata_core::storage::{DeviceError, DevicePort, Storage, StorageKind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Maximum bytes of a bounce block: large enough that a copy's fixed cost is small beside it.
const BOUNCE_BYTES: usize = 1 << 20;

/// The number of bounce blocks, and so of concurrent copies.
const BOUNCES: usize = 8;

/// The deadline of a copy. A working device needs far less time, so a late answer means a dead device.
const DEADLINE: Duration = Duration::from_secs(30);

/// A device tier of `blocks` blocks of `block_bytes` bytes on a CUDA device, initially zeroed.
pub struct CudaDeviceTier {
    memory: Arc<DeviceStorage>,
    block_bytes: usize,
    words: Arc<BorrowWords>,
    bounce: Arc<PinnedStorage>,
    idle: Mutex<Vec<usize>>,
    returned: Condvar,
    onboard: TransferQueue,
    offload: TransferQueue,
    deadline: Duration,
}

impl CudaDeviceTier {
    /// Allocates the blocks, the bounce blocks, and two streams.
    ///
    /// # Errors
    /// [`CudaError`]: a zero size, no memory, or the driver refuses.
    pub fn new(
        device: &Arc<CudaDevice>,
        blocks: usize,
        block_bytes: usize,
    ) -> Result<CudaDeviceTier, CudaError> {
        CudaDeviceTier::with_deadline(device, blocks, block_bytes, DEADLINE)
    }

    /// As [`new`](CudaDeviceTier::new), with a deadline: a copy fails if the device has not answered by then.
    ///
    /// # Errors
    /// As for [`new`](CudaDeviceTier::new).
    pub fn with_deadline(
        device: &Arc<CudaDevice>,
        blocks: usize,
        block_bytes: usize,
        deadline: Duration,
    ) -> Result<CudaDeviceTier, CudaError> {
        let size_bytes = (blocks as u64).saturating_mul(block_bytes as u64);
        let memory = DeviceStorage::allocate(device, size_bytes)?;
        let bounce_bytes = block_bytes.min(BOUNCE_BYTES);
        let bounce =
            PinnedStorage::allocate(device, BOUNCES, bounce_bytes, PinOptions::new(), &mut |_, _| {})?;
        let tier = CudaDeviceTier {
            memory,
            block_bytes,
            words: Arc::new(BorrowWords::new(blocks)),
            bounce,
            idle: Mutex::new((0..BOUNCES).collect()),
            returned: Condvar::new(),
            onboard: TransferQueue::new(device, Purpose::Onboard, QueueOptions::new())?,
            offload: TransferQueue::new(device, Purpose::Offload, QueueOptions::new())?,
            deadline,
        };
        tier.zero()?;
        Ok(tier)
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.words.blocks()
    }

    /// The device memory, for transfers that need no bounce. They take no borrow words: a caller that
    /// starts one must know that its blocks have no other user.
    #[must_use]
    pub fn memory(&self) -> &Arc<DeviceStorage> {
        &self.memory
    }

    fn zero(&self) -> Result<(), CudaError> {
        let mut batch = Batch::new();
        let all = batch.device(self.memory.range(0, self.memory.size_bytes())?);
        let mut work = self.onboard.begin(batch).map_err(|rejected| rejected.error)?;
        work.fill((all, 0), self.memory.size_bytes(), 0);
        // The copies' deadline does not apply: this may fill all of a device's memory.
        work.finish().map_err(|rejected| rejected.error)?.wait_for(DEADLINE)?;
        Ok(())
    }

    fn idle(&self) -> MutexGuard<'_, Vec<usize>> {
        // Nothing panics under the lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an idle bounce block, waiting for one until the deadline.
    fn take_bounce(&self) -> Result<Bounce<'_>, CudaError> {
        let waiting = self.returned.wait_timeout_while(self.idle(), self.deadline, |idle| idle.is_empty());
        let (mut idle, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        match idle.pop() {
            Some(block) => Ok(Bounce { tier: self, block }),
            None => {
                let waited_ms = u64::try_from(self.deadline.as_millis()).unwrap_or(u64::MAX);
                Err(CudaError::Deadline { device: self.memory.device().ordinal(), waited_ms })
            }
        }
    }

    fn borrowed(&self, block: u32, write: bool) -> Result<Arc<Borrowed>, DeviceError> {
        let at = block as usize;
        let taken = if write { self.words.take_write(at) } else { self.words.take_read(at) };
        taken.map_err(|_| DeviceError::Busy { block })?;
        Ok(Arc::new(Borrowed { words: Arc::clone(&self.words), block: at, write }))
    }

    fn check(&self, block: u32, offset: usize, bytes: usize) -> Result<(), DeviceError> {
        let blocks = u32::try_from(self.blocks()).unwrap_or(u32::MAX);
        DeviceError::check_range(block, offset, bytes, blocks, self.block_bytes)?;
        // After a fault the blocks stay borrowed, and `Busy` would hide the cause.
        match self.memory.device().fault() {
            None => Ok(()),
            Some(fault) => Err(DeviceError::Failed { code: fault.code.number(), retryable: false }),
        }
    }

    /// Returns the position in bytes from the memory's start.
    fn offset_of(&self, block: u32, offset: usize) -> u64 {
        u64::from(block) * self.block_bytes as u64 + offset as u64
    }

    fn put(&self, at: u64, part: &[u8], borrowed: &Arc<Borrowed>) -> Result<(), CudaError> {
        let bounce = self.take_bounce()?;
        let mut block = bounce.write()?;
        block[..part.len()].copy_from_slice(part);
        let mut batch = Batch::new();
        batch.keep(Arc::<Borrowed>::clone(borrowed));
        let bytes = part.len() as u64;
        let from = batch.read(block.into_read(), &self.bounce)?;
        let to = batch.device(self.memory.range(at, bytes)?);
        batch.copy((from, 0), (to, 0), bytes)?;
        self.onboard.submit(batch).map_err(|rejected| rejected.error)?.wait_for(self.deadline)?;
        Ok(())
    }

    fn get(&self, at: u64, part: &mut [u8], borrowed: &Arc<Borrowed>) -> Result<(), CudaError> {
        let bounce = self.take_bounce()?;
        let mut batch = Batch::new();
        batch.keep(Arc::<Borrowed>::clone(borrowed));
        let bytes = part.len() as u64;
        let from = batch.device(self.memory.range(at, bytes)?);
        let to = batch.write(bounce.write()?, &self.bounce)?;
        batch.copy((from, 0), (to, 0), bytes)?;
        let done = self.offload.submit(batch).map_err(|rejected| rejected.error)?.wait_for(self.deadline)?;
        for held in done.held() {
            if let Held::Write(block, _) = held {
                part.copy_from_slice(&block[..part.len()]);
            }
        }
        Ok(())
    }
}

/// A bounce block that is out of `idle`.
struct Bounce<'a> {
    tier: &'a CudaDeviceTier,
    block: usize,
}

impl Bounce<'_> {
    /// Borrows the block for writing. Refused while a transfer that was given up still holds it (I2).
    fn write(&self) -> Result<crate::arena::BlockWrite, CudaError> {
        let block = self.tier.bounce.arena().write(self.block);
        block.map_err(|_| CudaError::Full { what: "bounce blocks", limit: BOUNCES })
    }
}

impl Drop for Bounce<'_> {
    fn drop(&mut self) {
        self.tier.idle().push(self.block);
        self.tier.returned.notify_one();
    }
}

/// A device block, borrowed until the last transfer that uses it has ended (I1).
struct Borrowed {
    words: Arc<BorrowWords>,
    block: usize,
    write: bool,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if self.write { self.words.give_write(self.block) } else { self.words.give_read(self.block) }
    }
}

/// Translates an error into the port's.
fn failed(error: &CudaError) -> DeviceError {
    DeviceError::Failed { code: error.number(), retryable: error.is_passing() }
}

impl Storage for CudaDeviceTier {
    fn kind(&self) -> StorageKind {
        self.memory.kind()
    }

    fn base_address(&self) -> u64 {
        self.memory.base_address()
    }

    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }
}

impl DevicePort for CudaDeviceTier {
    fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    fn copy_in(&self, block: u32, offset: usize, src: &[u8]) -> Result<(), DeviceError> {
        self.check(block, offset, src.len())?;
        let borrowed = self.borrowed(block, true)?;
        let mut at = self.offset_of(block, offset);
        for part in src.chunks(self.bounce.arena().block_bytes()) {
            self.put(at, part, &borrowed).map_err(|error| failed(&error))?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn copy_out(&self, block: u32, offset: usize, dst: &mut [u8]) -> Result<(), DeviceError> {
        self.check(block, offset, dst.len())?;
        let borrowed = self.borrowed(block, false)?;
        let mut at = self.offset_of(block, offset);
        for part in dst.chunks_mut(self.bounce.arena().block_bytes()) {
            let bytes = part.len() as u64;
            self.get(at, part, &borrowed).map_err(|error| failed(&error))?;
            at += bytes;
        }
        Ok(())
    }
}

impl fmt::Debug for CudaDeviceTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CudaDeviceTier({} blocks of {} bytes in {:?})",
            self.blocks(),
            self.block_bytes,
            self.memory
        )
    }
}
