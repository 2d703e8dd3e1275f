//! Keys chosen by an attacker do not share a chain: lookups and registrations take as
//! long as with random keys.

use kvstrata_core::{BlockPool, PoolConfig, SequenceHash};
use std::time::{Duration, Instant};

const BLOCKS: u32 = 1 << 15;

/// Time to register a block under each key, and to look for one more that is not there, as often.
fn times(keys: &[u128], missing: u128) -> [Duration; 2] {
    let pool = BlockPool::new(PoolConfig::new(BLOCKS).seed(0x5eed)).expect("a pool");
    let mut blocks = Vec::new();
    pool.allocate(keys.len(), &mut blocks).expect("all of them");
    let mut held = Vec::new();
    let since = Instant::now();
    for (block, key) in blocks.drain(..).zip(keys) {
        let complete = block.complete(SequenceHash::from_u128(*key)).expect("a block to fill");
        held.push(pool.register(complete, None).into_block());
    }
    let registered = since.elapsed();
    let since = Instant::now();
    let mut found = Vec::new();
    for _ in 0..keys.len() {
        assert_eq!(pool.match_prefix(&[SequenceHash::from_u128(missing)], &mut found), 0);
    }
    [registered, since.elapsed()]
}

/// Equal `lo ^ hi` was one chain of 32,768 blocks: 5,000 times as slow as random keys. The bound leaves
/// room for a machine that is busy with other things.
#[test]
fn flooding_keys_take_as_long_as_random_keys() {
    let scramble = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (n << 7);
    let half = |n: u64| u128::from(scramble(n));
    let random: Vec<u128> =
        (1..=u64::from(BLOCKS)).map(|n| half(n) << 64 | half(n ^ 0xabcd_ef01_2345)).collect();
    let flood = |n: u64| half(n) << 64 | (half(n) ^ 0x1234_5678);
    let equal_xor: Vec<u128> = (1..=u64::from(BLOCKS)).map(flood).collect();
    let top_bits: Vec<u128> = (0..u128::from(BLOCKS)).map(|n| (n & 0xff) << 56 | (n >> 8) << 120).collect();
    let usual = times(&random, 7);
    for (keys, missing) in [(equal_xor, flood(1 << 40)), (top_bits, 1 << 55)] {
        let flooded = times(&keys, missing);
        for (flooded, usual) in flooded.into_iter().zip(usual) {
            assert!(
                flooded < usual * 20 + Duration::from_millis(50),
                "{flooded:?}, and {usual:?} with random keys"
            );
        }
    }
}
