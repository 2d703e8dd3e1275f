//! Blocks that no caller holds can be allocated, whatever the policy keeps them for.

use super::flying::look;
use super::gated::Ground;
use super::ground::{BYTES, build, compute, hashes, rest, settings};
use kvstrata::config::WriteMode;
use kvstrata::manager::OffloadOptions;
use kvstrata::transfer::{Class, Path};
use kvstrata_core::{Policy, Priority};
use std::pin::pin;
use std::task::Poll;

#[tokio::test]
async fn unheld_parents_of_held_children_are_allocated() {
    for policy in Policy::ALL {
        let manager = build(settings(4, 0).device_policy(policy));
        let group = manager.default_group();
        let mut blocks = compute(&manager, &hashes(1, 4), None).await;
        blocks.drop_first(2);
        let two = look(pin!(group.allocate(2).into_future()));
        assert!(matches!(&two, Poll::Ready(Ok(two)) if two.len() == 2), "{policy}: {two:?}");
        assert_eq!(manager.census().tiers[0][0].owned, 2, "{policy}");
        drop(two);
        // Free blocks leave, held ones do not.
        let two = group.try_allocate(2);
        assert_eq!(two.map(|two| two.len()), Some(2), "{policy}");
        assert!(group.try_allocate(3).is_none(), "{policy}");
        assert_eq!(group.match_device(&hashes(1, 4)).len(), 0);
    }
}

#[tokio::test]
async fn parents_of_lower_classes_are_allocated_first() {
    for policy in Policy::ALL {
        let manager = build(settings(4, 0).device_policy(policy));
        let group = manager.default_group();
        let all = hashes(1, 4);
        let mut blocks = compute(&manager, &all, None).await;
        for (block, class) in [(0, Priority::High), (1, Priority::Normal), (2, Priority::Low)] {
            group.match_device(&all[block..=block]).set_priority(class);
        }
        blocks.drop_first(3);
        let mut had = Vec::new();
        for left in [2, 1, 0] {
            had.push(group.try_allocate(1).expect("a parent that nobody holds"));
            assert_eq!(group.match_device(&all[..3]).len(), left, "{policy}");
        }
    }
}

#[tokio::test]
async fn copy_of_a_host_block_keeps_no_parent_in_the_device() {
    let one_an_iteration = settings(4, 16).iteration_bytes(Some(BYTES as u64));
    let manager =
        build(one_an_iteration.device_policy(Policy::Sieve).disk_blocks(16).idle_disk_after(Some(1)));
    let mut blocks = compute(&manager, &hashes(1, 4), None).await;
    let urgent = OffloadOptions::default().class(Class::Urgent);
    assert_eq!(manager.default_group().offload(&blocks, urgent).await.copied, 4);
    for _ in 0..3 {
        manager.step().expect("none runs");
    }
    assert!(manager.census().down > 0, "host blocks are leased, and wait for an iteration");
    blocks.drop_first(2);
    let two = manager.default_group().try_allocate(2);
    assert_eq!(two.map(|two| two.len()), Some(2));
    assert!(manager.census().down > 0, "they still are");
}

/// A copy of a held block frees nothing when it ends.
#[tokio::test]
async fn copy_of_a_held_block_keeps_no_parent_in_the_device() {
    let settings = settings(6, 16).device_policy(Policy::Sieve).offload_mode(WriteMode::Through);
    let ground = Ground::of(settings, 6, 16);
    let manager = &ground.manager;
    let mut blocks = compute(manager, &hashes(1, 4), None).await;
    rest(manager).await;
    blocks.drop_first(2);
    ground.mover.close();
    let held = compute(manager, &hashes(2, 2), None).await;
    assert!(manager.census().down > 0, "they are being written through");
    let two = look(pin!(manager.default_group().allocate(2).into_future()));
    assert!(matches!(&two, Poll::Ready(Ok(two)) if two.len() == 2), "{two:?}");
    ground.mover.open();
    drop(held);
}

/// Blocks of a path land in any order, and are one path to the policy all the same: no parent leaves
/// before its child. A parent that never arrives does not keep the waiting caller from its blocks.
#[tokio::test]
async fn block_landing_before_its_parent_is_registered_behind_it() {
    for fails in [false, true] {
        let ground = Ground::of(settings(8, 16).device_policy(Policy::Lfu), 8, 16);
        let (manager, run, others) = (&ground.manager, hashes(1, 4), hashes(2, 4));
        let group = manager.default_group();
        drop(compute(manager, &run, None).await);
        drop(group.allocate(8).await.expect("idle"));
        drop(compute(manager, &others, None).await);
        rest(manager).await;
        ground.mover.close();
        let mut up = pin!(group.onboard(group.match_prefix(&run), Default::default()).expect("fits"));
        assert!(look(up.as_mut()).is_pending());
        assert_eq!(ground.mover.waiting(), 4);
        if fails {
            ground.mover.open_but_first();
            while manager.stats().path(Path::HostToDevice).transfers < 3 {
                tokio::task::yield_now().await;
            }
            assert_eq!(manager.census().up, 4, "three wait for the first");
            ground.mover.fail_first();
        }
        ground.mover.open_backwards();
        let mut up = up.await.blocks;
        rest(manager).await;
        if fails {
            assert_eq!(up.len(), 0, "nothing is of use without the first");
            assert_eq!(manager.census().tiers[0][0].inactive, 7, "and is there for the next one");
            continue;
        }
        // Used more often than the run's blocks.
        (0..3).for_each(|_| drop(group.match_prefix(&others)));
        up.drop_first(3);
        drop(group.allocate(3).await.expect("idle"));
        drop(up);
        assert_eq!(group.match_prefix(&run).device().len(), 4);
    }
}
