//! The system's allocator, which counts what a program asks of it while it is told to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// For `#[global_allocator]`.
pub struct Counting;

// Relaxed: nothing is published; who counts joins or waits for those whom it counts.
static COUNTS: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes everything on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(u64::from(COUNTS.load(Relaxed)), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        COUNT.fetch_add(u64::from(COUNTS.load(Relaxed)), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

/// What `act` gives, and the allocations of all threads meanwhile; 0 in a program whose allocator is another.
pub fn counted<R>(act: impl FnOnce() -> R) -> (R, u64) {
    let before = COUNT.load(Relaxed);
    COUNTS.store(true, Relaxed);
    let done = act();
    COUNTS.store(false, Relaxed);
    (done, COUNT.load(Relaxed) - before)
}
