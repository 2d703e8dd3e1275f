//! A warm restart: a manager finds the blocks that an earlier one wrote to its disk tier, without an
//! explicit flush.
//!
//!     cargo run --release -p kvstrata --example warm_restart -- DIRECTORY
//!
//! Run it twice: the second run finds all blocks. Without a directory it makes both runs itself.

use kvstrata::config::ManagerConfig;
use kvstrata::manager::{KvBlockManager, OnboardOptions};
use kvstrata::tier::Tier;
use kvstrata_core::SequenceHash;
use std::error::Error;
use std::path::{Path, PathBuf};

const BLOCK_BYTES: usize = 64 << 10;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args_os().nth(1) {
        Some(directory) => serve(&PathBuf::from(directory)).await.map(drop),
        None => both().await,
    }
}

/// Runs two lives, one after the other.
pub(crate) async fn both() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("kvstrata-warm-restart-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let lives = async {
        let first = serve(&directory).await?;
        let second = serve(&directory).await?;
        assert_eq!((first, second), (0, 128), "the first process computes all, the second finds all");
        Ok(())
    };
    let outcome = lives.await;
    std::fs::remove_dir_all(&directory)?;
    outcome
}

/// Runs one life of an engine. Returns the number of blocks that it found.
async fn serve(directory: &Path) -> Result<usize, Box<dyn Error>> {
    let config = ManagerConfig::builder()
        .geometry_block_bytes(Some(BLOCK_BYTES as u64))
        .device_blocks(32)
        .host_blocks(32)
        .disk_blocks(256)
        .disk_paths(vec![directory.to_owned()])
        .build()?;
    let manager = KvBlockManager::open(&config)?;
    let group = manager.default_group();
    print!("{}", manager.describe());
    let port = group.device_port().ok_or("no device")?.clone();
    let (mut found, mut computed) = ([0; 3], 0);
    // 8 sequences of 16 blocks: more than device and host hold together.
    for sequence in 1..=8u128 {
        let hashes: Vec<_> = (1..=16).map(|block| SequenceHash::from_u128(sequence << 64 | block)).collect();
        let prefix = group.match_prefix(&hashes);
        for (count, tier) in found.iter_mut().zip(Tier::OF_SETTINGS) {
            *count += prefix.in_tier(tier);
        }
        let up = group.onboard(prefix, OnboardOptions::default())?.await;
        let mut bytes = vec![0; BLOCK_BYTES];
        for (block, hash) in up.blocks.ids().zip(&hashes) {
            port.copy_out(block.0, 0, &mut bytes)?;
            assert!(bytes.iter().all(|byte| *byte == byte_of(*hash)), "{block} has wrong bytes");
        }
        let rest = &hashes[up.blocks.len()..];
        let fresh = group.allocate(rest.len()).await?;
        for (block, hash) in fresh.ids().iter().zip(rest) {
            port.copy_in(block.0, 0, &vec![byte_of(*hash); BLOCK_BYTES])?;
        }
        computed += rest.len();
        let parent = Some(&up.blocks).filter(|blocks| !blocks.is_empty());
        drop(fresh.register(rest, parent)?);
    }
    println!(
        "found: {} in the device, {} in the host, {} on disk; computed: {computed}",
        found[0], found[1], found[2]
    );
    // Blocks that are still in the upper tiers go down, too, for the next run.
    for sequence in 1..=8u128 {
        let hashes: Vec<_> = (1..=16).map(|block| SequenceHash::from_u128(sequence << 64 | block)).collect();
        group.persist(&hashes).await;
    }
    assert!(manager.shutdown().await, "everything has ended");
    Ok(found.iter().sum())
}

fn byte_of(hash: SequenceHash) -> u8 {
    (hash.to_u128() >> 64) as u8 * 16 + hash.to_u128() as u8
}
