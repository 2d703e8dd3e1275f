//! Eviction: claim, unlink, report, hand over.
//!
//! A victim is claimed by the compare-exchange `Registered, 0 references → Reset`; a lookup that races either
//! makes it fail, or finds the block gone. The caller owns the slot from then on. A batch is claimed first
//! and unlinked afterwards, so that the cache misses of its chains overlap.

use super::register::unpack;
use super::stats::count;
use super::{BlockPool, EvictedBlock};
use crate::id::{BlockId, BlockRef};
use crate::policy::{Event, Eviction, Scan};
use crate::slot::{NO_TICKET, Priority, Slot, Word};
use crate::sync::{Relaxed, skipped};
use crate::timeline::{BATCH, Candidate, Full, Timeline, Verdict};
use alloc::vec::Vec;
use core::cell::Cell;
use core::iter;

/// Victims of a small batch.
const FEW: usize = 4;

/// A search for victims.
struct Victims<'p> {
    pool: &'p BlockPool,
    /// Blocks that the caller was given before these.
    given: usize,
    /// Slot, and the generation of the registration that ended.
    victims: &'p [Cell<(u32, u32)>],
    claimed: Cell<usize>,
    reordered: Cell<bool>,
}

impl<'p> Scan<'p> for Victims<'p> {
    fn slots(&self) -> &'p [Slot] {
        &self.pool.slots
    }

    fn timeline(&self) -> &'p Timeline {
        &self.pool.timeline
    }

    fn parent_of(&self, slot: &Slot) -> Option<u32> {
        self.pool.parent_of(slot)
    }

    fn claimed(&self) -> usize {
        self.claimed.get()
    }

    fn coming(&self) -> usize {
        self.given.saturating_add(self.claimed.get())
    }

    fn claimed_since(&self, before: usize) -> impl Iterator<Item = &'p Slot> {
        self.victims[before..self.claimed.get()]
            .iter()
            .map(|victim| &self.pool.slots[victim.get().0 as usize])
    }

    fn reordered(&self) -> bool {
        self.reordered.take()
    }

    fn is_reordered(&self) -> bool {
        self.reordered.get()
    }

    fn claim(&self, candidate: Candidate) -> Verdict {
        let pool = self.pool;
        let number = candidate.slot;
        let slot = &pool.slots[number as usize];
        let mut word = slot.word();
        loop {
            if !is_still(candidate, slot, word) {
                return Verdict::Stale;
            }
            let waits = slot.defer_if_parent(word.generation()) && !skipped!("evict_parent_first");
            // A lease is a child too. But if it ended before our look at the children, another may have
            // begun since, and the word be the same again. So may it be if a child was added since, by a
            // caller that has held the block and released it. Then the child stays without a parent, as
            // an orphan, until it is registered anew (`adopt_orphan`) or is evicted itself.
            if waits || (word.leases() > 0 && !skipped!("lease_by_child_only")) {
                return Verdict::Deferred;
            }
            match slot.try_swap(word, word.reset()) {
                Ok(()) => break,
                Err(seen) => word = seen,
            }
        }
        slot.set_ticket(NO_TICKET);
        pool.registry.prefetch_head(slot.key());
        // A policy claims no more than requested, and a request is one batch at most.
        self.victims[self.claimed.get()].set((number, word.generation()));
        self.claimed.set(self.claimed.get() + 1);
        if pool.discount_child(slot) {
            self.reordered.set(true);
            return Verdict::TakenLast;
        }
        Verdict::Taken
    }

    fn requeue(&self, candidate: Candidate, list: u8) -> Verdict {
        let pool = self.pool;
        let number = candidate.slot;
        let slot = &pool.slots[number as usize];
        let word = slot.word();
        // Held while it moves, like any block in use, and counted as such.
        let held =
            is_still(candidate, slot, word) && (slot.try_acquire(word).is_ok() || skipped!("requeue_unheld"));
        if !held {
            return Verdict::Stale;
        }
        count(&pool.lane().inactive, 1u64.wrapping_neg());
        // Between the look and the hold another evictor may have moved and released it: it must
        // not be moved or reported twice.
        let ours = slot.ticket() == candidate.ticket || skipped!("requeue_no_recheck");
        if ours {
            slot.forget_ticket();
            match pool.timeline.reserve(&pool.slots, 1) {
                Ok(mut position) => _ = position.put(number, slot, list),
                // Relaxed: without a ticket the list is only for the policy, which takes the block for
                // moved. The release finds a place, or does without.
                Err(Full) => slot.list.store(list, Relaxed),
            }
        }
        pool.release_slots(iter::once(number));
        if ours { Verdict::Requeued } else { Verdict::Stale }
    }
}

/// Returns whether the slot is still the candidate: an evictor may have stalled, and the block
/// been used and pinned meanwhile.
fn is_still(candidate: Candidate, slot: &Slot, word: Word) -> bool {
    let same = slot.ticket() == candidate.ticket || skipped!("evict_stale_candidate");
    word.inactive() && (word.priority() != Priority::Pinned || skipped!("evict_stale_candidate")) && same
}

impl BlockPool {
    /// Takes up to `n` victims out of the registry, in the policy's order, and appends them to `out`.
    /// Their bytes are intact and the caller's, to be saved before the block is used anew. Returns how
    /// many; fewer than `n` if no more are evictable.
    ///
    /// Example: [eviction](BlockPool#eviction).
    pub fn evict<'p>(&'p self, n: usize, out: &mut Vec<EvictedBlock<'p>>) -> usize {
        self.evict_slots(n, 0, |slot| out.push(EvictedBlock::new(self, BlockId(slot))))
    }

    /// As [`evict`](BlockPool::evict), for a caller that was given `given` blocks of the same request before.
    pub(super) fn evict_slots(&self, wanted: usize, given: usize, take: impl FnMut(u32)) -> usize {
        // A small array is cleared in no time, and so is the work of one victim.
        match wanted {
            0..=FEW => self.evict_into(&[const { Cell::new((0, 0)) }; FEW], wanted, given, take),
            _ => self.evict_into(&[const { Cell::new((0, 0)) }; BATCH], wanted, given, take),
        }
    }

    /// The same, with `victims` as room for the blocks that are claimed at once.
    fn evict_into(
        &self,
        victims: &[Cell<(u32, u32)>],
        wanted: usize,
        given: usize,
        mut take: impl FnMut(u32),
    ) -> usize {
        let mut evicted = 0;
        while evicted < wanted {
            let scan = Victims {
                pool: self,
                given: given.saturating_add(evicted),
                victims,
                claimed: Cell::new(0),
                reordered: Cell::new(false),
            };
            let batch = (wanted - evicted).min(victims.len());
            self.unplaced.drain(
                || scan.claimed.get() < batch,
                |number| {
                    let verdict = scan.claim(Candidate { slot: number, ticket: NO_TICKET });
                    if matches!(verdict, Verdict::Taken | Verdict::TakenLast) {
                        let slot = &self.slots[number as usize];
                        self.policy.on(number, slot, Event::TakenOut { parent: self.parent_of(slot) });
                    }
                    verdict != Verdict::Deferred
                },
            );
            self.policy.evict(batch - scan.claimed.get(), &scan);
            let claimed = scan.claimed.get();
            if claimed == 0 {
                break;
            }
            let lane = self.lane();
            count(&lane.inactive, (claimed as u64).wrapping_neg());
            count(&lane.evicted, claimed as u64);
            count(&lane.removed, claimed as u64);
            for (number, generation) in scan.victims[..claimed].iter().map(Cell::get) {
                self.leave_registry(number, generation);
                take(number);
            }
            evicted += claimed;
        }
        evicted
    }

    /// The parent of a claimed block, if it is still registered.
    pub(super) fn parent_of(&self, slot: &Slot) -> Option<u32> {
        let parent = unpack(slot.parent())?;
        (self.slot(parent.id).word().generation() == parent.generation).then_some(parent.id.0)
    }

    /// Removes one child from the count of a slot's parent. Returns whether that requeued the parent.
    fn discount_child(&self, slot: &Slot) -> bool {
        unpack(slot.parent()).is_some_and(|parent| self.child_gone(parent))
    }

    /// Removes one child, or one lease, from a block's count. Returns whether that requeued the block.
    pub(super) fn child_gone(&self, parent: BlockRef) -> bool {
        let back = self.slot(parent.id).child_removed(parent.generation);
        if back {
            self.bring_back(parent);
        }
        back
    }

    /// Requeues a deferred block whose last child is gone: it can be evicted again.
    fn bring_back(&self, parent: BlockRef) {
        let slot = self.slot(parent.id);
        let word = slot.word();
        // Relaxed: if the slot has been recycled, the bit is a wrong one, and harmless.
        let elsewhere = |list: &u8| *list != slot.list.load(Relaxed);
        let Some(list) = self.policy.list_of_returning(word.priority()).filter(elsewhere) else {
            return self.timeline.relist(&self.slots, parent.id.0);
        };
        let waits = word.generation() == parent.generation && word.inactive();
        // Another holder will place it. A pinned block has no place.
        let held = waits
            && word.priority() != Priority::Pinned
            && (slot.try_acquire(word).is_ok() || skipped!("return_unheld"));
        if !held {
            return;
        }
        count(&self.lane().inactive, 1u64.wrapping_neg());
        slot.forget_ticket();
        self.release_to(parent.id.0, list);
    }

    /// Completes the end of a registration that the caller has ended otherwise than by eviction.
    pub(super) fn end_registration(&self, number: u32, generation: u32) {
        self.discount_child(&self.slots[number as usize]);
        count(&self.lane().removed, 1);
        self.leave_registry(number, generation);
    }

    /// Unlinks a slot whose registration, of this generation, the caller has ended.
    fn leave_registry(&self, number: u32, generation: u32) {
        let slot = &self.slots[number as usize];
        let key = slot.key();
        self.registry.remove(&self.slots, number, key);
        // The ticket first: a block with a ticket is in a list.
        slot.set_ticket(NO_TICKET);
        self.policy.on(number, slot, Event::Removed);
        if let Some(sink) = &self.sink {
            sink.removed(BlockRef { id: BlockId(number), generation }, key);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{BlockPool, Policy, PoolConfig, SequenceHash};
    use alloc::vec::Vec;

    fn hash(number: u64) -> SequenceHash {
        SequenceHash::from_u128(u128::from(number) << 32)
    }

    fn store(pool: &BlockPool, number: u64, hits: usize) {
        let mut blocks = Vec::new();
        pool.allocate(1, &mut blocks).expect("there is room");
        let block = blocks.pop().expect("one").complete(hash(number)).expect("a new block is Reset");
        drop(pool.register(block, None));
        (0..hits).for_each(|_| drop(pool.lookup(hash(number))));
    }

    fn evict(pool: &BlockPool) -> Option<SequenceHash> {
        let mut victims = Vec::new();
        pool.evict(1, &mut victims);
        victims.pop().map(|victim| victim.hash())
    }

    /// A block is promoted while a stalled thread keeps the timeline full: it loses its
    /// place, and is counted once.
    #[test]
    fn promotion_without_timeline_room_counts_the_block_once() {
        let config = PoolConfig::new(4).policy(Policy::S3Fifo).lanes(1).lane_of(|| 0);
        let pool = BlockPool::new(config).expect("a valid setup");
        // The thread stalls before them, or the first block would leave its own place for itself.
        let mut stalled = Vec::new();
        pool.allocate(1, &mut stalled).expect("there is room");
        let number = stalled[0].id().0;
        let slot = &pool.slots[number as usize];
        let mut position = pool.timeline.reserve(&pool.slots, 1).ok().expect("there is room");
        store(&pool, 1, 2);
        store(&pool, 2, 0);
        while pool.timeline.reserve(&pool.slots, 1).is_ok_and(|mut other| {
            let _ = other.put(number, slot, 0);
            true
        }) {}
        assert_eq!((evict(&pool), evict(&pool)), (Some(hash(2)), Some(hash(1))), "the first was promoted");
        let _ = position.put(number, slot, 0);
        slot.forget_ticket();
        drop(stalled);
        // The count of small blocks is right if a new block goes before one of main.
        store(&pool, 3, 2);
        store(&pool, 4, 0);
        assert_eq!(evict(&pool), Some(hash(4)));
        store(&pool, 5, 0);
        assert_eq!(evict(&pool), Some(hash(5)));
    }
}
