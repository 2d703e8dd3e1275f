//! Quotas met by others than the tenant: a caller that asks for its blocks, and a volume that is lost.

use crate::ground::{BYTES, compute, rest, settings};
use crate::ground::{build, check};
use crate::sequence;
use kvstrata::OriginalNames;
use kvstrata::config::ManagerConfigBuilder;
use kvstrata::disk::{DiskMover, DiskTier, TierOptions};
use kvstrata::manager::{KvBlockManager, Needs, OnboardOptions, Parts, StackParts, TierParts};
use kvstrata::movers::ThreadsMover;
use kvstrata::tier::Tier;
use kvstrata::transfer::{Cause, HostMemory};
use kvstrata_core::PoolConfig;
use kvstrata_ffi::device::SimDevice;
use kvstrata_ffi::disk::VolumeOptions;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

/// A request without a tenant for the tenant's run: blocks beyond the tenant's quota are a miss, and
/// delay nothing.
#[tokio::test]
async fn run_longer_than_the_quota_comes_up_to_the_quota() {
    let manager = build(settings(16, 16).quota_device(0.25));
    let group = manager.default_group();
    let a = manager.tenant("a").expect("few tenants");
    let run = sequence(&a, 1, 8);
    for half in run.chunks(4) {
        drop(compute(&a, half, None).await);
    }
    drop(group.allocate(16).await.expect("evictable"));
    rest(&manager).await;
    assert_eq!(group.match_prefix(&run).in_tier(Tier::Host), 8);
    // From the host, and then with the first ones in the device.
    for _ in 0..2 {
        let restored = tokio::time::timeout(SOON, group.restore_to_gpu(&run)).await;
        let up = restored.expect("at once").expect("it fits the device");
        assert_eq!((up.blocks.len(), up.missed), (4, Some(Cause::Quota)));
        check(&manager, &up.blocks, &run[..4]);
        assert_eq!(manager.census().waiting, 0, "nobody waits");
        drop(up);
        rest(&manager).await;
    }
    assert_eq!(a.default_group().allocate(1).deadline(SOON).await.expect("in time").len(), 1);
}

/// The run holds the tenant's own blocks in the device, which keeps the first block from coming up: so
/// one of them is let go.
#[tokio::test]
async fn run_holding_all_of_its_quota_waits_for_no_credit() {
    let manager = build(settings(16, 16).quota_device(0.25));
    let group = manager.default_group();
    let a = manager.tenant("a").expect("few tenants");
    let run = sequence(&a, 1, 5);
    drop(compute(&a, &run[..1], None).await);
    drop(group.allocate(16).await.expect("evictable"));
    rest(&manager).await;
    drop(compute(&a, &run[1..], None).await);
    let there = [Tier::Host, Tier::Device].map(|tier| group.match_prefix(&run).in_tier(tier));
    assert_eq!(there, [1, 4]);
    let restored = tokio::time::timeout(SOON, group.restore_to_gpu(&run)).await;
    let up = restored.expect("at once").expect("it fits the device");
    assert_eq!((up.blocks.len(), up.missed), (4, Some(Cause::Quota)));
    check(&manager, &up.blocks, &run[..4]);
}

/// Another's request holds blocks of a purged tenant. They are withdrawn, so no tier has them when the
/// request resumes. It is told so, and does not get the blocks behind them in their place.
#[tokio::test]
async fn request_preempted_during_a_purge_resumes_without_a_hole() {
    let manager = build(settings(8, 16));
    let group = manager.default_group();
    let a = manager.tenant("a").expect("few tenants");
    let run = sequence(&a, 1, 4);
    let front = compute(&a, &run[..2], None).await;
    let mut blocks = compute(&manager, &run[..0], None).await;
    for part in [group.match_device(&run[..2]), compute(&manager, &run[2..], None).await] {
        blocks.append(part).expect("one manager");
    }
    drop(front);
    let mut purge = std::pin::pin!(a.purge(kvstrata::manager::Purge::default()));
    assert!(purge.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "its blocks are held");
    let partial = group.try_allocate(1).expect("a free one");
    let preempted = group.preempt(blocks, partial, 1).expect("one manager");
    assert!(purge.await.expect("open").complete);
    let back = group.resume(preempted, OnboardOptions::default()).await.expect("fits");
    assert_eq!((back.blocks.len(), back.partial.is_none()), (0, true), "{:?} are not the first two", run);
    assert!(back.missed.is_some());
}

/// A manager of few blocks over two volumes, and their tier.
fn of_two_volumes(settings: ManagerConfigBuilder) -> (KvBlockManager, Arc<DiskTier>) {
    let config = settings.build().expect("a configuration");
    let layers = [BYTES / 2; 2];
    let memory = HostMemory::new(6, &layers).expect("memory");
    let device = Arc::new(SimDevice::with_layers(0, 4, &layers).expect("memory"));
    let mover = ThreadsMover::new(Arc::clone(&device), Arc::clone(&memory), 1).expect("a thread");
    let folder = tempfile::tempdir().expect("a folder");
    let volumes =
        ["one", "two"].map(|name| VolumeOptions::new(folder.path().join(name), 8, BYTES).keep(false));
    let tier = DiskTier::open(volumes.into(), PoolConfig::new(16), TierOptions::default());
    let tier = Arc::new(tier.expect("a tier").0);
    let runtime = tokio::runtime::Handle::current();
    let parts = StackParts {
        name: "of two volumes".to_owned(),
        device: PoolConfig::new(4),
        port: Some(device),
        mover: Arc::new(mover),
        memory: Some(memory),
        host: Some(PoolConfig::new(4)),
        below: vec![TierParts::new("disk", Arc::new(DiskMover::new(Arc::clone(&tier), &runtime)))],
        block_bytes: BYTES as u64,
        layers: 2,
        needs: Needs::All { page: 2 },
        linked: [false; 2],
        ahead_first: [false; 2],
    };
    let manager =
        KvBlockManager::of_parts(&config, Parts { stacks: vec![parts], runtime, own: None, names: None });
    (manager.expect("a manager"), tier)
}

#[tokio::test]
async fn credits_of_slots_on_a_lost_volume_come_back() {
    let (manager, tier) = of_two_volumes(settings(4, 4).disk_blocks(16).host_headroom(0).quota_disk(0.5));
    let a = manager.tenant("a").expect("few tenants");
    let runs: Vec<_> = (0..16).map(|number| sequence(&a, number, 4)).collect();
    let on_disk = |runs: &[Vec<_>]| {
        let hashes = runs.iter().flatten();
        hashes.map(|hash| manager.default_group().match_prefix(&[*hash]).in_tier(Tier::DISK)).sum::<usize>()
    };
    for run in &runs[..6] {
        drop(compute(&a, run, None).await);
        rest(&manager).await;
    }
    assert_eq!((on_disk(&runs), a.usage(Tier::DISK).blocks), (8, 8), "its quota, on both volumes");
    tier.volumes().volumes()[1].retire();
    for run in &runs[6..] {
        drop(compute(&a, run, None).await);
        rest(&manager).await;
    }
    assert_eq!(tier.stats().lost_volumes, 1);
    assert_eq!((on_disk(&runs), a.usage(Tier::DISK).blocks), (8, 8), "its quota, on the one that is left");
}
