//! A purge of blocks that are idle, held or in flight, with their bytes.

use crate::gated::Ground;
use crate::ground::{bytes_of, compute, rest};
use crate::sequence;
use kvstrata::manager::{AllocateError, OffloadOptions, OnboardOptions, Purge, PurgeError, RegisterFault};
use kvstrata::tier::Tier;
use kvstrata::transfer::{Cause, Path};
use std::time::Duration;

const ZERO: Purge = Purge::new().zero(true).deadline(Duration::from_secs(60));

#[tokio::test]
async fn purge_removes_idle_blocks_and_bytes_of_all_tiers() {
    let ground = Ground::new(8, 32);
    let [a, b] = ["a", "b"].map(|name| ground.manager.tenant(name).expect("few tenants"));
    let (of_a, of_b) = (sequence(&a, 1, 8), sequence(&b, 1, 6));
    drop(compute(&a, &of_a, None).await);
    drop(compute(&b, &of_b, None).await);
    rest(&ground.manager).await;
    assert_eq!((a.usage(Tier::Device).blocks, a.usage(Tier::Host).blocks), (2, 6));
    let purged = a.purge(ZERO).await.expect("open");
    let of = |tier: kvstrata::manager::PurgedTier| (tier.found, tier.purged, tier.busy);
    assert_eq!(
        (of(purged.device), of(purged.host), of(purged.of(Tier::DISK))),
        ((2, 2, 0), (6, 6, 0), (0, 0, 0))
    );
    assert_eq!((purged.zeroed_bytes, purged.failed, purged.still_found), (8 * 4096, 0, 0));
    assert!(purged.complete);
    assert_eq!((a.usage(Tier::Device).blocks, a.usage(Tier::Host).blocks), (0, 0));
    assert_eq!(ground.manager.default_group().match_prefix(&of_a).len(), 0);
    let census = ground.manager.census();
    let [device, host] = census.tiers[0];
    assert_eq!((device.free, device.owned, host.free, host.owned), (2, 0, 32, 0));
    // Blocks that replaced the tenant's in the device have overwritten them.
    assert!(!of_a.iter().any(|hash| ground.anywhere(&bytes_of(*hash))), "no byte is left");
    assert_eq!(b.default_group().match_prefix(&of_b).device().len(), 6);
    assert!(of_b.iter().all(|hash| ground.anywhere(&bytes_of(*hash))));
    // The tenant may begin anew.
    drop(compute(&a, &of_a, None).await);
    assert_eq!(a.default_group().match_prefix(&of_a).len(), 8);
}

#[tokio::test]
async fn purge_withdraws_held_blocks_and_frees_them_at_release() {
    let ground = Ground::new(8, 8);
    let a = ground.manager.tenant("a").expect("few tenants");
    let group = a.default_group();
    let run = sequence(&a, 1, 3);
    let held = compute(&a, &run, None).await;
    let again = held.clone();
    let ids: Vec<_> = held.ids().collect();
    let filling = group.allocate(2).await.expect("free");
    let purged = a.purge(ZERO.deadline(Duration::from_millis(5))).await.expect("open");
    assert_eq!((purged.device.found, purged.device.purged, purged.device.busy), (3, 0, 3));
    assert_eq!((purged.complete, purged.still_found), (false, 0));
    assert_eq!(ground.manager.default_group().match_prefix(&run).len(), 0, "found by nobody");
    assert!(!ids.iter().any(|block| ground.is_zero(*block)), "its holder computes with it");
    // Until the purge is over the tenant gets nothing.
    assert_eq!(a.purge(ZERO).await.expect_err("one at a time"), PurgeError::UnderWay);
    assert_eq!(group.allocate(1).await.expect_err("none"), AllocateError::Purging);
    assert!(group.try_allocate(1).is_none());
    let refused = filling.register(&sequence(&a, 2, 2), None).expect_err("refused");
    assert_eq!(refused.why, RegisterFault::Purging);
    let filled: Vec<_> = refused.blocks.ids().to_vec();
    let port = ground.manager.default_group().device_port().expect("a simulated device");
    filled.iter().for_each(|block| port.copy_in(block.0, 0, &[7; 4096]).expect("in range"));
    drop(refused);
    drop(held);
    assert_eq!(ground.manager.census().purges, 1);
    drop(again);
    while ground.manager.census().purges > 0 {
        tokio::task::yield_now().await;
    }
    assert!(ids.iter().chain(&filled).all(|block| ground.is_zero(*block)));
    assert_eq!((a.usage(Tier::Device).blocks, ground.manager.census().tiers[0][0].free), (0, 8));
    assert_eq!(group.allocate(8).await.expect("all of them").len(), 8);
}

#[tokio::test]
async fn purge_during_onboard_ends_it_without_blocks() {
    let ground = Ground::new(8, 8);
    let a = ground.manager.tenant("a").expect("few tenants");
    let run = sequence(&a, 1, 3);
    drop(compute(&a, &run, None).await);
    drop(ground.manager.default_group().allocate(8).await.expect("evictable"));
    rest(&ground.manager).await;
    ground.mover.close();
    let found = a.default_group().match_prefix(&run);
    assert_eq!(found.in_tier(Tier::Host), 3);
    let options = OnboardOptions::default().layers(1);
    let up = a.default_group().onboard(found, options).expect("fits");
    assert_eq!(ground.mover.waiting(), 3);
    let purge = tokio::spawn({
        let a = a.clone();
        async move { a.purge(ZERO).await }
    });
    while ground.manager.census().purges == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(ground.manager.default_group().match_prefix(&run).len(), 0);
    ground.mover.open();
    let up = up.await;
    assert_eq!((up.blocks.len(), up.missed), (0, Some(Cause::Cancelled)));
    // The first that landed has ended the request; the purge waits for all of them.
    let purged = purge.await.expect("no panic").expect("open");
    // Three first layers of two had begun to move, and did: no transfer has failed.
    let moved = ground.manager.stats().path(Path::HostToDevice);
    assert_eq!((moved.transfers, moved.bytes, moved.failed.iter().sum::<u64>()), (3, 3 * 2048, 0));
    assert_eq!((purged.in_flight, purged.host.found, purged.host.purged, purged.device.found), (3, 3, 3, 0));
    assert_eq!(purged.zeroed_bytes, 6 * 4096, "three here, three there");
    assert!(!run.iter().any(|hash| ground.anywhere(&bytes_of(*hash))));
    let census = ground.manager.census();
    assert!(census.is_idle(), "{census:?}");
    assert_eq!((census.tiers[0][0].free, census.tiers[0][1].free), (8, 8));
}

#[tokio::test]
async fn purge_during_offload_leaves_no_copy_though_unpolled() {
    let ground = Ground::new(4, 8);
    let [a, b] = ["a", "b"].map(|name| ground.manager.tenant(name).expect("few tenants"));
    let run = sequence(&a, 1, 4);
    ground.mover.close();
    // A copy of a held block, copies of two victims, and one idle block.
    let held = compute(&a, &run, None).await;
    let mut first = held.clone();
    first.truncate(1);
    let offload = a.default_group().offload(&first, OffloadOptions::default());
    drop(held);
    let waits = tokio::spawn({
        let b = b.clone();
        async move { b.default_group().allocate(2).await.map(|blocks| blocks.len()) }
    });
    while ground.mover.waiting() < 3 {
        tokio::task::yield_now().await;
    }
    let mut purge = Box::pin(a.purge(ZERO));
    std::future::poll_fn(|context| {
        assert!(purge.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    // The purge goes on.
    drop(purge);
    ground.mover.open();
    assert_eq!(waits.await.expect("no panic").expect("what the purge has freed"), 2);
    assert_eq!(offload.await.copied, 0);
    assert_eq!(ground.manager.census().purges, 1, "one is held");
    drop(first);
    rest(&ground.manager).await;
    assert!(!run.iter().any(|hash| ground.anywhere(&bytes_of(*hash))));
    assert_eq!((a.usage(Tier::Device).blocks, a.usage(Tier::Host).blocks), (0, 0));
    let census = ground.manager.census();
    assert_eq!((census.tiers[0][0].free, census.tiers[0][1].free), (4, 8));
}

#[tokio::test]
async fn purge_refuses_waiting_allocations() {
    let ground = Ground::new(4, 4);
    let a = ground.manager.tenant("a").expect("few tenants");
    let all = ground.manager.default_group().allocate(4).await.expect("free");
    let waits = tokio::spawn({
        let a = a.clone();
        async move { a.default_group().allocate(1).await.map(|blocks| blocks.len()) }
    });
    while ground.manager.census().waiting == 0 {
        tokio::task::yield_now().await;
    }
    let purged = a.purge(Purge::default()).await.expect("open");
    assert!(purged.complete);
    assert_eq!(waits.await.expect("no panic").expect_err("none"), AllocateError::Purging);
    drop(all);
    assert_eq!(a.default_group().allocate(4).await.expect("anew").len(), 4);
    ground.manager.shutdown().await;
    assert_eq!(a.purge(Purge::default()).await.expect_err("too late"), PurgeError::Closed);
}
