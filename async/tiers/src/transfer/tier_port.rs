//! The port of a tier below host memory: pool metadata and bytes. Its contract is the test suite
//! `async/tests/disk_port/`, which every implementation passes.
//!
//! ```text
//!   TierPort   every tier: find, reserve, read, write, release, forget
//!   Extras     only some tiers do this:
//!     Admits   decides which blocks are worth a write
//!     Erases   overwrites the bytes of slots
//!     Lasts    outlives the process: a restart finds its blocks
//!     Loses    has parts that fail on their own
//!     Counts   counts its work
//!     Sizes    takes blocks shorter than its slots
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
    /// The block's hash.
    pub hash: SequenceHash,
    /// Its urgency: which reads go first.
    pub urgency: Urgency,
    /// The memory to read to, as long as the block ([`Sizes`]; [`BlockWrite::first`] narrows it). It comes
    /// back with the answer.
    pub buffer: BlockWrite,
    /// Where to answer.
    pub landing: Landing,
}

/// A block to be written.
#[derive(Debug)]
pub struct TierWrite {
    /// For the answer, [`Landed::Write`](super::Landed::Write).
    pub token: Token,
    /// A slot that [`TierPort::reserve`] gave. It is the port's from now on, in every case.
    pub slot: BlockId,
    /// The block, its parent, and its owner.
    pub name: Name,
    /// The block's bytes: a slot's length, or less where the tier has [`Sizes`]. They come back if the write
    /// succeeds.
    pub bytes: BlockRead,
    /// The sum of the bytes ([`sum_of_payload`](kvstrata_ffi::disk::sum_of_payload)), if the engine made it
    /// when they came. The tier keeps this one instead of its own: bytes that change before they are
    /// written are then found when they are read, or refused.
    pub sum: Option<u64>,
    /// Where to answer.
    pub landing: Landing,
}

/// Slots being erased: the future's output is the slots that could not be. The erasure goes on if the
/// future is dropped.
pub type Erasing = Pin<Box<dyn Future<Output = Vec<BlockId>> + Send>>;

/// Released slots being forgotten for good: the future's output is whether they are. The work goes on if
/// the future is dropped.
pub type Forgetting = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Ends a tier, and blocks until that is done.
pub type Closing = Box<dyn FnOnce() + Send>;

/// The slots to reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// Up to so many: free ones, then those of victims.
    Some(usize),
    /// The slot of this block, if no request holds it.
    This(BlockRef),
}

/// Facts about a tier.
#[derive(Debug, Clone)]
pub struct TierFacts {
    /// A description for people.
    pub description: String,
    /// Reads that it takes without making a caller wait, whichever their slots.
    pub reads_at_once: u32,
    /// Writes that it takes without making a caller wait.
    pub writes_at_once: u32,
    /// Whether it reports its failures and their remedies itself, through `tracing`. Otherwise the
    /// engine reports them, by cause.
    pub logs_failures: bool,
}

impl TierFacts {
    /// Describes a tier that takes any number of transfers at once, and reports nothing itself.
    #[must_use]
    pub fn new(description: impl Into<String>) -> TierFacts {
        let (reads_at_once, writes_at_once) = (u32::MAX, u32::MAX);
        TierFacts { description: description.into(), reads_at_once, writes_at_once, logs_failures: false }
    }
}

/// A tier below host memory: pool metadata and bytes.
///
/// - No call waits for the hardware: a caller with as many reads and writes under way as the
///   [facts](TierPort::facts) say blocks no thread.
/// - [`reserve`](TierPort::reserve) and [`release`](TierPort::release) touch only the pool's metadata,
///   without a system call, so they may be called under a lock.
/// - Every read and write is answered, once, also when the hardware fails, is gone, or the port is
///   dropped. Dropping a read or write answers it as failed ([`Landing`]), also in a port that panics.
/// - A written block is found from its answer on, if that is a success, and not before its bytes are down.
/// - A read with a buffer of another length than the block's fails with
///   [`Cause::Buffer`](super::Cause::Buffer), and the block stays. So does a transfer of lent memory that the
///   tier cannot move: a volume with O_DIRECT moves [aligned](BlockRead::is_aligned) memory.
pub trait TierPort: Send + Sync + Debug {
    /// Returns the pool of the tier's slots.
    fn pool(&self) -> &BlockPool;

    /// Returns the tier's description and limits.
    fn facts(&self) -> TierFacts;

    /// Finds a block that can be read. With `uses`, the look-up is a use of the block; without, it is
    /// none, as with [`BlockPool::find`].
    fn find(&self, hash: SequenceHash, uses: bool) -> Option<ImmutableBlock<'_>>;

    /// Appends slots to write to; their old blocks are forgotten. Appends fewer if the others are in
    /// use, or their hardware is lost. The caller owns them, and gives each to
    /// [`write`](TierPort::write) or [`release`](TierPort::release).
    fn reserve(&self, which: Reserve, slots: &mut Vec<BlockId>);

    /// Starts a read.
    fn read(&self, read: TierRead);

    /// Starts a write.
    fn write(&self, write: TierWrite);

    /// Frees a slot that was reserved and not written. A restart does not find its earlier block: if
    /// that takes a while ([`Lasts::forget_released`]), the slot is free when it is done.
    fn release(&self, slot: BlockId);

    /// Ends the registration of a block whose read failed. The engine has released the block; other
    /// requests may still hold it.
    fn forget(&self, block: BlockRef);

    /// Returns the optional traits that the tier implements.
    fn extras(&self) -> Extras<'_> {
        Extras::default()
    }
}

/// The optional traits of a tier: none, unless it says so.
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
    /// Its blocks have lengths of their own.
    pub sizes: Option<&'t dyn Sizes>,
}

impl fmt::Debug for Extras<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extras")
            .field("admits", &self.admits.is_some())
            .field("erases", &self.erases.is_some())
            .field("lasts", &self.lasts.is_some())
            .field("loses", &self.loses.is_some())
            .field("counts", &self.counts.is_some())
            .field("sizes", &self.sizes.is_some())
            .finish()
    }
}

/// Decides which blocks are worth a write.
pub trait Admits {
    /// Notes that a request has this block, in any tier.
    fn used(&self, hash: SequenceHash);

    /// Returns whether to write a block that is not in the tier. An admitted block is taken out of the
    /// budget. `now` is the time since some fixed moment.
    fn admits(&self, hash: SequenceHash, now: Duration) -> bool;
}

/// Overwrites bytes.
pub trait Erases {
    /// Forgets the earlier blocks of reserved slots, so that no restart finds them. With `zero` it
    /// overwrites their bytes first. The future completes when all of it is on the hardware. Its output is
    /// the slots for which it is not, and may never be. The others are to be [released](TierPort::release).
    fn erase(&self, slots: Vec<BlockId>, zero: bool) -> Erasing;

    /// Overwrites the bytes, of any owner, of free slots that an [`erase`](Erases::erase) without zeros
    /// has left. The future completes when they are on the hardware, with whether all of them are.
    fn erase_left(&self) -> Forgetting {
        Box::pin(std::future::ready(true))
    }
}

/// Outlives the process.
pub trait Lasts {
    /// Returns the blocks that the opening has found and registered, with their owners; blocks without
    /// an owner are left out. Returns them once.
    fn recovered(&self) -> Vec<(BlockId, OwnerId)>;

    /// Begins to forget the earlier blocks of released slots. Call it after
    /// [`release`](TierPort::release), without a lock.
    fn forget_released(&self);

    /// Completes when no restart finds the earlier blocks of slots released before. The output is
    /// whether that is so. Hardware that is known to be [lost](Loses::is_lost) is passed over.
    fn forget_for_good(&self) -> Forgetting;

    /// Returns the work to do after the tier's last use, so that a restart finds everything.
    fn close(&self) -> Option<Closing>;
}

/// Has parts that fail on their own.
pub trait Loses {
    /// Returns the number of parts out of service. Their slots leave the pool silently, when they are
    /// looked up or reserved.
    fn losses(&self) -> u64;

    /// Returns whether a slot is of such a part.
    fn is_lost(&self, slot: BlockId) -> bool;
}

/// Counts its work.
pub trait Counts {
    /// Returns the counts.
    fn stats(&self) -> TierStats;
}

/// Takes blocks shorter than its slots, and gives them back as long as they were.
pub trait Sizes {
    /// Returns the bytes of a block that the caller holds.
    fn bytes_of(&self, block: BlockId) -> usize;
}

/// The extras of any tier, with defaults for a tier without them.
impl dyn TierPort + '_ {
    /// Notes a use of a block, in any tier.
    pub fn used(&self, hash: SequenceHash) {
        if let Some(admits) = self.extras().admits {
            admits.used(hash);
        }
    }

    /// Returns whether a block is to be written: any block, unless the tier decides.
    #[must_use]
    pub fn admits(&self, hash: SequenceHash, now: Duration) -> bool {
        self.extras().admits.is_none_or(|of| of.admits(hash, now))
    }

    /// Reserves the slot of a block, if no request holds it.
    #[must_use]
    pub fn reserve_this(&self, block: BlockRef) -> Option<BlockId> {
        let mut slots = Vec::new();
        self.reserve(Reserve::This(block), &mut slots);
        slots.pop()
    }

    /// See [`Lasts::recovered`].
    #[must_use]
    pub fn recovered(&self) -> Vec<(BlockId, OwnerId)> {
        self.extras().lasts.map_or_else(Vec::new, Lasts::recovered)
    }

    /// See [`Lasts::forget_released`].
    pub fn forget_released(&self) {
        if let Some(lasts) = self.extras().lasts {
            lasts.forget_released();
        }
    }

    /// See [`Lasts::forget_for_good`].
    #[must_use]
    pub fn forget_for_good(&self) -> Forgetting {
        self.extras()
            .lasts
            .map_or_else(|| Box::pin(std::future::ready(true)) as Forgetting, Lasts::forget_for_good)
    }

    /// See [`Lasts::close`].
    #[must_use]
    pub fn close(&self) -> Option<Closing> {
        self.extras().lasts.and_then(Lasts::close)
    }

    /// See [`Erases::erase`]. A tier without it keeps bytes that were to be overwritten.
    #[must_use]
    pub fn erase(&self, slots: Vec<BlockId>, zero: bool) -> Erasing {
        match self.extras().erases {
            Some(erases) => erases.erase(slots, zero),
            None => Box::pin(std::future::ready(if zero { slots } else { Vec::new() })),
        }
    }

    /// See [`Erases::erase_left`].
    #[must_use]
    pub fn erase_left(&self) -> Forgetting {
        self.extras()
            .erases
            .map_or_else(|| Box::pin(std::future::ready(true)) as Forgetting, Erases::erase_left)
    }

    /// See [`Loses::losses`].
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.extras().loses.map_or(0, Loses::losses)
    }

    /// See [`Loses::is_lost`].
    #[must_use]
    pub fn is_lost(&self, slot: BlockId) -> bool {
        self.extras().loses.is_some_and(|of| of.is_lost(slot))
    }

    /// See [`Sizes::bytes_of`]. None: all blocks of this tier are of one length.
    #[must_use]
    pub fn bytes_of(&self, block: BlockId) -> Option<usize> {
        self.extras().sizes.map(|of| of.bytes_of(block))
    }

    /// See [`Counts::stats`].
    #[must_use]
    pub fn stats(&self) -> Option<TierStats> {
        self.extras().counts.map(Counts::stats)
    }
}
