//! Prefetching: a hint that may be ignored. It has no effect on architectures where stable Rust has none.

/// Prefetches the cache line of `place`.
#[inline(always)]
pub(crate) fn prefetch<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: a prefetch never faults, and SSE is part of the x86_64 baseline.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
            core::ptr::from_ref(place).cast(),
        );
    }
    #[cfg(all(target_arch = "aarch64", not(loom), not(miri)))]
    // SAFETY: `prfm` never faults and touches no register or flag.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) core::ptr::from_ref(place), options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(loom, miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = place;
}
