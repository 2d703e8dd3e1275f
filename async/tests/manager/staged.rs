//! Staging: little, and none of it is lost.

use crate::ground::{BYTES, settings};
use crate::sim::{Plan, SimDisk};
use kvstrata::core::{DevicePort, PoolConfig};
use kvstrata::ffi::device::SimDevice;
use kvstrata::manager::{KvBlockManager, Needs, OffloadOptions, OnboardOptions, Parts, StackParts};
use kvstrata::movers::ThreadsMover;
use kvstrata::transfer::{Cause, DiskPort, HostMemory};
use std::sync::Arc;
use std::time::Duration;

/// A manager without a host tier, and with two blocks of staging, which are to be looked at from outside.
fn two() -> (KvBlockManager, Arc<HostMemory>) {
    let quick = Plan { latency: Duration::ZERO..Duration::from_millis(1), ..Plan::calm(1) };
    over(Arc::new(SimDisk::new(8, BYTES, quick)), 4, 2)
}

/// The same with as many blocks of the device, and of staging.
pub fn over(disk: Arc<dyn DiskPort>, blocks: u32, staging: usize) -> (KvBlockManager, Arc<HostMemory>) {
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
        disk: Some(disk),
        block_bytes: BYTES as u64,
        layers: 1,
        needs: Needs::All { page: 16 },
        linked: false,
    };
    let parts =
        Parts { stacks: vec![stack], runtime: tokio::runtime::Handle::current(), own: None, names: None };
    let config = settings(blocks, 0).build().expect("a configuration");
    let manager = KvBlockManager::of_parts(&config, parts).expect("parts that fit");
    (manager, memory)
}

#[tokio::test]
async fn a_block_of_staging_that_somebody_still_uses_is_not_lost() {
    let (manager, memory) = two();
    let all = crate::ground::hashes(1, 1);
    drop(crate::ground::compute(&manager, &all, None).await);
    let copied = manager.persist(&all).await;
    assert_eq!((copied.copied, copied.there, copied.refused), (1, 0, 0));
    let again = manager.persist(&all).await;
    assert_eq!((again.copied, again.there, again.refused), (0, 1, 0));
    drop(manager.allocate(4).await.expect("blocks"));
    let up = async || {
        let found = manager.match_prefix(&all);
        assert_eq!(found.in_tier(kvstrata::tier::Tier::Disk), 1);
        manager.onboard(found, OnboardOptions::default()).expect("fits").await
    };
    // As a device does that was given up on.
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
async fn a_block_of_staging_that_somebody_still_uses_is_the_last_to_be_tried_again() {
    let (manager, memory) = two();
    let held = crate::ground::compute(&manager, &crate::ground::hashes(1, 1), None).await;
    // The one that is taken first. As a device does that was given up on.
    let used = memory.write(0).expect("nobody's");
    let failed = manager.offload(&held, OffloadOptions::default()).await;
    assert_eq!((failed.failed, failed.cause), (1, Some(Cause::Busy)), "{failed:?}");
    let again = manager.offload(&held, OffloadOptions::default()).await;
    assert_eq!((again.copied, again.failed), (1, 0), "{again:?}");
    assert_eq!((manager.census().staging, manager.census().staged), (2, 0));
    drop(used);
}
