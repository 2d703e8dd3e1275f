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

#[cfg(not(all(test, loom)))]
use core::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicBool, Ordering, fence};

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
        // Pairs with the fence in `doze`.
        #[cfg(not(kvstrata_mutation = "doorbell_announce_fence"))]
        fence(Ordering::SeqCst);
        // The load spares the busy ring thread's line a write.
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed)
    }

    /// Before sleeping: whether the ring thread may. `wanted` looks at all that it would be woken for.
    #[must_use]
    pub(super) fn doze(&self, wanted: impl FnOnce() -> bool) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        // Pairs with the fence in `announce`.
        #[cfg(not(kvstrata_mutation = "doorbell_doze_fence"))]
        fence(Ordering::SeqCst);
        let may = !wanted();
        if !may {
            self.woke();
        }
        may
    }

    /// After sleeping.
    pub(super) fn woke(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}
