//! A tenant at its quota whose blocks are kept by copies by choice, which wait for host memory themselves.

use crate::gated::Ground;
use crate::ground::{BYTES, compute, rest, settings};
use crate::sequence;
use crate::sim::{Plan, SimDisk};
use kvstrata::config::ManagerConfigBuilder;
use kvstrata::manager::Tiers;
use kvstrata::tier::Tier;
use kvstrata::transfer::TierPort;
use kvstrata_core::{Policy, SequenceHash};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);
const HEADROOM: u32 = 2;
const HOST: u32 = 8;
const OWN: u32 = 4;

/// A tenant has its quota of the device, four of sixteen blocks, and no caller holds them. So many of
/// them are being copied, and each copy waits for a host block. The host is full except for its
/// headroom, over a disk that writes nothing before it is let go.
async fn kept(
    settings: ManagerConfigBuilder,
    copies: u32,
) -> (Arc<SimDisk>, Ground, Tiers, Vec<SequenceHash>) {
    let quick = Plan { latency: Duration::ZERO..Duration::from_millis(1), ..Plan::calm(1) };
    let disk = Arc::new(SimDisk::new(64, BYTES, quick));
    let port = Arc::<SimDisk>::clone(&disk) as Arc<dyn TierPort>;
    // The next victims, as many as are to be copied.
    let low = 1.0 - f64::from(16 - OWN + copies) / 16.0;
    let settings = settings.quota_device(0.25).host_headroom(HEADROOM);
    let settings = settings.watermark_device(0.2).watermark_device_low(low);
    let ground = Ground::over(settings, 16, HOST, Some(port));
    let manager = &ground.manager;
    let [tenant, other] = ["a", "b"].map(|name| manager.tenant(name).expect("few tenants"));
    for number in 0..2 {
        drop(compute(&other, &sequence(&other, number, 3), None).await);
        drop(manager.default_group().allocate(16).await.expect("blocks"));
        rest(manager).await;
    }
    assert_eq!((manager.census().tiers[0][1].free, disk.counts().written), (HEADROOM as usize, 0));
    let own = sequence(&tenant, 1, OWN);
    drop(compute(&tenant, &own, None).await);
    disk.gate().hold();
    manager.step().expect("none runs");
    assert_eq!(manager.census().grounded, copies as usize);
    (disk, ground, tenant, own)
}

/// Lets the disk go on, and counts the blocks that are in some tier.
async fn found(disk: &SimDisk, tenant: &Tiers, own: &[SequenceHash]) -> usize {
    disk.gate().open();
    rest(tenant).await;
    own.iter().filter(|hash| !tenant.default_group().match_prefix(&[**hash]).is_empty()).count()
}

#[tokio::test]
async fn allocation_at_quota_cancels_waiting_copies_by_choice() {
    let (disk, ground, tenant, own) = kept(settings(16, HOST), OWN).await;
    let block = tenant.default_group().allocate(1).deadline(PATIENCE).await.expect("in time");
    assert_eq!((disk.counts().written, tenant.usage(Tier::Device).blocks), (0, OWN as usize));
    assert_eq!(ground.manager.census().grounded, OWN as usize - 1, "no more than is needed");
    // A caller that does not wait does not need the copy either.
    let others = tenant.default_group().try_allocate(3).expect("three are called off");
    assert_eq!((disk.counts().written, others.len()), (0, 3));
    drop((block, others));
    assert_eq!(found(&disk, &tenant, &own).await, OWN as usize);
}

/// Cancelled for nothing, the copies would be started again.
#[tokio::test]
async fn allocation_beyond_cancellable_copies_cancels_none() {
    let (disk, ground, tenant, own) = kept(settings(16, HOST), OWN).await;
    let held = tenant.default_group().match_device(&own[..1]);
    assert!(tenant.default_group().try_allocate(OWN as usize).is_none(), "one is held");
    assert_eq!(ground.manager.census().grounded, OWN as usize);
    drop(held);
    assert_eq!(found(&disk, &tenant, &own).await, OWN as usize);
}

/// Copies keep two blocks of a chain, and the policy keeps the two before them, since they have children.
#[tokio::test]
async fn parents_of_blocks_of_cancelled_copies_leave_too() {
    for policy in [Policy::Sieve, Policy::S3Fifo, Policy::Lfu] {
        let (disk, ground, tenant, own) = kept(settings(16, HOST).device_policy(policy), 2).await;
        // Eviction passes the parents.
        assert!(ground.manager.default_group().try_allocate(13).is_none(), "{policy}");
        let blocks = tenant.default_group().allocate(OWN as usize).deadline(PATIENCE).await;
        assert_eq!((blocks.expect("in time").len(), disk.counts().written), (OWN as usize, 0), "{policy}");
        assert_eq!(found(&disk, &tenant, &own).await, OWN as usize, "{policy}");
    }
}
