//! The place of a key in a table: a hash of the hash, by secret multipliers.
//!
//! Keys may be chosen by an attacker: engines hand in hashes of their own. A fixed function of a
//! key would let the attacker put all keys into one chain. So every table of a pool places keys
//! by numbers from the pool's seed.
//!
//! The function is a folded product, for the halves `low` and `high` of a key and secret random numbers a, b:
//!
//! ```text
//!   product = (low + a mod 2^64) · (high + b mod 2^64)        128 bits
//!   h       = product mod 2^64  xor  product / 2^64
//! ```
//!
//! The product is NH of one pair: an attacker without the numbers cannot choose two different keys with
//! equal products with a probability above 2^-64 (Black, Halevi, Krawczyk, Krovetz and Rogaway, "UMAC",
//! 1999, theorem 4.2). That the fold spreads them over few places is not proved but measured: families
//! of chosen keys make as many pairs of one place as random keys do
//! (`placement_of_chosen_keys_spreads_like_random_keys`); one process in a hundred has a chain of some
//! tens. It costs 2 cycles more than a fixed multiplication. Strongly universal functions were measured
//! too, and made lookups of a resident block 30 % slower (`docs/decisions/019-placement.md`).

use super::SequenceHash;

/// The secret numbers by which tables place hashes that an attacker may choose.
///
/// ```
/// use kvstrata_core::SequenceHash;
/// use kvstrata_core::hash::Placement;
/// let (ours, others) = (Placement::new(0x5eed), Placement::new(0xfeed)); // each a random number
/// let hash = SequenceHash::from_u128(7);
/// assert_ne!(ours.of(hash), others.of(hash));
/// ```
#[derive(Clone, Copy)]
pub struct Placement {
    low: u64,
    high: u64,
}

impl Placement {
    /// Makes the numbers from a seed, by SplitMix64. Equal seeds give equal places.
    #[must_use]
    pub fn new(seed: u64) -> Placement {
        let mut state = seed;
        Placement { low: split_mix(&mut state), high: split_mix(&mut state) }
    }

    /// Another function, as independent of this one as SplitMix64 makes it.
    pub(crate) fn again(&self) -> Placement {
        Placement::new(self.low.rotate_left(32) ^ self.high)
    }

    /// 64 bits that stand for a hash in a table.
    #[inline]
    #[must_use]
    pub fn of(&self, key: SequenceHash) -> u64 {
        let key = key.to_u128();
        let (low, high) = (key as u64, (key >> 64) as u64);
        let product = u128::from(low.wrapping_add(self.low)) * u128::from(high.wrapping_add(self.high));
        product as u64 ^ (product >> 64) as u64
    }

    /// One of `places` places: Lemire's range reduction, by the upper bits.
    #[inline]
    pub(crate) fn among(&self, key: SequenceHash, places: usize) -> usize {
        ((u128::from(self.of(key)) * places as u128) >> 64) as usize
    }
}

impl core::fmt::Debug for Placement {
    /// Without the numbers.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Placement(..)")
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

    const KEYS: u128 = 1 << 15;

    /// The n-th key.
    type Family = fn(u128) -> u128;

    /// The mean square of the number of keys at a place, per key; random keys have 1.5
    /// on twice as many places.
    fn crowding(key: Family) -> f64 {
        const SEEDS: u64 = 200;
        let mut squares = 0;
        for seed in 0..SEEDS {
            let placement = Placement::new(seed);
            let mut heads = vec![0_u64; 1 << 16];
            (0..KEYS).for_each(|n| heads[placement.among(SequenceHash::from_u128(key(n)), 1 << 16)] += 1);
            squares += heads.iter().map(|keys| keys * keys).sum::<u64>();
        }
        squares as f64 / (SEEDS as f64 * KEYS as f64)
    }

    /// Families of 32,768 keys: equal `low ^ high`; multiples of powers of two; differences in the top
    /// bits of both halves, or in the middle; small numbers; both halves at once.
    #[test]
    fn placement_of_chosen_keys_spreads_like_random_keys() {
        let families: [(&str, Family); 9] = [
            ("equal xor", |n| (n * 0x9e37_79b9) << 64 | (n * 0x9e37_79b9)),
            ("high bits of the high half", |n| n << 113),
            ("high bits of the low half", |n| n << 49),
            ("high bits of both", |n| (n & 0xff) << 56 | (n >> 8) << 120),
            ("middle of both", |n| (n & 0xff) << 28 | (n >> 8) << 92),
            ("small", |n| n),
            ("small high half", |n| n << 64),
            ("middle of the low half", |n| n << 32),
            ("both halves count", |n| n << 64 | n),
        ];
        for (name, key) in families {
            let crowding = crowding(key);
            assert!(crowding < 1.8, "{name}: {crowding}");
        }
    }

    /// The reason for the fold: a fixed function of the key has keys that all share a place.
    #[test]
    fn fixed_function_has_keys_that_share_one_place() {
        let fixed = |n: u128| {
            let key = n << 64 | n;
            ((key as u64 ^ (key >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16
        };
        assert!((0..KEYS).all(|n| fixed(n) == 0));
    }

    #[test]
    fn placement_made_again_is_another_function() {
        let placement = Placement::new(1);
        let key = SequenceHash::from_u128(7);
        assert_ne!(placement.of(key), placement.again().of(key));
        assert_ne!(placement.of(key), Placement::new(2).of(key));
    }
}
