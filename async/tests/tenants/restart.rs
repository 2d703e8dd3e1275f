//! The disk: purged blocks are not found after a restart, nor are their bytes in the file. Other
//! blocks are still their tenant's.

use crate::ground::{build, bytes_of, check, compute, rest, settings};
use crate::sequence;
use kvstrata::config::{ManagerConfigBuilder, TenantSettings};
use kvstrata::manager::{KvBlockManager, OnboardOptions, Purge, Tiers};
use kvstrata::tier::Tier;
use kvstrata_core::SequenceHash;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

fn with(file: &Path, change: impl FnOnce(ManagerConfigBuilder) -> ManagerConfigBuilder) -> KvBlockManager {
    build(change(settings(4, 4).disk_blocks(64).disk_paths(vec![file.to_owned()]).host_headroom(0)))
}

fn manager(file: &Path) -> KvBlockManager {
    with(file, |settings| settings)
}

/// A volume left by a manager, where tenants a and b had 20 and 12 blocks. Higher tiers had b's last two
/// sequences.
struct Left {
    _folder: tempfile::TempDir,
    file: PathBuf,
    of_a: Vec<Vec<SequenceHash>>,
    of_b: Vec<Vec<SequenceHash>>,
}

async fn left() -> Left {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    let first = manager(&file);
    let [a, b] = ["a", "b"].map(|name| first.tenant(name).expect("few tenants"));
    let (of_a, of_b) = (fill(&a).await, fill(&b).await);
    assert_eq!([a, b].map(|tenant| tenant.usage(Tier::DISK).blocks), [20, 12]);
    assert!(first.shutdown().await);
    Left { _folder: folder, file, of_a, of_b }
}

/// Settings or recovered blocks give numbers in another order than before the restart.
fn named(name: &str) -> [TenantSettings; 1] {
    [TenantSettings { name: name.to_owned(), ..TenantSettings::default() }]
}

#[tokio::test]
async fn purge_after_a_restart_finds_unused_blocks() {
    for (who, other, zero) in [("a", "b", true), ("b", "a", true), ("b", "x", false)] {
        let Left { _folder, file, of_a, of_b } = left().await;
        let ((its, blocks), (others, left)) = match who {
            "a" => ((of_a, 20), (of_b, 12)),
            _ => ((of_b, 12), (of_a, 20)),
        };
        {
            let second = with(&file, |settings| settings.tenants(named(other)));
            let tenant = second.tenant(who).expect("few tenants");
            assert_eq!(tenant.usage(Tier::DISK).blocks, blocks, "{who} has them");
            let purged = tenant.purge(Purge::default().zero(zero)).await.expect("open");
            assert_eq!(
                (purged.of(Tier::DISK).found, purged.of(Tier::DISK).purged, purged.failed),
                (blocks, blocks, 0),
                "{who}"
            );
            let zeroed = if zero { blocks as u64 * 4096 } else { 0 };
            assert_eq!((purged.zeroed_bytes, purged.complete, purged.still_found), (zeroed, true, 0));
            assert_eq!(in_file(&file, &its), if zero { 0 } else { blocks });
            assert_eq!(tenant.usage(Tier::DISK).blocks, 0);
            assert!(second.shutdown().await);
        }
        let third = manager(&file);
        assert!(
            its.iter().all(|run| third.default_group().match_prefix(run).is_empty()),
            "{who}: found after a restart"
        );
        let found = others
            .iter()
            .map(|run| third.default_group().match_prefix(run).in_tier(Tier::DISK))
            .sum::<usize>();
        assert_eq!((found, in_file(&file, &others)), (left, left), "the other one's stay");
        assert_eq!(third.tenant(who).expect("few tenants").usage(Tier::DISK).blocks, 0);
    }
}

#[tokio::test]
async fn blocks_found_by_a_restart_count_for_the_quota() {
    let Left { _folder, file, of_b, .. } = left().await;
    let second = with(&file, |settings| settings.quota_disk(0.25).tenants(named("b")));
    let [b, a] = ["b", "a"].map(|name| second.tenant(name).expect("few tenants"));
    let uses = || [&a, &b].map(|tenant| tenant.usage(Tier::DISK));
    // Above the quota, since there was none before.
    assert_eq!(uses().map(|used| (used.blocks, used.quota)), [(20, Some(16)), (12, Some(16))]);
    for number in 10..15 {
        let run = sequence(&a, number, 4);
        drop(compute(&a, &run, None).await);
        rest(&a).await;
    }
    assert_eq!(uses().map(|used| used.blocks), [20, 12], "its own made room, one for one");
    let found =
        of_b.iter().map(|run| second.default_group().match_prefix(run).in_tier(Tier::DISK)).sum::<usize>();
    assert_eq!(found, 12);
}

#[tokio::test]
async fn recovered_block_served_to_others_stays_its_tenants() {
    let Left { _folder, file, of_b, .. } = left().await;
    let second = manager(&file);
    let group = second.default_group();
    let found = group.match_prefix(&of_b[0]);
    let up = group.onboard(found, OnboardOptions::default()).expect("fits").await;
    check(&second, &up.blocks, &of_b[0]);
    drop(up);
    let [c, b] = ["c", "b"].map(|name| second.tenant(name).expect("few tenants"));
    let blocks = |tenant: &Tiers| [Tier::Device, Tier::DISK].map(|tier| tenant.usage(tier).blocks);
    assert_eq!((blocks(&b), blocks(&c)), ([4, 12], [0, 0]));
    let purged = b.purge(Purge::default()).await.expect("open");
    assert_eq!((purged.device.purged, purged.of(Tier::DISK).purged), (4, 12));
    assert!(group.match_prefix(&of_b[0]).is_empty());
}

/// Computes so many sequences that the first ones are on the disk.
async fn fill(tenant: &Tiers) -> Vec<Vec<SequenceHash>> {
    let runs: Vec<_> = (0..5).map(|number| sequence(tenant, number, 4)).collect();
    for run in &runs {
        drop(compute(tenant, run, None).await);
        rest(tenant).await;
    }
    runs
}

/// Blocks of these runs that the file has.
fn in_file(file: &Path, runs: &[Vec<SequenceHash>]) -> usize {
    let bytes = std::fs::read(file).expect("there");
    let starts: HashSet<&[u8]> = bytes.chunks(64).collect();
    runs.iter().flatten().filter(|hash| starts.contains(&bytes_of(**hash)[..64])).count()
}

#[tokio::test]
async fn purged_blocks_and_bytes_survive_no_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    let (of_a, of_b);
    {
        let first = manager(&file);
        let [a, b] = ["a", "b"].map(|name| first.tenant(name).expect("few tenants"));
        (of_a, of_b) = (fill(&a).await, fill(&b).await);
        let on_disk = a.usage(Tier::DISK).blocks;
        assert_eq!((a.usage(Tier::Device).blocks, a.usage(Tier::Host).blocks, on_disk), (0, 0, 20));
        assert_eq!(in_file(&file, &of_a), 20);
        let zero = Purge::default().zero(true);
        let purged = a.purge(zero).await.expect("open");
        assert_eq!((purged.of(Tier::DISK).found, purged.of(Tier::DISK).purged, purged.failed), (20, 20, 0));
        assert_eq!((purged.zeroed_bytes, purged.complete, purged.still_found), (20 * 4096, true, 0));
        assert_eq!((in_file(&file, &of_a), in_file(&file, &of_b)), (0, b.usage(Tier::DISK).blocks));
        assert!(of_a.iter().all(|run| first.default_group().match_prefix(run).is_empty()));
        assert!(first.shutdown().await);
    }
    let second = manager(&file);
    let [a, b] = ["a", "b"].map(|name| second.tenant(name).expect("few tenants"));
    assert!(
        of_a.iter().all(|run| second.default_group().match_prefix(run).is_empty()),
        "found after a restart"
    );
    // The other tenant's blocks are there, and its own.
    assert_eq!(b.default_group().match_prefix(&of_b[0]).in_tier(Tier::DISK), 4);
    assert_eq!(b.usage(Tier::DISK).blocks, 12);
    let found = b.default_group().match_prefix(&of_b[0]);
    let up = b.default_group().onboard(found, OnboardOptions::default()).expect("fits").await;
    check(&b, &up.blocks, &of_b[0]);
    drop(up);
    assert_eq!((b.usage(Tier::DISK).blocks, b.usage(Tier::Device).blocks), (12, 4));
    let purged = b.purge(Purge::default()).await.expect("open");
    assert_eq!((purged.device.purged, purged.of(Tier::DISK).purged, purged.zeroed_bytes), (4, 12, 0));
    assert!(of_b.iter().all(|run| b.default_group().match_prefix(run).is_empty()));
    assert_eq!(a.usage(Tier::DISK).blocks, 0);
    assert!(second.shutdown().await);
    drop((a, b, second));
    // Forgotten, without a byte overwritten.
    let third = manager(&file);
    assert!(of_b.iter().all(|run| third.default_group().match_prefix(run).is_empty()));
    assert_eq!(in_file(&file, &of_b), 12);
}

#[tokio::test]
async fn tenant_at_its_disk_quota_replaces_its_own_blocks() {
    let manager = build(settings(4, 4).disk_blocks(32).host_headroom(0).quota_disk(0.25));
    let [a, b] = ["a", "b"].map(|name| manager.tenant(name).expect("few tenants"));
    let of_b = fill(&b).await;
    assert!(b.usage(Tier::DISK).blocks <= 8);
    let of_a = fill(&a).await;
    assert_eq!((a.usage(Tier::DISK).blocks, b.usage(Tier::DISK).blocks), (8, 8));
    let on_disk = |runs: &[Vec<SequenceHash>]| {
        let hashes = runs.iter().flatten();
        hashes.map(|hash| manager.default_group().match_prefix(&[*hash]).in_tier(Tier::DISK)).sum::<usize>()
    };
    assert_eq!((on_disk(&of_a), on_disk(&of_b)), (8, 8));
}

#[tokio::test]
async fn purge_with_zeros_erases_bytes_left_by_a_plain_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    let manager = manager(&file);
    let [a, b] = ["a", "b"].map(|name| manager.tenant(name).expect("few tenants"));
    let (of_a, of_b) = (fill(&a).await, fill(&b).await);
    let (on_disk, of_others) = (in_file(&file, &of_a), in_file(&file, &of_b));
    assert!(on_disk > 0 && of_others > 0);
    let purged = a.purge(Purge::default()).await.expect("open");
    assert_eq!(
        (purged.zeroed_bytes, purged.failed, in_file(&file, &of_a)),
        (0, 0, on_disk),
        "forgotten only"
    );
    let zero = Purge::default().zero(true);
    let purged = a.purge(zero).await.expect("open");
    assert_eq!((purged.of(Tier::DISK).found, purged.failed, purged.complete), (0, 0, true), "{purged:?}");
    assert_eq!((in_file(&file, &of_a), in_file(&file, &of_b)), (0, of_others));
    // Its slots are free, and written again, by blocks for which device and host have no room.
    let again = fill(&a).await;
    assert!(in_file(&file, &again) > 0);
    assert!(manager.shutdown().await);
}
