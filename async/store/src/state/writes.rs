//! Writes: one for each key, for all batches that wait for it.
//!
//! ```text
//!   Arrived ─► CopyIn (to the host or to staging) ─► Ready ─► Moving (to the tier below) ─► ended
//!      └────── straight from the batch's memory ──────▲
//! ```
//!
//! Invariants
//! - I1: a key has at most one write in a size class; later stores join it.
//! - I2: a write straight from a batch's memory is that of its first waiter, which stays until the end.
//! - I3: from `Moving` on, the slot below is the tier's.

use crate::size_class::ClassId;
use crate::state::Waiter;
use kvstrata_core::{BlockId, BlockRef, SequenceHash};
use slab::Slab;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteKey(pub(crate) usize);

/// Where the bytes of a write are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// In the memory of its first waiter; nothing has been decided.
    Arrived,
    /// On their way to a block of the host that is not registered yet.
    CopyToHost(BlockId),
    /// On their way to a staging block.
    CopyToStaging(BlockId),
    /// In the memory of its first waiter.
    Lent,
    /// In a staging block.
    Staging(BlockId),
    /// In a registered block of the host, held.
    Host(BlockRef),
}

/// A write.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) class: ClassId,
    pub(crate) hash: SequenceHash,
    pub(crate) bytes: usize,
    pub(crate) from: From,
    pub(crate) waiters: Vec<Waiter>,
    /// Calls that forget the key, answered after the write.
    pub(crate) forgets: Vec<Waiter>,
    /// When it began to move to the tier below.
    pub(crate) since: Option<Duration>,
}

impl Write {
    pub(crate) fn new(class: ClassId, hash: SequenceHash, bytes: usize, from: From, waiter: Waiter) -> Write {
        let (waiters, forgets) = (vec![waiter], Vec::new());
        Write { class, hash, bytes, from, waiters, forgets, since: None }
    }
}

/// The writes, by key and by hash.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    all: Slab<Write>,
    by_hash: HashMap<(ClassId, SequenceHash), WriteKey>,
}

impl Writes {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn add(&mut self, write: Write) -> WriteKey {
        let name = (write.class, write.hash);
        let key = WriteKey(self.all.insert(write));
        self.by_hash.insert(name, key);
        key
    }

    pub(crate) fn of(&self, class: ClassId, hash: SequenceHash) -> Option<WriteKey> {
        self.by_hash.get(&(class, hash)).copied()
    }

    pub(crate) fn get(&self, key: WriteKey) -> Option<&Write> {
        self.all.get(key.0)
    }

    pub(crate) fn get_mut(&mut self, key: WriteKey) -> Option<&mut Write> {
        self.all.get_mut(key.0)
    }

    pub(crate) fn remove(&mut self, key: WriteKey) -> Option<Write> {
        let write = self.all.try_remove(key.0)?;
        self.by_hash.remove(&(write.class, write.hash));
        Some(write)
    }

    pub(crate) fn keys(&self) -> Vec<WriteKey> {
        self.all.iter().map(|(key, _)| WriteKey(key)).collect()
    }
}
