//! The next victims among a caller's blocks, for example one owner's, without passing the other blocks
//! again at each look.
//!
//! ```text
//!   a list   others' others' others' │ own  others' own …  passed: up to the first found, or the young end
//! ```
//!
//! I1. No block that a look has found lies before a place of `Passed`: places of blocks only move
//!     towards the young end (`timeline/compact.rs`).
//! I2. A block that a look has passed may still become a victim: a parent that is requeued at its old
//!     place, a block that keeps its place while it is in use or leased, one that was just being
//!     released. So a look that finds too few begins again from the oldest blocks. So does one after as
//!     many blocks were found as the last full look has passed: thus none is left out for ever.

use super::BlockPool;
use crate::id::BlockRef;
use crate::policy::Ordered;
use alloc::vec::Vec;

/// The positions of looks for the same blocks; the default is the beginning.
#[derive(Debug, Clone, Default)]
pub struct Passed {
    /// The place in each list of the policy.
    places: Vec<u64>,
    /// Blocks that the last full look has asked about, and blocks that were found since.
    asked: usize,
    found: usize,
}

impl BlockPool {
    /// Appends up to `n` blocks for which `is_one` is true, in about the order in which eviction would
    /// take them: exactly LRU's order under LRU. Leased blocks are left out. Nothing is taken or held,
    /// as with [`next_victims`](BlockPool::next_victims). Blocks that `passed` has passed are not asked
    /// about again unless too few are found, so many looks cost about as much as one from the oldest to
    /// the youngest. A block that was found, and is still there, is found again.
    ///
    /// Example: [eviction](BlockPool#eviction).
    pub fn next_victims_among(
        &self,
        passed: &mut Passed,
        n: usize,
        mut is_one: impl FnMut(BlockRef) -> bool,
        out: &mut Vec<BlockRef>,
    ) {
        let before = out.len();
        if passed.found < passed.asked {
            self.look_among(passed, n, &mut is_one, out);
            if out.len() - before == n {
                passed.found += n;
                return;
            }
            out.truncate(before);
        }
        let mut asked = 0;
        let mut is_one = |block| {
            asked += 1;
            is_one(block)
        };
        passed.places.clear();
        self.look_among(passed, n, &mut is_one, out);
        (passed.asked, passed.found) = (asked, 0);
    }

    /// The same from the places of `passed` on.
    fn look_among(
        &self,
        passed: &mut Passed,
        n: usize,
        is_one: &mut impl FnMut(BlockRef) -> bool,
        out: &mut Vec<BlockRef>,
    ) {
        let end = out.len().saturating_add(n);
        // Of a list with a hand, too, from the oldest block, not from the hand's place.
        passed.places.resize(self.shape.lists, self.timeline.old_end());
        self.policy.look_among(&self.timeline, &self.slots, &mut passed.places, end, is_one, out);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Policy, PoolConfig, Priority, SequenceHash};

    fn hash(number: u64) -> SequenceHash {
        SequenceHash::from_u128(u128::from(number) << 32)
    }

    fn pool(policy: Policy, capacity: u32) -> BlockPool {
        BlockPool::new(PoolConfig::new(capacity).policy(policy).lanes(1).lane_of(|| 0))
            .expect("a valid setup")
    }

    fn store(pool: &BlockPool, number: u64) -> BlockRef {
        let mut blocks = Vec::new();
        pool.allocate(1, &mut blocks).expect("there is room");
        let block = blocks.pop().expect("one").complete(hash(number)).expect("a new block is Reset");
        let held = pool.register(block, None).into_block();
        let block = held.downgrade();
        drop(held);
        block
    }

    /// Returns the blocks found, and how many blocks were asked about.
    fn look(pool: &BlockPool, passed: &mut Passed, own: &[BlockRef], n: usize) -> (Vec<BlockRef>, usize) {
        let (mut found, mut asked) = (Vec::new(), 0);
        let is_one = |block: BlockRef| {
            asked += 1;
            own.contains(&block)
        };
        pool.next_victims_among(passed, n, is_one, &mut found);
        (found, asked)
    }

    #[test]
    fn blocks_of_others_are_passed_once() {
        for policy in Policy::ALL {
            let pool = pool(policy, 1000);
            (0..900).for_each(|number| _ = store(&pool, number));
            let mut own: Vec<BlockRef> = (1000..1010).map(|number| store(&pool, number)).collect();
            let mut passed = Passed::default();
            let (found, asked) = look(&pool, &mut passed, &own, 1);
            assert_eq!((found.len(), asked >= 901), (1, true), "{policy}");
            let mut all = 0;
            for number in 2000..2500 {
                let (found, asked) = look(&pool, &mut passed, &own, 1);
                all += asked;
                let victim = pool.evict_this(found[0]).expect("nobody holds it");
                own.retain(|block| *block != found[0]);
                drop(victim.into_mutable());
                own.push(store(&pool, number));
            }
            assert!(all < 500 * 20, "{policy}: {all} were asked about for 500");
        }
    }

    #[test]
    fn search_with_an_own_block_first_asks_about_few_others() {
        for policy in Policy::ALL {
            let pool = pool(policy, 1000);
            let own = [store(&pool, 0)];
            (1..900).for_each(|number| _ = store(&pool, number));
            let mut passed = Passed::default();
            let asked: usize = (0..10).map(|_| look(&pool, &mut passed, &own, 1).1).sum();
            assert!(asked < 10 * 20, "{policy}: {asked} were asked about");
        }
    }

    #[test]
    fn passed_block_that_becomes_own_is_found() {
        for policy in Policy::ALL {
            let pool = pool(policy, 100);
            let others: Vec<BlockRef> = (0..50).map(|number| store(&pool, number)).collect();
            let mut passed = Passed::default();
            let last = store(&pool, 99);
            assert_eq!(look(&pool, &mut passed, &[last], 1).0, [last], "{policy}");
            assert_eq!(look(&pool, &mut passed, &others[..1], 1).0, [others[0]], "{policy}");
        }
    }

    /// SIEVE's hand has spared these blocks, and stands behind them.
    #[test]
    fn block_behind_the_sieve_hand_is_found() {
        for policy in Policy::ALL {
            let pool = pool(policy, 400);
            let all: Vec<BlockRef> = (0..300).map(|number| store(&pool, number)).collect();
            (0..100).for_each(|number| drop(pool.lookup(hash(number))));
            let mut victims = Vec::new();
            pool.evict(120, &mut victims);
            let gone: Vec<_> = victims.iter().map(|victim| victim.hash()).collect();
            let left: Vec<BlockRef> = (0..100)
                .filter(|number| !gone.contains(&hash(*number)))
                .map(|number| all[number as usize])
                .collect();
            let (found, _) = look(&pool, &mut Passed::default(), &left, left.len());
            assert_eq!(found.len(), left.len(), "{policy}");
        }
    }

    /// A block that keeps its place while it is in use is found in the end, though there is always
    /// another ahead.
    #[test]
    fn block_in_use_when_passed_is_found_later() {
        // LFU has it behind blocks with fewer uses, ARC behind unused ones, and reuse where it has learned.
        for policy in [Policy::Lru, Policy::Sieve, Policy::S3Fifo, Policy::TwoQ] {
            let pool = pool(policy, 100);
            let first = store(&pool, 0);
            let mut own = vec![first, store(&pool, 1)];
            let mut passed = Passed::default();
            let held = pool.lookup(hash(0));
            assert_eq!(look(&pool, &mut passed, &own, 1).0, [own[1]], "{policy}");
            drop(held);
            let gone = (2..200).any(|number| {
                let victim = look(&pool, &mut passed, &own, 1).0[0];
                drop(pool.evict_this(victim).expect("nobody holds it").into_mutable());
                own.retain(|block| *block != victim);
                own.push(store(&pool, number));
                victim == first
            });
            assert!(gone, "{policy}");
        }
    }

    /// A leased block cannot be evicted, so it is not found; it is found again when its lease has ended.
    #[test]
    fn leased_block_is_not_found() {
        for policy in Policy::ALL {
            let pool = pool(policy, 100);
            let own: Vec<BlockRef> = (0..3).map(|number| store(&pool, number)).collect();
            let mut passed = Passed::default();
            assert!(pool.lease(own[0]) && pool.is_leased(own[0]) && !pool.is_leased(own[1]), "{policy}");
            let (mut found, asked) = look(&pool, &mut passed, &own, 3);
            found.sort_unstable_by_key(|block| block.id);
            assert_eq!((&found[..], asked), (&own[1..], 2), "{policy}");
            pool.end_lease(own[0]);
            assert_eq!(look(&pool, &mut passed, &own, 3).0.len(), 3, "{policy}");
        }
    }

    /// In whichever of its policy's lists the block is.
    #[test]
    fn lower_classes_are_found_first() {
        for policy in Policy::ALL {
            let pool = pool(policy, 100);
            let own: Vec<BlockRef> = (0..2).map(|number| store(&pool, number)).collect();
            for (number, class) in [(0, Priority::High), (1, Priority::Low)] {
                pool.lookup(hash(number)).expect("registered").set_priority(class);
            }
            // Used since it was new: ARC has it in another list than new blocks.
            let new = store(&pool, 2);
            pool.upgrade(new).expect("registered").set_priority(Priority::High);
            let all = [own[0], own[1], new];
            assert_eq!(look(&pool, &mut Passed::default(), &all, 1).0, [own[1]], "{policy}");
        }
    }

    /// A policy that takes from many lists by turns has one owner's blocks in the same
    /// order, not list after list.
    #[test]
    fn own_blocks_of_many_lists_are_found_by_turns() {
        let pool = pool(Policy::Reuse, 100);
        // Each second block has a child: it is in the list of parents, the others among the leaves.
        let mut own = Vec::new();
        for number in (0..40).step_by(2) {
            let mut blocks = Vec::new();
            pool.allocate(2, &mut blocks).expect("there is room");
            let mut complete =
                |number| blocks.pop().expect("two").complete(hash(number)).expect("a new block is Reset");
            let parent = pool.register(complete(number), None).into_block();
            let child = pool.register(complete(number + 1), Some(&parent)).into_block();
            own.extend([child.downgrade(), parent.downgrade()]);
            drop((child, parent));
            own.push(store(&pool, 100 + number));
        }
        let mut all = Vec::new();
        pool.next_victims(100, &mut all);
        let all: Vec<BlockRef> = all.into_iter().map(|(block, _)| block).collect();
        assert_eq!(all, own, "nothing was learned: as they were released");
        own.truncate(30);
        let mut passed = Passed::default();
        for n in [7, 1, 20] {
            assert_eq!(look(&pool, &mut passed, &own, n).0, own[..n]);
        }
    }

    #[test]
    fn found_blocks_are_found_again_in_order() {
        let pool = pool(Policy::Lru, 100);
        let all: Vec<BlockRef> = (0..60).map(|number| store(&pool, number)).collect();
        let own = [all[20], all[30], all[40]];
        let mut passed = Passed::default();
        for n in [1, 3, 2, 5] {
            assert_eq!(look(&pool, &mut passed, &own, n).0, own[..n.min(3)]);
        }
        // Used: it is the youngest.
        drop(pool.lookup(hash(20)));
        assert_eq!(look(&pool, &mut passed, &own, 3).0, [all[30], all[40], all[20]]);
    }
}
