//! How much moves at once, and whether the tier below is spared.

use crate::engine::fixed::Fixed;
use crate::engine::inner::Inner;
use crate::size_class::ClassId;
use crate::state::{State, TransferId};
use kvstrata_core::SequenceHash;
use std::sync::Arc;
use std::time::Duration;

impl State {
    /// Returns whether another size class has a key, or is about to: its entry has another length.
    pub(crate) fn is_elsewhere(&self, fixed: &Fixed, class: ClassId, hash: SequenceHash) -> bool {
        let has = |of: ClassId| fixed.class(of).has(hash) || self.writes.of(of, hash).is_some();
        fixed.class_ids().any(|of| of != class && has(of))
    }

    /// Starts all transfers that have room.
    pub(crate) fn start(&mut self, inner: &Arc<Inner>) {
        for class in inner.fixed.class_ids() {
            self.start_reads(inner, class);
            self.start_writes(inner, class);
        }
    }

    /// Returns whether the tier below takes too long. Then one transfer at a time finds out whether it has
    /// recovered.
    pub(crate) fn is_slow(&mut self, fixed: &Fixed, class: ClassId) -> bool {
        let (now, spared) = (fixed.now(), &fixed.class(class).spared);
        let oldest = self.oldest(class).map_or(Duration::ZERO, |since| now.saturating_sub(since));
        let lane = &mut self.lanes[class.index()];
        match lane.breaker.look(oldest) {
            true => spared.begin(now),
            false => spared.end(),
        }
        lane.breaker.is_open() && !lane.is_still()
    }

    /// Notes that a transfer to or from the tier below begins. Returns the time.
    pub(crate) fn moves(&mut self, fixed: &Fixed, class: ClassId, id: TransferId) -> Duration {
        let (now, lane) = (fixed.now(), &mut self.lanes[class.index()]);
        lane.started.push_back((now, id));
        match id {
            TransferId::Read(_) => lane.reads_moving += 1,
            _ => lane.writes_moving += 1,
        }
        now
    }

    /// Notes that it has landed.
    pub(crate) fn moved(&mut self, fixed: &Fixed, class: ClassId, id: TransferId, since: Duration) {
        let lane = &mut self.lanes[class.index()];
        match id {
            TransferId::Read(_) => lane.reads_moving -= 1,
            _ => lane.writes_moving -= 1,
        }
        lane.breaker.ended(fixed.now().saturating_sub(since));
        self.is_slow(fixed, class);
    }

    /// Returns when the oldest transfer under way began.
    fn oldest(&mut self, class: ClassId) -> Option<Duration> {
        loop {
            let (since, id) = self.lanes[class.index()].started.front().copied()?;
            let of = match id {
                // A key that is used again is of a transfer that began later, or has not begun.
                TransferId::Read(key) => self.reads.get(key).and_then(|of| of.since),
                TransferId::Write(key) => self.writes.get(key).and_then(|of| of.since),
                TransferId::Copy(_) => None,
            };
            if of == Some(since) {
                return of;
            }
            self.lanes[class.index()].started.pop_front();
        }
    }
}
