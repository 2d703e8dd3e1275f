//! The count of waiters for blocks: by it a releaser knows, at the cost of one load,
//! that it must wake a waiter.
//!
//! ```text
//!   waiter                              releaser
//!   enter: count + 1                    release, give back, …
//!   ── fence ──                         ── fence ──
//!   try to take blocks                  anyone: count > 0? → wake them
//!   none: sleep, until woken; again
//!   leave: count - 1
//! ```
//!
//! The caller implements sleep and wake-up; it must not lose a wake-up between the try and the sleep.
//!
//! I1. If a waiter sleeps, and a block that it could take was released after its try, or released before
//!     the try without the try seeing it, then the releaser has seen the waiter.
//! I2. A releaser is any caller that has let go of a block that it held, if only for a moment. This includes
//!     a caller that ended a lease, one whose allocation was refused after it had gathered some of the
//!     blocks, and one that evicted, since an evictor holds the blocks that it moves. They all call `anyone`.
//!
//! # Orderings
//! Dekker's pattern. The count is Relaxed, since it publishes nothing: the pool publishes the release.
//! The two SeqCst fences are each other's partners: whichever is second in their total order, the thread
//! behind it sees the other thread's writes before its own fence. The pool's own fences, between a
//! list's bits and its cursor, do not replace them: a block that is given back passes none.

use crate::sync::{AtomicU32, CachePadded, Relaxed, SeqCst, fence, skipped};
use core::fmt;

/// The number of waiters. One for each kind of resource, such as a pool's blocks.
pub struct Waiting {
    /// On a line of its own: every releaser reads it, and it is written only when a caller waits.
    count: CachePadded<AtomicU32>,
}

impl Waiting {
    /// A count of no waiters.
    #[must_use]
    pub fn new() -> Waiting {
        Waiting { count: CachePadded(AtomicU32::new(0)) }
    }

    /// Counts the caller as a waiter. The caller tries once more to take the resource before it sleeps (I1).
    #[inline]
    pub fn enter(&self) {
        self.count.fetch_add(1, Relaxed);
        // Pairs with the fence in `anyone`.
        if !skipped!("waiting_enter_fence") {
            fence(SeqCst);
        }
    }

    /// Removes the caller, which has entered, from the count: it was served or has given up.
    #[inline]
    pub fn leave(&self) {
        self.count.fetch_sub(1, Relaxed);
    }

    /// Returns, after a release, whether a waiter must be woken (I1).
    #[inline]
    #[must_use]
    pub fn anyone(&self) -> bool {
        // Pairs with the fence in `enter`.
        if !skipped!("waiting_anyone_fence") {
            fence(SeqCst);
        }
        self.count.load(Relaxed) > 0
    }
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting::new()
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: as of some moment.
        write!(f, "Waiting({})", self.count.load(Relaxed))
    }
}
