//! The port by which payloads are summed where they are: in device memory.

use super::memory::DeviceRange;

/// Sums payloads in device memory, so that a volume can seal what it writes from there and verify what it reads to there.
/// [`CudaSums`](crate::cuda::CudaSums) does, by a kernel.
///
/// The sum, with all numbers little-endian: the payload is cut into chunks of 65536 bytes, the last as short as it comes. XXH3, in
/// its variant of 64 bits, of chunk `i` with seed `i` (the first is 0), added up modulo 2⁶⁴. Chunks may be hashed in any order, or
/// at the same time. A record's seal is this sum in its first 8 bytes (`docs/disk-format.md`, "Seals", kind 1).
pub trait DeviceSums: Send + Sync {
    /// The sum of all bytes of `payload`, which nobody changes meanwhile. Called by the volume's cuFile threads, several at a time,
    /// with the context of the payload's device current; returns when the device has made the sum.
    ///
    /// # Errors
    /// The implementor's code, CUDA's for example: the request fails with it.
    fn sum(&self, payload: &DeviceRange) -> Result<u64, i32>;
}
