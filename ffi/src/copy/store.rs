//! Whole lines of 64 bytes, and the bytes before and after them.
//!
//! A non-temporal store goes to a write-combining buffer of one line. A full buffer goes to memory as one
//! burst, a partial one as several. So this file stores lines whole and aligned or not at all, performs
//! all loads of a group before its stores, and sends anything smaller than a line through the caches.

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64 as arch;
use core::ptr;

/// Bytes of a line.
pub(super) const LINE: usize = 64;

/// A path's way to move lines. Its functions are inlined into a function that has the path's instructions
/// enabled (`path.rs`).
pub(super) trait Lines {
    /// Copies `N` lines; past the caches if `STREAM`.
    ///
    /// # Safety
    /// The CPU has the instructions. `src` is readable and `dst` writable for `N` lines, which do not
    /// overlap; if `STREAM`, `dst` starts a line.
    unsafe fn lines<const N: usize, const STREAM: bool>(dst: *mut u8, src: *const u8);
}

macro_rules! lines_by {
    ($name:ident: $vector:ident, $load:ident, $store:ident, $stream:ident) => {
        #[cfg(target_arch = "x86_64")]
        pub(super) struct $name;

        #[cfg(target_arch = "x86_64")]
        impl Lines for $name {
            #[inline(always)]
            unsafe fn lines<const N: usize, const STREAM: bool>(dst: *mut u8, src: *const u8) {
                const BYTES: usize = size_of::<arch::$vector>();
                // SAFETY: any bytes are a vector.
                let mut held: [[arch::$vector; LINE / BYTES]; N] = unsafe { core::mem::zeroed() };
                for (at, vector) in held.as_flattened_mut().iter_mut().enumerate() {
                    // SAFETY: within the lines that the caller says are readable.
                    *vector = unsafe { arch::$load(src.wrapping_add(at * BYTES).cast()) };
                }
                for (at, vector) in held.as_flattened().iter().enumerate() {
                    let to = dst.wrapping_add(at * BYTES).cast();
                    if STREAM {
                        // SAFETY: within the lines that the caller says are writable, and aligned as
                        // their start is.
                        unsafe { arch::$stream(to, *vector) };
                    } else {
                        // SAFETY: within the lines that the caller says are writable.
                        unsafe { arch::$store(to, *vector) };
                    }
                }
            }
        }
    };
}

lines_by!(Avx512: __m512i, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_stream_si512);
lines_by!(Avx2: __m256i, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256);
lines_by!(Sse2: __m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_stream_si128);

/// For any CPU: the compiler's copy of a fixed size, which is never non-temporal.
pub(super) struct Portable;

impl Lines for Portable {
    #[inline(always)]
    unsafe fn lines<const N: usize, const STREAM: bool>(dst: *mut u8, src: *const u8) {
        // SAFETY: the caller's contract.
        unsafe { ptr::copy_nonoverlapping(src.cast::<[u8; LINE]>(), dst.cast::<[u8; LINE]>(), N) };
    }
}

/// Copies any number of bytes through the caches, without a call.
///
/// # Safety
/// As [`Lines::lines`], for `bytes` bytes.
#[inline(always)]
pub(super) unsafe fn small<L: Lines>(dst: *mut u8, src: *const u8, bytes: usize) {
    if bytes < LINE {
        // SAFETY: the caller's contract.
        return unsafe { ends(dst, src, bytes) };
    }
    let last = bytes - LINE;
    let mut at = 0;
    while at < last {
        // SAFETY: at + LINE < bytes.
        unsafe { L::lines::<1, false>(dst.wrapping_add(at), src.wrapping_add(at)) };
        at += LINE;
    }
    // The last line may include bytes that are already copied; they belong to the same piece and have the
    // same values.
    // SAFETY: last + LINE = bytes.
    unsafe { L::lines::<1, false>(dst.wrapping_add(last), src.wrapping_add(last)) };
}

/// Copies less than a line, as two parts that may overlap. Each has the greatest power of two that fits.
///
/// # Safety
/// As [`small`].
#[inline(always)]
unsafe fn ends(dst: *mut u8, src: *const u8, bytes: usize) {
    match bytes {
        // SAFETY: 32 ≤ bytes.
        32.. => unsafe { two::<32>(dst, src, bytes) },
        // SAFETY: 16 ≤ bytes.
        16.. => unsafe { two::<16>(dst, src, bytes) },
        // SAFETY: 8 ≤ bytes.
        8.. => unsafe { two::<8>(dst, src, bytes) },
        // SAFETY: 4 ≤ bytes.
        4.. => unsafe { two::<4>(dst, src, bytes) },
        // SAFETY: 2 ≤ bytes.
        2.. => unsafe { two::<2>(dst, src, bytes) },
        // SAFETY: 1 ≤ bytes.
        1 => unsafe { two::<1>(dst, src, bytes) },
        _ => {}
    }
}

/// Copies the first `N` bytes and the last `N` bytes.
///
/// # Safety
/// As [`small`]; N ≤ bytes.
#[inline(always)]
unsafe fn two<const N: usize>(dst: *mut u8, src: *const u8, bytes: usize) {
    let last = bytes - N;
    // SAFETY: N ≤ bytes are readable.
    let first_bytes = unsafe { src.cast::<[u8; N]>().read() };
    // SAFETY: last + N = bytes are readable.
    let last_bytes = unsafe { src.wrapping_add(last).cast::<[u8; N]>().read() };
    // SAFETY: N ≤ bytes are writable.
    unsafe { dst.cast::<[u8; N]>().write(first_bytes) };
    // SAFETY: last + N = bytes are writable.
    unsafe { dst.wrapping_add(last).cast::<[u8; N]>().write(last_bytes) };
}

/// Prefetches a line into the second-level cache. Any address will do: a hint does not fault.
#[inline(always)]
pub(super) fn ask_for(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; every x86-64 has it.
    unsafe {
        arch::_mm_prefetch::<{ arch::_MM_HINT_T1 }>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Orders non-temporal stores before all later operations (I3 of the module).
#[inline(always)]
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has it.
    unsafe {
        arch::_mm_sfence();
    }
}
