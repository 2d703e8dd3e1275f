//! The port for summing payloads in device memory.

use super::memory::DeviceRange;

/// Sums payloads in device memory. With it, a volume can seal payloads that it writes from there and
/// verify payloads that it reads to there. [`CudaSums`](crate::cuda::CudaSums) implements it by a kernel.
///
/// All numbers of the sum are little-endian. The payload is cut into chunks of 65536 bytes; the last may
/// be shorter. The sum adds, modulo 2⁶⁴, the 64-bit XXH3 of each chunk `i` with seed `i` (the first is
/// 0). Chunks may be hashed in any order, or at the same time. A record's seal is this sum in its first 8
/// bytes (`docs/disk-format.md`, "Seals", kind 1).
pub trait DeviceSums: Send + Sync {
    /// Returns the sum of all bytes of `payload`, which do not change meanwhile. The volume's cuFile
    /// threads call it, several at a time, with the context of the payload's device current. Returns when
    /// the device has made the sum.
    ///
    /// # Errors
    /// The implementor's code, CUDA's for example: the request fails with it.
    fn sum(&self, payload: &DeviceRange) -> Result<u64, i32>;
}
