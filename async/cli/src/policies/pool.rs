//! A policy's hits: the prompts over a pool of the core, without bytes and without a second tier.

use super::prompts::Prompts;
use kvstrata_core::{BlockPool, Policy, PoolConfig};

/// Blocks of leading runs that a pool of `capacity` blocks has, prompt after prompt. What is longer than the pool is cut off. A
/// capacity of 0 hits nothing, and one that has room for all is as good as any larger.
#[must_use]
pub fn hits(prompts: &Prompts, policy: Policy, capacity: u32) -> u64 {
    hits_seeded(prompts, policy, capacity, 0)
}

/// The same with another seed of the pool: `reuse` samples other blocks.
pub(super) fn hits_seeded(prompts: &Prompts, policy: Policy, capacity: u32, seed: u64) -> u64 {
    // What has room for all evicts nothing, and no policy tells it from a larger one.
    let room = (capacity as usize).min(prompts.distinct().max(1));
    let config = PoolConfig::new(room as u32).policy(policy).lanes(1).lane_of(|| 0).seed(seed);
    let Ok(pool) = BlockPool::new(config) else { return 0 };
    let (mut hashes, mut fresh, mut complete) = (Vec::new(), Vec::new(), Vec::new());
    let (mut found, mut made, mut hits) = (Vec::new(), Vec::new(), 0);
    for ids in prompts.requests() {
        let ids = &ids[..ids.len().min(room)];
        hashes.clear();
        hashes.extend(ids.iter().map(|id| prompts.hash(*id)));
        let run = pool.match_prefix(&hashes, &mut found);
        hits += run as u64;
        // The prompts are a tree, and no parent leaves before its children: so nothing of the rest is there, and all but the run can leave.
        if pool.allocate(ids.len() - run, &mut fresh).is_ok() {
            let blocks = fresh.drain(..).zip(&hashes[run..]);
            complete.extend(blocks.filter_map(|(block, hash)| block.complete(*hash).ok()));
            pool.register_sequence(&mut complete, found.last(), &mut made);
        }
        pool.release(made.drain(..).rev().chain(found.drain(..).rev()));
    }
    hits
}
