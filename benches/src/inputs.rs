//! Hashes and tokens: the same in each run, and as evenly spread as real ones.

use kvstrata_core::SequenceHash;

/// SplitMix64's finaliser: 64 well-mixed bits of any 64.
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Appends the `len` hashes of sequence `number`. Sequences share none.
pub fn sequence(number: u64, len: usize, out: &mut Vec<SequenceHash>) {
    out.extend((0..len as u64).map(|position| {
        let low = mix((number << 20) | position);
        SequenceHash::from_u128((u128::from(mix(low)) << 64) | u128::from(low))
    }));
}

/// Returns `len` tokens of a vocabulary of 128 Ki.
pub fn tokens(len: usize) -> Vec<u32> {
    (0..len as u64).map(|i| mix(i) as u32 & 0x1_ffff).collect()
}

/// Visits `0..len` in an order that no hardware prefetcher foresees, for ever: each once a cycle.
#[derive(Clone, Debug)]
pub struct Scattered {
    next: usize,
    len: usize,
}

impl Scattered {
    /// Visits `0..len`.
    ///
    /// # Panics
    /// If `len` is not a power of two.
    pub fn new(len: usize) -> Scattered {
        assert!(len.is_power_of_two(), "{len} is not a power of two");
        Scattered { next: 0, len }
    }

    /// Returns the next index.
    pub fn step(&mut self) -> usize {
        self.next = (self.next + 1) % self.len;
        // An odd factor permutes the residues of a power of two.
        self.next.wrapping_mul(0x9e37_79b1) % self.len
    }
}
