//! Hashes that an attacker chooses share no chain in a manager's tables, in whichever way the manager is
//! made.

use crate::ground::{BYTES, settings};
use kvstrata::manager::{KvBlockManager, Needs, Parts, StackParts, Tiers};
use kvstrata::movers::ThreadsMover;
use kvstrata::transfer::HostMemory;
use kvstrata_core::{BlockPool, PoolConfig, SequenceHash};
use kvstrata_ffi::device::SimDevice;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BLOCKS: u32 = 4096;
const MISSES: usize = 200;

/// With the numbers of seed 0, which are public, the product of such a hash is 0: all of them have one place.
fn flood(number: u64) -> SequenceHash {
    /// The first number that SplitMix64 makes of 0.
    const OF_SEED_0: u64 = 0xe220_a839_7b1d_cdaf;
    SequenceHash::from_u128(u128::from(number) << 64 | u128::from(OF_SEED_0.wrapping_neg()))
}

fn all() -> Vec<SequenceHash> {
    (1..=u64::from(BLOCKS)).map(flood).collect()
}

/// The time of lookups of such a hash, which is absent.
fn misses(mut look_up: impl FnMut(&[SequenceHash]) -> usize) -> Duration {
    let missing = [flood(1 << 40)];
    let since = Instant::now();
    (0..MISSES).for_each(|_| assert_eq!(look_up(&missing), 0));
    since.elapsed()
}

/// The control: the time in a pool with that seed.
fn with_seed_0() -> Duration {
    let pool = BlockPool::new(PoolConfig::new(BLOCKS).seed(0)).expect("a pool");
    let (mut blocks, mut held) = (Vec::new(), Vec::new());
    pool.allocate(BLOCKS as usize, &mut blocks).expect("all of them");
    for (block, hash) in blocks.drain(..).zip(all()) {
        held.push(pool.register(block.complete(hash).expect("a block to fill"), None).into_block());
    }
    let mut found = Vec::new();
    misses(|missing| pool.match_prefix(missing, &mut found))
}

fn in_manager(manager: &Tiers) -> Duration {
    let blocks = manager.default_group().try_allocate(BLOCKS as usize).expect("all of them");
    let held = blocks.register(&all(), None).expect("registered");
    let took = misses(|missing| manager.default_group().match_device(missing).len());
    drop(held);
    took
}

/// A manager of parts that an engine hands in, with pools that have no seed.
fn of_parts() -> KvBlockManager {
    let sim = Arc::new(SimDevice::new(BLOCKS as usize, BYTES).expect("memory"));
    let memory = HostMemory::new(1, &[BYTES]).expect("memory");
    let mover = ThreadsMover::new(Arc::clone(&sim), Arc::clone(&memory), 1).expect("a thread");
    let stack = StackParts {
        name: "all".to_owned(),
        device: PoolConfig::new(BLOCKS),
        port: Some(sim),
        mover: Arc::new(mover),
        memory: Some(memory),
        host: None,
        below: Vec::new(),
        block_bytes: BYTES as u64,
        layers: 1,
        needs: Needs::All { page: 16 },
        linked: [false; 2],
        ahead_first: [false; 2],
    };
    let config = settings(BLOCKS, 0).build().expect("a configuration");
    let parts =
        Parts { stacks: vec![stack], runtime: tokio::runtime::Handle::current(), own: None, names: None };
    KvBlockManager::of_parts(&config, parts).expect("parts that fit")
}

#[tokio::test]
async fn hashes_chosen_for_a_known_seed_share_no_chain() {
    let control = with_seed_0();
    for (made, manager) in [("settings", crate::ground::build(settings(BLOCKS, 0))), ("parts", of_parts())] {
        let took = in_manager(&manager);
        assert!(took * 10 < control, "by {made}: {took:?}, and {control:?} with the known seed");
    }
}
