//! Parts that do not fit together, and settings that the machine cannot meet, are refused. The
//! error names each with its value.

use super::ground::{BYTES, settings};
use kvstrata::config::{DeviceKind, ManagerConfig, ManagerConfigBuilder};
use kvstrata::manager::{KvBlockManager, Needs, Parts, StackParts, TierParts};
use kvstrata::memory::MemoryTier;
use kvstrata::movers::ThreadsMover;
use kvstrata::transfer::HostMemory;
use kvstrata_core::{Policy, PoolConfig};
use kvstrata_ffi::device::SimDevice;
use std::path::PathBuf;
use std::sync::Arc;

const BLOCKS: u32 = 4;

fn of_stacks(settings: ManagerConfigBuilder, stacks: Vec<StackParts>) -> Result<KvBlockManager, String> {
    let parts = Parts { stacks, runtime: tokio::runtime::Handle::current(), own: None, names: None };
    let config = settings.build().expect("a configuration");
    KvBlockManager::of_parts(&config, parts).map_err(|error| error.to_string())
}

/// A stack that fits, with a change made to it.
fn stack(change: impl FnOnce(&mut StackParts)) -> StackParts {
    let layers = [BYTES / 2; 2];
    let memory = HostMemory::new(BLOCKS as usize, &layers).expect("memory");
    let sim = Arc::new(SimDevice::with_layers(0, BLOCKS as usize, &layers).expect("memory"));
    let mover = ThreadsMover::new(Arc::clone(&sim), Arc::clone(&memory), 1).expect("a thread");
    let mut stack = StackParts {
        name: "one".to_owned(),
        device: PoolConfig::new(BLOCKS),
        port: Some(sim),
        mover: Arc::new(mover),
        memory: Some(memory),
        host: Some(PoolConfig::new(BLOCKS)),
        below: Vec::new(),
        block_bytes: BYTES as u64,
        layers: 2,
        needs: Needs::All { page: 2 },
        linked: [false; 2],
        ahead_first: [false; 2],
    };
    change(&mut stack);
    stack
}

/// Figures belong to a position among the tiers. Two names for a position would be two tiers with one
/// set of figures, or one name for two positions.
#[tokio::test]
async fn tiers_of_one_place_with_two_names_are_refused() {
    let of = |names: [&[&str]; 2]| {
        let stacks = names.map(|names| {
            stack(|of| {
                of.memory = Some(HostMemory::new(BLOCKS as usize + 2, &[BYTES / 2; 2]).expect("memory"));
                of.below = names.iter().map(|name| store(name)).collect();
            })
        });
        let settings = settings(BLOCKS, BLOCKS);
        let parts = Parts {
            stacks: stacks.into(),
            runtime: tokio::runtime::Handle::current(),
            own: None,
            names: None,
        };
        KvBlockManager::of_parts(&settings.build().expect("a configuration"), parts)
            .map_err(|error| error.to_string())
    };
    let manager = of([&["near"], &["near", "far"]]).expect("one more is no other");
    assert_eq!(manager.tier("far").map(|tier| manager.tier_name(tier)), Some("far"));
    for names in [[&["near"][..], &["far", "near"][..]], [&["near"], &["far"]]] {
        let why = of(names).expect_err("two names");
        assert!(why.contains("is named far, but near in another group"), "{why}");
    }
}

fn port(blocks: usize, bytes: usize) -> Option<Arc<dyn kvstrata_core::DevicePort>> {
    Some(Arc::new(SimDevice::new(blocks, bytes).expect("memory")))
}

fn store(name: &str) -> TierParts {
    let tier = MemoryTier::new(PoolConfig::new(2), BYTES, 1).expect("memory and a thread");
    TierParts::new(name, Arc::new(tier))
}

#[tokio::test]
async fn parts_that_do_not_fit_are_refused_by_name() {
    let one = |change: fn(&mut StackParts)| of_stacks(settings(BLOCKS, BLOCKS), vec![stack(change)]);
    one(|_| {}).expect("fits");
    let memory = |blocks, layers: &[usize]| Some(HostMemory::new(blocks, layers).expect("memory"));
    assert!(memory(1, &[1]).is_some());
    type Change = fn(&mut StackParts);
    let cases: [(Change, &str); 11] = [
        (|of| of.layers = 1, "layers per block: 1, in host memory: 2; make them equal"),
        (|of| of.layers = 3, "layers per block: 3, in host memory: 2; make them equal"),
        (|of| of.layers = 0, "its blocks have 0 layers; give at least 1"),
        (
            |of| (of.block_bytes, of.port) = (8192, None),
            "bytes per block: 8192, in host memory: 4096; make them equal",
        ),
        (|of| of.port = port(4, 8192), "bytes per block: 4096, of the device's port: 8192; make them equal"),
        (|of| of.port = port(3, 4096), "blocks of the device: 4, of the device's port: 3; make them equal"),
        (|of| of.needs = Needs::State { page: 0 }, "its pages have 0 tokens; give at least 1"),
        (
            |of| of.host = Some(PoolConfig::new(5)),
            "blocks of the host tier: 5, of host memory: 4; enlarge host memory",
        ),
        (|of| of.memory = None, "blocks of the host tier: 4, of host memory: 0; enlarge host memory"),
        (
            |of| of.below = vec![store("host")],
            "the tier name host is empty, reserved or used twice; give each tier below host memory its own name",
        ),
        (
            |of| of.below = ["a", "b", "c", "d", "e"].map(store).into(),
            "tiers below host memory: 5; give at most 4",
        ),
    ];
    for (change, why) in cases {
        assert_eq!(one(change).expect_err(why), format!("group one: {why}"));
    }
}

#[tokio::test]
async fn parts_that_differ_from_the_settings_groups_are_refused() {
    let error = of_stacks(settings(BLOCKS, BLOCKS), Vec::new()).expect_err("no stack");
    assert_eq!(
        error,
        "group all: groups of the settings: 1, stacks of the parts: 0; give one stack for each group"
    );
    let three = || {
        let text =
            "[device]\nblocks = 4\n[host]\nblocks = 4\n[geometry]\nlayers = 3\nkv_heads = 1\nhead_size = 64";
        ManagerConfig::builder().toml("k.toml", text)
    };
    let two = || vec![stack(|_| {}), stack(|_| {})];
    let error = of_stacks(three(), two()).expect_err("two stacks");
    assert_eq!(
        error,
        "group all: groups of the settings: 1, stacks of the parts: 2; give one stack for each group"
    );
    // Settings that describe no layers leave that to the parts: here two groups of two layers.
    let manager = of_stacks(settings(BLOCKS, BLOCKS), two()).expect("as the parts say");
    assert_eq!(manager.groups(), 2);
    let pass = manager.begin_iteration().expect("none runs");
    pass.layer_done(3).expect("the last of four");
    assert!(pass.layer_done(4).is_err());
    pass.end().expect("one runs");
    let error = of_stacks(three(), vec![stack(|_| {})]).expect_err("two layers");
    assert_eq!(error, "group one: layers per block: 2, by the settings: 3; make them equal");
}

/// A given setting that is ignored would mislead, so it is refused. Defaults say nothing.
#[tokio::test]
async fn settings_that_contradict_parts_are_refused_by_name() {
    let one = |settings| of_stacks(settings, vec![stack(|_| {})]);
    let fits = || settings(BLOCKS, BLOCKS);
    one(ManagerConfig::builder()).expect("nothing is given");
    one(fits().device_policy(Policy::Lru).geometry_page_size(2)).expect("the same");
    let cases = [
        (settings(8, BLOCKS), "device.blocks = 8 (builder): blocks of the device tier: 8, of the parts: 4"),
        (settings(BLOCKS, 8), "host.blocks = 8 (builder): blocks of the host tier: 8, of the parts: 4"),
        (settings(BLOCKS, 0), "host.blocks = 0 (builder): blocks of the host tier: 0, of the parts: 4"),
        (
            ManagerConfig::builder().geometry_block_bytes(Some(4096)).host_bytes(Some(64 << 10)),
            "host.bytes = 64K (builder): blocks of the host tier: 16, of the parts: 4",
        ),
        (fits().disk_blocks(8), "disk.blocks = 8 (builder): blocks of the disk tier: 8, of the parts: 0"),
        (
            fits().device_policy(Policy::Lfu),
            "device.policy = lfu (builder), but the parts' device tier has lru",
        ),
        (
            fits().host_policy(Policy::Sieve),
            "host.policy = sieve (builder), but the parts' host tier has lru",
        ),
        (
            fits().geometry_block_bytes(Some(8192)),
            "bytes per block: 8192 by geometry.block_bytes (builder), 4096 by the parts",
        ),
        (
            fits().geometry_page_size(16),
            "needs pages of 16 tokens by geometry.page_size (builder), pages of 2 tokens by the parts",
        ),
    ];
    for (settings, why) in cases {
        let error = one(settings).expect_err(why);
        assert_eq!(error, format!("group one: {why}; make them equal, or remove the setting"));
    }
}

/// Allowed settings that the machine cannot meet.
#[tokio::test]
async fn settings_beyond_the_machine_are_refused_by_name() {
    let refusal = |settings: ManagerConfigBuilder| {
        let config = settings.build().expect("a configuration");
        KvBlockManager::open(&config).expect_err("not to be had").to_string()
    };
    let large = |device, host| settings(device, host).geometry_block_bytes(Some(4 << 20));
    // Refused before anything is mapped: the setting that asks for most, and the uses of the memory.
    for (settings, begins) in [
        (
            large(4, 1 << 28),
            "host.blocks = 268435456 (builder): needs 1.00 PiB of memory (device 16.0 MiB, host 1.00 PiB, staging 0 B",
        ),
        (
            large(4, (1 << 28) - 2).disk_blocks(8).disk_staging(Some(2)),
            "host.blocks = 268435454 (builder): needs 1.00 PiB of memory (device 16.0 MiB, host 1.00 PiB, staging 8.00 MiB",
        ),
        (
            large(1 << 28, 4),
            "device.blocks = 268435456 (builder): needs 1.00 PiB of memory (device 1.00 PiB, host 16.0 MiB",
        ),
        (
            large(4, 4).disk_blocks(8).disk_staging(Some(1 << 28)),
            "disk.staging = 268435456 (builder): needs 1.00 PiB of memory (device 16.0 MiB, host 16.0 MiB, staging 1.00 PiB",
        ),
    ] {
        let error = refusal(settings);
        assert!(error.starts_with(begins) && error.contains("; use fewer or smaller blocks"), "{error}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere: PathBuf = folder.path().join("none").join("volume");
    let error = refusal(settings(4, 4).disk_blocks(8).disk_paths(vec![nowhere.clone()]));
    let begins = format!(
        "disk.blocks = 8 (builder) and disk.paths = {} (builder), for the disk tier of group all: ",
        nowhere.display()
    );
    assert!(error.starts_with(&begins), "{error}");
    let error = refusal(settings(4, 4).device_kind(DeviceKind::Cuda).device_ordinal(1000));
    assert!(
        error.starts_with(
            "device.kind = cuda (builder) and device.ordinal = 1000 (builder) and device.blocks = 4 (builder), for group all: "
        ) && error.ends_with("; device.kind may also be auto or sim"),
        "{error}"
    );
}
