//! The bounded way from callers to the ring thread: two lock-free queues, reads apart from writes.
//!
//! ```text
//!   callers ──push──► reads  [▒▒▒▒····] ──┐
//!           ──push──► writes [▒▒▒▒▒▒▒▒] ──┴─pop──► ring thread
//!                              full: the caller waits (counted), nothing is dropped, no list grows
//! ```
//!
//! Two queues, so that a queue full of offloads never stands before an onboarding.
//!
//! Invariants
//! - I1: a request that was pushed is popped by the ring thread, or failed by whoever finds it after the
//!   ring thread is gone. None is lost.
//! - I2: when the ring thread sleeps and a request is in a queue that it watches, somebody has rung the bell
//!   or is about to (`doorbell.rs`).
//! - I3: a caller that waits for room is woken by the next pop from its queue.
//!
//! # Orderings
//! I2 is the doorbell's. I3 is the same pattern, between `blocked` (raised by callers, under the lock) and the
//! pop: a SeqCst fence between write and read on each side lets at least one see the other. `gone` is set
//! before the last sweep of the queues, with the same fence, so that a push which the sweep misses sees `gone`.
//! The flags themselves publish no data and are Relaxed; what a request carries is published by the queue.

use super::doorbell::Doorbell;
use super::error::{Direction, FailureCause};
use super::request::Request;
use super::stats::Counters;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use crossbeam_queue::ArrayQueue;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

/// Wakes the ring thread out of its sleep, whatever it sleeps in.
pub(super) type Bell = Box<dyn Fn() + Send + Sync>;

pub(super) struct Inbox {
    reads: ArrayQueue<Request>,
    writes: ArrayQueue<Request>,
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
            reads: ArrayQueue::new(capacity),
            writes: ArrayQueue::new(capacity),
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

    fn queue(&self, direction: Direction) -> &ArrayQueue<Request> {
        match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        }
    }

    // ---- the callers' side ----

    /// Puts a request in; waits while its queue is full.
    pub(super) fn push(&self, request: Request) {
        match self.queue(request.direction()).push(request) {
            Ok(()) => self.announce(),
            Err(request) => self.push_when_room(request),
        }
    }

    /// Puts a request in, or gives it back if its queue is full.
    pub(super) fn try_push(&self, request: Request) -> Result<(), Request> {
        self.queue(request.direction()).push(request)?;
        self.announce();
        Ok(())
    }

    /// After a push: see to it that somebody finds the request (I1, I2).
    fn announce(&self) {
        if self.doorbell.announce() {
            self.ring_bell();
        }
        // Pairs with the fence in `leave`: either we see that it is gone, or it sees our request.
        fence(Ordering::SeqCst);
        if self.gone.load(Ordering::Relaxed) {
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
        let queue = self.queue(request.direction());
        let mut guard = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        self.blocked.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `made_room`: either it sees us blocked, or we see the room it made.
        fence(Ordering::SeqCst);
        loop {
            match queue.push(request) {
                Ok(()) => break,
                Err(back) => request = back,
            }
            if self.gone.load(Ordering::Relaxed) {
                // Room for ours and everybody's: nobody else will make any.
                self.fail_queued();
                continue;
            }
            guard = self.room_made.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.blocked.fetch_sub(1, Ordering::Relaxed);
        drop(guard);
        self.announce();
    }

    /// Tells the ring thread to end once it has answered everything.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.announce();
    }

    /// Callers that wait for room at this moment.
    pub(super) fn blocked(&self) -> usize {
        // A figure for people: nothing is decided by it.
        self.blocked.load(Ordering::Relaxed)
    }

    // ---- the ring thread's side ----

    pub(super) fn pop(&self, direction: Direction) -> Option<Request> {
        self.queue(direction).pop()
    }

    /// After one or several pops: wakes the callers that wait for room (I3).
    pub(super) fn made_room(&self) {
        // Pairs with the fence in `push_when_room`.
        fence(Ordering::SeqCst);
        if self.blocked.load(Ordering::Relaxed) > 0 {
            // The lock makes sure that a caller which we counted is inside its wait by now.
            drop(self.room.lock().unwrap_or_else(PoisonError::into_inner));
            self.room_made.notify_all();
        }
    }

    /// Before the ring thread sleeps: announces it, and says whether it may (I2). It may not when a queue
    /// that it could take from has something, or, with nothing left to answer, when the volume closes.
    pub(super) fn doze(&self, takes_reads: bool, takes_writes: bool, idle: bool) -> bool {
        self.doorbell.doze(|| {
            (takes_reads && !self.reads.is_empty())
                || (takes_writes && !self.writes.is_empty())
                || (idle && self.closing())
        })
    }

    /// After its sleep.
    pub(super) fn woke(&self) {
        self.doorbell.woke();
    }

    /// Whether the volume is being dropped. No caller is left then: the flag is set by the last one.
    pub(super) fn closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.reads.len() + self.writes.len()
    }

    /// The ring thread takes no more: what is queued, and what comes, fails (I1).
    pub(super) fn leave(&self) {
        self.gone.store(true, Ordering::Relaxed);
        // Pairs with the fence in `announce`: a request that the sweep below misses sees `gone`.
        fence(Ordering::SeqCst);
        self.fail_queued();
        drop(self.room.lock().unwrap_or_else(PoisonError::into_inner));
        self.room_made.notify_all();
    }

    fn fail_queued(&self) {
        while let Some(mut request) = self.reads.pop().or_else(|| self.writes.pop()) {
            request.failure = Some(FailureCause::OutOfService);
            self.counters.failures.add(1);
            request.finish(&self.path);
        }
    }
}

impl core::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Inbox")
            .field("reads", &self.reads.len())
            .field("writes", &self.writes.len())
            .field("blocked", &self.blocked())
            .finish_non_exhaustive()
    }
}
