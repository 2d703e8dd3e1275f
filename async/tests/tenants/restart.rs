//! The disk: what was purged is not there after a restart, nor are its bytes in the file.

use crate::ground::{build, bytes_of, check, compute, rest, settings};
use crate::sequence;
use kvstrata::core::SequenceHash;
use kvstrata::manager::{KvBlockManager, OnboardOptions, Purge, Tenant};
use kvstrata::tier::Tier;
use std::collections::HashSet;
use std::path::Path;

fn manager(file: &Path) -> KvBlockManager {
    build(settings(4, 4).disk_blocks(64).disk_paths(vec![file.to_owned()]).host_headroom(0))
}

/// Computes so many sequences that the first ones are on the disk.
async fn fill(tenant: &Tenant) -> Vec<Vec<SequenceHash>> {
    let runs: Vec<_> = (0..5).map(|number| sequence(tenant, number, 4)).collect();
    for run in &runs {
        drop(compute(tenant, run, None).await);
        rest(tenant).await;
    }
    runs
}

/// How many blocks of these the file has.
fn in_file(file: &Path, runs: &[Vec<SequenceHash>]) -> usize {
    let bytes = std::fs::read(file).expect("there");
    let starts: HashSet<&[u8]> = bytes.chunks(64).collect();
    runs.iter().flatten().filter(|hash| starts.contains(&bytes_of(**hash)[..64])).count()
}

#[tokio::test]
async fn a_purged_block_is_not_found_after_a_restart_nor_are_its_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    let (of_a, of_b);
    {
        let first = manager(&file);
        let [a, b] = ["a", "b"].map(|name| first.tenant(name).expect("few tenants"));
        (of_a, of_b) = (fill(&a).await, fill(&b).await);
        let on_disk = a.usage(Tier::Disk).blocks;
        assert_eq!((a.usage(Tier::Device).blocks, a.usage(Tier::Host).blocks, on_disk), (0, 0, 20));
        assert_eq!(in_file(&file, &of_a), 20);
        let zero = Purge { zero: true, ..Purge::default() };
        let purged = a.purge(zero).await.expect("open");
        assert_eq!((purged.disk.found, purged.disk.purged, purged.failed), (20, 20, 0));
        assert_eq!((purged.zeroed_bytes, purged.complete, purged.still_found), (20 * 4096, true, 0));
        assert_eq!((in_file(&file, &of_a), in_file(&file, &of_b)), (0, b.usage(Tier::Disk).blocks));
        assert!(of_a.iter().all(|run| first.match_prefix(run).is_empty()));
        assert!(first.shutdown().await);
    }
    let second = manager(&file);
    let [a, b] = ["a", "b"].map(|name| second.tenant(name).expect("few tenants"));
    assert!(of_a.iter().all(|run| second.match_prefix(run).is_empty()), "found after a restart");
    // What the other one had is there, and nobody's until it is used.
    assert_eq!(b.match_prefix(&of_b[0]).in_tier(Tier::Disk), 4);
    assert_eq!(b.usage(Tier::Disk).blocks, 0);
    let found = b.match_prefix(&of_b[0]);
    let up = b.onboard(found, OnboardOptions::default()).expect("fits").await;
    check(&b, &up.blocks, &of_b[0]);
    drop(up);
    assert_eq!((b.usage(Tier::Disk).blocks, b.usage(Tier::Device).blocks), (4, 4));
    let purged = b.purge(Purge::default()).await.expect("open");
    assert_eq!((purged.device.purged, purged.disk.purged, purged.zeroed_bytes), (4, 4, 0));
    assert!(b.match_prefix(&of_b[0]).is_empty() && !b.match_prefix(&of_b[1]).is_empty());
    assert_eq!(a.usage(Tier::Disk).blocks, 0);
    assert!(second.shutdown().await);
    drop((a, b, second));
    // Forgotten, without a byte overwritten.
    let third = manager(&file);
    assert!(third.match_prefix(&of_b[0]).is_empty() && !third.match_prefix(&of_b[1]).is_empty());
}

#[tokio::test]
async fn at_its_quota_of_the_disk_a_tenant_replaces_its_own() {
    let manager = build(settings(4, 4).disk_blocks(32).host_headroom(0).quota_disk(0.25));
    let [a, b] = ["a", "b"].map(|name| manager.tenant(name).expect("few tenants"));
    let of_b = fill(&b).await;
    assert!(b.usage(Tier::Disk).blocks <= 8);
    let of_a = fill(&a).await;
    assert_eq!((a.usage(Tier::Disk).blocks, b.usage(Tier::Disk).blocks), (8, 8));
    let on_disk = |runs: &[Vec<SequenceHash>]| {
        let hashes = runs.iter().flatten();
        hashes.map(|hash| manager.match_prefix(&[*hash]).in_tier(Tier::Disk)).sum::<usize>()
    };
    assert_eq!((on_disk(&of_a), on_disk(&of_b)), (8, 8));
}
