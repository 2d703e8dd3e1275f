//! Maps keyed by hashes that an attacker may have chosen. Secret numbers place the keys, as in a
//! pool's tables.

use kvstrata_core::SequenceHash;
use kvstrata_core::hash::Placement;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns a number that no caller can learn.
pub fn random_seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// The hash function of a map's keys. Equal seeds give equal keys equal hashes.
#[derive(Debug, Clone, Copy)]
pub struct Places(Placement);

impl Places {
    /// Makes one from a number that no caller can learn.
    #[must_use]
    pub fn new(seed: u64) -> Places {
        Places(Placement::new(seed))
    }

    /// Makes one from a random number.
    #[must_use]
    pub fn random() -> Places {
        Places::new(random_seed())
    }
}

impl BuildHasher for Places {
    type Hasher = Placing;

    fn build_hasher(&self) -> Placing {
        Placing { place: self.0, state: 0 }
    }
}

pub struct Placing {
    place: Placement,
    state: u64,
}

impl Placing {
    fn add(&mut self, number: u128) {
        self.state = self.place.of(SequenceHash::from_u128(number ^ u128::from(self.state)));
    }
}

impl Hasher for Placing {
    fn finish(&self) -> u64 {
        self.state
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(16) {
            let mut number = [0; 16];
            number[..chunk.len()].copy_from_slice(chunk);
            self.add(u128::from_le_bytes(number));
        }
    }

    fn write_u16(&mut self, number: u16) {
        self.add(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.add(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number.into());
    }

    fn write_u128(&mut self, number: u128) {
        self.add(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Some keys have equal halves, others differ in the upper bits alone. Their 16 upper and 16 lower
    /// bits spread as random ones do.
    #[test]
    fn chosen_keys_spread_over_a_map() {
        let places = Places::new(3);
        let families: [fn(u128) -> u128; 3] = [|n| n << 64 | n, |n| n << 113, |n| n << 49];
        for key in families {
            let hashes: Vec<u64> =
                (0..1 << 15).map(|n| places.hash_one((3_u16, SequenceHash::from_u128(key(n))))).collect();
            for shift in [0, 48] {
                let some: HashSet<u16> = hashes.iter().map(|hash| (hash >> shift) as u16).collect();
                // Random hashes have 25,800.
                assert!(some.len() > 22_000, "{} of 65,536 places", some.len());
            }
        }
        assert_ne!(places.hash_one(7_u64), Places::new(4).hash_one(7_u64));
    }
}
