//! Answers: one for each key of a batch.

use kvstrata_ffi::arena::HostArena;
use kvstrata_tiers::Tier;
use kvstrata_tiers::transfer::Cause;
use std::sync::Arc;

/// The number of a batch, unique in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// The kinds of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Writes bytes under keys.
    Store,
    /// Brings bytes of keys.
    Load,
    /// Ends keys.
    Forget,
}

/// The answer for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The bytes are in this tier, and lookups find them.
    Stored(Tier),
    /// The key was there already, with as many bytes. Nothing was written.
    Present,
    /// The memory has the bytes. They came from this tier.
    Loaded(Tier),
    /// No lookup finds the key any more.
    Forgotten,
    /// The key is not there. A load has left the memory as it was.
    Absent,
    /// Nothing was stored or loaded. The memory of a load may have been overwritten.
    Missed(Miss),
}

impl Outcome {
    /// Returns whether the call did its work for this key.
    #[must_use]
    pub fn is_done(self) -> bool {
        match self {
            Outcome::Stored(_) | Outcome::Present | Outcome::Loaded(_) | Outcome::Forgotten => true,
            Outcome::Absent | Outcome::Missed(_) => false,
        }
    }
}

/// Why nothing was stored or loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Miss {
    /// The key has another number of bytes.
    Length,
    /// The memory is longer than the largest block size of the store, or empty.
    TooLong,
    /// No block is free, and none can be evicted.
    Full,
    /// The tier below takes no more just now, or its filter or write budget refused the block.
    Refused,
    /// Too many batches wait already.
    Busy,
    /// The tier below takes too long, so the store spares it for a while.
    Slow,
    /// The deadline passed first.
    Late,
    /// The transfer failed.
    Failed(Cause),
    /// The store is closed.
    Closed,
}

impl Miss {
    /// Returns the name in metrics and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Miss::Length => "length",
            Miss::TooLong => "too_long",
            Miss::Full => "full",
            Miss::Refused => "refused",
            Miss::Busy => "busy",
            Miss::Slow => "slow",
            Miss::Late => "late",
            Miss::Failed(cause) => cause.name(),
            Miss::Closed => "closed",
        }
    }
}

/// A batch that has ended: no transfer touches its memory any more.
#[derive(Debug)]
pub struct Completion {
    /// The batch.
    pub job: JobId,
    /// Its kind.
    pub kind: Kind,
    /// The answers, in the order of its keys.
    pub outcomes: Box<[Outcome]>,
    /// The memory that was lent. Dropping it drops the memory's owner, unless the caller has clones.
    pub memory: Option<Arc<HostArena>>,
}

impl Completion {
    /// Returns whether every key was done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.is_done())
    }

    /// Returns the number of leading keys that were done: the usable prefix of a load.
    #[must_use]
    pub fn leading(&self) -> usize {
        self.outcomes.iter().take_while(|outcome| outcome.is_done()).count()
    }
}
