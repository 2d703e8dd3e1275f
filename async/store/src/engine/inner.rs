//! The lock, and the way of a change: lock, change, unlock, effects.
//!
//! ```text
//!   call ─────► lock ─► change ─► unlock ─► batches end │ a task of the runtime starts reads, writes, copies
//!   landing ──► inbox ─► one thread at a time takes all landings ─► lock ─► change ─► unlock ─► effects
//! ```
//!
//! A call starts no transfer itself: to hand a read to a ring may wake a thread, and a write to an encrypted
//! volume encrypts. So a call takes microseconds, however many keys it has.
//!
//! An effect may answer at once, from within itself. So a landing is only put into the inbox, and the
//! thread that is settling takes it: nothing recurses.
//!
//! Invariants
//! - I1: each landing in the inbox is taken: its thread settles, or another thread does, and stops only
//!   once it finds the inbox empty. Both are decided under the inbox's lock.
//! - I2: no code of a caller, of a tier's reads and writes, or of a copier runs under the state's lock.
//!   Those methods of a tier that touch only its pool's metadata do.

use crate::copier::{Copied, LandsCopies};
use crate::engine::fixed::Fixed;
use crate::state::{Effects, Sink, State};
use kvstrata_ffi::process::Origin;
use kvstrata_tiers::shared::contained;
use kvstrata_tiers::transfer::{Landed, Landing, Lands};
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// An answer of a mover.
pub(crate) enum Arrival {
    Tier(Landed),
    Copy(Copied),
}

#[derive(Default)]
struct Inbox {
    arrived: Vec<Arrival>,
    is_settling: bool,
}

pub(crate) struct Inner {
    pub(crate) fixed: Fixed,
    state: Mutex<State>,
    inbox: Mutex<Inbox>,
    /// Tells callers of a shutdown that nothing is under way.
    idle: Mutex<Vec<futures_channel::oneshot::Sender<()>>>,
    /// The next batch's number. Relaxed: the numbers only have to differ.
    numbers: AtomicU64,
    /// For look-ups, which take no lock. Relaxed: one that reads an old value came before.
    is_closed: AtomicBool,
    origin: Origin,
    this: Weak<Inner>,
}

/// The thread that settles. Gives the role back if a callback panics.
struct Settler<'i>(&'i Inner);

impl Drop for Settler<'_> {
    fn drop(&mut self) {
        self.0.inbox().is_settling = false;
    }
}

impl Inner {
    pub(crate) fn new(fixed: Fixed, state: State) -> Arc<Inner> {
        Arc::new_cyclic(|this| Inner {
            fixed,
            state: Mutex::new(state),
            inbox: Mutex::default(),
            idle: Mutex::default(),
            numbers: AtomicU64::new(1),
            is_closed: AtomicBool::new(false),
            origin: Origin::here(),
            this: this.clone(),
        })
    }

    pub(crate) fn weak(&self) -> Weak<Inner> {
        self.this.clone()
    }

    /// Whether this process was forked from the store's: it has none of its threads.
    pub(crate) fn is_inherited(&self) -> bool {
        !self.origin.is_here()
    }

    /// Keeps the store from ever being freed, where a handle is dropped in a forked process: freeing it
    /// would wait for threads that are not there.
    pub(crate) fn keep(&self) {
        mem::forget(self.this.upgrade());
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// Refuses all calls from now on.
    pub(crate) fn close(self: &Arc<Inner>) {
        self.is_closed.store(true, Relaxed);
        self.with(|state| state.close(self));
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    pub(crate) fn landing(self: &Arc<Inner>) -> Landing {
        Landing::new(Arc::<Inner>::clone(self))
    }

    pub(crate) fn lands_copies(self: &Arc<Inner>) -> Arc<dyn LandsCopies> {
        Arc::<Inner>::clone(self)
    }

    /// Ends with the next moment at which nothing is under way.
    pub(crate) fn listen_idle(&self) -> futures_channel::oneshot::Receiver<()> {
        let (tell, told) = futures_channel::oneshot::channel();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(tell);
        told
    }

    /// Locks the state, to read it.
    pub(crate) fn look(&self) -> MutexGuard<'_, State> {
        // Of code from outside, only the clock and metadata methods of ports run under this lock. So a
        // poisoned lock is a bug of ours. We continue: to refuse every later call would be worse.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a change, and carries out its effects.
    pub(crate) fn with<R>(self: &Arc<Inner>, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.look();
        let result = change(&mut state);
        state.effects.is_idle |= state.is_closed && state.is_idle();
        if state.effects.is_empty() {
            return result;
        }
        let mut effects = mem::take(&mut state.effects);
        drop(state);
        self.perform(&mut effects);
        result
    }

    /// Makes a change of a call. A task of the runtime starts the transfers; a batch that has ended is
    /// answered at once.
    pub(crate) fn call<R>(self: &Arc<Inner>, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.look();
        let result = change(&mut state);
        let mut now = Effects { ended: mem::take(&mut state.effects.ended), ..Effects::default() };
        now.wake_at = state.effects.wake_at.take();
        let starts = !state.effects.is_empty() && !mem::replace(&mut state.is_starting, true);
        drop(state);
        if starts {
            let this = self.weak();
            let start = async move {
                if let Some(inner) = this.upgrade() {
                    inner.with(|state| state.is_starting = false);
                }
            };
            contained(|| self.fixed.runtime.spawn(Box::pin(start)));
        }
        self.perform(&mut now);
        result
    }

    fn perform(&self, effects: &mut Effects) {
        // A tier or a copier that panics has dropped its requests, which answers them.
        for (tier, read) in effects.reads.drain(..) {
            contained(|| tier.read(read));
        }
        for (tier, write) in effects.writes.drain(..) {
            contained(|| tier.write(write));
        }
        if !effects.copies.is_empty() {
            let copies = mem::take(&mut effects.copies);
            contained(|| self.fixed.copier.start(copies));
        }
        for tier in effects.forget.drain(..) {
            contained(|| tier.forget_released());
        }
        if let Some(at) = effects.wake_at.take() {
            contained(|| self.fixed.runtime.wake_at(at));
        }
        for (sink, completion) in effects.ended.drain(..) {
            contained(|| match sink {
                // A dropped future gets no answer: the completion is dropped, and the memory with it.
                Sink::Future(to) => _ = to.send(completion),
                Sink::Client(to) => to(completion),
            });
        }
        if mem::take(&mut effects.is_idle) {
            let told = mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
            told.into_iter().for_each(|tell| _ = tell.send(()));
        }
    }

    fn arrive(&self, arrival: Arrival) {
        self.inbox().arrived.push(arrival);
        if let Some(this) = self.this.upgrade() {
            this.settle();
        }
    }

    /// Takes the landings, unless another thread does (I1).
    fn settle(self: &Arc<Inner>) {
        if mem::replace(&mut self.inbox().is_settling, true) {
            return;
        }
        let role = Settler(self);
        let mut arrived = Vec::new();
        loop {
            {
                let mut inbox = self.inbox();
                if inbox.arrived.is_empty() {
                    inbox.is_settling = false;
                    mem::forget(role);
                    return;
                }
                mem::swap(&mut inbox.arrived, &mut arrived);
            }
            self.with(|state| state.land(self, arrived.drain(..)));
        }
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lands for Inner {
    fn landed(&self, landed: Landed) {
        self.arrive(Arrival::Tier(landed));
    }
}

impl LandsCopies for Inner {
    fn copied(&self, copied: Copied) {
        self.arrive(Arrival::Copy(copied));
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inner({} size classes)", self.fixed.classes.len())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The attendant then finds that the store is gone.
        self.fixed.runtime.wake_at(std::time::Duration::ZERO);
        for class in &self.fixed.classes {
            if let Some(close) = class.below.as_ref().and_then(|below| below.close()) {
                self.fixed.runtime.run_blocking(close, std::time::Duration::ZERO);
            }
        }
        self.fixed.runtime.closed();
    }
}
