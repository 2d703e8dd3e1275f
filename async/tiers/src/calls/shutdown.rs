//! Shutdown: work under way is waited for, or cancelled, in bounded time.
//!
//! During the first half of the time, deferred copies go on (`ahead.rs`). When a shutdown reports a
//! clean end, each block that was written through is below. Two exceptions: a block that finds no host
//! block, since matches hold them all, and a failed device.
//!
//! A copy that a mover has begun cannot be called back: it keeps its memory, and the manager, until the
//! mover answers. Copies that wait for the engine are not waited for: no engine iterates any more.
//!
//! ```text
//!   shutdown ── half the time ──► drained ── close ── the rest ──► idle ──► disks closed, marked clean
//!                                                                           └──► figures no longer served
//!   the runtime ends ────► close: copies that still move are answered by the hardware, or at their deadline
//!                          (`deadlines.rs`)
//!   last handle dropped ──► both, unless done: the dropping thread waits for the disks, within the deadline
//! ```
//!
//! If a task that attends to deadlines or pauses is the last owner, it leaves the end of the manager to
//! a thread. Any other last owner ends it in place, even a task that answers a disk or runs a purge.

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
    /// Refuses further requests from now on. Returns the shutdown's deadline.
    pub(crate) fn begin_shutdown(self: &Arc<Inner>) -> Duration {
        let deadline = self.elapsed() + self.rules.shutdown_deadline;
        self.refuse();
        deadline
    }

    /// See [`Tiers::shutdown`](crate::Tiers::shutdown).
    pub(crate) async fn end_shutdown(self: &Arc<Inner>, deadline: Duration) -> bool {
        // Half the time is for work that waits to be moved, half for copies that still move then.
        let drained = self.idle_by(deadline - self.rules.shutdown_deadline / 2).await;
        self.with(|traffic| traffic.close(self));
        let idle = self.idle_by(deadline).await;
        // Copies that still move and purges need the tiers below: these are then closed with the last handle.
        if !idle || self.tenants.purging() {
            return false;
        }
        let closed = self.close_lower_by(deadline).await;
        if closed {
            self.runtime.closed();
        }
        closed && drained
    }

    /// Refuses further requests.
    fn refuse(self: &Arc<Inner>) {
        self.refusing.store(true, Relaxed);
        self.with(|traffic| {
            traffic.reach(Phase::Refusing);
            // No engine iterates any more.
            traffic.queues.end_budget();
            traffic.end_gated(self);
        });
    }

    /// Closes after the runtime has ended: requests are refused, and transfers that have not
    /// begun never will.
    pub(crate) fn close_for_good(self: &Arc<Inner>) {
        self.refuse();
        self.with(|traffic| traffic.close(self));
    }

    /// Releases the manager in a task of its runtime. If this was the last reference, a thread ends the
    /// manager: the end may wait for disks, and the runtime has no thread for such a wait.
    pub(crate) fn leave(self: Arc<Inner>) {
        let runtime = Arc::clone(&self.runtime);
        if let Some(last) = Arc::into_inner(self) {
            // Without such a thread the manager ends here.
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

    /// Closes the tiers below when no handle is left. On a thread of its own: the last handle may be
    /// dropped by a task, which must not wait for a device that hangs.
    pub(crate) fn close_lower(&self) {
        let closings = self.closings();
        if closings.is_empty() {
            return;
        }
        let wait = self.rules.shutdown_deadline.max(Duration::from_nanos(1));
        self.runtime.run_blocking(Box::new(move || close_all(closings)), wait);
    }

    /// Waits until nothing is under way. Returns false if something is at the deadline.
    async fn idle_by(self: &Arc<Inner>, deadline: Duration) -> bool {
        let mut late = pin!(self.moment(deadline));
        loop {
            // Listens before the look, so that no signal is missed.
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

/// Closes tiers, one after the other.
fn close_all(closings: Vec<Closing>) {
    closings.into_iter().for_each(|close| close());
}
