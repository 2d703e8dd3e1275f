//! The bounded queues from callers to the ring thread: three lock-free queues, one for each
//! class of requests.
//!
//! ```text
//!   callers ──push──► urgent reads [▒·······] ──┐
//!           ──push──► reads        [▒▒▒▒····] ──┼─pop──► ring thread
//!           ──push──► writes       [▒▒▒▒▒▒▒▒] ──┘
//!                                    full: the caller waits (counted), nothing is dropped, no list grows
//! ```
//!
//! There are several queues, so that an onboard never waits behind a queue full of offloads, nor a read
//! that a sequence waits for behind a queue full of prefetches.
//!
//! Invariants
//! - I1: a pushed request is popped by the ring thread or, after the ring thread is gone, failed by the
//!   first thread that finds it. None is lost.
//! - I2: if the ring thread sleeps and a request is in a queue that it watches, a caller has rung the
//!   bell or is about to (`doorbell.rs`).
//! - I3: a caller that waits for room is woken by the next pop from its queue.
//!
//! # Orderings
//! I2 is the doorbell's. I3 is the same pattern, between `blocked` (raised by callers, under the lock)
//! and the pop: a SeqCst fence between write and read on each side lets at least one see the other. A
//! caller checks for room and waits under one hold of the lock. `made_room` and `leave` take the lock
//! before they notify, so the notice cannot fall between check and wait. `gone` is set before the last
//! sweep of the queues, with a fence between. That fence's partner is the doorbell's, between a push and
//! the check of `gone`: a push that the sweep misses sees `gone`. Under the lock `gone` needs no fence: a
//! thread that takes the lock after `leave` did sees it, and one that took it before is notified.
//! `closing` is Release and Acquire: a ring thread that sees it, and ends, has seen everything that was
//! pushed before it. The other flags publish nothing and are Relaxed; a request's contents are published
//! by the queue. Shown by the models in `tests.rs`.

#[cfg(all(test, loom))]
mod tests;

use super::doorbell::Doorbell;
use super::error::FailureCause;
use super::request::{Class, Request};
use super::ring::Bell;
use super::stats::Counters;
use crate::sync::{
    ArrayQueue, AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, fence, site, skipped,
};
use std::path::Path;
use std::sync::{Arc, OnceLock, PoisonError};

/// The kind that [`Inbox::close`] announces, beside the classes' bits.
const CLOSING: usize = 1 << Class::ALL.len();

pub(super) struct Inbox {
    queues: [ArrayQueue<Request>; 3],
    doorbell: Doorbell,
    /// No more requests will come: the volume is being dropped.
    closing: AtomicBool,
    /// The ring thread takes no more requests.
    gone: AtomicBool,
    /// Callers that wait for room.
    blocked: AtomicUsize,
    room: Mutex<()>,
    room_made: Condvar,
    bell: OnceLock<Bell>,
    pub(super) counters: Counters,
    pub(super) path: Arc<Path>,
}

impl Inbox {
    pub(super) fn new(capacity: usize, path: Arc<Path>) -> Inbox {
        Inbox {
            queues: Class::ALL.map(|_| ArrayQueue::new(capacity)),
            doorbell: Doorbell::new(),
            closing: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            blocked: AtomicUsize::new(0),
            room: Mutex::new(()),
            room_made: Condvar::new(),
            bell: OnceLock::new(),
            counters: Counters::default(),
            path,
        }
    }

    /// Set once, by the ring thread, before any request comes.
    pub(super) fn set_bell(&self, bell: Bell) {
        let _ = self.bell.set(bell);
    }

    fn queue(&self, class: Class) -> &ArrayQueue<Request> {
        &self.queues[class as usize]
    }

    // ---- the callers' side ----

    /// Puts a request in; waits while its queue is full.
    pub(super) fn push(&self, request: Request) {
        let class = request.class();
        match self.queue(class).push(request) {
            Ok(()) => self.announce(class.bit()),
            Err(request) => self.push_when_room(request),
        }
    }

    /// Puts a request in, or gives it back if its queue is full.
    #[expect(clippy::result_large_err, reason = "it goes back as it came, into the caller's own buffer")]
    pub(super) fn try_push(&self, request: Request) -> Result<(), Request> {
        let class = request.class();
        self.queue(class).push(request)?;
        self.announce(class.bit());
        Ok(())
    }

    /// Call after a push: makes sure that a thread finds the request (I1, I2).
    fn announce(&self, kinds: usize) {
        if self.doorbell.announce(kinds) {
            self.ring_bell();
        }
        // The doorbell's fence, between our push and this, pairs with the one in `leave`: either we see
        // that the ring thread is gone, or its sweep sees our request.
        if self.gone.load(Ordering::Relaxed) && !skipped!("inbox_announce_no_sweep") {
            self.fail_queued();
        }
    }

    fn ring_bell(&self) {
        self.counters.wakes.add(1);
        if let Some(bell) = self.bell.get() {
            bell();
        }
    }

    #[cold]
    fn push_when_room(&self, mut request: Request) {
        self.counters.waits.add(1);
        let class = request.class();
        let queue = self.queue(class);
        let mut guard = self.lock_room();
        // Relaxed, here and below: the fence orders it, and it publishes nothing.
        self.blocked.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `made_room`: either it sees us blocked, or we see the room it made.
        if !skipped!("inbox_wait_fence") {
            fence(Ordering::SeqCst);
        }
        loop {
            match queue.push(request) {
                Ok(()) => break,
                Err(back) => request = back,
            }
            // Relaxed: the lock orders it with `leave`, see the header.
            if self.gone.load(Ordering::Relaxed) && !skipped!("inbox_wait_though_gone") {
                // Make room for all waiting requests: no other thread will. After unlocking: a request
                // that ends wakes a task, which is a caller's code and may call this method itself.
                if skipped!("inbox_fails_locked") {
                    self.fail_queued();
                } else {
                    drop(guard);
                    self.fail_queued();
                    guard = self.lock_room();
                }
                continue;
            }
            guard = self.room_made.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.blocked.fetch_sub(1, Ordering::Relaxed);
        drop(guard);
        self.announce(class.bit());
    }

    fn lock_room(&self) -> MutexGuard<'_, ()> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the ring thread to end once it has answered everything.
    pub(super) fn close(&self) {
        // Release: pairs with the Acquire in `closing`. A thread that sees it finds every request that
        // was pushed before. The doorbell makes the ring thread see it before it sleeps.
        self.closing.store(true, site!("inbox_close_relaxed", Ordering::Release));
        if !skipped!("inbox_close_no_bell") {
            self.announce(CLOSING);
        }
    }

    /// Callers that wait for room at this moment.
    pub(super) fn blocked(&self) -> usize {
        // A figure for people: nothing is decided by it.
        self.blocked.load(Ordering::Relaxed)
    }

    // ---- the ring thread's side ----

    pub(super) fn pop(&self, class: Class) -> Option<Request> {
        self.queue(class).pop()
    }

    /// Call after one or several pops: wakes the callers that wait for room (I3).
    pub(super) fn made_room(&self) {
        // Pairs with the fence in `push_when_room`.
        if !skipped!("inbox_room_fence") {
            fence(Ordering::SeqCst);
        }
        if self.blocked.load(Ordering::Relaxed) > 0 {
            // The lock makes sure that a caller which we counted is inside its wait by now.
            if !skipped!("inbox_room_no_lock") {
                drop(self.lock_room());
            }
            // All of them: a single one might wait for another queue.
            if skipped!("inbox_room_wakes_one") {
                self.room_made.notify_one();
            } else {
                self.room_made.notify_all();
            }
        }
    }

    /// Call before the ring thread sleeps: announces the sleep, and says whether it is allowed (I2). It
    /// is not if a queue that the thread could take from has a request, or if the volume closes and
    /// nothing is left to answer.
    pub(super) fn doze(&self, takes: [bool; 3], idle: bool) -> bool {
        let classes = Class::ALL.iter().zip(takes).filter(|(_, takes)| *takes);
        let kinds = classes.fold(CLOSING, |kinds, (class, _)| kinds | class.bit());
        self.doorbell.doze(kinds, || {
            let queued = self.queues.iter().zip(takes).any(|(queue, takes)| takes && !queue.is_empty());
            (queued && !skipped!("inbox_doze_blind")) || (idle && self.closing())
        })
    }

    /// Call after the sleep.
    pub(super) fn woke(&self) {
        self.doorbell.woke();
    }

    /// Whether the volume is being dropped. The last caller sets the flag, so no caller is left.
    pub(super) fn closing(&self) -> bool {
        // Acquire: pairs with the Release in `close`; a queue that is found empty after this stays empty.
        self.closing.load(site!("inbox_closing_relaxed", Ordering::Acquire))
    }

    pub(super) fn waits(&self, class: Class) -> bool {
        !self.queues[class as usize].is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.iter().all(ArrayQueue::is_empty)
    }

    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.queues.iter().map(ArrayQueue::len).sum()
    }

    /// The ring thread takes no more requests: queued and later ones fail (I1).
    pub(super) fn leave(&self) {
        self.gone.store(true, Ordering::Relaxed);
        // Pairs with the doorbell's fence in `announce`: a request that the sweep below
        // misses sees `gone`.
        if !skipped!("inbox_leave_fence") {
            fence(Ordering::SeqCst);
        }
        self.fail_queued();
        // A caller that waits, or is about to and has not seen `gone`, is inside its wait once we
        // have the lock.
        if !skipped!("inbox_leave_no_lock") {
            drop(self.lock_room());
        }
        if !skipped!("inbox_leave_no_wake") {
            self.room_made.notify_all();
        }
    }

    fn fail_queued(&self) {
        while let Some(mut request) = Class::ALL.into_iter().find_map(|class| self.pop(class)) {
            request.failure = Some(FailureCause::OutOfService);
            self.counters.failures.add(1);
            self.counters.failed_by(FailureCause::OutOfService);
            request.finish(&self.path);
        }
    }
}

impl core::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Inbox")
            .field("queued", &self.queues.each_ref().map(ArrayQueue::len))
            .field("blocked", &self.blocked())
            .finish_non_exhaustive()
    }
}
