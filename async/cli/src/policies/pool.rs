//! The hits of a policy: the prompts over a pool of the core, without bytes and without a second tier.

use super::prompts::Prompts;
use kvstrata_core::{BlockPool, Policy, PoolConfig};

/// Hits of leading runs in a pool of `capacity` blocks, over all prompts. A prompt longer than the pool
/// is cut off. A capacity of 0 has no hits; capacities with room for all blocks have equal hits.
#[must_use]
pub fn hits(prompts: &Prompts, policy: Policy, capacity: u32) -> u64 {
    hits_seeded(prompts, policy, capacity, 0)
}

/// Like [`hits`], with another seed of the pool, so that `reuse` samples other blocks.
pub(super) fn hits_seeded(prompts: &Prompts, policy: Policy, capacity: u32, seed: u64) -> u64 {
    // A pool with room for all blocks evicts none, so a larger one would behave the same.
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
        // The prompts form a tree, and no parent is evicted before its children. So no block of the rest
        // is in the pool, and every block outside the run is evictable.
        if pool.allocate(ids.len() - run, &mut fresh).is_ok() {
            let blocks = fresh.drain(..).zip(&hashes[run..]);
            complete.extend(blocks.filter_map(|(block, hash)| block.complete(*hash).ok()));
            pool.register_sequence(&mut complete, found.last(), &mut made);
        }
        pool.release(made.drain(..).rev().chain(found.drain(..).rev()));
    }
    hits
}
