//! Every shape of block that the configuration accepts makes a manager with all tiers, and a restart finds
//! its bytes.
//!
//! Block sizes follow from models, pages, types, ranks and groups. Many are no multiple of 4,096 bytes.

use super::ground::hashes;
use kvstrata::config::DiskFill;
use kvstrata::config::{
    DeviceKind, GroupKind, GroupSettings, ManagerConfig, ManagerConfigBuilder, WriteMode,
};
use kvstrata::manager::{KvBlockManager, OnboardOptions, Tiers};
use kvstrata::tier::Tier;
use kvstrata_core::SequenceHash;
use kvstrata_core::layout::{DType, Model};
use std::path::Path;

/// Larger blocks behave the same, and only cost time.
const MOST_BYTES: u64 = 4 << 20;
const BLOCKS: u32 = 4;

fn settings(folder: &Path) -> ManagerConfigBuilder {
    ManagerConfig::builder()
        .device_kind(DeviceKind::Sim)
        .device_blocks(BLOCKS)
        .host_blocks(BLOCKS)
        .disk_blocks(2 * BLOCKS)
        .disk_paths(vec![folder.to_owned()])
        .disk_staging(Some(2))
        .disk_fill(DiskFill::No)
        .offload_mode(WriteMode::Back)
}

/// Bytes that only this block of this group has.
fn pattern(group: usize, hash: SequenceHash, length: usize) -> Vec<u8> {
    let mut state = hash.to_u128() as u64 ^ (group as u64) << 40 | 1;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    words.take(length).collect()
}

async fn write(manager: &Tiers, sizes: &[u64]) {
    for (number, bytes) in sizes.iter().enumerate() {
        let group = manager.group(number).expect("a group");
        let all = hashes(1, 1);
        let blocks = group.allocate(1).await.expect("a block");
        let port = group.device_port().expect("a simulated device");
        let bytes = pattern(number, all[0], *bytes as usize);
        port.copy_in(blocks.ids()[0].0, 0, &bytes).expect("in range");
        drop(blocks.register(&all, None).expect("registered"));
        assert_eq!(group.persist(&all).await.copied, 1, "group {number}");
    }
    assert!(manager.shutdown().await);
}

async fn read(manager: &Tiers, sizes: &[u64]) {
    for (number, bytes) in sizes.iter().enumerate() {
        let group = manager.group(number).expect("a group");
        let all = hashes(1, 1);
        let found = group.match_prefix(&all);
        assert_eq!(found.in_tier(Tier::DISK), 1, "group {number}");
        let up = group.onboard(found, OnboardOptions::default()).expect("fits").await;
        assert_eq!((up.blocks.len(), up.missed), (1, None), "group {number}");
        let mut there = vec![0; *bytes as usize];
        let block = up.blocks.ids().next().expect("one");
        group.device_port().expect("simulated").copy_out(block.0, 0, &mut there).expect("in range");
        assert!(there == pattern(number, all[0], there.len()), "group {number}: other bytes");
    }
}

/// Makes a manager, fills its disk, makes the next manager, and finds all blocks again. Returns false if
/// the settings are refused or the blocks too large.
async fn restarts(name: &str, of: impl Fn(&Path) -> ManagerConfigBuilder) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let Ok(config) = of(folder.path()).build() else { return false };
    let sizes: Vec<u64> = config.groups().iter().map(|group| group.block_bytes()).collect();
    if sizes.iter().any(|bytes| *bytes > MOST_BYTES) {
        return false;
    }
    let make = || KvBlockManager::open(&config).unwrap_or_else(|error| panic!("{name}, {sizes:?}: {error}"));
    write(&make(), &sizes).await;
    read(&make(), &sizes).await;
    true
}

/// Presets by pages, types and ranks: every seventh combination, so that each value meets each other one.
#[tokio::test]
async fn preset_of_any_page_and_type_restarts_with_its_bytes() {
    let (mut number, mut accepted, mut odd) = (0_u32, 0, 0);
    for model in Model::ALL {
        for page in [1, 16, 48] {
            for dtype in DType::ALL {
                for tp in [1, 2, 8] {
                    number += 1;
                    if !number.is_multiple_of(7) {
                        continue;
                    }
                    let name = format!("{} page {page} {dtype} tp {tp}", model.name);
                    let of = |folder: &Path| {
                        settings(folder)
                            .model(Some(model))
                            .geometry_page_size(page)
                            .geometry_dtype(Some(dtype))
                            .geometry_tp(tp)
                            .geometry_rank(tp - 1)
                    };
                    if restarts(&name, of).await {
                        accepted += 1;
                        let config = of(Path::new(".")).build().expect("accepted");
                        odd += u32::from(!config.groups()[0].block_bytes().is_multiple_of(4096));
                    }
                }
            }
        }
    }
    assert!(accepted > 60 && odd > 15, "{accepted} accepted, {odd} of them no multiple of 4,096 bytes");
}

/// Blocks without described parts, states, latents, windows; aligned or not; over one path or two.
#[tokio::test]
async fn group_of_any_kind_restarts_with_its_bytes() {
    for bytes in [64, 100, 1000, 4095, 4096, 4097, 65_537] {
        let of = |folder: &Path| settings(folder).geometry_block_bytes(Some(bytes));
        assert!(restarts(&format!("{bytes} bytes"), of).await);
    }
    let heads = GroupSettings { kv_heads: Some(3), head_size: Some(40), ..GroupSettings::default() };
    let groups = [
        GroupSettings { layers: vec![0, 2], ..heads.clone() },
        GroupSettings {
            kind: GroupKind::Window,
            window: Some(100),
            layers: vec![1, 3, 5],
            page_size: Some(5),
            ..heads
        },
        GroupSettings {
            kind: GroupKind::Mla,
            head_size: Some(576),
            layers: vec![4],
            page_size: Some(1),
            ..GroupSettings::default()
        },
        GroupSettings {
            kind: GroupKind::State,
            layers: vec![6, 7, 8],
            page_size: Some(256),
            state_bytes: Some(33_333),
            ..GroupSettings::default()
        },
    ];
    for alignment in [None, Some(64), Some(4096), Some(65_536)] {
        for paths in [1, 2] {
            let of = |folder: &Path| {
                let files = (0..paths).map(|path| folder.join(format!("volume-{path}"))).collect::<Vec<_>>();
                let settings = settings(folder).groups(groups.clone()).geometry_alignment(alignment);
                settings.disk_paths(files)
            };
            assert!(restarts(&format!("alignment {alignment:?}, {paths} paths"), of).await);
        }
    }
}

/// All ranks are given one directory, or one path. Each rank has a file of its own, and finds it again.
#[tokio::test]
async fn ranks_share_their_settings_and_not_their_files() {
    for is_made in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("volumes");
        if is_made {
            std::fs::create_dir(&place).expect("made");
        }
        let of = |rank| {
            let settings = settings(&place).geometry_layers(Some(4)).geometry_kv_heads(Some(8));
            let settings = settings.geometry_head_size(Some(64)).geometry_tp(2).geometry_rank(rank);
            KvBlockManager::open(&settings.build().expect("possible")).expect("a manager")
        };
        let sizes = [4 * 2 * 16 * 4 * 64 * 2];
        let both = [of(0), of(1)];
        // Both at once: neither holds the other's file.
        for manager in &both {
            write(manager, &sizes).await;
        }
        drop(both);
        for rank in 0..2 {
            read(&of(rank), &sizes).await;
        }
        let within = if is_made { &place } else { folder.path() };
        let names = std::fs::read_dir(within).expect("there").map(|file| file.expect("a file").file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().expect("UTF-8")).collect();
        names.sort();
        let expected = match is_made {
            true => {
                ["kvstrata-custom-all-rank0of2.kvs", "kvstrata-custom-all-rank1of2.kvs", "kvstrata.hash-key"]
            }
            false => ["kvstrata.hash-key", "volumes.rank0of2", "volumes.rank1of2"],
        };
        assert_eq!(names, expected);
    }
}
