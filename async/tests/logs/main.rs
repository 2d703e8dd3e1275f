//! Log lines and spans. Each condition that an operator can act on is logged once, with the tier, the
//! path and the remedy. Spans carry requests and counts. No line is logged for each block.

#[cfg(feature = "otel")]
mod collector;
#[path = "../common/mod.rs"]
mod common;
mod ears;
#[cfg(feature = "otel")]
mod embedding;
#[expect(dead_code, reason = "this test uses some of it")]
#[path = "../tenants/gated.rs"]
mod gated;
#[expect(dead_code, reason = "this test uses some of it")]
#[path = "../manager/ground.rs"]
mod ground;
mod opening;
mod requests;
#[path = "../common/sim/mod.rs"]
mod sim;
mod slow;
#[path = "../common/tokio_time.rs"]
mod time;
mod volumes;

use gated::Ground;
use ground::{BYTES, compute, hashes, rest, settings};
use kvstrata::OriginalNames;
use kvstrata::disk::{DiskMover, DiskTier, TierOptions};
use kvstrata_core::PoolConfig;
use kvstrata_ffi::disk::VolumeOptions;
use std::path::Path;
use std::sync::Arc;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// Returns a manager with one volume below it, and the volume's tier.
fn over_a_volume(folder: &Path) -> (Ground, Arc<DiskTier>) {
    let volume = VolumeOptions::new(folder.join("volume"), 32, BYTES).keep(true);
    let (tier, _) =
        DiskTier::open(vec![volume], PoolConfig::new(32), TierOptions::default()).expect("a tier");
    let tier = Arc::new(tier);
    let disk = Arc::new(DiskMover::new(Arc::clone(&tier), &tokio::runtime::Handle::current()));
    (Ground::over(settings(4, 4).disk_blocks(32), 4, 4, Some(disk)), tier)
}

/// Computes sequences of 4 blocks each. Older ones are pushed down to the disk.
async fn fill(ground: &Ground, sequences: u64) {
    for sequence in 1..=sequences {
        drop(compute(&ground.manager, &hashes(sequence, 4), None).await);
        rest(&ground.manager).await;
    }
}

/// Restores these sequences, then computes more.
async fn use_all(ground: &Ground, sequences: &[u64], more: std::ops::Range<u64>) {
    for sequence in sequences {
        drop(ground.manager.default_group().restore_to_gpu(&hashes(*sequence, 4)).await.expect("it fits"));
        rest(&ground.manager).await;
    }
    for sequence in more {
        drop(compute(&ground.manager, &hashes(sequence, 4), None).await);
        rest(&ground.manager).await;
    }
}
