//! The protocol by which the ring thread falls asleep without missing a request.
//!
//! ```text
//!   caller                         ring thread
//!   publish the request            asleep := true
//!   ── fence ──                    ── fence ──
//!   asleep? → take it, ring        anything wanted? → do not sleep
//! ```
//!
//! Only one caller rings for each sleep: whoever takes the flag. The others save the system call.
//!
//! Invariants
//! - I1: when the ring thread sleeps, and something that it wants has been published, somebody has taken the
//!   flag and rings.
//!
//! # Orderings
//! Dekker's pattern. The flag is Relaxed, since it publishes nothing: what a request carries is published by
//! its queue. The two SeqCst fences are each other's partners: whichever is second in their total order, the
//! thread behind it sees what the other one wrote before its own. Acquire and Release are not enough: they
//! would let both threads read before either write is seen. Shown by the model in `tests.rs`, which fails
//! without either fence.

#[cfg(all(test, loom))]
mod tests;

use crate::sync::{AtomicBool, Ordering, fence, skipped};

#[derive(Debug)]
pub(super) struct Doorbell {
    /// The ring thread sleeps, or is about to, and wants the bell.
    asleep: AtomicBool,
}

impl Doorbell {
    pub(super) fn new() -> Doorbell {
        Doorbell { asleep: AtomicBool::new(false) }
    }

    /// After publishing something: whether the caller must ring (I1).
    #[must_use]
    pub(super) fn announce(&self) -> bool {
        // Pairs with the fence in `doze`, and with that in the inbox's `leave`.
        if !skipped!("doorbell_announce_fence") {
            fence(Ordering::SeqCst);
        }
        // The load spares the busy ring thread's line a write.
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed)
    }

    /// Before sleeping: whether the ring thread may. `wanted` looks at all that it would be woken for.
    #[must_use]
    pub(super) fn doze(&self, wanted: impl FnOnce() -> bool) -> bool {
        self.set(true);
        // Pairs with the fence in `announce`.
        if !skipped!("doorbell_doze_fence") {
            fence(Ordering::SeqCst);
        }
        let may = !wanted();
        if !may {
            self.woke();
        }
        may
    }

    /// After sleeping.
    pub(super) fn woke(&self) {
        self.set(false);
    }

    fn set(&self, asleep: bool) {
        // loom does not know that nothing fits between what a caller's swap reads and what it writes, and would
        // let that swap undo a later sleep; so there this is a swap itself.
        #[cfg(all(test, loom))]
        self.asleep.swap(asleep, Ordering::Relaxed);
        #[cfg(not(all(test, loom)))]
        self.asleep.store(asleep, Ordering::Relaxed);
    }
}
