//! Where tables put a key: a hash of the hash, by secret multipliers.
//!
//! Keys may be chosen by an attacker: engines hand in hashes of their own. A fixed function of a key would let the attacker
//! put all keys into one chain. So every table of a pool places by numbers that the pool's seed decides.
//!
//! The function is pair-multiply-shift (Thorup, "High speed hashing for integers and strings", arXiv:1504.06804, 2015,
//! section 4.1): for 32-bit pieces x0 … x3 of the key and random 64-bit numbers a0 … a3, b,
//!
//! ```text
//!   h(x) = ((x0 + a1)(x1 + a0) + (x2 + a3)(x3 + a2) + b) mod 2^64 >> 32
//! ```
//!
//! The pieces are those of the key's halves after a shift, an xor and an odd multiplication each: a bijection, after which
//! keys that count up, as an engine's own may, vary in all pieces. Without it h is linear in them, and for some numbers
//! puts them into few places.
//!
//! It is strongly universal: any two different keys, whichever an attacker who does not know the numbers chooses, get
//! independent, uniform 32-bit values. A chain of a table with two heads a slot is then half a slot long on average.

use super::SequenceHash;

/// The numbers of one pool.
#[derive(Clone, Copy)]
pub(crate) struct Placement {
    numbers: [u64; 5],
}

impl Placement {
    /// Numbers from a seed, by SplitMix64.
    pub(crate) fn new(seed: u64) -> Placement {
        let mut state = seed;
        Placement { numbers: [(); 5].map(|()| split_mix(&mut state)) }
    }

    /// Another function, independent of this one as far as SplitMix64 is.
    pub(crate) fn again(&self) -> Placement {
        Placement::new(self.numbers[4])
    }

    /// A uniform 32-bit value.
    #[inline]
    pub(crate) fn of(&self, key: SequenceHash) -> u32 {
        let key = key.to_u128();
        let (low, high) = (key as u64, (key >> 64) as u64);
        let low = (low ^ low >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let high = (high ^ high >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let [x0, x1, x2, x3] = [low, low >> 32, high, high >> 32].map(|piece| u64::from(piece as u32));
        let [a0, a1, a2, a3, b] = self.numbers;
        let low = x0.wrapping_add(a1).wrapping_mul(x1.wrapping_add(a0));
        let high = x2.wrapping_add(a3).wrapping_mul(x3.wrapping_add(a2));
        (low.wrapping_add(high).wrapping_add(b) >> 32) as u32
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn spread(keys: impl Iterator<Item = u128>, seed: u64) -> usize {
        let placement = Placement::new(seed);
        let mut heads = vec![0_usize; 1 << 16];
        keys.for_each(|key| heads[(placement.of(SequenceHash::from_u128(key)) >> 16) as usize] += 1);
        heads.into_iter().max().unwrap_or(0)
    }

    /// Families of 32,768 keys: equal `lo ^ hi`; multiples of a power of two; differences in the top bits of both halves;
    /// small numbers. None has a chain much longer than random keys have (8 or 9 at 2^15 keys on 2^16 heads).
    #[test]
    fn chosen_keys_spread_like_random_ones() {
        const KEYS: u128 = 1 << 15;
        for seed in 0..20 {
            let longest = [
                spread((0..KEYS).map(|n| (n * 0x9e37_79b9) << 64 | (n * 0x9e37_79b9)), seed),
                spread((0..KEYS).map(|n| n << 113), seed),
                spread((0..KEYS).map(|n| (n & 0xff) << 56 | (n >> 8) << 120), seed),
                spread(0..KEYS, seed),
                spread((0..KEYS).map(|n| n << 32), seed),
            ];
            assert!(longest.into_iter().all(|longest| longest <= 12), "seed {seed}: {longest:?}");
        }
    }

    #[test]
    fn another_function_is_another_one() {
        let placement = Placement::new(1);
        let key = SequenceHash::from_u128(7);
        assert_ne!(placement.of(key), placement.again().of(key));
        assert_ne!(placement.of(key), Placement::new(2).of(key));
    }
}
