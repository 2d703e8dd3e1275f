//! The least that an engine does with the manager. README.md shows it.
//!
//!     cargo run --release -p kvstrata --example embed

use kvstrata::config::ManagerConfig;
use kvstrata::manager::{KvBlockManager, OnboardOptions};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Settings by calls, a file, or KVSTRATA_* variables: `kvstrata config` lists them.
    let config = ManagerConfig::builder().environment().device_blocks(256).host_blocks(1024).build()?;
    let manager = KvBlockManager::new(&config)?; // on your tokio runtime, or its own

    // Blocks of 16 tokens, by hashes that contain the model, a LoRA, and all tokens before them; your own do as well.
    let mut prompt = manager.sequence(manager.salt("llama-3-8b", "", &[]));
    prompt.extend(&(0..1000).collect::<Vec<u32>>());
    let hashes = prompt.hashes();

    let found = manager.match_prefix(hashes); // the leading run over all tiers, held
    let up = manager.onboard(found, OnboardOptions::default())?.await; // in the device now; what failed is a miss, with its cause
    let (there, rest) = hashes.split_at(up.blocks.len());
    let fresh = manager.allocate(rest.len()).await?; // in order of arrival, all or nothing, with a deadline
    let table: Vec<_> = up.blocks.ids().chain(fresh.ids().iter().copied()).collect(); // the model's; it fills those of `fresh`

    let computed = fresh.register(rest, Some(&up.blocks))?; // the last kernel that writes to them is over
    println!("{} blocks, of which {} were there", table.len(), there.len());
    drop((computed, up)); // the last kernel that reads them is over: released, tail first, cached until others need the room
    assert!(manager.shutdown().await);
    Ok(())
}
