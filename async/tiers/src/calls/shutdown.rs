//! The end: what is under way is waited for, or cancelled, in bounded time.
//!
//! In the first half copies go on that were deferred (`ahead.rs`): what was written through is below when a
//! shutdown says that it was clean, but for what finds no block of the host to be had, since matches hold
//! them all, or a failed device.
//!
//! What a mover has begun cannot be called back: it keeps its memory, and the manager, until it answers. What
//! waits for the engine is not waited for: nobody iterates any more.
//!
//! ```text
//!   shutdown ── half the time ──► drained ── close ── the rest ──► idle ──► disks closed: the mark of a clean end ──► figures not served any more
//!   the runtime ends ────► close: what still moves is answered by its hardware, or by its deadline (`deadlines.rs`)
//!   last handle dropped ──► both, if they are not yet: whoever drops it waits for the disks, and no longer than the deadline
//! ```
//!
//! The tasks that look after deadlines and pauses leave its end to a thread, if they are the last to have it;
//! whoever else is, be it a task that answers a disk or a purge's, ends it where it is.

use crate::calls::moment::first_of;
use crate::engine::inner::Inner;
use crate::state::Phase;
use crate::transfer::Closing;
use futures_channel::oneshot;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl Inner {
    /// Nothing more is given from here on. When all is to be over.
    pub(crate) fn begin_shutdown(self: &Arc<Inner>) -> Duration {
        let deadline = self.elapsed() + self.rules.shutdown_deadline;
        self.refuse();
        deadline
    }

    /// See [`Tiers::shutdown`](crate::Tiers::shutdown).
    pub(crate) async fn end_shutdown(self: &Arc<Inner>, deadline: Duration) -> bool {
        // Half the time for what waits to be moved, half for what then still moves.
        let drained = self.idle_by(deadline - self.rules.shutdown_deadline / 2).await;
        self.with(|traffic| traffic.close(self));
        let idle = self.idle_by(deadline).await;
        // What still moves, or is still purged, needs them: then they are closed with the last handle.
        if !idle || self.tenants.purging() {
            return false;
        }
        let closed = self.close_lower_by(deadline).await;
        if closed {
            self.runtime.closed();
        }
        closed && drained
    }

    /// Nothing more is given.
    fn refuse(self: &Arc<Inner>) {
        self.refusing.store(true, Relaxed);
        self.with(|traffic| {
            traffic.reach(Phase::Refusing);
            // Nobody iterates any more.
            traffic.queues.end_budget();
            traffic.end_gated(self);
        });
    }

    /// The runtime has ended: nothing more is given, and what has not begun to move never will.
    pub(crate) fn close_for_good(self: &Arc<Inner>) {
        self.refuse();
        self.with(|traffic| traffic.close(self));
    }

    /// Lets go of the manager in a task of its runtime. If nobody else has it any more, a thread ends it:
    /// that may wait for disks, for which the runtime has no thread.
    pub(crate) fn leave(self: Arc<Inner>) {
        let runtime = Arc::clone(&self.runtime);
        if let Some(last) = Arc::into_inner(self) {
            // If there is none, it ends here.
            runtime.run_blocking(Box::new(move || drop(last)), Duration::ZERO);
        }
    }

    fn closings(&self) -> Vec<Closing> {
        self.groups.iter().flat_map(|group| &group.lower).filter_map(|lower| lower.port.close()).collect()
    }

    async fn close_lower_by(self: &Arc<Inner>, deadline: Duration) -> bool {
        let closings = self.closings();
        if closings.is_empty() {
            return true;
        }
        let (ended, closed) = oneshot::channel();
        let work = move || {
            close_all(closings);
            let _ = ended.send(());
        };
        if !self.runtime.run_blocking(Box::new(work), Duration::ZERO) {
            return false;
        }
        matches!(first_of(closed, self.moment(deadline)).await, Some(Ok(())))
    }

    /// The same where there is nobody left: on a thread of its own, since who drops the last handle may be a
    /// task, which is not to wait for a device that hangs.
    pub(crate) fn close_lower(&self) {
        let closings = self.closings();
        if closings.is_empty() {
            return;
        }
        let wait = self.rules.shutdown_deadline.max(Duration::from_nanos(1));
        self.runtime.run_blocking(Box::new(move || close_all(closings)), wait);
    }

    /// Waits until nothing is under way; false if that is not so by then.
    async fn idle_by(self: &Arc<Inner>, deadline: Duration) -> bool {
        let mut late = pin!(self.moment(deadline));
        loop {
            // Before the look, so that no signal is missed.
            let told = self.idle.listen();
            if self.look().is_idle() {
                return true;
            }
            if first_of(told, late.as_mut()).await.is_none() {
                return self.look().is_idle();
            }
        }
    }
}

/// Ends disk tiers, one after the other.
fn close_all(closings: Vec<Closing>) {
    closings.into_iter().for_each(|close| close());
}
