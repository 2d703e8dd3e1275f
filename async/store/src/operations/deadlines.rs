//! Batches that are late, and the end of the store.
//!
//! A late key is answered at once unless something may touch its memory: a read or write straight to or
//! from it, or a copy. Such a key waits for that to end (`state/jobs.rs` I2).

use crate::engine::inner::Inner;
use crate::outcome::{Miss, Outcome};
use crate::state::{From, Into, ReadKey, State, Waiter, WriteKey};
use std::sync::Arc;
use std::time::Duration;

impl State {
    /// Answers all that is late. Returns the next deadline.
    pub(crate) fn answer_late(&mut self, inner: &Arc<Inner>, now: Duration) -> Option<Duration> {
        while let Some(job) = self.jobs.pop_late(now) {
            self.leave(inner, Miss::Late, &|of| of.job == job);
        }
        // Loads may only join reads that hang: nothing else looks at the breakers then.
        inner.fixed.class_ids().for_each(|class| _ = self.is_slow(&inner.fixed, class));
        self.start(inner);
        self.jobs.next_deadline()
    }

    /// Refuses all calls from now on, and answers all that has not begun to move.
    pub(crate) fn close(&mut self, inner: &Arc<Inner>) {
        self.is_closed = true;
        self.leave(inner, Miss::Closed, &|_| true);
    }

    /// Answers keys if nothing touches their memory.
    fn leave(&mut self, inner: &Arc<Inner>, miss: Miss, leaves: &dyn Fn(Waiter) -> bool) {
        let outcome = Outcome::Missed(miss);
        for key in self.reads.keys() {
            let left = self.leave_read(inner, key, leaves);
            self.answer_all(left, outcome);
        }
        for key in self.writes.keys() {
            let left = self.leave_write(inner, key, leaves);
            self.answer_all(left, outcome);
        }
    }

    fn leave_read(
        &mut self,
        inner: &Arc<Inner>,
        key: ReadKey,
        leaves: &dyn Fn(Waiter) -> bool,
    ) -> Vec<Waiter> {
        let Some(read) = self.reads.get_mut(key) else { return Vec::new() };
        // The memory of the first waiter is the target.
        // After the landing it is the only waiter, until the copies from its memory have ended.
        let stay = usize::from(read.into == Into::Lent);
        let mut left = split_off(&mut read.waiters, stay, leaves);
        left.append(&mut split_off(&mut read.forgets, 0, leaves));
        let is_over = read.into == Into::Open && read.waiters.is_empty();
        if is_over {
            self.drop_read(inner, key);
        }
        left
    }

    fn leave_write(
        &mut self,
        inner: &Arc<Inner>,
        key: WriteKey,
        leaves: &dyn Fn(Waiter) -> bool,
    ) -> Vec<Waiter> {
        let Some(write) = self.writes.get_mut(key) else { return Vec::new() };
        let is_moving = write.since.is_some();
        // The memory of the first waiter is the source.
        let stay = match write.from {
            From::CopyToHost(_) | From::CopyToStaging(_) => 1,
            From::Lent if is_moving => 1,
            _ => 0,
        };
        let first = write.waiters.first().copied();
        let mut left = split_off(&mut write.waiters, stay, leaves);
        left.append(&mut split_off(&mut write.forgets, 0, leaves));
        let lane = &mut self.lanes[write.class.index()];
        let is_queued_lent = matches!(write.from, From::Arrived | From::Lent) && !is_moving;
        if is_queued_lent && write.waiters.is_empty() {
            lane.arrived.retain(|queued| *queued != key);
            lane.ready.retain(|queued| *queued != key);
            self.finish_write(inner, key, Outcome::Missed(Miss::Late));
        } else if is_queued_lent && write.from == From::Lent && write.waiters.first().copied() != first {
            // The next waiter's memory may be of another alignment.
            write.from = From::Arrived;
            lane.ready.retain(|queued| *queued != key);
            lane.arrived.push_back(key);
        }
        left
    }
}

/// Takes out all that leave, except for the first `stay`.
fn split_off(waiters: &mut Vec<Waiter>, stay: usize, leaves: &dyn Fn(Waiter) -> bool) -> Vec<Waiter> {
    let (mut left, mut index) = (Vec::new(), 0);
    waiters.retain(|of| {
        let goes = index >= stay && leaves(*of);
        index += 1;
        if goes {
            left.push(*of);
        }
        !goes
    });
    left
}
