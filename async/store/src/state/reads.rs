//! Reads from the tier below: one for each key, for all batches that wait for it.
//!
//! ```text
//!   Queued ─► Moving ─► landed: registered in the host, or copied to the other waiters' memory ─► ended
//! ```
//!
//! Invariants
//! - I1: a key has at most one read in a size class; later loads join it until it ends.
//! - I2: from `Moving` on, a read holds its block below and owns its target until it has landed.
//! - I3: a read straight into a batch's memory is that of its first waiter, which stays until the end.

use crate::size_class::ClassId;
use crate::state::Waiter;
use kvstrata_core::{BlockId, BlockRef, SequenceHash};
use slab::Slab;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadKey(pub(crate) usize);

/// Where a read goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Into {
    /// Not decided yet: it is queued.
    Open,
    /// A block of the host tier.
    Host(BlockId),
    /// A staging block.
    Staging(BlockId),
    /// The memory of its first waiter.
    Lent,
}

/// A read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) class: ClassId,
    pub(crate) hash: SequenceHash,
    pub(crate) bytes: usize,
    /// The block below, held.
    pub(crate) block: BlockRef,
    pub(crate) into: Into,
    pub(crate) waiters: Vec<Waiter>,
    /// Calls that forget the key, answered after the read.
    pub(crate) forgets: Vec<Waiter>,
    /// When it began to move.
    pub(crate) since: Option<Duration>,
    pub(crate) has_landed: bool,
    /// The host block that it landed in, registered and held.
    pub(crate) registered: Option<BlockRef>,
    /// Copies to other waiters, after it has landed.
    pub(crate) copies: usize,
}

impl Read {
    pub(crate) fn new(
        class: ClassId,
        (hash, bytes): (SequenceHash, usize),
        block: BlockRef,
        waiter: Waiter,
    ) -> Read {
        let (into, waiters, forgets) = (Into::Open, vec![waiter], Vec::new());
        Read {
            class,
            hash,
            bytes,
            block,
            into,
            waiters,
            forgets,
            since: None,
            has_landed: false,
            registered: None,
            copies: 0,
        }
    }
}

/// The reads, by key and by hash.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    all: Slab<Read>,
    by_hash: HashMap<(ClassId, SequenceHash), ReadKey>,
}

impl Reads {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn add(&mut self, read: Read) -> ReadKey {
        let name = (read.class, read.hash);
        let key = ReadKey(self.all.insert(read));
        self.by_hash.insert(name, key);
        key
    }

    pub(crate) fn of(&self, class: ClassId, hash: SequenceHash) -> Option<ReadKey> {
        self.by_hash.get(&(class, hash)).copied()
    }

    pub(crate) fn get(&self, key: ReadKey) -> Option<&Read> {
        self.all.get(key.0)
    }

    pub(crate) fn get_mut(&mut self, key: ReadKey) -> Option<&mut Read> {
        self.all.get_mut(key.0)
    }

    pub(crate) fn remove(&mut self, key: ReadKey) -> Option<Read> {
        let read = self.all.try_remove(key.0)?;
        self.by_hash.remove(&(read.class, read.hash));
        Some(read)
    }

    pub(crate) fn keys(&self) -> Vec<ReadKey> {
        self.all.iter().map(|(key, _)| ReadKey(key)).collect()
    }
}
