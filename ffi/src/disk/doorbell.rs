//! The protocol by which the ring thread falls asleep without missing a request.
//!
//! ```text
//!   caller                         ring thread
//!   publish the request            watched := the kinds that it could take
//!   ── fence ──                    ── fence ──
//!   watched? → clear it, ring      any of these published? → do not sleep
//! ```
//!
//! Only one caller rings for each sleep: the one that clears the word. The others save the system call.
//! So does a caller that publishes a kind which the ring thread could not take anyway.
//!
//! Invariants
//! - I1: if the ring thread sleeps, and something of a kind that it watches has been published, then a
//!   caller has cleared the word and rings.
//!
//! # Orderings
//! Dekker's pattern. The word is Relaxed, since it publishes nothing: a request's contents are published
//! by its queue. The two SeqCst fences are each other's partners: whichever is second in their total
//! order, its thread sees what the other thread wrote before the first fence. Acquire and Release are not
//! enough: they would let both threads read before either write is seen. Shown by the model in
//! `tests.rs`, which fails without either fence.

#[cfg(all(test, loom))]
mod tests;

use crate::sync::{AtomicUsize, Ordering, fence, skipped};

#[derive(Debug)]
pub(super) struct Doorbell {
    /// The kinds, a bit each, for which the ring thread wants the bell, asleep or about to sleep.
    /// 0: it is awake.
    watched: AtomicUsize,
}

impl Doorbell {
    pub(super) fn new() -> Doorbell {
        Doorbell { watched: AtomicUsize::new(0) }
    }

    /// Call after publishing a request of these kinds. Returns whether the caller must ring (I1).
    #[must_use]
    pub(super) fn announce(&self, kinds: usize) -> bool {
        // Pairs with the fence in `doze`, and with the one in the inbox's `leave`.
        if !skipped!("doorbell_announce_fence") {
            fence(Ordering::SeqCst);
        }
        // The load spares the cache line of a busy ring thread a write.
        if self.watched.load(Ordering::Relaxed) & kinds == 0 {
            return false;
        }
        let cleared = self.watched.swap(0, Ordering::Relaxed);
        // It may be the word of a later sleep, without our kinds. The caller that clears a word rings,
        // whatever its bits.
        if skipped!("doorbell_clears_in_silence") { cleared & kinds != 0 } else { cleared != 0 }
    }

    /// Call before sleeping. Returns whether the ring thread may sleep. `wanted` checks all kinds that
    /// would wake it.
    #[must_use]
    pub(super) fn doze(&self, kinds: usize, wanted: impl FnOnce() -> bool) -> bool {
        self.set(kinds);
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

    /// Call after sleeping.
    pub(super) fn woke(&self) {
        self.set(0);
    }

    fn set(&self, kinds: usize) {
        // loom does not know that no store fits between the read and the write of a caller's swap. It
        // would let that swap undo a later sleep, so under loom this is a swap itself.
        #[cfg(all(test, loom))]
        self.watched.swap(kinds, Ordering::Relaxed);
        #[cfg(not(all(test, loom)))]
        self.watched.store(kinds, Ordering::Relaxed);
    }
}
