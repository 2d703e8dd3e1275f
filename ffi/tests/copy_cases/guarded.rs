//! Memory between two inaccessible pages: an executor that reads or writes past its region ends with
//! a signal.

use kvstrata_core::layout::Region;
use std::ptr;

const PAGE: usize = 4096;

/// A region, somewhere in some pages, with a guard page before and one behind.
pub struct Guarded {
    mapping: *mut libc::c_void,
    mapped: usize,
    /// The region's place in the pages, and its length.
    start: usize,
    bytes: usize,
}

impl Guarded {
    /// Makes a region that ends at the guard page behind it, as far as its alignment allows, or begins
    /// `shift` alignments behind the guard page before it.
    pub fn new(bytes: usize, alignment: usize, at_end: bool, shift: usize) -> Guarded {
        assert!(alignment <= PAGE);
        let before = (shift % 200) * alignment;
        let inner = (bytes + if at_end { alignment } else { before }).next_multiple_of(PAGE);
        let mapped = inner + 2 * PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapping = unsafe { libc::mmap(ptr::null_mut(), mapped, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(mapping, libc::MAP_FAILED);
        mapping.expose_provenance();
        let pages = mapping.cast::<u8>().wrapping_add(PAGE);
        // SAFETY: pages of the new mapping.
        let opened = unsafe { libc::mprotect(pages.cast(), inner, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(opened, 0);
        let start = if at_end { (inner - bytes) / alignment * alignment } else { before };
        Guarded { mapping, mapped, start, bytes }
    }

    fn pages(&self) -> (*mut u8, usize) {
        (self.mapping.cast::<u8>().wrapping_add(PAGE), self.mapped - 2 * PAGE)
    }

    pub fn region(&self) -> Region {
        Region::system(self.pages().0.addr() as u64 + self.start as u64, self.bytes as u64)
    }

    /// All bytes between the guards.
    pub fn all(&self) -> &[u8] {
        let (pages, bytes) = self.pages();
        // SAFETY: mapped, readable and initially zeroed; writers need `&mut`, or are copies that the
        // caller has made.
        unsafe { std::slice::from_raw_parts(pages, bytes) }
    }

    pub fn all_mut(&mut self) -> &mut [u8] {
        let (pages, bytes) = self.pages();
        // SAFETY: as above, and writable.
        unsafe { std::slice::from_raw_parts_mut(pages, bytes) }
    }

    /// Returns the place of an address of the region in [`all`](Guarded::all).
    pub fn place(&self, address: u64) -> Option<usize> {
        let at = address.checked_sub(self.region().address)? as usize;
        (at < self.bytes).then_some(self.start + at)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it is left.
        unsafe { libc::munmap(self.mapping, self.mapped) };
    }
}
