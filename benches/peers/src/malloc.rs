//! glibc's malloc, tuned.
//!
//! A list of blocks that own their tokens is made and dropped as an allocation a block, and by default
//! glibc gives the freed pages back to the kernel each time. Tuned not to, the peer is about three times
//! as fast. A team that cared would find that out, so the tuned figure is the one to beat.

/// Keeps freed memory in the process, from now on. The same as
/// `GLIBC_TUNABLES=glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=1073741824`.
/// Returns false without glibc.
pub fn tune() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const GIB: libc::c_int = 1 << 30;
        // SAFETY: mallopt takes two numbers and synchronises with other threads' malloc itself.
        let kept = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, GIB) };
        // SAFETY: as above.
        let untrimmed = unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, GIB) };
        kept == 1 && untrimmed == 1
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}
