//! Memory on huge pages, touched before anything is measured.

use std::ptr::NonNull;

const HUGE: usize = 2 << 20;

/// A private mapping; its address is exposed.
pub struct Pages {
    mapped: NonNull<libc::c_void>,
    mapped_bytes: usize,
    address: usize,
    bytes: usize,
}

impl Pages {
    /// Maps so many bytes from a 2 MiB boundary on, requests huge pages for them, and fills them.
    pub fn new(bytes: usize) -> Pages {
        let mapped_bytes = bytes + HUGE;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), mapped_bytes, protection, flags, -1, 0) };
        assert_ne!(mapped, libc::MAP_FAILED, "{bytes} bytes: {}", std::io::Error::last_os_error());
        let address = mapped.expose_provenance().next_multiple_of(HUGE);
        let start = std::ptr::with_exposed_provenance_mut::<u8>(address);
        #[cfg(target_os = "linux")]
        // SAFETY: within the mapping. A refusal leaves small pages.
        let _ = unsafe { libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE) };
        // SAFETY: within the mapping, which no other code knows.
        unsafe { start.write_bytes(0x5a, bytes) };
        Pages { mapped: NonNull::new(mapped).expect("not null"), mapped_bytes, address, bytes }
    }

    /// Returns the address of its first byte.
    pub fn address(&self) -> u64 {
        self.address as u64
    }

    /// Returns its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and all users of its address have ended: they borrowed this.
        unsafe { libc::munmap(self.mapped.as_ptr(), self.mapped_bytes) };
    }
}
