//! A manager over a CUDA device: blocks of the engine's tensors go down to pinned memory and
//! come back; and a device that dies.

use crate::ground::{BLOCK_BYTES, BLOCKS, Ground, LAYERS, pattern};
use kvstrata::OriginalNames;
use kvstrata::config::{DeviceKind, ManagerConfig};
use kvstrata::manager::{Blocks, KvBlockManager, Needs, OnboardOptions, Parts, StackParts, Tiers};
use kvstrata::movers::CudaMoverOptions;
use kvstrata::transfer::Cause;
use kvstrata_core::{PoolConfig, SequenceHash, Storage};
use std::sync::Arc;
use std::time::Duration;

fn manager(ground: &mut Ground) -> KvBlockManager {
    let config = ManagerConfig::builder()
        .geometry_block_bytes(Some(BLOCK_BYTES as u64))
        .device_blocks(BLOCKS)
        .host_blocks(BLOCKS)
        .watermark_device(1.0)
        .idle_host_after(None)
        .deadline_shutdown(Duration::from_secs(2));
    let parts = StackParts {
        name: "tensors".to_owned(),
        device: PoolConfig::new(BLOCKS),
        port: None,
        mover: Arc::new(ground.mover.take().expect("a mover")),
        memory: Some(Arc::clone(&ground.memory)),
        host: Some(PoolConfig::new(BLOCKS)),
        below: Vec::new(),
        block_bytes: BLOCK_BYTES as u64,
        layers: LAYERS,
        needs: Needs::All { page: 2 },
        linked: [false; 2],
        ahead_first: [false; 2],
    };
    let runtime = tokio::runtime::Handle::current();
    let parts = Parts { stacks: vec![parts], runtime, own: None, names: None };
    KvBlockManager::of_parts(&config.build().expect("a configuration"), parts).expect("a manager")
}

fn hashes(sequence: u128) -> Vec<SequenceHash> {
    (1..=5).map(|block| SequenceHash::from_u128(sequence << 64 | block)).collect()
}

fn bytes_of(hash: SequenceHash) -> Vec<u8> {
    pattern((hash.to_u128() >> 64) as u64 * 100 + hash.to_u128() as u64, BLOCK_BYTES)
}

async fn compute(manager: &Tiers, ground: &Ground, hashes: &[SequenceHash]) -> Blocks {
    let blocks = manager.default_group().allocate(hashes.len()).await.expect("blocks");
    for (block, hash) in blocks.ids().iter().zip(hashes) {
        ground.poke(block.0, &bytes_of(*hash));
    }
    blocks.register(hashes, None).expect("registered")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offloaded_blocks_come_back_whole_or_by_layers() {
    let mut ground = Ground::new(CudaMoverOptions::new());
    let manager = manager(&mut ground);
    let group = manager.default_group();
    drop(compute(&manager, &ground, &hashes(1)).await);
    for layers in [None, Some(1)] {
        // Others need the room.
        drop(compute(&manager, &ground, &hashes(2)[..3]).await);
        drop(group.allocate(BLOCKS as usize).await.expect("all of them"));
        let found = group.match_prefix(&hashes(1));
        assert_eq!(found.len(), 5);
        let up = group.onboard(found, OnboardOptions::default().layers(layers)).expect("fits");
        if layers.is_some() {
            for layer in 0..LAYERS {
                up.layer_ready(layer).await.expect("ready");
            }
        }
        let up = up.await;
        assert_eq!((up.blocks.len(), up.missed), (5, None));
        for (block, hash) in up.blocks.ids().zip(hashes(1)) {
            assert!(ground.peek(block.0) == bytes_of(hash), "{block} is not {hash:?}");
        }
    }
    assert!(manager.shutdown().await);
    drop(manager);
    ground.finish();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dying_device_makes_misses_and_delays_no_call() {
    let mut ground = Ground::new(CudaMoverOptions::new().patience(Duration::from_millis(100)));
    let manager = manager(&mut ground);
    let group = manager.default_group();
    drop(compute(&manager, &ground, &hashes(1)).await);
    drop(group.allocate(BLOCKS as usize).await.expect("all of them"));
    let found = group.match_prefix(&hashes(1));
    assert_eq!(found.len(), 5);
    ground.double.break_at(0, 1, 700);
    let up = group.onboard(found, OnboardOptions::default()).expect("fits").await;
    assert_eq!((up.blocks.len(), up.missed), (0, Some(Cause::Device)));
    drop(up);
    // The manager goes on without a copy below: a victim is dropped when its copy fails.
    let again = tokio::time::timeout(Duration::from_secs(10), group.allocate(1)).await.expect("an answer");
    drop(again);
    manager.shutdown().await;
    assert!(manager.census().is_idle(), "{:?}", manager.census());
    drop(manager);
    ground.finish_broken();
}

/// A manager of settings alone: the engine reaches the blocks by the port, or by its address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manager_of_settings_gives_access_to_its_device_memory() {
    // Blocks of 5,120 bytes a layer, one behind the other, or as far apart as the alignment says.
    for alignment in [None, Some(65_536)] {
        hands_out_a_way_to_its_memory(alignment).await;
    }
}

async fn hands_out_a_way_to_its_memory(alignment: Option<u64>) {
    let double = kvstrata_cuda_double::Double::new();
    let config = ManagerConfig::builder()
        .geometry_layers(Some(LAYERS))
        .geometry_kv_heads(Some(2))
        .geometry_head_size(Some(40))
        .geometry_alignment(alignment)
        .device_kind(DeviceKind::Cuda)
        .device_blocks(BLOCKS)
        .host_blocks(2 * BLOCKS)
        .watermark_device(1.0)
        .idle_host_after(None);
    let config = config.build().expect("a configuration");
    let length = config.groups()[0].block_bytes() as usize;
    let manager = KvBlockManager::open(&config).expect("a manager");
    let group = manager.default_group();
    let port = group.device_port().expect("its own");
    let stride = length.next_multiple_of(alignment.unwrap_or(1) as usize);
    assert_eq!((port.block_bytes(), stride > length), (stride, alignment.is_some()));
    let bytes_of = |hash: SequenceHash| pattern(hash.to_u128() as u64, length);
    assert!(port.base_address() > 0 && port.size_bytes() == u64::from(BLOCKS) * port.block_bytes() as u64);
    let blocks = group.allocate(5).await.expect("blocks");
    for (block, hash) in blocks.ids().iter().zip(hashes(1)) {
        port.copy_in(block.0, 0, &bytes_of(hash)).expect("in range");
    }
    drop(blocks.register(&hashes(1), None).expect("registered"));
    drop(group.allocate(BLOCKS as usize).await.expect("all of them"));
    let up = group.restore_to_gpu(&hashes(1)).await.expect("fits");
    assert_eq!((up.blocks.len(), up.missed), (5, None));
    let mut bytes = vec![0; length];
    for (block, hash) in up.blocks.ids().zip(hashes(1)) {
        port.copy_out(block.0, 0, &mut bytes).expect("in range");
        assert!(bytes == bytes_of(hash), "{block} is not {hash:?}");
    }
    drop(up);
    assert!(manager.shutdown().await);
    drop(manager);
    double.finish();
}
