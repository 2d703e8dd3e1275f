//! The end of the disk tier: the mark of a clean end, whoever still has a handle.

use super::ground::{build, check, compute, hashes, settings};
use crate::common::volume;
use kvstrata::manager::{KvBlockManager, OnboardOptions};
use kvstrata::tier::Tier;
use std::path::Path;

fn over(file: &Path) -> KvBlockManager {
    build(settings(8, 16).disk_blocks(32).disk_paths(vec![file.to_owned()]))
}

fn is_clean(file: &Path) -> bool {
    volume::read(file).expect("a superblock").clean
}

#[tokio::test]
async fn a_shutdown_leaves_a_clean_volume_though_there_are_handles() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    let first = over(&file);
    let all = hashes(1, 8);
    let held = compute(&first, &all, None).await;
    assert_eq!(first.persist(&all).await.copied, 8);
    assert!(!is_clean(&file), "it is open");
    let clone = first.clone();
    assert!(first.shutdown().await);
    assert!(is_clean(&file));
    // The next one, while the first is still held.
    let second = over(&file);
    let found = second.match_prefix(&all);
    assert_eq!(found.in_tier(Tier::Disk), 8);
    let up = second.onboard(found, OnboardOptions::default()).expect("fits").await;
    check(&second, &up.blocks, &all);
    drop(up);
    // What is asked of the first is answered, and touches nothing.
    assert!(clone.shutdown().await, "again");
    assert_eq!(clone.persist(&all).await.copied, 0);
    assert_eq!(clone.match_prefix(&all).in_tier(Tier::Device), 8);
    drop((held, first, clone));
    assert!(!is_clean(&file), "the second has it");
    assert!(second.shutdown().await);
    assert!(is_clean(&file));
    assert_eq!(volume::read(&file).expect("a superblock").blocks.len(), 8);
}

#[tokio::test]
async fn the_last_handle_closes_the_volume_where_nobody_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    let first = over(&file);
    let all = hashes(1, 4);
    let held = compute(&first, &all, None).await;
    assert_eq!(first.persist(&all).await.copied, 4);
    drop(first);
    assert!(!is_clean(&file), "its blocks are held");
    drop(held);
    assert!(is_clean(&file));
    assert_eq!(over(&file).match_prefix(&all).in_tier(Tier::Disk), 4);
}
