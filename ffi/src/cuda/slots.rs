//! The slots of a queue: what each transfer owns, and the thread that ends transfers.
//!
//! Invariants: the queue's (`queue.rs`).

use super::batch::Batch;
use super::completion::{Signal, Way};
use super::context::CudaDevice;
use super::error::CudaError;
use super::event::{CudaEvent, EventPool};
use super::stream::{CudaStream, Purpose};
use core::task::Waker;
use core::time::Duration;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// State shared by a queue, its thread and its transfers.
pub(super) struct Shared {
    // In the order of their drop: events and signal before the stream, the stream before the device.
    pub(super) signal: Signal,
    /// For order with the engine's streams (`engine.rs`).
    pub(super) mark: Mutex<Option<CudaEvent>>,
    pub(super) events: EventPool,
    pub(super) stream: CudaStream,
    device: Arc<CudaDevice>,
    /// Held by the caller that queues work in the stream (I2). The number counts the transfers announced
    /// so far.
    pub(super) turn: Mutex<u32>,
    state: Mutex<State>,
    /// The thread waits here for transfers.
    pub(super) work: Condvar,
    /// Callers' threads wait here for outcomes.
    answered: Condvar,
}

pub(super) struct State {
    pub(super) slots: Vec<Slot>,
    pub(super) free: Vec<usize>,
    pub(super) fifo: VecDeque<usize>,
    pub(super) closing: bool,
}

/// A transfer.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) batch: Option<Batch>,
    /// The event, the number, and whether the transfer was announced; until the thread takes them.
    pub(super) awaited: Option<(CudaEvent, u32, bool)>,
    pub(super) outcome: Option<Result<(), CudaError>>,
    waker: Option<Waker>,
    /// The error of a refused part; it becomes the outcome when the device has answered.
    pub(super) late: Option<CudaError>,
    /// The transfer has no waiter any more.
    pub(super) abandoned: bool,
}

/// The outcome of a transfer, and its batch, unless a device keeps that (I1).
pub(super) type Ended = (Result<(), CudaError>, Option<Batch>);

/// The thread's pause before it asks again: the first and the longest; each pause is twice the one before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(128));

/// How often the thread asks again after a refusal that is not known to pass: for a second in all.
const TRIES: u32 = 14;

impl State {
    /// Frees a slot.
    pub(super) fn vacate(&mut self, at: usize) {
        self.slots[at] = Slot::default();
        self.free.push(at);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.device.fault().is_some() {
            self.signal.keep(&self.device);
        }
    }
}

impl Shared {
    /// Makes the stream and `depth` slots; `way` and `watch` are those of the queue's options.
    pub(super) fn new(
        device: &Arc<CudaDevice>,
        purpose: Purpose,
        depth: usize,
        (way, watch): (Way, Duration),
    ) -> Result<Shared, CudaError> {
        let stream = CudaStream::new(device, purpose)?;
        let state = State {
            slots: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..depth).rev().collect(),
            fifo: VecDeque::with_capacity(depth),
            closing: false,
        };
        Ok(Shared {
            signal: Signal::new(way, &stream, watch)?,
            mark: Mutex::new(None),
            events: EventPool::new(device, depth),
            stream,
            device: Arc::clone(device),
            turn: Mutex::new(0),
            state: Mutex::new(state),
            work: Condvar::new(),
            answered: Condvar::new(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // No caller's code runs under the lock, so a poisoned state is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reserve(&self, batch: &Batch) -> Result<(usize, CudaEvent), CudaError> {
        self.device.alive()?;
        batch.is_of(&self.device)?;
        let mut state = self.lock();
        let limit = state.slots.len();
        let slot = state.free.pop().ok_or(CudaError::Full { what: "transfers of the queue", limit })?;
        drop(state);
        match self.events.take() {
            Ok(event) => Ok((slot, event)),
            Err(error) => {
                self.lock().free.push(slot);
                Err(error)
            }
        }
    }

    /// Leaves a batch to a device that may still write the batch's memory (I1).
    pub(super) fn leak(&self, batch: Batch) {
        let bytes = batch.bytes();
        self.device.keep(Box::new(batch), bytes);
    }

    /// Runs a caller's code (I4). The panic hook has reported its panic. If it left another context (a
    /// `cudaSetDevice` in an owner's drop), ours is bound again.
    fn contained(&self, act: impl FnOnce()) {
        let _ = catch_unwind(AssertUnwindSafe(act));
        self.device.rebind();
    }

    /// Waits for the device's answer for a transfer. A refused wait that is not sticky says nothing of
    /// the transfer, and the device is well. So the thread asks again; while a graph's capture is in the
    /// way, without limit.
    fn answer(&self, number: u32, event: &CudaEvent, announced: bool) -> Result<(), CudaError> {
        let (mut pause, mut tries) = (PAUSES.0, 0);
        loop {
            match self.signal.wait(number, event, announced) {
                Err(CudaError::Refused { fault, .. }) if fault.code.is_capture() || tries < TRIES => {
                    tries += 1;
                    thread::sleep(pause);
                    pause = (pause * 2).min(PAUSES.1);
                }
                other => return other,
            }
        }
    }

    /// The body of the thread.
    pub(super) fn serve(&self) {
        let mut state = self.lock();
        loop {
            let Some(at) = state.fifo.front().copied() else {
                if state.closing {
                    return;
                }
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Some((event, number, announced)) = state.slots[at].awaited.take() else {
                // Only this thread takes `awaited`, and it also removes that transfer from the front.
                state.fifo.pop_front();
                continue;
            };
            drop(state);
            let answer = self.answer(number, &event, announced);
            let ended = answer.is_ok();
            // Before the slot becomes free: every free slot must find a free event.
            if ended {
                self.events.give(event)
            } else {
                self.events.leak(event)
            }
            state = self.lock();
            state.fifo.pop_front();
            let slot = &mut state.slots[at];
            let (mut batch, waker) = (slot.batch.take(), slot.waker.take());
            let outcome = answer.and(slot.late.take().map_or(Ok(()), Err));
            if slot.abandoned {
                state.vacate(at);
            } else {
                // The batch goes back to the waiter if the device has answered, even if a part was refused.
                slot.batch = batch.take_if(|_| ended);
                slot.outcome = Some(outcome);
            }
            drop(state);
            match batch {
                Some(batch) if ended => self.contained(|| drop(batch)),
                Some(batch) => self.leak(batch),
                None => {}
            }
            self.answered.notify_all();
            if let Some(waker) = waker {
                self.contained(|| waker.wake());
            }
            self.device.settle();
            state = self.lock();
        }
    }

    // ---- for `Transfer` ----

    /// Takes the outcome with the batch, which frees the slot.
    fn take(&self, state: &mut State, at: usize) -> Option<Ended> {
        let slot = &mut state.slots[at];
        let outcome = slot.outcome.take()?;
        let batch = slot.batch.take();
        state.vacate(at);
        Some((outcome, batch))
    }

    /// Takes the outcome, or stores the waker.
    pub(super) fn poll(&self, at: usize, waker: &Waker) -> Option<Ended> {
        let mut state = self.lock();
        let taken = self.take(&mut state, at);
        if taken.is_none() {
            let old = &mut state.slots[at].waker;
            if !old.as_ref().is_some_and(|old| old.will_wake(waker)) {
                let old = old.replace(waker.clone());
                drop(state);
                drop(old);
            }
        }
        taken
    }

    /// Blocks until there is an outcome, or until `patience` is over.
    pub(super) fn block(&self, at: usize, patience: Option<Duration>) -> Option<Ended> {
        let begun = std::time::Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(outcome) = self.take(&mut state, at) {
                return Some(outcome);
            }
            state = match patience.map(|patience| patience.checked_sub(begun.elapsed())) {
                None => self.answered.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(None) => return None,
                Some(Some(left)) => {
                    self.answered.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Marks the transfer as having no waiter any more.
    pub(super) fn abandon(&self, at: usize) {
        let mut state = self.lock();
        let outcome = self.take(&mut state, at);
        if outcome.is_none() {
            state.slots[at].abandoned = true;
        }
        let waker = state.slots[at].waker.take();
        drop(state);
        drop((outcome, waker));
    }

    pub(super) fn device(&self) -> &Arc<CudaDevice> {
        &self.device
    }
}
