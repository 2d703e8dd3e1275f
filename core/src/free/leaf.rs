//! Arithmetic on one leaf: which bits to claim, and a mask as runs.

/// A word whose low `n` bits are set (64 or more: all).
pub(super) const fn low_bits(n: u32) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// Up to `n` bits of `free`, in one run if there is one: adjacent slots later make one copy, one request.
#[inline]
pub(super) fn choose(free: u64, n: u32) -> u64 {
    if n == 1 {
        return free & free.wrapping_neg();
    }
    if free.count_ones() <= n {
        return free;
    }
    // Bit i of `runs` is set if a run of `length` bits starts at i; the length doubles, then is brought to n.
    let (mut runs, mut length) = (free, 1);
    while length < n {
        let step = length.min(n - length);
        runs &= runs >> step;
        length += step;
    }
    if runs != 0 { low_bits(n) << runs.trailing_zeros() } else { lowest(free, n) }
}

/// The lowest `n` bits of `free`, which has more.
fn lowest(mut free: u64, n: u32) -> u64 {
    let all = free;
    for _ in 0..n {
        free &= free - 1;
    }
    all & !free
}

/// Calls `take(first bit, length)` for each run of set bits.
#[inline]
pub(super) fn runs(mut mask: u64, mut take: impl FnMut(u32, u32)) {
    while mask != 0 {
        let first = mask.trailing_zeros();
        let length = (mask >> first).trailing_ones();
        take(first, length);
        mask &= !(low_bits(length) << first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaf_choice_prefers_a_whole_run_to_scattered_bits() {
        assert_eq!(choose(0b1011_0111, 1), 0b1);
        assert_eq!(choose(0b1111_0101, 3), 0b0111_0000);
        assert_eq!(choose(0b1111_0101, 4), 0b1111_0000);
        assert_eq!(choose(0b1101_0101, 4), 0b0101_0101);
        assert_eq!(choose(u64::MAX, 64), u64::MAX);
        assert_eq!(choose(u64::MAX, 63), u64::MAX >> 1);
        assert_eq!(choose(0b101, 9), 0b101);
    }

    #[test]
    fn leaf_runs_cover_the_mask_exactly() {
        for mask in [0, 1, u64::MAX, 1 << 63, 0xf0f0_0000_0000_000f] {
            let mut seen = 0u64;
            runs(mask, |first, length| seen |= low_bits(length) << first);
            assert_eq!(seen, mask);
        }
    }
}
