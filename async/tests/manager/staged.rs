//! Staging: little, and none of it is lost.

use crate::ground::{BYTES, settings};
use crate::sim::{ALWAYS, Plan, SimDisk};
use kvstrata::config::ManagerConfigBuilder;
use kvstrata::manager::{
    KvBlockManager, Needs, OffloadOptions, OnboardOptions, Parts, StackParts, TierParts,
};
use kvstrata::movers::ThreadsMover;
use kvstrata::transfer::{Cause, Class, HostMemory, TierPort};
use kvstrata_core::{DevicePort, PoolConfig};
use kvstrata_ffi::device::SimDevice;
use std::sync::Arc;
use std::time::Duration;

/// A manager without a host tier and with two blocks of staging, and that memory, for the test to look at.
fn two() -> (KvBlockManager, Arc<HostMemory>) {
    let quick = Plan { latency: Duration::ZERO..Duration::from_millis(1), ..Plan::calm(1) };
    over(Arc::new(SimDisk::new(8, BYTES, quick)), 4, 2)
}

/// The same with so many blocks of the device and of staging.
pub fn over(disk: Arc<dyn TierPort>, blocks: u32, staging: usize) -> (KvBlockManager, Arc<HostMemory>) {
    let (stack, memory) = stack(disk, blocks, staging);
    (of_stacks(settings(blocks, 0), vec![stack]), memory)
}

/// A group without a host tier, and its staging.
fn stack(disk: Arc<dyn TierPort>, blocks: u32, staging: usize) -> (StackParts, Arc<HostMemory>) {
    let layers = [BYTES];
    let memory = HostMemory::new(staging, &layers).expect("memory");
    let device = Arc::new(SimDevice::with_layers(0, blocks as usize, &layers).expect("memory"));
    let mover = ThreadsMover::new(Arc::clone(&device), Arc::clone(&memory), 1).expect("a thread");
    let stack = StackParts {
        name: "all".to_owned(),
        device: PoolConfig::new(blocks),
        port: Some(Arc::<SimDevice>::clone(&device) as Arc<dyn DevicePort>),
        mover: Arc::new(mover),
        memory: Some(Arc::clone(&memory)),
        host: None,
        below: vec![TierParts::new("disk", disk)],
        block_bytes: BYTES as u64,
        layers: 1,
        needs: Needs::All { page: 16 },
        linked: [false; 2],
        ahead_first: [false; 2],
    };
    (stack, memory)
}

fn of_stacks(settings: ManagerConfigBuilder, stacks: Vec<StackParts>) -> KvBlockManager {
    let parts = Parts { stacks, runtime: tokio::runtime::Handle::current(), own: None, names: None };
    let config = settings.build().expect("a configuration");
    KvBlockManager::of_parts(&config, parts).expect("parts that fit")
}

/// The reads of a group whose disk hangs take all of its staging, wait for more, and wait
/// beside their part of the queue.
#[tokio::test]
async fn group_without_staging_delays_no_reads_of_other_groups() {
    for may_wait in [1024, 1] {
        let quick = Plan { latency: Duration::ZERO..Duration::from_millis(1), ..Plan::calm(1) };
        let disks = [1, 2].map(|seed| Arc::new(SimDisk::new(8, BYTES, Plan { seed, ..quick.clone() })));
        let stacks = disks.each_ref().map(|disk| stack(Arc::<SimDisk>::clone(disk), 8, 2).0);
        let manager = of_stacks(settings(8, 0).transfer_queue(may_wait), stacks.into());
        let all = crate::ground::hashes(1, 6);
        for group in [0, 1].map(|group| manager.group(group).expect("two")) {
            let blocks = manager.group(group.number()).expect("a group").allocate(6).await.expect("blocks");
            drop(blocks.register(&all, None).expect("registered"));
            // One at a time, for the queue of one.
            for hash in &all {
                assert_eq!(group.persist(&[*hash]).await.copied, 1);
            }
            drop(manager.group(group.number()).expect("a group").allocate(8).await.expect("all of them"));
        }
        disks[0].change(|plan| plan.hang = ALWAYS);
        let up = |group: usize, class, deadline| {
            let group = manager.group(group).expect("two");
            let options = OnboardOptions::default().class(class).deadline(deadline);
            group.onboard(group.match_prefix(&all), options).expect("fits")
        };
        let patience = Duration::from_secs(5);
        let hangs = up(0, Class::Urgent, Duration::from_secs(3600));
        let census = manager.census();
        assert_eq!(
            (census.moving, census.staging),
            (2, 2),
            "four of the first group wait, the other has its own"
        );
        let others = up(1, Class::Background, patience).await;
        assert_eq!((others.blocks.len(), others.missed), (6, None), "{may_wait} may wait");
        // The waiting reads go on when there is staging again.
        disks[0].change(|plan| plan.hang = 0);
        disks[0].shutdown();
        assert!(hangs.await.missed.is_some(), "what hung was given up");
        crate::ground::rest(&manager).await;
        assert_eq!(manager.census().staging, 4);
    }
}

#[tokio::test]
async fn staging_block_still_in_use_is_not_lost() {
    let (manager, memory) = two();
    let group = manager.default_group();
    let all = crate::ground::hashes(1, 1);
    drop(crate::ground::compute(&manager, &all, None).await);
    let copied = group.persist(&all).await;
    assert_eq!((copied.copied, copied.there, copied.refused), (1, 0, 0));
    let again = group.persist(&all).await;
    assert_eq!((again.copied, again.there, again.refused), (0, 1, 0));
    drop(group.allocate(4).await.expect("blocks"));
    let up = async || {
        let found = group.match_prefix(&all);
        assert_eq!(found.in_tier(kvstrata::tier::Tier::DISK), 1);
        group.onboard(found, OnboardOptions::default()).expect("fits").await
    };
    // As a device holds it that was given up on.
    let used = [0, 1].map(|block| memory.write(block).expect("nobody's"));
    for _ in 0..3 {
        assert_eq!(up().await.missed, Some(Cause::Busy));
        assert_eq!((manager.census().staging, manager.census().staged), (2, 0));
    }
    drop(used);
    let up = up().await;
    crate::ground::check(&manager, &up.blocks, &all);
}

#[tokio::test]
async fn staging_block_still_in_use_is_tried_last() {
    let (manager, memory) = two();
    let held = crate::ground::compute(&manager, &crate::ground::hashes(1, 1), None).await;
    // The block that is taken first, held as by a device that was given up on.
    let used = memory.write(0).expect("nobody's");
    let failed = manager.default_group().offload(&held, OffloadOptions::default()).await;
    assert_eq!((failed.failed, failed.cause), (1, Some(Cause::Busy)), "{failed:?}");
    let again = manager.default_group().offload(&held, OffloadOptions::default()).await;
    assert_eq!((again.copied, again.failed), (1, 0), "{again:?}");
    assert_eq!((manager.census().staging, manager.census().staged), (2, 0));
    drop(used);
}
