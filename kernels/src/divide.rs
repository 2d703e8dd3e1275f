//! Division by a number that a kernel learns at run time: the host turns it into a multiplication and
//! a shift.
//!
//! `⌊n / d⌋ = ⌊n × m / 2^(32 + s)⌋` for `n < 2³¹` and `d ≥ 2`, with `s = ⌈log₂ d⌉ − 1` and
//! `m = ⌈2^(32 + s) / d⌉`: Granlund and Montgomery, "Division by Invariant Integers using Multiplication",
//! PLDI 1994, theorem 4.2 with N = 31.

use zerocopy::{Immutable, IntoBytes};

/// A divisor in the form that `cuda/divide.cuh` reads.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoBytes, Immutable)]
pub struct Divisor {
    divisor: u32,
    multiplier: u32,
    shift: u32,
}

impl Divisor {
    /// The divisor 1.
    pub const ONE: Divisor = Divisor { divisor: 1, multiplier: 0, shift: 0 };

    /// Creates a divisor of numbers below 2³¹; zero becomes one.
    #[must_use]
    pub const fn new(divisor: u32) -> Divisor {
        if divisor <= 1 {
            return Divisor::ONE;
        }
        let shift = (divisor - 1).ilog2();
        // Below 2³²: 2^(32 + s) / d with 2^s < d.
        let multiplier = (1_u64 << (32 + shift)).div_ceil(divisor as u64) as u32;
        Divisor { divisor, multiplier, shift }
    }

    /// The number divided by.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.divisor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Divides as the kernels do.
    fn divide(number: u32, by: Divisor) -> u32 {
        if by.divisor == 1 {
            return number;
        }
        ((u64::from(number) * u64::from(by.multiplier)) >> 32) as u32 >> by.shift
    }

    #[test]
    fn division_at_quotient_edges_is_right() {
        const MOST: u64 = (1 << 31) - 1;
        let powers = (0..31).flat_map(|bits| [(1_u32 << bits).wrapping_sub(1), 1 << bits, (1 << bits) + 1]);
        for divisor in powers.chain(1..2000).chain([MOST as u32]).filter(|divisor| *divisor > 0) {
            let by = Divisor::new(divisor);
            let last = MOST / u64::from(divisor);
            for quotient in (0..last.min(300)).chain(last.saturating_sub(300)..=last) {
                let exact = quotient * u64::from(divisor);
                for number in [exact.saturating_sub(1), exact, exact + 1].into_iter().filter(|n| *n <= MOST) {
                    let wanted = number / u64::from(divisor);
                    assert_eq!(u64::from(divide(number as u32, by)), wanted, "{number} / {divisor}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn division_equals_the_cpus(number in 0_u32..1 << 31, divisor in 1_u32..1 << 31) {
            prop_assert_eq!(divide(number, Divisor::new(divisor)), number / divisor);
        }
    }
}
