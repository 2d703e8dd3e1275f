//! The one source of chance of a simulation: a seed always gives the same numbers.

/// SplitMix64.
#[derive(Debug, Clone)]
pub(in crate::disk) struct Random(u64);

impl Random {
    pub(in crate::disk) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(in crate::disk) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// 0 to `end` - 1; 0 if `end` is 0.
    pub(in crate::disk) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// `first` to `last`, both included.
    pub(in crate::disk) fn within(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True `n` times in 65536.
    pub(in crate::disk) fn chance(&mut self, n: u32) -> bool {
        self.next() & 0xFFFF < u64::from(n)
    }

    /// True once in `n`.
    pub(in crate::disk) fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(in crate::disk) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Scatters a number over 64 bits.
pub(in crate::disk) fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
