//! Who waits for blocks: how those who release know, at the price of a load, that somebody must be woken.
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
//! How one sleeps and is woken is the caller's; a wake-up between the try and the sleep must not be lost
//! there.
//!
//! I1. If a waiter sleeps, and a block that it could take was released after its try, or before it unseen,
//! the releaser has seen the
//!     waiter.
//! I2. A releaser is whoever has let a block go that it had in hand, if only for a moment: also who has ended
//! a lease, who was refused an
//!     allocation after it had gathered some of the blocks, and who has evicted, for an evictor holds what it moves. They all ask `anyone`.
//!
//! # Orderings
//! Dekker's pattern. The count is Relaxed, for it publishes nothing: what was released is published by the
//! pool. The two SeqCst fences are each other's partners: whichever is second in their total order, the
//! thread behind it sees what the other one wrote before its own. The pool's own fences, between a list's
//! bits and its cursor, do not stand in for them: a block that is given back passes none.

use crate::sync::{AtomicU32, CachePadded, Relaxed, SeqCst, fence, skipped};
use core::fmt;

/// How many wait. One for each thing that is waited for, such as a pool's blocks.
pub struct Waiting {
    /// On a line of its own: read by every releaser, written only when somebody waits.
    count: CachePadded<AtomicU32>,
}

impl Waiting {
    /// Nobody.
    #[must_use]
    pub fn new() -> Waiting {
        Waiting { count: CachePadded(AtomicU32::new(0)) }
    }

    /// The caller waits from now on. It tries to take what it waits for once more before it sleeps (I1).
    #[inline]
    pub fn enter(&self) {
        self.count.fetch_add(1, Relaxed);
        // Pairs with the fence in `anyone`.
        if !skipped!("waiting_enter_fence") {
            fence(SeqCst);
        }
    }

    /// The caller, which has entered, waits no more, whether it was served or has given up.
    #[inline]
    pub fn leave(&self) {
        self.count.fetch_sub(1, Relaxed);
    }

    /// After a release: whether somebody waits, and must be woken (I1).
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
