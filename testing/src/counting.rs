//! The system's allocator with counters: one for each thread, always; one for all threads
//! together, while it is switched on.
//!
//! A program that counts installs it:
//!
//! ```ignore
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//! ```
//!
//! Frees are not counted. A thread's own count excludes allocations of the test harness and of other
//! threads of the code under test. The count of all threads is for code with threads of its own, and
//! needs a test that is alone in its program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The counting allocator, for `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    // Const, and without a destructor: it allocates nothing, and lives as long as the thread.
    static OF_THREAD: Cell<u64> = const { Cell::new(0) };
}

// Relaxed, both: they publish nothing; the counting thread has learned, through locks, that the counted
// work has ended.
static COUNTS: AtomicBool = AtomicBool::new(false);
static OF_ALL: AtomicU64 = AtomicU64::new(0);

fn count() {
    OF_THREAD.set(OF_THREAD.get() + 1);
    if COUNTS.load(Relaxed) {
        OF_ALL.fetch_add(1, Relaxed);
    }
}

// SAFETY: every call goes on to `System` with the caller's own arguments; counting
// neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds `GlobalAlloc::alloc`'s contract, which is `System`'s too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller upholds `GlobalAlloc::alloc_zeroed`'s contract, which is `System`'s too.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` with this layout, since every allocation comes from there.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: `pointer` came from `System` with this layout; the caller upholds the rest.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

/// Returns the number of this thread's allocations so far.
#[must_use]
pub fn allocations() -> u64 {
    OF_THREAD.get()
}

/// Returns the result of `act`, and the number of this thread's allocations during it.
///
/// # Panics
/// In a program with another allocator: nothing would ever be counted.
pub fn counted_here<R>(act: impl FnOnce() -> R) -> (R, u64) {
    check_installed();
    let before = allocations();
    let done = act();
    (done, allocations() - before)
}

/// Returns the result of `act`, and the number of all threads' allocations during it. One call at a
/// time: the counter belongs to the program.
///
/// # Panics
/// As for [`counted_here`].
pub fn counted<R>(act: impl FnOnce() -> R) -> (R, u64) {
    check_installed();
    let before = OF_ALL.load(Relaxed);
    COUNTS.store(true, Relaxed);
    let done = act();
    COUNTS.store(false, Relaxed);
    (done, OF_ALL.load(Relaxed) - before)
}

fn check_installed() {
    let before = allocations();
    drop(black_box(Box::new(0_u8)));
    assert!(
        allocations() > before,
        "nothing counts: make `Counting` this program's allocator, by #[global_allocator]"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    /// One test, since the count of all threads belongs to the program.
    #[test]
    fn each_kind_of_allocation_is_counted_where_it_is_made() {
        let mut grows = Vec::<u8>::with_capacity(1);
        for (wanted, act) in [
            (1, &mut (|| drop(black_box(Box::new(7)))) as &mut dyn FnMut()),
            (1, &mut || drop(black_box(vec![0_u8; 100]))),
            (1, &mut || grows.reserve_exact(1000)),
            (0, &mut || drop(black_box(Vec::<u8>::new()))),
        ] {
            assert_eq!(counted_here(act).1, wanted);
        }
        let elsewhere = || {
            let made = std::thread::spawn(|| counted_here(|| drop(black_box(vec![1_u8; 10]))).1);
            made.join().expect("no panic")
        };
        let (by_thread, by_all) = counted(elsewhere);
        assert_eq!(by_thread, 1);
        assert!(by_all > 1, "{by_all}: the thread's start, too");
        // Counting is off now.
        let before = OF_ALL.load(Relaxed);
        assert_eq!((elsewhere(), OF_ALL.load(Relaxed)), (1, before));
    }
}
