//! Copies of one stretch of bytes, without a plan, for movers of blocks.
//!
//! The caller decides whether a copy bypasses the caches, because one stretch does not tell. A mebibyte
//! that is read again soon should stay cached; the last mebibyte of a thousand pushes out useful
//! lines. Measured on Zen 4, 1 MiB each in no order over 256 MiB, one thread: memcpy 12.7 GB/s, past the
//! caches 19.5, with the checksum 22. Two cores reach no more in all: it is the memory's rate.

use super::{CopyError, HostCopy, path};

impl HostCopy {
    /// Whether a plan of this many bytes bypasses the caches
    /// ([`stream_from_bytes`](HostCopy::stream_from_bytes)).
    #[must_use]
    pub fn goes_past_caches(&self, bytes: u64) -> bool {
        bytes >= self.stream_from_bytes
    }

    /// Copies `src` to `dst`, past the caches or through them.
    ///
    /// # Errors
    /// [`CopyError::Lengths`]: the lengths differ. Nothing was copied.
    pub fn copy_bytes(&self, src: &[u8], dst: &mut [u8], past_caches: bool) -> Result<(), CopyError> {
        check_lengths(src, dst)?;
        if past_caches {
            // SAFETY: the lengths are equal; the path is available (the module's I1).
            unsafe { path::run_bytes(self.path, src, dst) };
        } else {
            dst.copy_from_slice(src);
        }
        Ok(())
    }

    /// Copies `src` to `dst` and returns the XXH3-64 of the bytes, hashed in the same pass.
    ///
    /// # Errors
    /// As [`copy_bytes`](HostCopy::copy_bytes).
    pub fn copy_bytes_with_checksum(
        &self,
        src: &[u8],
        dst: &mut [u8],
        past_caches: bool,
    ) -> Result<u64, CopyError> {
        check_lengths(src, dst)?;
        // SAFETY: the lengths are equal; the path is available (the module's I1).
        Ok(unsafe { path::run_bytes_with_checksum(self.path, src, dst, past_caches) })
    }
}

impl HostCopy {
    /// Copies `src` to `dst` and returns the seal of the bytes, made in the same pass: the checksum that a
    /// volume keeps of a payload ([`disk::seal_of`](crate::disk::seal_of)). So a block that is copied to
    /// host memory and then written to a volume is hashed once.
    ///
    /// ```
    /// use kvstrata_ffi::copy::HostCopy;
    /// use kvstrata_ffi::disk::sum_of_payload;
    ///
    /// let (from, mut to) = (vec![7; 100_000], vec![0; 100_000]);
    /// let seal = HostCopy::new().copy_bytes_sealed(&from, &mut to, false)?;
    /// assert_eq!((seal, to), (sum_of_payload(&from), from));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`copy_bytes`](HostCopy::copy_bytes).
    pub fn copy_bytes_sealed(&self, src: &[u8], dst: &mut [u8], past_caches: bool) -> Result<u64, CopyError> {
        check_lengths(src, dst)?;
        // SAFETY: the lengths are equal; the path is available (the module's I1).
        Ok(unsafe { path::run_bytes_sealed(self.path, src, dst, past_caches) })
    }
}

fn check_lengths(src: &[u8], dst: &[u8]) -> Result<(), CopyError> {
    let (src, dst) = (src.len(), dst.len());
    if src == dst { Ok(()) } else { Err(CopyError::Lengths { src, dst }) }
}
