//! The protocol by which the ring thread falls asleep without missing a request.
//!
//! ```text
//!   caller                         ring thread
//!   publish the request            watched := what it would take
//!   ── fence ──                    ── fence ──
//!   watched? → clear it, ring      anything of it there? → do not sleep
//! ```
//!
//! Only one caller rings for each sleep: whoever clears the word. The others save the system call, and so
//! does who publishes what the ring thread could not take anyway.
//!
//! Invariants
//! - I1: when the ring thread sleeps, and something that it watches for has been published, somebody has
//!   cleared the word and rings.
//!
//! # Orderings
//! Dekker's pattern. The word is Relaxed, since it publishes nothing: what a request carries is published by
//! its queue. The two SeqCst fences are each other's partners: whichever is second in their total order, the
//! thread behind it sees what the other one wrote before its own. Acquire and Release are not enough: they
//! would let both threads read before either write is seen. Shown by the model in `tests.rs`, which fails
//! without either fence.

#[cfg(all(test, loom))]
mod tests;

use crate::sync::{AtomicUsize, Ordering, fence, skipped};

#[derive(Debug)]
pub(super) struct Doorbell {
    /// The kinds, a bit each, for which the ring thread, asleep or about to be, wants the bell. 0: it is awake.
    watched: AtomicUsize,
}

impl Doorbell {
    pub(super) fn new() -> Doorbell {
        Doorbell { watched: AtomicUsize::new(0) }
    }

    /// After publishing something of these kinds: whether the caller must ring (I1).
    #[must_use]
    pub(super) fn announce(&self, kinds: usize) -> bool {
        // Pairs with the fence in `doze`, and with that in the inbox's `leave`.
        if !skipped!("doorbell_announce_fence") {
            fence(Ordering::SeqCst);
        }
        // The load spares the busy ring thread's line a write.
        if self.watched.load(Ordering::Relaxed) & kinds == 0 {
            return false;
        }
        let cleared = self.watched.swap(0, Ordering::Relaxed);
        // It may be a later sleep's word, without our kinds: whoever clears a word rings, whatever is in it.
        if skipped!("doorbell_clears_in_silence") { cleared & kinds != 0 } else { cleared != 0 }
    }

    /// Before sleeping: whether the ring thread may. `wanted` looks at all of the kinds that it would be woken for.
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

    /// After sleeping.
    pub(super) fn woke(&self) {
        self.set(0);
    }

    fn set(&self, kinds: usize) {
        // loom does not know that nothing fits between what a caller's swap reads and what it writes, and would
        // let that swap undo a later sleep; so there this is a swap itself.
        #[cfg(all(test, loom))]
        self.watched.swap(kinds, Ordering::Relaxed);
        #[cfg(not(all(test, loom)))]
        self.watched.store(kinds, Ordering::Relaxed);
    }
}
