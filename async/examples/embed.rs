//! The least that an engine does with the manager. README.md shows it.
//!
//!     cargo run --release -p kvstrata --example embed

use kvstrata::{Acquired, KvBlockManager, ManagerConfig};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Settings by calls, a file, or KVSTRATA_* variables: `kvstrata config` lists them.
    let config = ManagerConfig::builder().environment().device_blocks(256).host_blocks(1024).build()?;
    let manager = KvBlockManager::open(&config)?; // on your tokio runtime, or its own
    let group = manager.default_group(); // of layers: a hybrid model has several

    // Blocks of 16 tokens, by hashes that contain the model, a LoRA, and all tokens before them; your own do as well.
    let mut prompt = group.sequence(manager.salt("llama-3-8b", "", &[]));
    prompt.extend(&(0..1000).collect::<Vec<u32>>());
    let hashes = prompt.hashes();

    // The leading run that any tier has, in the device now, and blocks for the rest: in order of arrival, all or nothing, with a deadline.
    let Acquired { held, fresh, .. } = group.acquire(hashes).await?;
    let rest = &hashes[held.len()..];
    let table: Vec<_> = held.ids().chain(fresh.ids().iter().copied()).collect(); // the model's; it fills those of `fresh`

    let computed = fresh.register(rest, Some(&held))?; // the last kernel that writes to them is over
    println!("{} blocks: {} were there, {} are computed", table.len(), held.len(), rest.len());
    drop((computed, held)); // the last kernel that reads them is over: released, tail first, cached until others need the room
    assert!(manager.shutdown().await);
    Ok(())
}
