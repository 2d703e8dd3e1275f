//! Measures a restart: fills a volume with blocks of 512 bytes, in chains of 20 that each continue a
//! block of another chain; shuts it down; and opens it again from a warm page cache, with all blocks
//! registered in the tier's pool.
//!
//! Run with `cargo run --release -p kvstrata --example recover -- [BLOCKS [DIR]]`. The default is
//! 1,000,000 blocks in the current directory.

use kvstrata::disk::{DiskTier, TierOptions, WriteOutcome};
use kvstrata_core::{PoolConfig, SequenceHash};
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::disk::{Name, OwnerId, VolumeOptions};
use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

const BLOCK_BYTES: usize = 512;
const CHAIN: u128 = 20;
const IN_FLIGHT: usize = 256;

fn hash(number: u128) -> SequenceHash {
    // An odd factor, so that all hashes differ.
    SequenceHash::from_u128((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// Names block `number`. Chains are written tail first; the head's parent is some earlier block.
fn name(number: u128) -> Name {
    let parent = match number % CHAIN == CHAIN - 1 {
        true => number.wrapping_mul(0x9e37_79b9) % number,
        false => number + 1,
    };
    Name { hash: hash(number), parent: Some(hash(parent)), owner: OwnerId((number % 100) as u64) }
}

fn open(path: &Path, blocks: u32) -> Result<(DiskTier, u64), Box<dyn Error>> {
    let volume = VolumeOptions::new(path, blocks, BLOCK_BYTES).keep(true);
    let options = TierOptions::default().linked(true);
    let (tier, found) = DiskTier::open(vec![volume], PoolConfig::new(blocks), options)?;
    Ok((tier, found.recovered_blocks))
}

fn fill(tier: &DiskTier, blocks: u32) -> Result<(), Box<dyn Error>> {
    let arena = HostArena::new(1, BLOCK_BYTES)?;
    let mut in_flight = VecDeque::with_capacity(IN_FLIGHT);
    let mut slots = tier.take(blocks as usize).into_iter();
    for number in 0..u128::from(blocks) {
        if in_flight.len() == IN_FLIGHT
            && let Some(oldest) = in_flight.pop_front()
            && tier.finish(oldest) != WriteOutcome::Stored
        {
            return Err("a write failed".into());
        }
        let slot = slots.next().ok_or("fewer slots than blocks")?;
        in_flight.push_back(tier.write(slot, name(number), arena.read(0)?));
    }
    in_flight.into_iter().for_each(|writing| {
        tier.finish(writing);
    });
    Ok(())
}

/// Reads the slot table into the page cache, which its writes bypassed.
fn warm(path: &Path, blocks: u32) -> Result<(), Box<dyn Error>> {
    let table = 4096 + u64::from(blocks) * 64;
    std::io::copy(&mut File::open(path)?.take(table), &mut std::io::sink())?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let blocks: u32 = arguments.next().map_or(Ok(1_000_000), |blocks| blocks.parse())?;
    let folder = arguments.next().map_or_else(|| PathBuf::from("."), PathBuf::from);
    let path = folder.join(format!("recover-{}.kvs", std::process::id()));
    let since = Instant::now();
    let filled = open(&path, blocks).and_then(|(tier, _)| fill(&tier, blocks));
    println!("filled   {blocks} blocks in {:.2} s", since.elapsed().as_secs_f64());
    let measure = || -> Result<(), Box<dyn Error>> {
        for _ in 0..3 {
            warm(&path, blocks)?;
            let since = Instant::now();
            let (tier, found) = open(&path, blocks)?;
            let took = since.elapsed();
            println!("opened   {found} blocks found and registered in {:.3} s", took.as_secs_f64());
            drop(tier);
        }
        Ok(())
    };
    let measured = filled.and_then(|()| measure());
    std::fs::remove_file(&path)?;
    measured
}
