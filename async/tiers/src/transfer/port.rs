//! The ports: what moves bytes. Their contract is the tests' (`async/tests/movers/`, `disk_port/`), which every backend passes.

use super::copies::Copies;
use super::landing::{Landing, Token};
use super::tier_stats::TierStats;
use kvstrata_core::{BlockId, BlockPool, BlockRef, ImmutableBlock, SequenceHash};
use kvstrata_ffi::arena::{BlockRead, BlockWrite};
use kvstrata_ffi::disk::{Name, OwnerId, Urgency};
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Copies between a device's blocks and host memory.
///
/// - [`start`](DeviceMover::start) returns at once: it neither copies nor waits. Copies of one list, and of several, may be carried out
///   in any order and at the same time.
/// - Offload keeps the sum of each layer in the host memory; onboard compares them where it is asked to, and fails with
///   [`Cause::Mismatch`](super::Cause::Mismatch) where one differs.
/// - Zeros ([`HostSide::Zeros`](super::HostSide::Zeros)) come after what the engine has queued in the device, as offloads do.
/// - Each list is answered (the list's I1), also when the device fails, is gone, or the mover is dropped.
pub trait DeviceMover: Send + Sync + Debug {
    /// Starts copies, all of one direction.
    fn start(&self, copies: Copies);

    /// How many blocks a list should have: more are given to [`start`](DeviceMover::start) only where it pays to start them together.
    fn blocks_at_once(&self) -> usize;

    /// For people.
    fn describe(&self) -> String;
}

/// A block to be read.
#[derive(Debug)]
pub struct DiskRead {
    /// For the answer, [`Landed::Read`](super::Landed::Read).
    pub token: Token,
    /// Its slot. The manager holds the block until the answer.
    pub slot: BlockId,
    /// The block.
    pub hash: SequenceHash,
    /// Who goes first.
    pub urgency: Urgency,
    /// Where to; comes back.
    pub buffer: BlockWrite,
    /// Where to answer.
    pub landing: Landing,
}

/// A block to be written.
#[derive(Debug)]
pub struct DiskWrite {
    /// For the answer, [`Landed::Write`](super::Landed::Write).
    pub token: Token,
    /// A slot that [`DiskPort::take`] gave; the port's from now on, whatever comes.
    pub slot: BlockId,
    /// The block, the one before it, and whose it is.
    pub name: Name,
    /// Its bytes; come back where the write succeeds.
    pub bytes: BlockRead,
    /// Where to answer.
    pub landing: Landing,
}

/// Slots on their way to be erased; in the end those that could not be. What is under way goes on if this is dropped.
pub type Erasing = Pin<Box<dyn Future<Output = Vec<BlockId>> + Send>>;

/// What was given back on its way to be forgotten for good; in the end, whether it is. What is under way goes on if this is dropped.
pub type Forgetting = Pin<Box<dyn Future<Output = bool> + Send>>;

/// A disk tier, books and bytes.
///
/// - Nothing here waits for the device: who has as many reads and writes under way as [`reads_at_once`](DiskPort::reads_at_once) and
///   [`writes_at_once`](DiskPort::writes_at_once) say costs nobody a thread.
/// - [`take`](DiskPort::take), [`take_this`](DiskPort::take_this) and [`give_back`](DiskPort::give_back) touch the books alone: no system
///   call, so that they may be made under a lock.
/// - Every read and write is answered, once, also when the device fails, is gone, or the port is dropped. One that is dropped is answered
///   by that, as if it had failed ([`Landing`]): by a port that panics, too.
/// - A write's block is found from its answer on, if that is a success, and not before its bytes are down.
pub trait DiskPort: Send + Sync + Debug {
    /// The books.
    fn pool(&self) -> &BlockPool;

    /// Blocks that the opening has found and put into the books, and whose they are; but for nobody's. Told once: to the manager that
    /// the port is given to.
    fn recovered(&self) -> Vec<(BlockId, OwnerId)>;

    /// Finds a block that can be read.
    fn lookup(&self, hash: SequenceHash) -> Option<ImmutableBlock<'_>>;

    /// The same for who looks after it and does not use it, as [`BlockPool::find`].
    fn find(&self, hash: SequenceHash) -> Option<ImmutableBlock<'_>> {
        self.lookup(hash)
    }

    /// A request has this block, wherever it is.
    fn used(&self, hash: SequenceHash);

    /// Whether a block that is not in the tier is to be written; what is admitted is taken out of the budget. `now` is the time since some
    /// fixed moment.
    fn admits(&self, hash: SequenceHash, now: Duration) -> bool;

    /// Appends up to `wanted` slots to write to, whose old blocks are forgotten. Fewer if the others are in use, or their device lost.
    /// They are the caller's, to be given to [`write`](DiskPort::write) or [`give_back`](DiskPort::give_back).
    fn take(&self, wanted: usize, slots: &mut Vec<BlockId>);

    /// Takes the slot of a particular block that nobody holds, whose bytes are not needed any more. None: it is held, gone, or its device lost.
    fn take_this(&self, block: BlockRef) -> Option<BlockId> {
        self.pool().take_out(block).ok().map(|taken| taken.into_mutable().into_id())
    }

    /// Makes what taken slots held be found by no restart; with `zero` it overwrites their bytes before. Ends when that is on the device, with
    /// the slots of which it is not, nor may ever be: they could not be overwritten, or their device could not write down that they are
    /// forgotten. To be [given back](DiskPort::give_back) are the others.
    fn erase(&self, slots: Vec<BlockId>, zero: bool) -> Erasing;

    /// Frees a slot that was taken and not written. What it held before is found by no restart: if it held something, it is free from
    /// [`forget_given_back`](DiskPort::forget_given_back) on, or a while later; [`forget_for_good`](DiskPort::forget_for_good) and
    /// [`close`](DiskPort::close) see to it too.
    fn give_back(&self, slot: BlockId);

    /// To be called after [`give_back`](DiskPort::give_back), without a lock. For a port that has something to do then.
    fn forget_given_back(&self) {}

    /// Ends when what slots held that were given back before is found by no restart, and whether that is so. A device that is known to be
    /// [lost](DiskPort::is_lost) is passed over. For a port where that takes a while.
    fn forget_for_good(&self) -> Forgetting {
        Box::pin(std::future::ready(true))
    }

    /// Overwrites the bytes of free slots that an [`erase`](DiskPort::erase) without zeros has left,
    /// whoever's they were. Ends when that is on the device, and whether it is so of all of them. For a
    /// port whose bytes outlive what it forgets.
    fn erase_left(&self) -> Forgetting {
        Box::pin(std::future::ready(true))
    }

    /// Reads that it takes without making anybody wait, whatever slots they are of.
    fn reads_at_once(&self) -> u32 {
        u32::MAX
    }

    /// The same of writes.
    fn writes_at_once(&self) -> u32 {
        u32::MAX
    }

    /// Volumes that are out of service: their slots leave the pool without a word, when they are looked up or taken.
    fn losses(&self) -> u64 {
        0
    }

    /// Whether a slot is of such a one.
    fn is_lost(&self, _slot: BlockId) -> bool {
        false
    }

    /// Whether it says by itself, through `tracing`, what of it has failed and what to do. What fails of one that does not the manager says, by
    /// cause.
    fn says_what_fails(&self) -> bool {
        false
    }

    /// What it has counted. None from a port that counts nothing.
    fn stats(&self) -> Option<TierStats> {
        None
    }

    /// Starts a read.
    fn read(&self, read: DiskRead);

    /// Starts a write.
    fn write(&self, write: DiskWrite);

    /// Ends the registration of a block whose read failed, once the manager holds it no more; somebody else may.
    fn unregister(&self, block: BlockRef);

    /// For people.
    fn describe(&self) -> String;

    /// What there is to do when nothing more will be asked for, so that a restart finds everything. None for a port that ends with the process.
    fn close(&self) -> Option<Closing> {
        None
    }
}

/// Ends a disk tier; blocks until that is done.
pub type Closing = Box<dyn FnOnce() + Send>;
