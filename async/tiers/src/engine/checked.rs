//! Writes to a lower tier, whose bytes are first compared with their sums.
//!
//! The tier seals the bytes that it is given: bytes that have rotted in host memory would come back as
//! good ones. So they are compared on their way down, too. A task does this, since neither an engine's
//! thread nor a mover's has the time.
//!
//! Writes keep their order, which decides which blocks are old or new below.
//!
//! Invariants
//! - I1: each write is answered, even if the task never runs, or the port panics. After a panic the task
//!   goes on with the next write.
//! - I2: at most one task checks at a time. It ends when no write waits. The bytes in flight of the path
//!   bound the number of writes that wait.

use crate::contained::contained;
use crate::runtime::{Runtime, yield_now};
use crate::transfer::{Cause, Failure, HostMemory, Landed, TierPort, TierWrite};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Writes that wait to be checked.
#[derive(Default)]
pub(crate) struct Checks(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    writes: VecDeque<Checked>,
    /// A task takes the writes.
    is_running: bool,
}

/// Held by the task. If it is dropped, all waiting writes are answered.
struct Running(Arc<Mutex<Queue>>);

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checks {
    pub(crate) fn push(&self, runtime: &Arc<dyn Runtime>, checked: Checked) {
        let mut queue = lock(&self.0);
        queue.writes.push_back(checked);
        if std::mem::replace(&mut queue.is_running, true) {
            return;
        }
        drop(queue);
        let (running, turns) = (Running(Arc::clone(&self.0)), Arc::downgrade(runtime));
        runtime.spawn(Box::pin(async move {
            while let Some(checked) = running.next() {
                contained(|| checked.go());
                // A block takes a while: other tasks of the runtime have their turn after each.
                let later =
                    |waker: &Waker| turns.upgrade().map(|runtime| runtime.wake_later(waker)).is_some();
                if !yield_now(later).await {
                    return;
                }
            }
        }));
    }
}

impl Running {
    fn next(&self) -> Option<Checked> {
        let mut queue = lock(&self.0);
        let next = queue.writes.pop_front();
        queue.is_running = next.is_some();
        next
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut queue = lock(&self.0);
        if !queue.is_running {
            return;
        }
        queue.is_running = false;
        let left = std::mem::take(&mut queue.writes);
        drop(queue);
        drop(left);
    }
}

/// A write to be checked. Dropping it answers it.
pub(crate) struct Checked {
    tier: Arc<dyn TierPort>,
    memory: Arc<HostMemory>,
    write: Option<TierWrite>,
}

impl Checked {
    pub(crate) fn new(tier: Arc<dyn TierPort>, memory: Arc<HostMemory>, write: TierWrite) -> Checked {
        Checked { tier, memory, write: Some(write) }
    }

    /// Compares the bytes with their sums, then writes or refuses them.
    pub(crate) fn go(mut self) {
        let Some(write) = self.write.take() else { return };
        match self.memory.is_sealed(&write.bytes) {
            true => self.tier.write(write),
            false => refuse(&*self.tier, write, Cause::Mismatch),
        }
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        if let Some(write) = self.write.take() {
            refuse(&*self.tier, write, Cause::Abandoned);
        }
    }
}

fn refuse(tier: &dyn TierPort, write: TierWrite, cause: Cause) {
    let TierWrite { token, slot, bytes, landing, .. } = write;
    tier.release(slot);
    tier.forget_released();
    drop(bytes);
    landing.land(Landed::Write(token, Err(Failure::of(cause))));
}
