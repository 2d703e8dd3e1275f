//! Handles given up and taken back, as by callers that keep numbers: [`MutableBlock::into_id`],
//! [`ImmutableBlock::into_ref`]; and batch calls by numbers, with some numbers among them
//! that must be left alone.

use super::oracle::Owner;
use super::*;

impl<'p> Run<'p> {
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

    /// Tries to adopt a block that cannot be adopted by its number.
    pub(super) fn adopt_mutable_refused(&self, block: u32) {
        let (id, capacity) = (BlockId(block), self.pool.capacity());
        let reason = match self.oracle.owned.get(&block) {
            _ if id.index() >= capacity => Reason::OutOfRange { capacity },
            Some(Owner::Request(_)) => Reason::Reserved,
            // There is a handle: to adopt it would break the caller's side of the contract.
            Some(_) => return,
            None => Reason::Needs(State::Partial),
        };
        let refused = Err(TransitionError { block: id, state: self.oracle.state(id), reason });
        assert_eq!(self.pool.adopt_mutable(id).map(MutableBlock::into_id), refused);
    }

    /// The same for a reference: of a registration that has ended, or that is not held, or of no block.
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

    pub(super) fn hold_again(&self, which: usize) -> ImmutableBlock<'p> {
        let block = self.held[which].downgrade();
        assert_eq!(self.pool.hold_again(next(block)), None, "another generation");
        assert_eq!(self.pool.hold_again(self.beyond(0)), None, "no such block");
        assert_eq!(self.pool.hold_again(block), Some(block));
        adopt(self.pool, block)
    }

    /// Releases, and beside it references that are not held: of the next generation, beyond the last
    /// block, and one too many.
    pub(super) fn release_refs(&self, released: Vec<ImmutableBlock<'p>>) {
        let mut blocks: Vec<_> = released.into_iter().map(ImmutableBlock::into_ref).collect();
        let mut wrong = 0;
        if let Some(block) = blocks.last().copied() {
            blocks.insert(0, next(block));
            blocks.push(self.beyond(0));
            wrong = 2;
            // The oracle has released them: the remaining holders hold the block beside these.
            if self.oracle.alive(block).is_none_or(|known| known.references == 0) {
                blocks.push(block);
                wrong = 3;
            }
        }
        assert_eq!(self.pool.release_refs(blocks), wrong, "references of nobody");
    }

    pub(super) fn give_back_ids(&self, blocks: Vec<MutableBlock<'p>>) {
        let mut ids: Vec<_> = blocks.into_iter().map(MutableBlock::into_id).collect();
        let mut wrong = ids.len();
        ids.extend_from_within(..);
        ids.push(self.beyond(0).id);
        // Registered, free or a request's; handles of others would break the caller's side of the contract.
        let owner = |block: &u32| self.oracle.owned.get(block).copied();
        let not_ours = |block: &u32| matches!(owner(block), None | Some(Owner::Request(_)));
        ids.extend((0..self.pool.capacity() as u32).filter(not_ours).take(3).map(BlockId));
        wrong += ids.len() - 2 * wrong;
        assert_eq!(self.pool.give_back_ids(ids), wrong, "blocks of nobody");
    }

    /// Registers the last `count` kept blocks as a sequence, by their numbers; first with each mistake
    /// that is refused.
    pub(super) fn store_numbers(&mut self, from: u64, count: usize) {
        let (pool, universe) = (self.pool, self.universe());
        let numbers: Vec<u64> = (0..count as u64).map(|i| (from + i) % universe).collect();
        let hashes: Vec<_> = numbers.iter().map(|number| hash(*number)).collect();
        let mut blocks = self.mutable.split_off(self.mutable.len() - count);
        for block in blocks.iter_mut().skip(1).step_by(2) {
            registered::fill_page(pool, block);
        }
        let ids: Vec<_> = blocks.into_iter().map(MutableBlock::into_id).collect();
        let parent = self.before(&numbers).map(ImmutableBlock::downgrade);
        let mut out = vec![];
        for wrong in [next, |_| BlockRef { id: BlockId(u32::MAX), generation: 0 }] {
            let wrong = parent.map_or(self.beyond(0), wrong);
            assert_eq!(pool.register_ids(&ids, &hashes, Some(wrong), &mut out).unwrap_err().block, wrong.id);
        }
        if let Some(first) = ids.first() {
            let more: Vec<_> = ids.iter().copied().chain([*first]).collect();
            let refused = |reason| Err(TransitionError { block: *first, state: State::Reset, reason });
            let unpaired = Reason::Unpaired { blocks: count + 1, hashes: count };
            assert_eq!(pool.register_ids(&more, &hashes, parent, &mut out), refused(unpaired));
            let paired: Vec<_> = hashes.iter().copied().chain([hash(7)]).collect();
            assert_eq!(pool.register_ids(&more, &paired, parent, &mut out), refused(Reason::Repeated));
        }
        assert!(out.is_empty(), "a refusal registers nothing");
        let present = pool.register_ids(&ids, &hashes, parent, &mut out).expect("owned, and full");
        let out = out.into_iter().map(|block| adopt(pool, block)).collect();
        self.stored(&numbers, &ids, parent, out, present);
    }
}

fn adopt(pool: &BlockPool, block: BlockRef) -> ImmutableBlock<'_> {
    pool.adopt_immutable(block).expect("it was given up")
}

pub(super) fn match_refs<'p>(
    pool: &'p BlockPool,
    hashes: &[SequenceHash],
    out: &mut Vec<ImmutableBlock<'p>>,
) -> usize {
    let mut blocks = vec![];
    let found = pool.match_refs(hashes, &mut blocks);
    out.extend(blocks.into_iter().map(|block| adopt(pool, block)));
    found
}

pub(super) fn lookup_ref(pool: &BlockPool, hash: SequenceHash) -> Option<ImmutableBlock<'_>> {
    pool.lookup_ref(hash).map(|block| adopt(pool, block))
}

pub(super) fn allocate_free_ids<'p>(
    pool: &'p BlockPool,
    count: usize,
    out: &mut Vec<MutableBlock<'p>>,
) -> Result<(), OutOfBlocks> {
    let mut ids = vec![];
    let result = pool.allocate_free_ids(count, &mut ids);
    out.extend(ids.into_iter().map(|id| pool.adopt_mutable(id).expect("it was free")));
    result
}
