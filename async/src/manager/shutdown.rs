//! The end: what is under way is waited for, or cancelled, in bounded time.
//!
//! What a mover has begun cannot be called back: it keeps its memory, and the manager, until it answers.

use super::inner::Inner;
use super::traffic::{At, Traffic};
use crate::transfer::{Allowance, Cause, Failure};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Traffic {
    /// Nothing new begins, and what has not begun to move never will. Whoever waits is answered.
    pub(super) fn close(&mut self, inner: &Inner) {
        self.refusing = true;
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.drop_gated(inner);
        for stack in 0..self.lines.len() as u16 {
            self.dissolve_line(inner, stack);
        }
        let cancelled = Failure::of(Cause::Cancelled);
        let ups: Vec<u32> = self.ups.iter().map(|(key, _)| key as u32).collect();
        for key in ups {
            let Some(at) = self.ups.get(key as usize).map(|up| up.at) else { continue };
            if self.recall(at) {
                self.up_failed(inner, key, cancelled);
            }
        }
        self.lines.iter_mut().for_each(|line| line.grounded.clear());
        let downs: Vec<u32> = self.downs.iter().map(|(key, _)| key as u32).collect();
        for key in downs {
            let Some(at) = self.downs.get(key as usize).map(|down| down.at) else { continue };
            if self.recall(at) {
                self.down_failed(inner, key, cancelled);
            }
        }
    }

    /// Takes a flight out of its queue. False: it is under way.
    pub(super) fn recall(&mut self, at: At) -> bool {
        match at {
            At::Moving => return false,
            At::Queued(path, ticket) => _ = self.queues[path as usize].cancel(ticket),
            At::Wants | At::Pausing => {}
        }
        true
    }
}

impl Inner {
    /// See [`KvBlockManager::shutdown`](super::KvBlockManager::shutdown).
    pub(super) async fn shutdown(self: &Arc<Inner>) -> bool {
        let deadline = {
            let _in = self.runtime.enter();
            tokio::time::Instant::now() + self.rules.shutdown_deadline
        };
        self.refusing.store(true, Relaxed);
        self.with(|traffic| {
            traffic.refusing = true;
            // Nobody iterates any more.
            traffic.allowance = Allowance::new(None);
        });
        // Half the time for what waits to be moved, half for what then still moves.
        let drained = self.idle_by(deadline - self.rules.shutdown_deadline / 2).await;
        self.with(|traffic| traffic.close(self));
        self.idle_by(deadline).await && drained
    }

    /// Waits until nothing is under way; false if that is not so by then.
    async fn idle_by(self: &Arc<Inner>, deadline: tokio::time::Instant) -> bool {
        loop {
            let told = self.idle.notified();
            tokio::pin!(told);
            // Before the look, so that no telling is missed.
            told.as_mut().enable();
            if self.look().is_idle() {
                return true;
            }
            let sleep = {
                let _in = self.runtime.enter();
                tokio::time::timeout_at(deadline, told)
            };
            if sleep.await.is_err() {
                return self.look().is_idle();
            }
        }
    }
}
