//! The vector code that the CPU has, and the way into it.

use super::lanes;
#[cfg(target_arch = "x86_64")]
use super::store::{Avx2, Avx512, Sse2};
use super::store::{Lines, Portable, fence};
use super::{checksum, rows};
use core::fmt;
use kvstrata_core::plan::CopyPlan;

/// The instructions that move lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    /// 64 bytes per instruction, non-temporal.
    Avx512,
    /// 32 bytes per instruction, non-temporal.
    Avx2,
    /// 16 bytes per instruction, non-temporal.
    Sse2,
    /// The compiler's code for a copy; always through the caches.
    Portable,
}

impl Path {
    /// All paths, the best first.
    pub const ALL: [Path; 4] = [Path::Avx512, Path::Avx2, Path::Sse2, Path::Portable];

    /// Returns the best path that this CPU has.
    #[must_use]
    pub fn best() -> Path {
        Path::ALL.into_iter().find(|path| path.is_available()).unwrap_or(Path::Portable)
    }

    /// Whether this CPU has the path's instructions.
    #[must_use]
    pub fn is_available(self) -> bool {
        // Miri has no non-temporal stores.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        match self {
            Path::Avx512 => std::is_x86_feature_detected!("avx512f"),
            Path::Avx2 => std::is_x86_feature_detected!("avx2"),
            Path::Sse2 | Path::Portable => true,
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        matches!(self, Path::Portable)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Path::Avx512 => "AVX-512",
            Path::Avx2 => "AVX2",
            Path::Sse2 => "SSE2",
            Path::Portable => "portable code",
        })
    }
}

/// Mean bytes per piece from which lanes are faster than rows.
const LANES_FROM: u64 = 1024;

/// The code of all paths. Inlined, it uses the path's instructions.
///
/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn copy<L: Lines>(plan: &CopyPlan, streams: bool) {
    if !streams {
        // SAFETY: the caller's contract.
        return unsafe { rows::cached::<L>(plan) };
    }
    if plan.bytes() / plan.pieces_count().max(1) >= LANES_FROM {
        // SAFETY: the caller's contract.
        unsafe { lanes::copy::<L>(plan.pieces()) };
    } else {
        // SAFETY: the caller's contract.
        unsafe { rows::stream::<L>(plan) };
    }
    fence();
}

macro_rules! path {
    ($module:ident, $feature:literal, $lines:ty) => {
        #[cfg(target_arch = "x86_64")]
        mod $module {
            use super::{CopyPlan, checksum, fence, lanes};

            #[target_feature(enable = $feature)]
            pub(super) unsafe fn copy(plan: &CopyPlan, streams: bool) {
                // SAFETY: the caller's contract.
                unsafe { super::copy::<$lines>(plan, streams) };
            }

            #[target_feature(enable = $feature)]
            pub(super) unsafe fn hash(plan: &CopyPlan, streams: bool) -> u64 {
                // SAFETY: the caller's contract.
                let hash = unsafe { checksum::copy::<$lines>(plan, streams) };
                fence();
                hash
            }

            #[target_feature(enable = $feature)]
            pub(super) unsafe fn copy_bytes(src: &[u8], dst: &mut [u8]) {
                // SAFETY: the caller's contract.
                unsafe { lanes::copy_bytes::<$lines>(src, dst) };
                fence();
            }

            #[target_feature(enable = $feature)]
            pub(super) unsafe fn hash_bytes(src: &[u8], dst: &mut [u8], streams: bool) -> u64 {
                // SAFETY: the caller's contract.
                let hash = unsafe { checksum::copy_bytes::<$lines>(src, dst, streams) };
                fence();
                hash
            }

            #[target_feature(enable = $feature)]
            pub(super) unsafe fn seal_bytes(src: &[u8], dst: &mut [u8], streams: bool) -> u64 {
                // SAFETY: the caller's contract.
                let seal = unsafe { checksum::copy_bytes_sealed::<$lines>(src, dst, streams) };
                fence();
                seal
            }
        }
    };
}
path!(avx512, "avx512f", super::Avx512);
path!(avx2, "avx2", super::Avx2);
path!(sse2, "sse2", super::Sse2);

/// Calls a function of the path's module, or `portable` if the path has no module.
macro_rules! by_path {
    ($path:expr, $function:ident($($argument:expr),*), $portable:expr) => {
        match $path {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller's contract; the path is available, and so are its instructions.
            Path::Avx512 => unsafe { avx512::$function($($argument),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Path::Avx2 => unsafe { avx2::$function($($argument),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Path::Sse2 => unsafe { sse2::$function($($argument),*) },
            _ => $portable,
        }
    };
}

/// Copies the plan's bytes.
///
/// # Safety
/// The path is available; the plan may be executed ([`HostCopy::execute`](super::HostCopy::execute)).
pub(super) unsafe fn run(path: Path, plan: &CopyPlan, streams: bool) {
    // Without non-temporal stores neither lanes nor hints gain anything: the copy always goes through
    // the caches.
    // SAFETY: the caller's contract; any CPU has the portable path's instructions.
    by_path!(path, copy(plan, streams), unsafe { copy::<Portable>(plan, false) })
}

/// Copies the plan's bytes and hashes them.
///
/// # Safety
/// As [`run`].
pub(super) unsafe fn run_with_checksum(path: Path, plan: &CopyPlan, streams: bool) -> u64 {
    // SAFETY: as in `run`.
    by_path!(path, hash(plan, streams), unsafe { checksum::copy::<Portable>(plan, false) })
}

/// Copies bytes, past the caches if the path can.
///
/// # Safety
/// The path is available; the lengths are equal.
pub(super) unsafe fn run_bytes(path: Path, src: &[u8], dst: &mut [u8]) {
    by_path!(path, copy_bytes(src, dst), dst.copy_from_slice(src))
}

/// Copies bytes and hashes them.
///
/// # Safety
/// As [`run_bytes`].
pub(super) unsafe fn run_bytes_with_checksum(path: Path, src: &[u8], dst: &mut [u8], streams: bool) -> u64 {
    // SAFETY: as in `run`.
    by_path!(path, hash_bytes(src, dst, streams), unsafe {
        checksum::copy_bytes::<Portable>(src, dst, false)
    })
}

/// Copies bytes and makes their seal.
///
/// # Safety
/// As [`run_bytes`].
pub(super) unsafe fn run_bytes_sealed(path: Path, src: &[u8], dst: &mut [u8], streams: bool) -> u64 {
    // SAFETY: as in `run`.
    by_path!(path, seal_bytes(src, dst, streams), unsafe {
        checksum::copy_bytes_sealed::<Portable>(src, dst, false)
    })
}

/// The size of many servers' core complexes, used if the system does not tell.
const USUAL_LAST_LEVEL_BYTES: u64 = 32 << 20;

/// Returns the bytes of the last cache that this CPU's cores share.
pub(super) fn last_level_bytes() -> u64 {
    let size = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size");
    let kib = size.ok().and_then(|size| size.trim().strip_suffix('K')?.parse::<u64>().ok());
    kib.map_or(USUAL_LAST_LEVEL_BYTES, |kib| kib << 10)
}
