//! How many blocks are examined for held requests and for copies without room below; and what counts as
//! a victim.

use crate::ground::Ground;
use crate::operations::wait_queue::tests::HURRIES;
use crate::state::GroupId;
use crate::tier::Tier;
use crate::{OffloadOptions, Tiers};
use kvstrata_core::SequenceHash;
use kvstrata_testing::virtual_time::run;
use std::cell::Cell;
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

thread_local! {
    /// Searches of the eviction order, by this thread.
    pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
    /// Blocks that these searches have examined.
    pub(super) static PASSED: Cell<usize> = const { Cell::new(0) };
}

/// Builds tiers with so many blocks of the device; a tenant may have a part of them.
fn ground(device: u32, part: f64) -> Ground {
    let mut ground = Ground::new(device);
    ground.rules.quotas.parts[0] = part;
    ground
}

/// Builds tiers, and a tenant of theirs.
fn build(ground: Ground) -> (Tiers, Tiers) {
    let manager = ground.tiers();
    let tenant = manager.tenant("a").expect("few tenants");
    (manager, tenant)
}

fn names(of: Range<u128>) -> Vec<SequenceHash> {
    of.map(|number| SequenceHash::from_u128(number << 64 | 1)).collect()
}

#[test]
fn held_request_is_examined_when_its_own_blocks_change() {
    run(async {
        let (manager, tenant) = build(ground(8, 0.5));
        let theirs = manager.default_group().try_allocate(3).expect("free ones");
        let theirs = theirs.register(&names(1..4), None).expect("registered");
        let own = tenant.default_group().try_allocate(4).expect("its quota");
        let mut own = own.register(&names(4..8), None).expect("registered");
        let mut held = pin!(tenant.default_group().allocate(2).into_future());
        let mut context = Context::from_waker(Waker::noop());
        assert!(held.as_mut().poll(&mut context).is_pending());
        let before = LOOKS.get();
        for _ in 0..100 {
            manager.check_watermark();
            drop(theirs.clone());
        }
        drop(theirs);
        assert_eq!(LOOKS.get(), before, "nothing of its own has changed");
        own.truncate(3);
        assert!(held.as_mut().poll(&mut context).is_pending(), "one of two");
        own.truncate(2);
        let Poll::Ready(blocks) = held.as_mut().poll(&mut context) else { panic!("there are two") };
        assert_eq!(blocks.expect("in time").len(), 2);
        assert!(LOOKS.get() > before);
    });
}

#[test]
fn copies_for_a_held_request_are_hurried_when_new() {
    run(async {
        let mut ground = Ground { host: 16, ..ground(8, 0.5) };
        ground.rules.iteration_bytes = Some(64);
        let (manager, tenant) = build(ground);
        let theirs = manager.default_group().try_allocate(3).expect("free ones");
        let theirs = theirs.register(&names(1..4), None).expect("registered");
        let own = tenant.default_group().try_allocate(4).expect("its quota");
        let own = own.register(&names(4..8), None).expect("registered");
        let mut held =
            pin!(tenant.default_group().allocate(2).deadline(Duration::from_secs(20)).into_future());
        assert!(held.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let before = HURRIES.get();
        for _ in 0..100 {
            manager.check_watermark();
            drop(theirs.clone());
        }
        assert_eq!(HURRIES.get(), before, "nothing is new");
        // The iteration has bytes for one of them.
        let offloads =
            [&theirs, &own].map(|blocks| manager.default_group().offload(blocks, OffloadOptions::default()));
        assert_eq!(HURRIES.get(), before + 2, "there are new flights");
        for _ in 0..100 {
            drop(theirs.clone());
        }
        assert_eq!(HURRIES.get(), before + 2, "and then no more");
        // Copies keep some of its own released blocks: they wait for no iteration any more.
        drop(own);
        assert_eq!(held.await.expect("in time").len(), 2);
        drop(offloads);
    });
}

#[test]
fn blocks_of_others_are_passed_once() {
    run(async {
        let (manager, tenant) = build(ground(512, 1.0 / 64.0));
        let theirs = manager.default_group().try_allocate(400).expect("free ones");
        drop(theirs.register(&names(0..400), None).expect("registered"));
        let before = PASSED.get();
        for number in 1000..1200 {
            let own = tenant.default_group().try_allocate(1).expect("its own make room");
            drop(own.register(&names(number..number + 1), None).expect("registered"));
        }
        let looked_at = PASSED.get() - before;
        assert!((400..3000).contains(&looked_at), "{looked_at} blocks were looked at for 192");
    });
}

/// A request over several groups asks for this first, before the blocks of any leave.
#[test]
fn blocks_being_copied_make_no_room() {
    run(async {
        let (manager, tenant) = build(ground(8, 0.5));
        let own = tenant.default_group().try_allocate(4).expect("its quota");
        let own = own.register(&names(0..4), None).expect("registered");
        let copied = own.refs()[..3].to_vec();
        drop(own);
        let tier_pool = &manager.inner().group(GroupId::FIRST).device;
        let before = PASSED.get();
        assert!(copied.iter().all(|block| tier_pool.pool().lease(*block)));
        let has = |need| {
            manager.inner().look().has_credits(manager.inner(), GroupId::FIRST, tenant.tenant_id(), need)
        };
        assert_eq!([1, 2, 4].map(has), [true, false, false]);
        assert!(tenant.default_group().try_allocate(2).is_none());
        assert!(PASSED.get() - before < 20, "each is looked at once, however many are copied");
        copied.iter().for_each(|block| tier_pool.end_lease(*block));
        assert_eq!([1, 2, 4, 5].map(has), [true, true, true, false]);
        assert_eq!(tenant.default_group().try_allocate(4).map(|blocks| blocks.len()), Some(4));
    });
}

/// Copies of a list for which a tenant's quota below has no room, since all that it may have is being
/// copied to.
#[test]
fn tier_without_own_victims_is_not_searched_per_copy() {
    run(async {
        const OTHERS: u128 = 2000;
        const OWN: u128 = 200;
        for tier in [Tier::Host, Tier::Below(0)] {
            let blocks = (OTHERS + 2 * OWN) as u32;
            let mut ground = ground(OWN as u32, 1.0);
            ground.rules.queue = OTHERS as u32;
            ground.rules.quotas.parts[tier.index()] = 20.0 / f64::from(blocks);
            match tier {
                Tier::Host => ground.host = blocks,
                _ => ground.disk = blocks,
            }
            let (manager, tenant) = build(ground);
            let group = manager.default_group();
            for first in (0..OTHERS).step_by(OWN as usize) {
                let theirs = group.try_allocate(OWN as usize).expect("their copies are below");
                let theirs = theirs.register(&names(first..first + OWN), None).expect("registered");
                assert_eq!(group.offload(&theirs, OffloadOptions::default()).await.copied, OWN as usize);
            }
            let own = tenant.default_group().try_allocate(OWN as usize).expect("their copies are below");
            let own = own.register(&names(OTHERS..OTHERS + OWN), None).expect("registered");
            let before = PASSED.get();
            let copied = group.offload(&own, OffloadOptions::default());
            let looked_at = PASSED.get() - before;
            assert!((OTHERS as usize..3 * OTHERS as usize).contains(&looked_at), "{tier:?}: {looked_at}");
            let copied = copied.await;
            assert_eq!((copied.copied, copied.refused), (20, OWN as usize - 20), "{tier:?}");
            // Once those are there, they can leave.
            let copied = group.offload(&own, OffloadOptions::default()).await;
            assert!(copied.copied >= 20 && copied.there <= 20, "{tier:?}: {copied:?}");
        }
    });
}
