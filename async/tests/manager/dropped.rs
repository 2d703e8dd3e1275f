//! Futures that are dropped after each number of polls, until the awaited work ends. Then all comes to
//! rest, no block of any tier is held, and the whole device can be allocated. Futures that the
//! simulation drops are not here.

use super::gated::Ground;
use super::ground::{build, check, compute, hashes, rest, settings};
use kvstrata::OriginalNames;
use kvstrata::manager::{BlocksMut, KvBlockManager, OnboardOptions, Preempted, Purge, Tiers};
use kvstrata::tier::Tier;
use kvstrata_core::SequenceHash;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// More polls than any of these futures needs.
const MOST: u32 = 100;

/// The output of a future, or `None` if it is dropped after so many polls.
async fn within<F: IntoFuture>(polls: u32, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future.into_future()), polls);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Runs `body` with ever more polls, until it reports that its future has ended. A future that ends at
/// its first poll was never dropped, which is a failure.
async fn give_up(mut body: impl AsyncFnMut(u32) -> bool) {
    for polls in 0..MOST {
        if body(polls).await {
            assert!(polls > 1, "it has ended at its first poll");
            return;
        }
    }
    panic!("it does not end");
}

/// Checks that no block is in flight or held.
async fn is_whole(manager: &Tiers) {
    rest(manager).await;
    let census = manager.census();
    for tier in &census.tiers[0] {
        assert_eq!((tier.active, tier.owned), (0, 0), "{census:?}");
    }
    let all = manager
        .default_group()
        .allocate(manager.default_group().capacity(Tier::Device))
        .deadline(Duration::from_secs(5))
        .await;
    drop(all.expect("all of them"));
    rest(manager).await;
}

/// A manager whose host has a sequence of four that its device lacks. Its copies wait until another task
/// has had a turn.
async fn below() -> (Ground, Vec<SequenceHash>) {
    let ground = Ground::new(4, 16);
    let all = hashes(1, 4);
    drop(compute(&ground.manager, &all, None).await);
    drop(ground.manager.default_group().allocate(4).await.expect("blocks"));
    rest(&ground.manager).await;
    close_for_a_while(&ground);
    (ground, all)
}

fn close_for_a_while(ground: &Ground) {
    ground.mover.close();
    let mover = Arc::clone(&ground.mover);
    tokio::spawn(async move { mover.open() });
}

#[tokio::test]
async fn restore_dropped_after_any_poll_leaves_nothing() {
    give_up(async |polls| {
        let (ground, all) = below().await;
        let up = within(polls, ground.manager.default_group().restore_to_gpu(&all)).await;
        let ended = up.map(|up| check(&ground.manager, &up.expect("fits").blocks, &all)).is_some();
        is_whole(&ground.manager).await;
        assert_eq!(ground.manager.default_group().match_prefix(&all).len(), 4);
        ended
    })
    .await;
}

#[tokio::test]
async fn group_restore_dropped_after_any_poll_leaves_nothing() {
    give_up(async |polls| {
        let (ground, all) = below().await;
        let group = ground.manager.group(0).expect("one");
        let up = within(polls, group.restore_to_gpu(&all)).await;
        let ended = up.map(|up| check(&ground.manager, &up.expect("fits").blocks, &all)).is_some();
        is_whole(&ground.manager).await;
        ended
    })
    .await;
}

#[tokio::test]
async fn groups_onboard_dropped_after_any_poll_leaves_nothing() {
    give_up(async |polls| {
        let (ground, all) = below().await;
        let found = ground.manager.match_groups(&[&all]);
        assert_eq!(found.tokens(), 8);
        let up = ground.manager.onboard_groups(found, OnboardOptions::default()).expect("fits");
        let ended = within(polls, up).await.map(|up| check(&ground.manager, &up.groups[0].1, &all)).is_some();
        is_whole(&ground.manager).await;
        assert_eq!(ground.manager.default_group().match_prefix(&all).len(), 4);
        ended
    })
    .await;
}

/// A preempted request with three full blocks and one that is not full. Copies wait a while.
async fn preempted() -> (Ground, Preempted, Vec<SequenceHash>) {
    let ground = Ground::new(4, 16);
    let all = hashes(1, 3);
    let blocks = compute(&ground.manager, &all, None).await;
    let partial = ground.manager.default_group().allocate(1).await.expect("a block");
    close_for_a_while(&ground);
    let preempted = ground.manager.default_group().preempt(blocks, partial, 1).expect("one manager");
    (ground, preempted, all)
}

#[tokio::test]
async fn preemption_wait_dropped_after_any_poll_goes_on() {
    give_up(async |polls| {
        let (ground, mut preempted, all) = preempted().await;
        let down = within(polls, preempted.settled()).await;
        let ended = down.map(|down| assert_eq!((down.copied, down.failed), (4, 0), "{down:?}")).is_some();
        rest(&ground.manager).await;
        // No caller has to wait: the copies are made all the same, and the blocks can be taken again.
        assert_eq!(ground.manager.stats().offloaded[0], 4);
        let resumed =
            ground.manager.default_group().resume(preempted, OnboardOptions::default()).await.expect("fits");
        check(&ground.manager, &resumed.blocks, &all);
        assert!(resumed.partial.is_some());
        drop(resumed);
        is_whole(&ground.manager).await;
        ended
    })
    .await;
}

#[tokio::test]
async fn resume_dropped_after_any_poll_leaves_nothing() {
    give_up(async |polls| {
        let (ground, mut preempted, all) = preempted().await;
        let group = ground.manager.default_group();
        preempted.settled().await;
        drop(group.allocate(4).await.expect("all of them"));
        rest(&ground.manager).await;
        close_for_a_while(&ground);
        let resumed = within(polls, group.resume(preempted, OnboardOptions::default())).await;
        let resumed = resumed.map(|resumed| resumed.expect("fits"));
        let ended = resumed.map(|resumed| {
            check(&ground.manager, &resumed.blocks, &all);
            assert_eq!(resumed.partial.expect("with its bytes").len(), 1);
        });
        is_whole(&ground.manager).await;
        assert_eq!(group.match_prefix(&all).len(), 3);
        ended.is_some()
    })
    .await;
}

/// All blocks are in the device, and the block that is not full is being copied. The resumption waits
/// for that copy.
#[tokio::test]
async fn resume_behind_copy_dropped_after_any_poll_leaves_nothing() {
    give_up(async |polls| {
        let (ground, preempted, all) = preempted().await;
        assert_eq!(ground.manager.census().moving, 4);
        let resumed =
            within(polls, ground.manager.default_group().resume(preempted, OnboardOptions::default())).await;
        let ended = resumed.map(|resumed| {
            let resumed = resumed.expect("fits");
            check(&ground.manager, &resumed.blocks, &all);
            assert_eq!(resumed.partial.expect("with its bytes").len(), 1);
        });
        is_whole(&ground.manager).await;
        // No caller knows the name of the block that is not full. It is in no tier, whenever the future
        // was dropped.
        assert_eq!(ground.manager.default_group().match_prefix(&all).len(), 3);
        assert_eq!(ground.manager.census().tiers[0][1].inactive, 3);
        ended.is_some()
    })
    .await;
}

/// Large blocks, which take a while: first to the host, then to the disk.
#[tokio::test]
async fn persist_dropped_after_any_poll_goes_on() {
    for of_group in [false, true] {
        give_up(async |polls| {
            let manager = build(settings(4, 8).geometry_block_bytes(Some(1 << 20)).disk_blocks(16));
            let all = hashes(1, 4);
            let blocks = manager.default_group().allocate(4).await.expect("blocks");
            let held = blocks.register(&all, None).expect("registered");
            let group = manager.group(0).filter(|_| of_group);
            let down = match group {
                Some(group) => within(polls, group.persist(&all)).await,
                None => within(polls, manager.default_group().persist(&all)).await,
            };
            let ended = down.map(|down| assert_eq!((down.copied, down.failed), (4, 0), "{down:?}")).is_some();
            drop(held);
            is_whole(&manager).await;
            assert_eq!(manager.default_group().persist(&all).await.failed, 0);
            assert_eq!(manager.default_group().pool_stats(Tier::DISK).stored, 4);
            ended
        })
        .await;
    }
}

#[tokio::test]
async fn purge_dropped_after_any_poll_goes_on() {
    give_up(async |polls| {
        let ground = Ground::new(4, 16);
        let tenant = ground.manager.tenant("a").expect("few tenants");
        let all = hashes(1, 4);
        drop(compute(&tenant, &all, None).await);
        close_for_a_while(&ground);
        // All of them are on their way down, for a caller that waits.
        let other = tokio::spawn({
            let manager = ground.manager.clone();
            async move { manager.default_group().allocate(4).await.map(|blocks| blocks.len()) }
        });
        let purged = within(polls, tenant.purge(Purge::default())).await;
        let ended = purged.map(|purged| assert!(purged.expect("open").complete, "{purged:?}")).is_some();
        assert_eq!(other.await.expect("no panic").expect("in time"), 4);
        is_whole(&ground.manager).await;
        // The purge has begun, polled or not.
        let found = ground.manager.default_group().match_prefix(&all).len();
        assert_eq!((found, tenant.usage(Tier::Host).blocks), (0, 0), "after {polls} polls");
        drop(compute(&tenant, &all, None).await);
        ended
    })
    .await;
}

#[tokio::test]
async fn allocation_at_quota_dropped_after_any_poll_leaves_nothing() {
    give_up(async |polls| {
        let ground = Ground::of(settings(4, 16).quota_device(0.5), 4, 16);
        let [a, b] = ["a", "b"].map(|name| ground.manager.tenant(name).expect("few tenants"));
        let held = compute(&a, &hashes(1, 2), None).await;
        tokio::spawn(async move { drop(held) });
        close_for_a_while(&ground);
        let got = within(polls, a.default_group().allocate(2)).await;
        let ended = got.map(|got| assert_eq!(got.expect("in time").len(), 2)).is_some();
        let waiting = ground.manager.census().waiting;
        assert_eq!(waiting, 0, "its place is given up at once, after {polls} polls");
        // Callers behind it are served.
        let behind = a.default_group().allocate(1).deadline(Duration::from_secs(5)).await.expect("in time");
        let others = b.default_group().allocate(2).deadline(Duration::from_secs(5)).await.expect("in time");
        drop((behind, others));
        rest(&ground.manager).await;
        is_whole(&ground.manager).await;
        assert_eq!((a.usage(Tier::Device).blocks, b.usage(Tier::Device).blocks), (0, 0));
        ended
    })
    .await;
}

/// It waits in the queues of both groups. The first group serves it before the second.
#[tokio::test]
async fn groups_allocation_dropped_after_any_poll_leaves_nothing() {
    give_up(async |polls| {
        let manager = two_groups();
        let held =
            [0, 1].map(|group| manager.group(group).expect("two").try_allocate(4).expect("all of them"));
        // One group after the other, with turns for other tasks between.
        tokio::spawn(async move {
            for blocks in held {
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
                drop(blocks);
            }
        });
        let got = within(polls, manager.allocate_groups(&[3, 3])).await;
        let ended = got.map(|got| assert_eq!(got.expect("in time").len(), 2)).is_some();
        assert_eq!(manager.census().waiting, 0, "its places are given up at once, after {polls} polls");
        // The next caller is served.
        for group in 0..2 {
            let all = manager.group(group).expect("two").capacity(Tier::Device);
            assert_eq!(
                manager.group(group).expect("a group").allocate(all).await.expect("all of them").len(),
                all
            );
        }
        rest(&manager).await;
        let census = manager.census();
        assert!(census.tiers.iter().all(|[device, _]| (device.owned, device.active) == (0, 0)), "{census:?}");
        ended
    })
    .await;
}

/// Calls that pass on to others.
#[tokio::test]
async fn waits_for_one_block_dropped_leave_the_queue() {
    let manager = two_groups();
    let group = manager.group(1).expect("two");
    let (first, all) = (all_of(&manager, 0), all_of(&manager, 1));
    assert!(within(1, manager.default_group().allocate(1)).await.is_none());
    assert!(within(1, manager.default_group().allocate(1).deadline(Duration::from_secs(5))).await.is_none());
    assert!(within(1, group.allocate(1)).await.is_none());
    assert!(within(1, group.get_mutable_block()).await.is_none());
    assert!(within(1, group.allocate(1).deadline(Duration::from_secs(5))).await.is_none());
    assert_eq!(manager.census().waiting, 0);
    drop((all, first));
    drop(all_of(&manager, 1));
    is_whole(&manager).await;
}

fn all_of(manager: &Tiers, group: usize) -> BlocksMut {
    let group = manager.group(group).expect("two");
    group.try_allocate(group.capacity(Tier::Device)).expect("all of them")
}

/// Two groups of a few blocks each, with no tier below.
fn two_groups() -> KvBlockManager {
    let group =
        |layer| format!("[[group]]\nlayers = [{layer}]\npage_size = 16\nkv_heads = 1\nhead_size = 64\n");
    let text = format!("[geometry]\nlayers = 2\n{}{}", group(0), group(1));
    build(settings(4, 0).geometry_block_bytes(None).toml("groups.toml", text))
}
