//! Copies by layers: a pass offloads the layers that it has finished while it goes on, and the model
//! starts with the first layer while the others still come up.
//!
//!     cargo run --release -p kvstrata --example layerwise

use kvstrata::config::ManagerConfig;
use kvstrata::manager::{KvBlockManager, OffloadOptions, OnboardOptions};
use kvstrata::scheduler::Gate;
use kvstrata_core::SequenceHash;
use kvstrata_core::layout::DType;
use std::error::Error;
use std::time::Instant;

const LAYERS: u32 = 32;
const BLOCKS: u32 = 64;

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let config = ManagerConfig::builder()
        .geometry_layers(Some(LAYERS))
        .geometry_kv_heads(Some(8))
        .geometry_head_size(Some(128))
        .geometry_dtype(Some(DType::BF16))
        .device_blocks(BLOCKS)
        .host_blocks(2 * BLOCKS)
        .build()?;
    let manager = KvBlockManager::open(&config)?;
    let group = manager.default_group();
    print!("{}", manager.describe());
    let block_bytes = config.groups()[0].block_bytes() as usize;
    let layer_bytes = block_bytes / LAYERS as usize;
    let hashes: Vec<_> = (1..=u128::from(BLOCKS)).map(SequenceHash::from_u128).collect();

    // Compute a prefix. It is offloaded four layers at a time, as soon as the pass has written them.
    // Callers that want a copy wait for that.
    let port = group.device_port().ok_or("no device")?.clone();
    let pass = manager.begin_iteration()?;
    let iteration = pass.number();
    let (blocks, ahead) = group.allocate(hashes.len()).await?.register_ahead(&hashes, None, iteration)?;
    let gate = Gate::Layer { iteration, layer: 3 };
    let down = group.offload(&blocks, OffloadOptions::default().gate(gate));
    for layer in 0..LAYERS {
        for (block, hash) in blocks.ids().zip(&hashes) {
            let bytes = vec![hash.to_u128() as u8; layer_bytes];
            port.copy_in(block.0, layer as usize * layer_bytes, &bytes)?;
        }
        pass.layer_done(layer)?;
    }
    let ended = Instant::now();
    pass.end()?;
    // A failed pass calls ahead.withdraw() before its last layer; lookups then do not find its blocks.
    drop(ahead);
    let down = down.await;
    println!("{} blocks are in host memory {:?} after the pass", down.copied, ended.elapsed());
    assert_eq!(down.copied, hashes.len());

    // Other requests evict it from the device.
    drop(blocks);
    let others = group.allocate(hashes.len()).await?;
    for block in others.ids() {
        port.copy_in(block.0, 0, &vec![0; block_bytes])?;
    }
    drop(others);

    // A request needs it again.
    let found = group.match_prefix(&hashes);
    println!("{} blocks of {} layers are in host memory", found.len(), LAYERS);
    let began = Instant::now();
    let up = group.onboard(found, OnboardOptions::default().layers(1))?;
    for layer in 0..LAYERS {
        up.layer_ready(layer).await.map_err(|cause| format!("layer {layer}: {}", cause.name()))?;
        // From here on all blocks have their places, and this layer has its bytes.
        let ids = up.ids().ok_or("no places")?;
        if layer == 0 || layer + 1 == LAYERS {
            println!("layer {layer:2} is ready after {:?}", began.elapsed());
        }
        let mut bytes = vec![0; layer_bytes];
        for (block, hash) in ids.iter().zip(&hashes) {
            port.copy_out(block.0, layer as usize * layer_bytes, &mut bytes)?;
            assert!(bytes.iter().all(|byte| *byte == hash.to_u128() as u8), "{block} has wrong bytes");
        }
    }
    let up = up.await;
    println!("all of it, {} blocks, after {:?}", up.blocks.len(), began.elapsed());
    assert_eq!((up.missed, up.blocks.len()), (None, hashes.len()));
    Ok(())
}
