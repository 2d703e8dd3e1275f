//! One anonymous mapping, aligned to 2 MiB and backed by the largest pages that the machine grants.
//!
//! 4 KiB pages halve the read rate of large blocks (each page is one entry in the device's scatter list).
//! So the arena asks first for explicit huge pages, then for transparent ones, and takes plain pages
//! last. [`Backing`] says which it got.
//!
//! ```text
//!   mmap(len + 2 MiB)        cut off          kept: [base, base + bytes)           cut off
//!                          ├─────────┼──────────────────────────────────────────┼────────┤
//!                                    ▲ 2 MiB boundary
//! ```
//!
//! Keys and values reveal prompts, so a core dump leaves the mapping out.
//!
//! Invariants
//! - I1: `[base, base + bytes)` is mapped readable and writable, zero-filled at first, from construction to
//!   drop.
//! - I2: only `Drop` unmaps any of it, and nothing remaps it: the mapping is private and anonymous, and
//!   `Drop` has the only `munmap` of it.

use core::ptr::NonNull;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Alignment of every mapping, in bytes: one x86-64 or AArch64 (4 KiB granule) huge page.
pub const MAPPING_ALIGN_BYTES: usize = 2 << 20;

/// The kind of pages that back an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Reserved huge pages of 2 MiB (`MAP_HUGETLB`).
    HugeTlb,
    /// Ordinary memory. The kernel was asked, and is set up, to back it with transparent huge pages.
    TransparentHuge,
    /// The system's base pages.
    BasePages,
    /// Those of a caller's memory, of a kind that only the caller knows.
    Lent,
}

impl core::fmt::Display for Backing {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Backing::HugeTlb => "2 MiB huge pages (hugetlb)",
            Backing::TransparentHuge => "transparent huge pages",
            Backing::BasePages => "base pages",
            Backing::Lent => "lent memory",
        })
    }
}

/// A private anonymous mapping (I1, I2).
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    backing: Backing,
    /// The number of callers that keep the mapping from forked children.
    unforked: Mutex<usize>,
}

// SAFETY: the mapping is plain memory, tied to no thread; `Mapping` hands out only its address, and code
// that dereferences it upholds the aliasing rules (the arena's borrow words).
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`; no method of `&Mapping` touches the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `bytes` bytes, rounded up to whole 2 MiB.
    ///
    /// # Errors
    /// The kernel's error: `ENOMEM` if the address space or the overcommit limit forbids the mapping.
    pub(crate) fn new(bytes: usize) -> io::Result<Mapping> {
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(MAPPING_ALIGN_BYTES)
            .filter(|bytes| *bytes <= isize::MAX as usize - MAPPING_ALIGN_BYTES)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        if let Some(base) = map_hugetlb(bytes) {
            keep_out_of_dumps(base, bytes);
            return Ok(Mapping { base, bytes, backing: Backing::HugeTlb, unforked: Mutex::new(0) });
        }
        let base = map_aligned(bytes)?;
        keep_out_of_dumps(base, bytes);
        let backing = if advise_huge(base, bytes) { Backing::TransparentHuge } else { Backing::BasePages };
        Ok(Mapping { base, bytes, backing, unforked: Mutex::new(0) })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn backing(&self) -> Backing {
        self.backing
    }

    /// Keeps the mapping from forked children, until each caller of this has called
    /// [`fork_again`](Mapping::fork_again).
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn do_not_fork(&self) -> io::Result<()> {
        let mut unforked = self.unforked.lock().unwrap_or_else(PoisonError::into_inner);
        if *unforked == 0 {
            advise(self.base, self.bytes, DONT_FORK)?;
        }
        *unforked += 1;
        Ok(())
    }

    /// Undoes one call of [`do_not_fork`](Mapping::do_not_fork).
    pub(crate) fn fork_again(&self) {
        let mut unforked = self.unforked.lock().unwrap_or_else(PoisonError::into_inner);
        *unforked = unforked.saturating_sub(1);
        if *unforked == 0 {
            // If the kernel refuses, children still do not get the mapping, which is the safe side.
            let _ = advise(self.base, self.bytes, DO_FORK);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: I2: exactly this range is ours, and `&mut self` in drop means that nothing uses it
        // any more.
        let _ = unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

fn map(bytes: usize, extra_flags: libc::c_int) -> io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | extra_flags;
    // SAFETY: a fresh private anonymous mapping at an address of the kernel's choice replaces nothing.
    let address =
        unsafe { libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(address.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

/// Maps reserved huge pages. Without `MAP_NORESERVE` the kernel reserves them here, so no later touch can
/// end in SIGBUS.
#[cfg(target_os = "linux")]
fn map_hugetlb(bytes: usize) -> Option<NonNull<u8>> {
    map(bytes, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB).ok()
}

#[cfg(not(target_os = "linux"))]
fn map_hugetlb(_bytes: usize) -> Option<NonNull<u8>> {
    None
}

/// Maps 2 MiB too much and cuts off the parts before and after the aligned range.
fn map_aligned(bytes: usize) -> io::Result<NonNull<u8>> {
    let raw = map(bytes + MAPPING_ALIGN_BYTES, 0)?;
    let head = raw.as_ptr().align_offset(MAPPING_ALIGN_BYTES);
    let tail = MAPPING_ALIGN_BYTES - head;
    // SAFETY: `head` ≤ 2 MiB, and the mapping is `bytes` + 2 MiB long: in bounds, and not null.
    let base = unsafe { raw.add(head) };
    // SAFETY: `bytes` more is at most the mapping's end, since head + tail = 2 MiB.
    let end = unsafe { base.add(bytes) };
    unmap(raw, head);
    unmap(end, tail);
    Ok(base)
}

/// Cuts off a part of a mapping that is not in use yet.
fn unmap(start: NonNull<u8>, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller's own fresh mapping; no reference into this part exists. Failure leaks it,
        // no more.
        let _ = unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
    }
}

#[cfg(target_os = "linux")]
const DONT_FORK: libc::c_int = libc::MADV_DONTFORK;
#[cfg(target_os = "linux")]
const DO_FORK: libc::c_int = libc::MADV_DOFORK;
#[cfg(target_os = "linux")]
const DONT_DUMP: libc::c_int = libc::MADV_DONTDUMP;

/// Gives advice about inheritance or dumps of the mapping, never about its contents.
#[cfg(target_os = "linux")]
fn advise(base: NonNull<u8>, bytes: usize, advice: libc::c_int) -> io::Result<()> {
    // SAFETY: the range is a mapping of ours, all of it; the three advices above leave this process's
    // bytes alone.
    match unsafe { libc::madvise(base.as_ptr().cast(), bytes, advice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(target_os = "linux"))]
const DONT_FORK: libc::c_int = 0;
#[cfg(not(target_os = "linux"))]
const DO_FORK: libc::c_int = 0;
#[cfg(not(target_os = "linux"))]
const DONT_DUMP: libc::c_int = 0;

#[cfg(not(target_os = "linux"))]
fn advise(_base: NonNull<u8>, _bytes: usize, _advice: libc::c_int) -> io::Result<()> {
    Ok(())
}

/// Keeps the mapping out of core dumps. If the kernel refuses, it is dumped: this code has no other remedy.
fn keep_out_of_dumps(base: NonNull<u8>, bytes: usize) {
    let _ = advise(base, bytes, DONT_DUMP);
}

/// Asks for transparent huge pages. Returns true if the kernel took the advice and the feature is not set
/// to `never`.
#[cfg(target_os = "linux")]
fn advise_huge(base: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: the range is a mapping of ours; this advice changes its backing, never its contents.
    let taken = unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) } == 0;
    // The call succeeds even where the feature is switched off.
    taken
        && std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
            .is_ok_and(|mode| !mode.contains("[never]"))
}

#[cfg(not(target_os = "linux"))]
fn advise_huge(_base: NonNull<u8>, _bytes: usize) -> bool {
    false
}
