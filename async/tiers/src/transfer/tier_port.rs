//! The port of a tier below host memory: pool metadata and bytes. Its contract is the tests' (`async/tests/disk_port/`), which every
//! implementation passes.
//!
//! ```text
//!   TierPort   every tier: find, reserve, read, write, release, forget
//!   Extras     what only some tiers do:
//!     Admits   decides which blocks are worth a write
//!     Erases   overwrites the bytes of slots
//!     Lasts    outlives the process: a restart finds its blocks
//!     Loses    has parts that fail on their own
//!     Counts   counts what it does
//! ```

use super::landing::{Landing, Token};
use super::tier_stats::TierStats;
use kvstrata_core::{BlockId, BlockPool, BlockRef, ImmutableBlock, SequenceHash};
use kvstrata_ffi::arena::{BlockRead, BlockWrite};
use kvstrata_ffi::disk::{Name, OwnerId, Urgency};
use std::fmt::{self, Debug};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// A block to be read.
#[derive(Debug)]
pub struct TierRead {
    /// For the answer, [`Landed::Read`](super::Landed::Read).
    pub token: Token,
    /// Its slot. The engine holds the block until the answer.
    pub slot: BlockId,
    /// The block.
    pub hash: SequenceHash,
    /// Which reads go first.
    pub urgency: Urgency,
    /// The memory to read to; comes back.
    pub buffer: BlockWrite,
    /// Where to answer.
    pub landing: Landing,
}

/// A block to be written.
#[derive(Debug)]
pub struct TierWrite {
    /// For the answer, [`Landed::Write`](super::Landed::Write).
    pub token: Token,
    /// A slot that [`TierPort::reserve`] gave; the port's from now on, whatever comes.
    pub slot: BlockId,
    /// The block, its parent, and its owner.
    pub name: Name,
    /// Its bytes; come back where the write succeeds.
    pub bytes: BlockRead,
    /// Where to answer.
    pub landing: Landing,
}

/// Slots on their way to be erased; in the end those that could not be. What is under way goes on if this is dropped.
pub type Erasing = Pin<Box<dyn Future<Output = Vec<BlockId>> + Send>>;

/// Released slots on their way to be forgotten for good; in the end, whether they are. What is under way goes on if this is dropped.
pub type Forgetting = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Ends a tier; blocks until that is done.
pub type Closing = Box<dyn FnOnce() + Send>;

/// Which slots to reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// Up to so many: free ones, then those of victims.
    Some(usize),
    /// The slot of this block, if no request holds it.
    This(BlockRef),
}

/// A tier as it is.
#[derive(Debug, Clone)]
pub struct TierFacts {
    /// For people.
    pub description: String,
    /// Reads that it takes without making a caller wait, whatever slots they are of.
    pub reads_at_once: u32,
    /// The same of writes.
    pub writes_at_once: u32,
    /// Whether it says by itself, through `tracing`, what of it has failed and what to do. Otherwise the engine says it, by cause.
    pub says_what_fails: bool,
}

impl TierFacts {
    /// A tier that takes any number of transfers at once, and says nothing by itself.
    #[must_use]
    pub fn new(description: impl Into<String>) -> TierFacts {
        let (reads_at_once, writes_at_once) = (u32::MAX, u32::MAX);
        TierFacts { description: description.into(), reads_at_once, writes_at_once, says_what_fails: false }
    }
}

/// A tier below host memory: pool metadata and bytes.
///
/// - No call waits for the hardware: a caller that has as many reads and writes under way as the [facts](TierPort::facts) say costs no
///   thread.
/// - [`reserve`](TierPort::reserve) and [`release`](TierPort::release) touch the pool's metadata alone, without a system call, so that they may
///   be made under a lock.
/// - Every read and write is answered, once, also when the hardware fails, is gone, or the port is dropped. One that is dropped is answered
///   by that, as if it had failed ([`Landing`]): by a port that panics, too.
/// - A write's block is found from its answer on, if that is a success, and not before its bytes are down.
pub trait TierPort: Send + Sync + Debug {
    /// The pool of its slots.
    fn pool(&self) -> &BlockPool;

    /// What it takes, and what it is.
    fn facts(&self) -> TierFacts;

    /// Finds a block that can be read. `uses`: the look-up is a use of the block; otherwise the caller only looks after it, as
    /// [`BlockPool::find`].
    fn find(&self, hash: SequenceHash, uses: bool) -> Option<ImmutableBlock<'_>>;

    /// Appends slots to write to, whose old blocks are forgotten; fewer if the others are in use, or their hardware is lost. They are the
    /// caller's, to be given to [`write`](TierPort::write) or [`release`](TierPort::release).
    fn reserve(&self, which: Reserve, slots: &mut Vec<BlockId>);

    /// Starts a read.
    fn read(&self, read: TierRead);

    /// Starts a write.
    fn write(&self, write: TierWrite);

    /// Frees a slot that was reserved and not written. A restart does not find what it held before: where that takes a while
    /// ([`Lasts::forget_released`]), the slot is free when it is done.
    fn release(&self, slot: BlockId);

    /// Ends the registration of a block whose read failed, once the engine holds it no more; other requests may.
    fn forget(&self, block: BlockRef);

    /// What it does besides.
    fn extras(&self) -> Extras<'_> {
        Extras::default()
    }
}

/// What a tier does besides: none of it, unless it says so.
#[derive(Clone, Copy, Default)]
pub struct Extras<'t> {
    /// It decides which blocks are worth a write.
    pub admits: Option<&'t dyn Admits>,
    /// It overwrites bytes.
    pub erases: Option<&'t dyn Erases>,
    /// It outlives the process.
    pub lasts: Option<&'t dyn Lasts>,
    /// It has parts that fail on their own.
    pub loses: Option<&'t dyn Loses>,
    /// It counts.
    pub counts: Option<&'t dyn Counts>,
}

impl fmt::Debug for Extras<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extras")
            .field("admits", &self.admits.is_some())
            .field("erases", &self.erases.is_some())
            .field("lasts", &self.lasts.is_some())
            .field("loses", &self.loses.is_some())
            .field("counts", &self.counts.is_some())
            .finish()
    }
}

/// Decides which blocks are worth a write.
pub trait Admits {
    /// A request has this block, wherever it is.
    fn used(&self, hash: SequenceHash);

    /// Whether a block that is not in the tier is to be written; what is admitted is taken out of the budget. `now` is the time since some
    /// fixed moment.
    fn admits(&self, hash: SequenceHash, now: Duration) -> bool;
}

/// Overwrites bytes.
pub trait Erases {
    /// Makes what reserved slots held be found by no restart; with `zero` it overwrites their bytes before. Ends when that is on the hardware,
    /// with the slots of which it is not, nor may ever be. The others are to be [released](TierPort::release).
    fn erase(&self, slots: Vec<BlockId>, zero: bool) -> Erasing;

    /// Overwrites the bytes of free slots that an [`erase`](Erases::erase) without zeros has left, whoever's they were. Ends when that is on the
    /// hardware, and whether it is so of all of them.
    fn erase_left(&self) -> Forgetting {
        Box::pin(std::future::ready(true))
    }
}

/// Outlives the process.
pub trait Lasts {
    /// Blocks that the opening has found and registered, and whose they are; but for those without an owner. Told once.
    fn recovered(&self) -> Vec<(BlockId, OwnerId)>;

    /// To be called after [`release`](TierPort::release), without a lock: begins to forget what released slots held.
    fn forget_released(&self);

    /// Ends when what slots held that were released before is found by no restart, and whether that is so. Hardware that is known to be
    /// [lost](Loses::is_lost) is passed over.
    fn forget_for_good(&self) -> Forgetting;

    /// What there is to do when nothing more will be asked for, so that a restart finds everything.
    fn close(&self) -> Option<Closing>;
}

/// Has parts that fail on their own.
pub trait Loses {
    /// Parts that are out of service: their slots leave the pool without a word, when they are looked up or reserved.
    fn losses(&self) -> u64;

    /// Whether a slot is of such a part.
    fn is_lost(&self, slot: BlockId) -> bool;
}

/// Counts what it does.
pub trait Counts {
    /// The counts.
    fn stats(&self) -> TierStats;
}

/// The extras of any tier, with what holds for one that has none.
impl dyn TierPort + '_ {
    /// A use of a block, wherever it is.
    pub fn used(&self, hash: SequenceHash) {
        if let Some(admits) = self.extras().admits {
            admits.used(hash);
        }
    }

    /// Whether a block is to be written: any, unless the tier decides.
    #[must_use]
    pub fn admits(&self, hash: SequenceHash, now: Duration) -> bool {
        self.extras().admits.is_none_or(|of| of.admits(hash, now))
    }

    /// The slot of a block that no request holds.
    #[must_use]
    pub fn reserve_this(&self, block: BlockRef) -> Option<BlockId> {
        let mut slots = Vec::new();
        self.reserve(Reserve::This(block), &mut slots);
        slots.pop()
    }

    /// [`Lasts::recovered`].
    #[must_use]
    pub fn recovered(&self) -> Vec<(BlockId, OwnerId)> {
        self.extras().lasts.map_or_else(Vec::new, Lasts::recovered)
    }

    /// [`Lasts::forget_released`].
    pub fn forget_released(&self) {
        if let Some(lasts) = self.extras().lasts {
            lasts.forget_released();
        }
    }

    /// [`Lasts::forget_for_good`].
    #[must_use]
    pub fn forget_for_good(&self) -> Forgetting {
        self.extras()
            .lasts
            .map_or_else(|| Box::pin(std::future::ready(true)) as Forgetting, Lasts::forget_for_good)
    }

    /// [`Lasts::close`].
    #[must_use]
    pub fn close(&self) -> Option<Closing> {
        self.extras().lasts.and_then(Lasts::close)
    }

    /// [`Erases::erase`]. A tier that cannot keeps the bytes, if they were to be overwritten.
    #[must_use]
    pub fn erase(&self, slots: Vec<BlockId>, zero: bool) -> Erasing {
        match self.extras().erases {
            Some(erases) => erases.erase(slots, zero),
            None => Box::pin(std::future::ready(if zero { slots } else { Vec::new() })),
        }
    }

    /// [`Erases::erase_left`].
    #[must_use]
    pub fn erase_left(&self) -> Forgetting {
        self.extras()
            .erases
            .map_or_else(|| Box::pin(std::future::ready(true)) as Forgetting, Erases::erase_left)
    }

    /// [`Loses::losses`].
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.extras().loses.map_or(0, Loses::losses)
    }

    /// [`Loses::is_lost`].
    #[must_use]
    pub fn is_lost(&self, slot: BlockId) -> bool {
        self.extras().loses.is_some_and(|of| of.is_lost(slot))
    }

    /// [`Counts::stats`].
    #[must_use]
    pub fn stats(&self) -> Option<TierStats> {
        self.extras().counts.map(Counts::stats)
    }
}
