//! The global allocator: a bump pointer in a static array, and a count. Memory is never returned.
//!
//!     | allocated, in order of time ... | free                      |
//!     0                                 used                        ARENA_BYTES
//!
//! I1: bytes below `used` belong to the callers of `alloc`, those above are unowned; `used` only grows.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

const ARENA_BYTES: usize = 16 << 20;

/// Page-aligned, so that rounding the offset gives every alignment up to a page.
#[repr(C, align(4096))]
struct Arena {
    bytes: UnsafeCell<[u8; ARENA_BYTES]>,
    used: AtomicUsize,
    count: AtomicUsize,
}

// SAFETY: `bytes` is only reached through `alloc`, which by I1 hands each byte out once.
unsafe impl Sync for Arena {}

#[global_allocator]
static ARENA: Arena =
    Arena { bytes: UnsafeCell::new([0; ARENA_BYTES]), used: AtomicUsize::new(0), count: AtomicUsize::new(0) };

/// Number of allocations; growing a block counts.
pub fn allocations() -> usize {
    // Relaxed: there is one thread.
    ARENA.count.load(Ordering::Relaxed)
}

// SAFETY: I1: blocks are disjoint, inside the arena, aligned, and live for ever. A failure is null.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed, here and below: there is one thread, and nothing is published.
        self.count.fetch_add(1, Ordering::Relaxed);
        let start = self.used.load(Ordering::Relaxed).next_multiple_of(layout.align());
        let Some(end) = start.checked_add(layout.size()).filter(|end| *end <= ARENA_BYTES) else {
            return ptr::null_mut();
        };
        if layout.align() > align_of::<Self>() {
            return ptr::null_mut();
        }
        self.used.store(end, Ordering::Relaxed);
        // SAFETY: start ≤ end ≤ ARENA_BYTES, so the pointer stays inside the array.
        unsafe { self.bytes.get().cast::<u8>().add(start) }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}
