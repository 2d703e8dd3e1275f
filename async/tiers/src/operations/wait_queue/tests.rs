//! How many blocks are examined for requests that wait for blocks, and which request gets them.

use crate::ground::Ground;
use crate::state::GroupId;
use crate::tier::Tier;
use kvstrata_core::{Policy, Priority, SequenceHash};
use kvstrata_testing::virtual_time::run;
use std::cell::Cell;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

thread_local! {
    /// Walks over a tier for blocks that its policy keeps, by this thread.
    pub(super) static WALKS: Cell<usize> = const { Cell::new(0) };
    /// Walks over all transfers for those that are to wait for no iteration, by this thread.
    pub(crate) static HURRIES: Cell<usize> = const { Cell::new(0) };
}

#[test]
fn wanted_parents_are_taken_in_one_walk_and_count_as_evicted() {
    run(async {
        let ground = Ground { policy: Policy::Sieve, ..Ground::new(32) };
        let manager = ground.tiers();
        let group = manager.default_group();
        let hashes: Vec<_> = (1..=32).map(|number| SequenceHash::from_u128(number << 64 | 1)).collect();
        let mut held =
            group.try_allocate(32).expect("free ones").register(&hashes, None).expect("registered");
        let mut dear = held.clone();
        dear.truncate(2);
        dear.set_priority(Priority::Pinned);
        drop(dear);
        held.drop_first(24);
        let before = WALKS.get();
        let some = group.try_allocate(15).expect("parents that nobody holds");
        assert_eq!(WALKS.get() - before, 1);
        let others = group.try_allocate(7).expect("the others");
        assert_eq!((WALKS.get() - before, some.len() + others.len()), (2, 22));
        assert!(group.try_allocate(1).is_none(), "two are pinned, and eight held");
        assert_eq!(group.match_device(&hashes).len(), 2);
        assert_eq!(group.pool_stats(Tier::Device).evicted, 22);
    });
}

/// A released block is in the pool a moment before the waiter is told of it.
#[test]
fn allocation_after_an_untold_release_is_behind_the_waiter() {
    run(async {
        let manager = Ground::new(1).tiers();
        let hash = SequenceHash::from_u128(1);
        let held = manager
            .default_group()
            .try_allocate(1)
            .expect("a free one")
            .register(&[hash], None)
            .expect("registered");
        let tier_pool = &manager.inner().group(GroupId::FIRST).device;
        let also = tier_pool.pool().lookup_ref(hash).expect("registered");
        let mut first = pin!(manager.default_group().allocate(1).into_future());
        assert!(look(first.as_mut()).is_pending());
        drop(held);
        assert!(look(first.as_mut()).is_pending());
        tier_pool.release(also, manager.inner().now());
        let mut second = pin!(manager.default_group().allocate(1).into_future());
        assert!(look(second.as_mut()).is_pending());
        assert!(look(first).is_ready());
    });
}

/// Returns the outcome of one poll of a future.
fn look<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
