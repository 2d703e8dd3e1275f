//! Handles given up and taken back, as callers do that keep numbers: [`MutableBlock::into_id`], [`ImmutableBlock::into_ref`].

use super::oracle::Owner;
use super::*;

impl Run<'_> {
    pub(super) fn give_up(&mut self, which: u8, mutable: bool) {
        if let Some(which) = index(which, self.mutable.len()).filter(|_| mutable) {
            let mut block = self.mutable.swap_remove(which);
            if which % 2 == 1 {
                block.init_sequence(Salt::default()).expect("a kept block is Reset");
                self.oracle.owned.insert(block.id().0, Owner::Filling);
            }
            self.given.push(Given::Mutable(block.into_id()));
        } else if let Some(which) = index(which, self.held.len()) {
            self.given.push(Given::Immutable(self.held.swap_remove(which).into_ref()));
        }
    }

    pub(super) fn adopt(&mut self, which: u8) {
        let Some(which) = index(which, self.given.len()) else { return };
        match self.given.swap_remove(which) {
            Given::Mutable(id) => {
                let mut block = self.pool.adopt_mutable(id).expect("it was given up");
                assert_eq!(block.state(), self.oracle.state(id));
                block.reset();
                self.oracle.owned.insert(id.0, Owner::Handle);
                self.mutable.push(block);
            }
            Given::Immutable(block) => {
                self.held.push(self.pool.adopt_immutable(block).expect("it was given up"))
            }
        }
    }

    /// A handle of a block that is not to be had by its number.
    pub(super) fn adopt_mutable_refused(&self, block: u32) {
        let (id, capacity) = (BlockId(block), self.pool.capacity());
        let reason = match self.oracle.owned.get(&block) {
            _ if id.index() >= capacity => Reason::OutOfRange { capacity },
            Some(Owner::Request(_)) => Reason::Reserved,
            // Somebody has a handle: to adopt it would break the caller's side of the contract.
            Some(_) => return,
            None => Reason::Needs(State::Partial),
        };
        let refused = Err(TransitionError { block: id, state: self.oracle.state(id), reason });
        assert_eq!(self.pool.adopt_mutable(id).map(MutableBlock::into_id), refused);
    }

    /// The same for a reference: of a registration that has ended, or that nobody holds, or of no block.
    pub(super) fn adopt_immutable_refused(&self, weak: BlockRef) {
        let capacity = self.pool.capacity();
        let state = self.oracle.state(weak.id);
        let reason = match self.oracle.alive(weak) {
            _ if weak.id.index() >= capacity => Reason::OutOfRange { capacity },
            None => Reason::Recycled,
            Some(known) if known.references == 0 => Reason::Needs(State::Registered),
            // To adopt it more often than it was given up would break the caller's side of the contract.
            Some(_) => return,
        };
        let refused = Err(TransitionError { block: weak.id, state, reason });
        assert_eq!(self.pool.adopt_immutable(weak).map(ImmutableBlock::into_ref), refused);
    }
}
