//! Offloads an engine's KV tensors to pinned host memory and brings them back, step by step from the
//! driver to the bytes.
//!
//!     cargo run --release -p kvstrata --example cuda_offload
//!
//! Without a device it prints SKIP and ends.

use kvstrata::costs::costs_for;
use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, DType, Layout, LayoutConfig, Region};
use kvstrata_core::plan::CopyPlan;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::cuda::{
    Batch, CopyOptions, CudaCopy, CudaDevice, CudaDriver, DeviceStorage, PinOptions, PinnedStorage, Place,
    PreparedCopy, Purpose, QueueOptions, Route, TransferQueue,
};
use std::error::Error;
use std::sync::Arc;

const BLOCKS: u32 = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let device = match CudaDriver::load().and_then(|driver| CudaDevice::open(&driver, 0)) {
        Ok(device) => device,
        Err(why) => {
            println!("SKIP cuda: {why}");
            return Ok(());
        }
    };
    println!("{}", device.describe());

    // The engine's memory: one tensor a layer, [2][blocks][page][heads][size]. An engine lends its own
    // tensors with `DeviceStorage::lend`.
    let config = LayoutConfig::new().num_blocks(BLOCKS).num_layers(32).outer_dim(2).page_size(16);
    let config = config.heads(8, 128).dtype(DType::BF16).alignment(256);
    let layer_bytes = Arrangement::OuterFirst.needs(&config)?.bytes;
    let tensors =
        (0..32).map(|_| DeviceStorage::allocate(&device, layer_bytes)).collect::<Result<Vec<_>, _>>()?;
    let regions: Vec<_> = tensors.iter().map(|tensor| Region::of(&**tensor)).collect();
    let engine = Layout::layer_separated(config, Arrangement::OuterFirst, &regions)?;
    let ranges = tensors.iter().map(|tensor| tensor.range(0, layer_bytes)).collect::<Result<_, _>>()?;
    let engine_place = Place::Device(ranges);

    // The host tier: an arena of contiguous blocks, registered with the device.
    let config = config.alignment(4096);
    let arena = HostArena::new(BLOCKS as usize, usize::try_from(config.block_bytes()?)?)?;
    let pinned = PinnedStorage::register(&device, arena, PinOptions::new(), &mut |_, _| {})?;
    let tier = Layout::fully_contiguous(config, Region::of(&*pinned))?;

    // The costs that `kvstrata tune` has stored for this device, or the shipped ones.
    let (costs, note) = costs_for(device.describe(), device.driver().describe().version);
    println!("costs: {}", costs.source());
    if let Some(note) = note {
        println!("{note}");
    }

    // Once for each pair of layouts.
    let copy = CudaCopy::new(&device, CopyOptions::new().costs(costs));
    if let Err(why) = copy.kernels() {
        println!("the copy engine alone: {why}");
    }
    let tier_place = Place::Host(Arc::clone(&pinned));
    let down = CopyPlan::new(&engine, &[], &tier, &[], .., ..)?;
    let up = CopyPlan::new(&tier, &[], &engine, &[], .., ..)?;
    let down = copy.prepare(&down, engine_place.clone(), tier_place.clone())?;
    let up = copy.prepare(&up, tier_place, engine_place)?;
    let onboard = TransferQueue::new(&device, Purpose::Onboard, QueueOptions::new())?;
    let offload = TransferQueue::new(&device, Purpose::Offload, QueueOptions::new())?;

    // If the engine's kernels use these blocks: `offload.wait_for_stream(…)` before a copy that reads their
    // writes, and `onboard.hold_stream(…)` after a copy that writes their inputs. The host does not wait.

    // For each list of blocks: the transfer owns the host's blocks until the device has answered.
    let on_host: Vec<BlockId> = (0..BLOCKS).map(BlockId).collect();
    let on_device: Vec<BlockId> = (0..BLOCKS).map(|block| BlockId(block * 37 % BLOCKS)).collect();
    let written: Vec<_> = on_host.iter().map(|block| write(&pinned, *block)).collect::<Result<_, _>>()?;
    let mut batch = Batch::new();
    for block in &on_host {
        batch.read(pinned.arena().read(block.index())?, &pinned)?;
    }
    say(&up, &on_host, &on_device)?;
    let mut batch = up.submit(&onboard, &on_host, &on_device, batch)?.wait()?;
    batch.release().for_each(drop);
    for block in &on_host {
        let mut bytes = pinned.arena().write(block.index())?;
        bytes.fill(0);
        batch.write(bytes, &pinned)?;
    }
    say(&down, &on_device, &on_host)?;
    let mut batch = down.submit(&offload, &on_device, &on_host, batch)?.wait()?;
    batch.release().for_each(drop);
    for (block, wanted) in on_host.iter().zip(written) {
        assert!(*pinned.arena().read(block.index())? == *wanted, "block {} came back different", block.0);
    }
    println!("{BLOCKS} blocks went up and came back as they were");
    Ok(())
}

/// Fills a block with bytes that differ from every other block's.
fn write(pinned: &PinnedStorage, block: BlockId) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut bytes = pinned.arena().write(block.index())?;
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = (at as u32 ^ block.0).wrapping_mul(2_654_435_761).to_be_bytes()[0];
    }
    Ok(bytes.to_vec())
}

fn say(copy: &PreparedCopy, src: &[BlockId], dst: &[BlockId]) -> Result<(), Box<dyn Error>> {
    let route: Route = copy.route(src, dst)?;
    println!("{}: by {}", copy.direction().name(), route.name());
    Ok(())
}
