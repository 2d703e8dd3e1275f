//! A preempted request leaves no block under a name that no caller knows any more.

use super::flying::look;
use super::ground::{build, compute, hashes, rest, settings};
use crate::gated::Ground;
use kvstrata::manager::{OnboardOptions, Preempted, Tiers};
use kvstrata::tier::Tier;
use std::pin::pin;

/// A request of `full` full blocks and one that is not full, preempted.
async fn preempted(manager: &Tiers, full: u64) -> Preempted {
    let blocks = compute(manager, &hashes(1, full), None).await;
    let partial = manager.default_group().allocate(1).await.expect("a block");
    manager.default_group().preempt(blocks, partial, 1).expect("one manager")
}

/// Registered blocks of a tier.
fn registered(manager: &Tiers, tier: Tier) -> u64 {
    let stats = manager.default_group().pool_stats(tier);
    stats.stored - stats.removed
}

#[tokio::test]
async fn partial_block_resumed_is_in_no_tier() {
    let manager = build(settings(8, 32));
    let mut preempted = preempted(&manager, 5).await;
    assert_eq!(preempted.settled().await.copied, 6);
    drop(manager.default_group().allocate(8).await.expect("all of them"));
    rest(&manager).await;
    assert_eq!(registered(&manager, Tier::Host), 6);
    let resumed = manager.default_group().resume(preempted, OnboardOptions::default()).await.expect("fits");
    assert!(resumed.partial.is_some(), "{:?}", resumed.missed);
    assert_eq!([Tier::Device, Tier::Host].map(|tier| registered(&manager, tier)), [5, 5]);
    drop(resumed);
    assert!(manager.census().is_idle());
    assert_eq!(manager.census().tiers[0][1].owned, 0, "free, and nobody's");
}

#[tokio::test]
async fn partial_block_of_a_dropped_preemption_is_in_no_tier() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = |settings: kvstrata::config::ManagerConfigBuilder| {
        settings.disk_paths(vec![directory.path().join("volume")]).disk_bytes(Some(64 << 20))
    };
    for (manager, below) in [(build(settings(8, 32)), Tier::Host), (build(disk(settings(8, 0))), Tier::DISK)]
    {
        let mut preempted = preempted(&manager, 5).await;
        assert_eq!(preempted.settled().await.copied, 6);
        assert_eq!([Tier::Device, below].map(|tier| registered(&manager, tier)), [6, 6], "{below}");
        drop(preempted);
        rest(&manager).await;
        assert_eq!([Tier::Device, below].map(|tier| registered(&manager, tier)), [5, 5], "{below}");
        let census = &manager.census().tiers[0];
        assert_eq!((census[0].owned, census[1].owned), (0, 0));
        assert_eq!(manager.default_group().allocate(8).await.expect("all of them").len(), 8);
    }
}

#[tokio::test]
async fn partial_block_dropped_in_flight_is_in_no_tier() {
    let ground = Ground::new(4, 16);
    ground.mover.close();
    let down = preempted(&ground.manager, 3).await;
    assert_eq!(ground.manager.census().moving, 4);
    drop(down);
    ground.mover.open();
    rest(&ground.manager).await;
    assert_eq!([Tier::Device, Tier::Host].map(|tier| registered(&ground.manager, tier)), [3, 3]);
    let mut up = preempted(&ground.manager, 3).await;
    up.settled().await;
    drop(ground.manager.default_group().allocate(4).await.expect("all of them"));
    rest(&ground.manager).await;
    assert_eq!(registered(&ground.manager, Tier::Host), 4);
    ground.mover.close();
    {
        let mut resume = pin!(ground.manager.default_group().resume(up, OnboardOptions::default()));
        assert!(look(resume.as_mut()).is_pending());
        assert_eq!(ground.manager.census().moving, 4);
    }
    ground.mover.open();
    rest(&ground.manager).await;
    assert_eq!([Tier::Device, Tier::Host].map(|tier| registered(&ground.manager, tier)), [3, 3]);
}
