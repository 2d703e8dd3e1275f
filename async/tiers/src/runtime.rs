//! The port to the runtime of an engine: its clock, its timer, its tasks, its threads. The engine itself
//! has none of these.
//!
//! ```text
//!   engine ── now() ──────────────► Runtime        time, as a number
//!          ── wake_at(moment) ────►                call Attendant::on_time then, or soon after
//!          ── spawn(future) ──────►                poll it to its end
//!          ── run_blocking(work) ─►                it may wait for a device: on a thread
//!          ◄─ Attendant::on_time, Attendant::close_for_good ──
//! ```
//!
//! Invariants
//! - I1: the engine calls no method of this port under its lock, except `now`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Poll, Waker};
use std::time::Duration;

/// A task of the engine. If it is dropped before its end, it answers its waiters.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Work that may block.
pub type Work = Box<dyn FnOnce() + Send>;

/// Runs an engine.
pub trait Runtime: Send + Sync {
    /// Returns the time since a fixed moment. It never goes back.
    fn now(&self) -> Duration;

    /// Sets the timer: [`Attendant::on_time`](crate::Attendant::on_time) is to be called at this moment,
    /// which is before all others.
    fn wake_at(&self, at: Duration);

    /// Polls a task to its end, or drops it.
    fn spawn(&self, task: Task);

    /// Does work that may block, on another thread, and waits for its end for at most `wait`; not at all
    /// if that is zero. Returns whether the work began and, unless `wait` is zero, ended in time. If there
    /// is no thread, the work is dropped.
    fn run_blocking(&self, work: Work, wait: Duration) -> bool;

    /// Wakes a task after other ready tasks have had their turn. The engine calls it from the task itself,
    /// once for each checked block, so it allocates nothing.
    fn wake_later(&self, waker: &Waker) {
        waker.wake_by_ref();
    }

    /// Told when the engine is shut down, or its last user is gone.
    fn closed(&self) {}
}

/// Lets other ready tasks have their turn. `wake_later` asks the runtime for it, and returns false if the
/// runtime is gone; so does the future then. It allocates nothing.
pub(crate) async fn yield_now(wake_later: impl Fn(&Waker) -> bool) -> bool {
    let mut is_back = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut is_back, true) {
            return Poll::Ready(true);
        }
        if wake_later(context.waker()) { Poll::Pending } else { Poll::Ready(false) }
    })
    .await
}
