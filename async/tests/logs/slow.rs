//! A drive that does not keep up: one line when it begins, and one when it is over.

use crate::ears::{Heard, listen};
use crate::ground::{BYTES, hashes, settings};
use crate::sim::{Plan, SimDisk, SimMover};
use kvstrata::manager::{KvBlockManager, Needs, Parts, StackParts, TierParts, Tiers};
use kvstrata::transfer::HostMemory;
use kvstrata_core::{DevicePort, PoolConfig};
use kvstrata_ffi::device::SimDevice;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tracing::Level;

/// A drive that takes so many milliseconds of virtual time for a block, one block after the other.
fn plan(milliseconds: u64) -> Plan {
    let bytes_a_second = 1000 * BYTES as u64 / milliseconds;
    Plan {
        latency: Duration::ZERO..Duration::from_nanos(1),
        bytes_a_second,
        one_by_one: true,
        ..Plan::calm(1)
    }
}

fn over(disk: &Arc<SimDisk>) -> KvBlockManager {
    let sim = Arc::new(SimDevice::new(16, BYTES).expect("memory"));
    let memory = HostMemory::new(24, &[BYTES]).expect("memory");
    let stack = StackParts {
        name: "all".to_owned(),
        device: PoolConfig::new(16),
        port: Some(Arc::<SimDevice>::clone(&sim) as Arc<dyn DevicePort>),
        mover: Arc::new(SimMover::new(sim, Arc::clone(&memory), plan(1))),
        memory: Some(memory),
        host: Some(PoolConfig::new(16)),
        below: vec![TierParts::new("disk", Arc::<SimDisk>::clone(disk))],
        block_bytes: BYTES as u64,
        layers: 1,
        needs: Needs::All { page: 16 },
        linked: [false; 2],
        ahead_first: [false; 2],
    };
    let runtime = tokio::runtime::Handle::current();
    let parts = Parts { stacks: vec![stack], runtime, own: None, names: None };
    let config = settings(16, 16).transfer_patience(None).host_headroom(0).build().expect("a configuration");
    KvBlockManager::of_parts(&config, parts).expect("parts that fit")
}

async fn fill(manager: &Tiers, sequences: std::ops::Range<u64>) {
    for sequence in sequences {
        let wanted = hashes(sequence, 8);
        let blocks = manager.default_group().allocate(8).await.expect("blocks");
        drop(blocks.register(&wanted, None).expect("registered"));
    }
}

/// Lets virtual time pass.
async fn pass(time: Duration) {
    sleep_until(Instant::now() + time).await;
}

#[tokio::test(start_paused = true)]
async fn slow_drive_is_logged_at_its_beginning_and_end() {
    let (ears, _turn) = listen().await;
    let disk = Arc::new(SimDisk::new(64, BYTES, plan(200)));
    let manager = over(&disk);
    let said = || [ears.said("does not keep up"), ears.said("keeps up again")];
    let counts = || said().map(|lines| lines.len());
    fill(&manager, 1..100).await;
    assert_eq!(counts(), [1, 0]);
    let begun: Heard = said()[0][0].clone();
    let fields = ["tier", "path", "group"].map(|field| begun.field(field));
    assert_eq!((begun.level, fields), (Level::WARN, ["disk", "host_to_disk", "all"]));
    assert!(begun.field("remedy").contains("transfer.patience"), "{begun:?}");
    // The drive stays slow for longer than the pause that would end the condition.
    for turn in 0..10 {
        fill(&manager, 100 + 10 * turn..110 + 10 * turn).await;
        pass(Duration::from_secs(10)).await;
    }
    assert_eq!(counts(), [1, 0]);
    pass(Duration::from_secs(40)).await;
    assert_eq!(counts(), [1, 1], "no more is dropped");
    assert_eq!(said()[1][0].level, Level::INFO);
    fill(&manager, 300..400).await;
    assert_eq!(counts(), [2, 1], "it begins again");
}
