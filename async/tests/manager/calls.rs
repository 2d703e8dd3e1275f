//! Small calls: uses, watermarks, descriptions, hashes of tokens.

use super::ground::{build, check, compute, hashes, rest, settings};
use kvstrata::OriginalNames;
use kvstrata::config::DeviceKind;
use kvstrata::tier::Tier;
use kvstrata_core::Salt;

#[tokio::test]
async fn touched_block_is_the_last_to_leave() {
    let manager = build(settings(8, 0));
    let group = manager.default_group();
    let all = hashes(1, 8);
    // Each by itself, so that the first is the next to leave.
    for hash in &all {
        drop(compute(&manager, &[*hash], None).await);
    }
    assert!(group.touch(all[0]));
    assert!(!group.touch(hashes(2, 1)[0]), "nobody has computed it");
    drop(group.allocate(7).await.expect("those that were not used again"));
    let there: Vec<bool> = all.iter().map(|hash| group.touch(*hash)).collect();
    assert_eq!(there, [true, false, false, false, false, false, false, false]);
}

#[tokio::test]
async fn watermark_check_between_iterations_copies_blocks() {
    let manager = build(settings(20, 64).watermark_device(0.5).watermark_device_low(0.25));
    drop(compute(&manager, &hashes(1, 10), None).await);
    manager.check_watermark();
    rest(&manager).await;
    assert_eq!(manager.stats().offloaded[0], 0, "half is not above it");
    drop(compute(&manager, &hashes(2, 1), None).await);
    manager.check_watermark();
    rest(&manager).await;
    assert_eq!(manager.stats().offloaded[0], 6, "a quarter of 20 is left without a copy");
    assert_eq!(manager.default_group().match_prefix(&hashes(1, 10)).in_tier(Tier::Device), 10, "they stay");
}

#[tokio::test]
async fn evicted_blocks_are_restored_in_one_call() {
    let manager = build(settings(8, 32));
    let group = manager.default_group();
    let all = hashes(1, 6);
    drop(compute(&manager, &all, None).await);
    drop(group.allocate(8).await.expect("all of them"));
    rest(&manager).await;
    let up = group.restore_to_gpu(&all).await.expect("fits");
    assert_eq!(up.missed, None);
    check(&manager, &up.blocks, &all);
    let more = group.restore_to_gpu(&[&all[..], &hashes(2, 2)].concat()).await.expect("fits");
    assert_eq!((more.blocks.len(), more.missed), (6, None), "as far as it is anywhere");
    assert!(group.restore_to_gpu(&hashes(3, 2)).await.expect("fits").blocks.is_empty());
}

#[tokio::test]
async fn description_names_groups_tiers_sizes_and_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    let manager = build(settings(8, 16).disk_blocks(32).disk_paths(vec![file.clone()]));
    let text = manager.describe();
    let lines: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines[0], "group all: pages of 16 tokens, 1 layer, 4.00 KiB a block");
    for (line, begins) in lines[1..]
        .iter()
        .zip(["device 8 blocks 32.0 KiB 128 tokens reuse ", "host 16 blocks 64.0 KiB 256 tokens lru "])
    {
        assert!(line.starts_with(begins) && line.len() > begins.len(), "{begins}: {text}");
    }
    let disk = lines.iter().find(|line| line.starts_with("disk ")).expect("three tiers");
    assert!(disk.starts_with("disk 32 blocks 128 KiB 512 tokens lru "), "{text}");
    assert!(text.contains(&file.display().to_string()), "{text}");
    assert!(!text.contains("device.kind"), "nobody asked for a GPU: {text}");
    let hybrid = super::groups::hybrid("").describe();
    assert!(hybrid.contains("group window: pages of 16 tokens, a window of 32, 1 layer,"), "{hybrid}");
    assert!(hybrid.contains("group state: a state every 64 tokens, 1 layer,"), "{hybrid}");
}

#[tokio::test]
async fn description_without_gpu_says_why() {
    let manager = build(settings(8, 16).device_kind(DeviceKind::Auto).device_ordinal(1000));
    let text = manager.describe();
    let why = "device.kind = auto (builder) and device.ordinal = 1000 (builder) and device.blocks = 8 (builder): no GPU used: ";
    assert!(text.contains(why), "{text}");
}

#[tokio::test]
async fn prefetch_of_tokens_brings_up_their_blocks() {
    let manager = build(settings(8, 32).geometry_page_size(4));
    let tokens: Vec<u32> = (0..23).collect();
    let salts = [Salt::default(), manager.salt("m", "l", &[])];
    for salt in salts {
        let all = manager.default_group().hashes_of(&tokens, salt);
        let mut sequence = manager.default_group().sequence(salt);
        sequence.extend(&tokens);
        assert_eq!((all.len(), &all[..]), (5, sequence.hashes()), "full blocks only");
        drop(compute(&manager, &all, None).await);
        drop(manager.default_group().allocate(8).await.expect("all of them"));
        rest(&manager).await;
        assert_eq!(manager.default_group().match_prefix(&all).in_tier(Tier::Device), 0);
        manager.default_group().prefetch_tokens(&tokens, salt).detach();
        rest(&manager).await;
        let found = manager.default_group().match_prefix(&all);
        assert_eq!(found.in_tier(Tier::Device), 5);
        check(&manager, found.device(), &all);
    }
    // By each group's pages.
    let hybrid = super::groups::hybrid("");
    let tokens: Vec<u32> = (0..130).collect();
    let of = |group: usize| hybrid.group(group).expect("three").hashes_of(&tokens, Salt::default()).len();
    assert_eq!([of(0), of(1), of(2)], [8, 8, 2]);
}
