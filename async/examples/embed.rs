//! The smallest engine that uses the manager. README.md shows it.
//!
//!     cargo run --release -p kvstrata --example embed

use kvstrata::{Acquired, KvBlockManager, ManagerConfig};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = ManagerConfig::builder().environment().device_blocks(256).host_blocks(1024).build()?;
    let manager = KvBlockManager::open(&config)?;
    let group = manager.default_group();
    let mut prompt = group.sequence(manager.salt("llama-3-8b", "", &[])); // blocks of 16 tokens
    prompt.extend(&(0..1000).collect::<Vec<u32>>());
    let hashes = prompt.hashes();

    // Cached blocks come up to the device. The other blocks are free: the engine fills them.
    let Acquired { held, fresh, .. } = group.acquire(hashes).await?;
    let rest = &hashes[held.len()..];
    let computed = fresh.register(rest, Some(&held))?; // after the kernels that fill them
    println!("{} blocks were cached, {} are new", held.len(), computed.len());
    drop((computed, held)); // after the last kernel that reads them
    assert!(manager.shutdown().await);
    Ok(())
}
