//! Managers for the tests, and the bytes of their blocks.

use kvstrata::config::{ManagerConfig, ManagerConfigBuilder};
use kvstrata::manager::{Blocks, KvBlockManager, Tiers};
use kvstrata_core::{BlockId, SequenceHash};

pub const BYTES: usize = 4096;

/// A model of two groups of layers, without the number of its layers: one group keeps all
/// blocks, the other a window of two.
pub const HYBRID: &str = r#"
    [device]
    blocks = 64
    [host]
    blocks = 128
    [watermark]
    device = 1.0
    host = 1.0
    [[group]]
    name = "full"
    kind = "full"
    layers = [0]
    page_size = 16
    kv_heads = 1
    head_size = 64
    [[group]]
    name = "window"
    kind = "window"
    layers = [1]
    page_size = 16
    window = 32
    share = 1.0
    kv_heads = 1
    head_size = 64
"#;

/// Blocks of `BYTES`, and no copies ahead of need.
pub fn settings(device: u32, host: u32) -> ManagerConfigBuilder {
    ManagerConfig::builder()
        .geometry_block_bytes(Some(BYTES as u64))
        .device_blocks(device)
        .host_blocks(host)
        .watermark_device(1.0)
        .watermark_host(1.0)
        .idle_host_after(None)
        .idle_disk_after(None)
        .iteration_idle(None)
        // Tests decide themselves when a disk goes on.
        .transfer_patience(Some(std::time::Duration::from_secs(1000)))
}

pub fn build(settings: ManagerConfigBuilder) -> KvBlockManager {
    KvBlockManager::open(&settings.build().expect("a configuration")).expect("a manager")
}

pub fn hashes(sequence: u64, blocks: u64) -> Vec<SequenceHash> {
    (1..=blocks)
        .map(|block| SequenceHash::from_u128(u128::from(sequence) << 64 | u128::from(block)))
        .collect()
}

pub fn bytes_of(hash: SequenceHash) -> Vec<u8> {
    let mut state = hash.to_u128() as u64 ^ (hash.to_u128() >> 64) as u64;
    (0..BYTES)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

pub async fn compute(manager: &Tiers, hashes: &[SequenceHash], parent: Option<&Blocks>) -> Blocks {
    let blocks = manager.default_group().allocate(hashes.len()).await.expect("blocks");
    let port = manager.default_group().device_port().expect("a simulated device");
    for (block, hash) in blocks.ids().iter().zip(hashes) {
        port.copy_in(block.0, 0, &bytes_of(*hash)).expect("in range");
    }
    blocks.register(hashes, parent).expect("registered")
}

pub fn check(manager: &Tiers, blocks: &Blocks, hashes: &[SequenceHash]) {
    assert_eq!(blocks.len(), hashes.len());
    let mut bytes = vec![0; BYTES];
    for (BlockId(block), hash) in blocks.ids().zip(hashes) {
        manager
            .default_group()
            .device_port()
            .expect("a simulated device")
            .copy_out(block, 0, &mut bytes)
            .expect("in range");
        assert!(bytes == bytes_of(*hash), "block {block} is not {hash:?}");
    }
}

/// Waits until the manager is idle.
pub async fn rest(manager: &Tiers) {
    while !manager.census().is_idle() {
        tokio::task::yield_now().await;
    }
}

/// Waits until all copies that may move have landed.
pub async fn still(manager: &Tiers) {
    while manager.census().moving > 0 {
        tokio::task::yield_now().await;
    }
}

/// The output of a future while iterations go on.
pub async fn stepping<F: Future>(manager: &Tiers, future: F) -> F::Output {
    let iterations = async {
        loop {
            manager.step().expect("none runs");
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        output = future => output,
        () = iterations => unreachable!("they have no end"),
    }
}
