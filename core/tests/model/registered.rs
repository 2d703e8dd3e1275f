//! Registered blocks: stored in several ways, found, released, withdrawn, upgraded.

use super::*;

impl<'p> Run<'p> {
    pub(super) fn store(&mut self, from: u64, count: usize, how: How) {
        let allocated = self.allocate(count);
        if allocated.len() < count {
            return;
        }
        let (pool, universe) = (self.pool, self.universe());
        if how == How::Numbers {
            return self.store_numbers(from, count);
        }
        let blocks = self.mutable.split_off(self.mutable.len() - count);
        let complete = blocks.into_iter().zip(0..).map(|(block, i)| {
            let number = (from + i) % universe;
            (number, if i % 2 == 0 { complete(block, number) } else { fill(pool, block, number) })
        });
        if how == How::Sequence {
            let (numbers, mut blocks): (Vec<u64>, Vec<_>) = complete.unzip();
            return self.store_sequence(&numbers, &allocated, &mut blocks);
        }
        let first = self.held.len();
        for (number, block) in complete.collect::<Vec<_>>() {
            let (id, parent) = (block.id(), self.held[first..].last());
            let parent_ref = parent.map(ImmutableBlock::downgrade);
            let (registered, handle) = if how == How::Single {
                (pool.register(block, parent), None)
            } else {
                let (registered, handle) = pool.register_scoped(block, parent);
                (registered, Some(handle))
            };
            let is_new = matches!(registered, Registered::New(_));
            let block = registered.into_block();
            let weak = block.downgrade();
            let expected = self.oracle.registered(number, id, parent_ref, weak, handle.is_some());
            assert_eq!(is_new, expected, "new, or there already");
            self.holds(block);
            if how == How::ScopedAtOnce {
                drop(handle);
                self.oracle.scope_ended(weak);
            } else {
                self.scoped.extend(handle.map(|handle| (weak, handle)));
            }
        }
    }

    pub(super) fn store_sequence(
        &mut self,
        numbers: &[u64],
        ids: &[BlockId],
        blocks: &mut Vec<CompleteBlock<'p>>,
    ) {
        let (parent, mut out) = (self.before(numbers), vec![]);
        let parent_ref = parent.map(ImmutableBlock::downgrade);
        let present = self.pool.register_sequence(blocks, parent, &mut out);
        assert_eq!(blocks.len(), 0, "all were registered");
        self.stored(numbers, ids, parent_ref, out, present);
    }

    /// A held block of the hash before the first of a sequence.
    pub(super) fn before(&self, numbers: &[u64]) -> Option<&ImmutableBlock<'p>> {
        let universe = self.universe();
        let before = numbers.first().map(|first| hash((first + universe - 1) % universe));
        self.held.iter().find(|block| Some(block.hash()) == before)
    }

    /// Records in the oracle that a sequence was registered as one.
    pub(super) fn stored(
        &mut self,
        numbers: &[u64],
        ids: &[BlockId],
        mut parent_ref: Option<BlockRef>,
        out: Vec<ImmutableBlock<'p>>,
        present: usize,
    ) {
        assert_eq!(out.len(), numbers.len(), "all were registered");
        let mut new = 0;
        for ((number, id), block) in numbers.iter().zip(ids).zip(out) {
            let weak = block.downgrade();
            new += usize::from(self.oracle.registered(*number, *id, parent_ref, weak, false));
            parent_ref = Some(weak);
            self.holds(block);
        }
        assert_eq!(present, numbers.len() - new);
    }

    pub(super) fn holds(&mut self, block: ImmutableBlock<'p>) {
        self.weak.push(block.downgrade());
        self.held.push(block);
    }

    pub(super) fn matched(
        &mut self,
        wanted: &[u64],
        prefix: bool,
        find: impl Fn(&'p BlockPool, &[SequenceHash], &mut Vec<ImmutableBlock<'p>>) -> usize,
    ) {
        let mut expected = vec![];
        for number in wanted {
            match self.oracle.find(*number) {
                Some(known) => expected.push((*number, known.weak)),
                None if prefix => break,
                None => {}
            }
        }
        let hashes: Vec<_> = wanted.iter().map(|number| hash(*number)).collect();
        let mut found = vec![];
        assert_eq!(find(self.pool, &hashes, &mut found), expected.len(), "hits");
        for ((number, weak), block) in expected.into_iter().zip(found) {
            assert_eq!((block.hash(), block.downgrade()), (hash(number), weak));
            self.oracle.acquired(weak.id.0);
            self.holds(block);
        }
    }

    pub(super) fn release(&mut self, count: usize, tail_first: bool, numbers: bool) {
        let count = count.min(self.held.len());
        let start = if tail_first { self.held.len() - count } else { 0 };
        let mut released: Vec<_> = self.held.drain(start..start + count).collect();
        if tail_first {
            released.reverse();
        }
        for block in &released {
            self.oracle.released(block.id().0);
        }
        if numbers {
            return self.release_refs(released);
        }
        self.pool.release(released);
    }

    /// A reference to no block.
    pub(super) fn beyond(&self, by: u8) -> BlockRef {
        BlockRef { id: BlockId((self.pool.capacity() + usize::from(by)) as u32), generation: 0 }
    }

    pub(super) fn unregister(&mut self, weak: BlockRef) {
        let result = self.pool.unregister(weak);
        self.ended(weak, result);
    }

    /// Checks the end of a registration by hand, or its refusal.
    pub(super) fn ended(&mut self, weak: BlockRef, result: Result<(), TransitionError>) {
        let (capacity, state) = (self.pool.capacity(), self.oracle.state(weak.id));
        let refused = |reason| Err(TransitionError { block: weak.id, state, reason });
        let expected = match self.oracle.alive(weak).map(|known| (known.references, known.leases)) {
            _ if weak.id.index() >= capacity => refused(Reason::OutOfRange { capacity }),
            None => refused(Reason::Recycled),
            Some((0, 0)) => {
                self.oracle.removed(weak.id.0);
                Ok(())
            }
            Some((0, leases)) => refused(Reason::Leased { leases }),
            Some((references, _)) => refused(Reason::Referenced { references }),
        };
        assert_eq!(result, expected);
    }

    /// A weak reference taken earlier, as it is, of the next generation, or of a block beyond the last.
    pub(super) fn weak(&self, which: u8, what: u8) -> Option<BlockRef> {
        let weak = self.weak[index(which, self.weak.len())?];
        Some([weak, next(weak), self.beyond(which)][usize::from(what % 3)])
    }

    pub(super) fn upgrade(&mut self, weak: BlockRef) {
        let alive = self.oracle.alive(weak).is_some_and(|known| !known.withdrawn);
        let block = self.pool.upgrade(weak);
        assert_eq!(block.is_some(), alive, "a weak reference lives as long as the registration");
        if let Some(block) = block {
            assert_eq!(block.downgrade(), weak);
            self.oracle.acquired(weak.id.0);
            self.holds(block);
        }
    }
}

/// A whole page at once.
pub(super) fn complete(block: MutableBlock<'_>, number: u64) -> CompleteBlock<'_> {
    block.complete(hash(number)).expect("a new block is Reset")
}

/// The same, token by token.
fn fill<'p>(pool: &BlockPool, mut block: MutableBlock<'p>, number: u64) -> CompleteBlock<'p> {
    fill_page(pool, &mut block);
    block.commit(hash(number)).expect("the page is full")
}

/// A page, token by token, not committed yet.
pub(super) fn fill_page(pool: &BlockPool, block: &mut MutableBlock<'_>) {
    block.init_sequence(Salt::default()).expect("a new block is Reset");
    block.add_token().expect("a page has room for one");
    block.add_tokens(pool.page_size() - 1).expect("a page has room for a page");
}
