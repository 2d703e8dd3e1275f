//! Transfers of one direction, by key and by block.
//!
//! ```text
//!   key ─► transfer            a key is reused after its transfer has ended: serial numbers differ
//!   (group, hash) ─► key       so that a second request for the block joins the transfer
//! ```
//!
//! Invariants
//! - I1: a block has one transfer in each direction, which its name finds. A transfer that was
//!   withdrawn ([`disown`](Transfers::disown)) goes on without its name: the block may have another
//!   transfer by then.
//! - I2: a name finds an existing transfer, for that block.

use crate::places::Places;
use crate::state::{GroupId, Key};
use kvstrata_core::SequenceHash;
use slab::Slab;
use std::collections::HashMap;
use std::ops::{Index, IndexMut};

/// A block of a group.
pub(crate) type BlockName = (GroupId, SequenceHash);

/// A transfer, which knows its block.
pub(crate) trait ForBlock {
    /// The key of such a transfer.
    type Key: Key;

    fn block(&self) -> BlockName;
}

/// The transfers of one direction.
pub(crate) struct Transfers<T: ForBlock> {
    all: Slab<T>,
    by_name: HashMap<BlockName, T::Key, Places>,
}

impl<T: ForBlock> Transfers<T> {
    pub(crate) fn new(places: Places) -> Transfers<T> {
        Transfers { all: Slab::new(), by_name: HashMap::with_hasher(places) }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds a transfer, which the name of its block finds from now on.
    pub(crate) fn insert(&mut self, transfer: T) -> T::Key {
        let block = transfer.block();
        let key = T::Key::new(self.all.insert(transfer));
        self.by_name.insert(block, key);
        key
    }

    /// Takes a transfer out.
    pub(crate) fn remove(&mut self, key: T::Key) -> T {
        self.disown(key);
        self.all.remove(key.index())
    }

    /// Removes the name of a transfer, unless it finds another.
    pub(crate) fn disown(&mut self, key: T::Key) {
        let Some(block) = self.get(key).map(T::block) else { return };
        if self.by_name.get(&block) == Some(&key) {
            self.by_name.remove(&block);
        }
    }

    /// Finds the transfer for a block.
    pub(crate) fn find(&self, block: BlockName) -> Option<T::Key> {
        self.by_name.get(&block).copied()
    }

    /// Whether there is a transfer for a block.
    pub(crate) fn has(&self, block: BlockName) -> bool {
        self.by_name.contains_key(&block)
    }

    pub(crate) fn get(&self, key: T::Key) -> Option<&T> {
        self.all.get(key.index())
    }

    pub(crate) fn get_mut(&mut self, key: T::Key) -> Option<&mut T> {
        self.all.get_mut(key.index())
    }

    /// Returns all transfers, in the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (T::Key, &T)> {
        self.all.iter().map(|(key, transfer)| (T::Key::new(key), transfer))
    }

    /// Returns the keys of matching transfers.
    pub(crate) fn keys_of(&self, which: impl Fn(&T) -> bool) -> Vec<T::Key> {
        self.iter().filter(|(_, transfer)| which(transfer)).map(|(key, _)| key).collect()
    }
}

impl<T: ForBlock> Index<T::Key> for Transfers<T> {
    type Output = T;

    fn index(&self, key: T::Key) -> &T {
        &self.all[key.index()]
    }
}

impl<T: ForBlock> IndexMut<T::Key> for Transfers<T> {
    fn index_mut(&mut self, key: T::Key) -> &mut T {
        &mut self.all[key.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Some(u16, u64);

    impl ForBlock for Some {
        type Key = crate::state::UpId;

        fn block(&self) -> BlockName {
            (GroupId::new(self.0.into()), SequenceHash::from_u128(self.1.into()))
        }
    }

    #[test]
    fn disowned_transfer_leaves_its_name_to_the_next() {
        let mut all = Transfers::new(Places::new(1));
        let first = all.insert(Some(0, 7));
        let other_group = all.insert(Some(1, 7));
        let block = all[first].block();
        assert_eq!((all.find(block), all.has((GroupId::new(2), block.1))), (Option::Some(first), false));
        all.disown(first);
        assert_eq!((all.find(block), all.len()), (None, 2));
        let second = all.insert(Some(0, 7));
        // The first one ends, and leaves the name to the second.
        all.remove(first);
        assert_eq!(all.find(block), Option::Some(second));
        all.remove(second);
        assert!(!all.has(block) && all.find((GroupId::new(1), block.1)) == Option::Some(other_group));
        assert_eq!(all.keys_of(|of| of.0 == 1), [other_group]);
    }
}
