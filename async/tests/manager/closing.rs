//! The end of the disk tier: it marks its volume as clean, whatever handles are left.

use super::flying::look;
use super::gated::Ground;
use super::ground::{BYTES, build, check, compute, hashes, settings};
use crate::common::volume;
use crate::sim::{Plan, SimDisk};
use kvstrata::config::WriteMode;
use kvstrata::manager::{KvBlockManager, OnboardOptions, Purge};
use kvstrata::tier::Tier;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn over(file: &Path) -> KvBlockManager {
    build(settings(8, 16).disk_blocks(32).disk_paths(vec![file.to_owned()]))
}

fn is_clean(file: &Path) -> bool {
    volume::read(file).expect("a superblock").clean
}

#[tokio::test]
async fn shutdown_with_live_handles_leaves_a_clean_volume() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    let first = over(&file);
    let all = hashes(1, 8);
    let held = compute(&first, &all, None).await;
    assert_eq!(first.default_group().persist(&all).await.copied, 8);
    assert!(!is_clean(&file), "it is open");
    let clone = first.clone();
    assert!(first.shutdown().await);
    assert!(is_clean(&file));
    // The next manager opens the volume while the first is still held.
    let second = over(&file);
    let found = second.default_group().match_prefix(&all);
    assert_eq!(found.in_tier(Tier::DISK), 8);
    let up = second.default_group().onboard(found, OnboardOptions::default()).expect("fits").await;
    check(&second, &up.blocks, &all);
    drop(up);
    // Calls to the first manager are answered, and touch nothing.
    assert!(clone.shutdown().await, "again");
    assert_eq!(clone.default_group().persist(&all).await.copied, 0);
    assert_eq!(clone.default_group().match_prefix(&all).in_tier(Tier::Device), 8);
    drop((held, first, clone));
    assert!(!is_clean(&file), "the second has it");
    assert!(second.shutdown().await);
    assert!(is_clean(&file));
    assert_eq!(volume::read(&file).expect("a superblock").blocks.len(), 8);
}

#[tokio::test]
async fn last_handle_without_shutdown_closes_the_volume() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    let first = over(&file);
    let all = hashes(1, 4);
    let held = compute(&first, &all, None).await;
    assert_eq!(first.default_group().persist(&all).await.copied, 4);
    drop(first);
    assert!(!is_clean(&file), "its blocks are held");
    drop(held);
    assert!(is_clean(&file));
    assert_eq!(over(&file).default_group().match_prefix(&all).in_tier(Tier::DISK), 4);
}

/// The queue takes two at a time. The other copies are deferred when the shutdown begins, also those
/// from the host on.
#[tokio::test]
async fn shutdown_makes_deferred_write_through_copies() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    let settings = settings(8, 16).disk_blocks(32).disk_paths(vec![file.clone()]);
    let few = settings.transfer_queue(2).transfer_in_flight(BYTES as u64).iteration_bytes(Some(BYTES as u64));
    let first = build(few.offload_mode(WriteMode::Through));
    let all = hashes(1, 8);
    let held = compute(&first, &all, None).await;
    assert!(first.stats().offloaded[1] < 8, "an iteration has bytes for one");
    assert!(first.shutdown().await);
    drop((held, first));
    let second = over(&file);
    assert_eq!(second.default_group().match_prefix(&all).in_tier(Tier::DISK), 8);
}

/// The same hashes with other bytes: blocks that old weights have computed are no hit for new ones.
#[tokio::test]
async fn volume_of_other_weights_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    let of = |weights: Option<&str>| {
        let settings = settings(8, 16).disk_blocks(32).disk_paths(vec![file.clone()]);
        settings.disk_weights(weights.map(str::to_owned)).build().expect("a configuration")
    };
    let all = hashes(1, 4);
    let first = KvBlockManager::open(&of(Some("toy@1"))).expect("a manager");
    drop(compute(&first, &all, None).await);
    assert_eq!(first.default_group().persist(&all).await.copied, 4);
    assert!(first.shutdown().await);
    for other in [Some("toy@2"), None] {
        let error = KvBlockManager::open(&of(other)).expect_err("of other weights").to_string();
        assert!(error.contains("its model_fingerprint is") && error.contains("disk.weights"), "{error}");
    }
    let again = KvBlockManager::open(&of(Some("toy@1"))).expect("a manager");
    assert_eq!(again.default_group().match_prefix(&all).in_tier(Tier::DISK), 4);
}

/// The message suggests no other value of a setting: that would not help.
#[tokio::test]
async fn volume_of_other_version_is_refused_with_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    let all = hashes(1, 4);
    let first = over(&file);
    drop(compute(&first, &all, None).await);
    assert_eq!(first.default_group().persist(&all).await.copied, 4);
    assert!(first.shutdown().await);
    let mut bytes = std::fs::read(&file).expect("there");
    for copy in [0, bytes.len() - 4096] {
        let superblock = &mut bytes[copy..copy + 4096];
        superblock[8] = 1;
        let sum = twox_hash::XxHash3_64::oneshot(&superblock[..4088]);
        superblock[4088..].copy_from_slice(&sum.to_le_bytes());
    }
    std::fs::write(&file, bytes).expect("written");
    let of = || settings(8, 16).disk_blocks(32).disk_paths(vec![file.clone()]);
    let error =
        KvBlockManager::open(&of().build().expect("a configuration")).expect_err("of another version");
    let error = error.to_string();
    let said = [
        "its version is 1, the settings need 2; open it with the version of kvstrata that made it",
        "disk.paths",
        "disk.reinitialize",
    ];
    assert!(said.iter().all(|said| error.contains(said)) && !error.contains("give the"), "{error}");
    let again = build(of().disk_reinitialize(true));
    assert_eq!(again.default_group().match_prefix(&all).in_tier(Tier::DISK), 0);
}

#[test]
fn shutdown_and_runtime_end_though_the_disk_close_hangs() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (ground, hangs) = runtime.block_on(async {
        let disk = SimDisk::new(8, BYTES, Plan::calm(1));
        let hangs = disk.hang_at_end();
        let settings = settings(4, 4).deadline_shutdown(Duration::from_millis(20));
        (Ground::over(settings, 4, 4, Some(Arc::new(disk))), hangs)
    });
    assert!(!runtime.block_on(ground.manager.shutdown()), "its end hangs");
    drop(runtime);
    drop(ground);
    hangs.send(()).expect("it hangs still, and goes on when it is told");
}

/// A purge has blocks of the volumes in hand. The volumes close with the last handle then, and the
/// caller is told.
#[tokio::test]
async fn shutdown_during_purge_reports_an_open_volume() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    let first = over(&file);
    let tenant = first.tenant("a").expect("few tenants");
    let held = compute(&tenant, &hashes(1, 4), None).await;
    let mut purge = Box::pin(tenant.purge(Purge::default()));
    assert!(look(purge.as_mut()).is_pending(), "held");
    assert!(!first.shutdown().await, "the volume is open");
    assert!(!is_clean(&file));
    drop(held);
    assert!(purge.await.expect("begun before").complete);
    assert!(first.shutdown().await && is_clean(&file));
}
