//! Owned blocks: allocation, eviction by hand, blocks given back unregistered; and requests,
//! with blocks that the table owns.

use super::oracle::Owner;
use super::*;

impl<'p> Run<'p> {
    /// Allocates; empty if it was refused.
    pub(super) fn allocate(&mut self, count: usize) -> Vec<BlockId> {
        let mut out = vec![];
        let before = self.oracle.before();
        let result = self.pool.allocate(count, &mut out);
        let evicted = self.note_evictions();
        self.oracle.allocated(count, &before, evicted, result);
        assert_eq!(out.len(), if result.is_ok() { count } else { 0 }, "all or nothing");
        self.keep(out)
    }

    pub(super) fn allocate_free(&mut self, count: usize, numbers: bool) {
        let (mut out, free) = (vec![], self.oracle.census().free);
        let result = if numbers {
            numbers::allocate_free_ids(self.pool, count, &mut out)
        } else {
            self.pool.allocate_free(count, &mut out)
        };
        let refused = OutOfBlocks { requested: count, available: free };
        assert_eq!(result, if count <= free { Ok(()) } else { Err(refused) });
        assert_eq!(out.len(), if result.is_ok() { count } else { 0 }, "all or nothing");
        self.keep(out);
    }

    pub(super) fn keep(&mut self, blocks: Vec<MutableBlock<'p>>) -> Vec<BlockId> {
        let ids: Vec<_> = blocks.iter().map(MutableBlock::id).collect();
        for block in &blocks {
            assert_eq!(block.state(), State::Reset);
            self.oracle.taken(block.id(), Owner::Handle);
        }
        self.mutable.extend(blocks);
        ids
    }

    /// Reports the pool's evictions to the oracle. Returns their number.
    pub(super) fn note_evictions(&mut self) -> usize {
        let events = self.log.drain();
        let victims = events.len();
        // Earlier events are there already: each operation is compared before the next.
        assert!(self.oracle.expected.is_empty());
        events.into_iter().for_each(|event| self.oracle.evicted(event));
        victims
    }

    pub(super) fn evict(&mut self, count: usize, then: Then) {
        let within_reach = self.oracle.evictable_in_turn();
        let mut victims = vec![];
        assert_eq!(self.pool.evict(count, &mut victims), count.min(within_reach), "victims");
        let told: Vec<_> = self.log.drain();
        assert_eq!(told.len(), victims.len());
        for (victim, event) in victims.iter().zip(told) {
            let Event::Removed(weak, hash) = event else { panic!("{event:?}: eviction stores nothing") };
            assert_eq!((weak.id, hash), (victim.id(), victim.hash()), "a victim keeps its hash");
            self.oracle.evicted(event);
            self.oracle.taken(victim.id(), Owner::Victim);
        }
        self.victims.extend(victims);
        match then {
            Then::Keep => {}
            Then::Drop => self.drop_victims(),
            Then::Reuse => {
                for victim in std::mem::take(&mut self.victims) {
                    self.oracle.left(victim.id(), Owner::Victim);
                    self.keep(vec![victim.into_mutable()]);
                }
            }
        }
    }

    pub(super) fn drop_victims(&mut self) {
        for victim in self.victims.drain(..) {
            self.oracle.left(victim.id(), Owner::Victim);
        }
    }

    /// Takes blocks out of the kept ones.
    pub(super) fn unkeep(&mut self, count: usize) -> Vec<MutableBlock<'p>> {
        let blocks = self.mutable.split_off(self.mutable.len() - count.min(self.mutable.len()));
        for block in &blocks {
            self.oracle.left(block.id(), Owner::Handle);
        }
        blocks
    }

    pub(super) fn give_back(&mut self, count: usize, back: Back) {
        let mut blocks = self.unkeep(count);
        for block in blocks.iter_mut().step_by(2) {
            block.init_sequence(Salt::default()).expect("a kept block is Reset");
            block.add_token().expect("a page has room for one");
        }
        match back {
            Back::Batch => return self.pool.give_back(blocks),
            Back::Numbers => return self.give_back_ids(blocks),
            Back::OneByOne => {}
        }
        for (i, mut block) in blocks.into_iter().enumerate() {
            if i % 2 == 0 {
                if i % 4 == 0 {
                    block.reset();
                }
            } else {
                let complete = registered::complete(block, 7);
                if i % 4 == 1 {
                    drop(complete.reset());
                }
            }
        }
    }

    /// A request's blocks, by the oracle.
    pub(super) fn of_request(&self, request: u64) -> BTreeSet<u32> {
        let owned = self.oracle.owned.iter();
        owned.filter(|(_, owner)| **owner == Owner::Request(request)).map(|(block, _)| *block).collect()
    }

    pub(super) fn reserve(&mut self, request: u64, count: usize) {
        let mut out = vec![BlockId(u32::MAX)];
        if request == u64::MAX {
            let refused = self.requests.reserve(request, count, &mut out);
            return assert_eq!((refused, out.len()), (Err(ReserveError::InvalidId), 1));
        }
        let open: BTreeSet<u64> = self
            .oracle
            .owned
            .values()
            .filter_map(|owner| if let Owner::Request(request) = owner { Some(*request) } else { None })
            .collect();
        let before = self.oracle.before();
        let result = self.requests.reserve(request, count, &mut out);
        let evicted = self.note_evictions();
        let room = open.contains(&request) || open.len() < (2 * self.limit).max(2) || count == 0;
        let allocated = match result {
            Err(ReserveError::OutOfBlocks(error)) => Err(error),
            Err(error) => {
                assert_eq!((error, room), (ReserveError::TooManyRequests { limit: self.limit }, false));
                Ok(())
            }
            Ok(()) => {
                assert!(room, "no room for another request");
                Ok(())
            }
        };
        self.oracle.allocated(count, &before, evicted, allocated);
        assert_eq!(out.len(), 1 + if result.is_ok() { count } else { 0 }, "all or nothing");
        for id in &out[1..] {
            self.oracle.taken(*id, Owner::Request(request));
        }
    }

    pub(super) fn release_request(&mut self, request: u64) {
        let blocks = self.of_request(request);
        assert_eq!(self.requests.release(request), blocks.len(), "blocks of request {request}");
        for block in blocks {
            self.oracle.left(BlockId(block), Owner::Request(request));
        }
    }

    pub(super) fn detach(&mut self, request: u64) {
        let (blocks, mut out) = (self.of_request(request), vec![]);
        assert_eq!(self.requests.detach(request, &mut out), blocks.len(), "blocks of request {request}");
        assert_eq!(out.iter().map(|block| block.id().0).collect::<BTreeSet<_>>(), blocks);
        for block in blocks {
            self.oracle.left(BlockId(block), Owner::Request(request));
        }
        self.keep(out);
    }
}

/// A few numbers, and the one that names no request.
pub(super) fn request_id(byte: u8) -> u64 {
    match byte % 16 {
        15 => u64::MAX,
        other => u64::from(other) << 50 | u64::from(other),
    }
}
