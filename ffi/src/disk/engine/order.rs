//! The order in which requests are cut into pieces.
//!
//! - The volume's own requests go first (they are few), then urgent reads, reads, writes. After
//!   [`READS_A_WRITE`] read pieces a waiting write gets its turn all the same.
//! - Bytes in flight are capped: the next request queues in the device behind them, so a cap is a waiting
//!   time. Reads alone and writes alone are capped far above the amount that keeps a device busy
//!   (bandwidth × latency: 14 GB/s × 200 µs are 3 MB), so that batches are large. Urgent reads are capped
//!   near it, so that the first is usable soon. While reads come and go, writes are capped more tightly;
//!   still more while urgent reads do, and most while an urgent read waits. A cap that held only while a
//!   read is there would come too late, so it holds for [`MEMORY`] after the last one.

use super::super::request::Class;
use super::super::ring::Action;
use std::collections::VecDeque;
use std::time::Duration;

/// A waiting write goes after this many read pieces at the latest.
const READS_A_WRITE: u32 = 16;
/// Maximum bytes of urgent reads in flight. One piece may always go, here and below.
const URGENT_BYTES: usize = 2 << 20;
/// Maximum bytes of other reads in flight.
const READS_BYTES: usize = 32 << 20;
/// Maximum bytes of writes in flight, without recent reads.
const WRITES_BYTES: usize = 32 << 20;
/// Maximum bytes of writes in flight while reads come and go.
const WRITES_BESIDE_READS_BYTES: usize = 4 << 20;
/// Maximum bytes of writes in flight while urgent reads come and go: the next one will wait for these.
const WRITES_BETWEEN_URGENT_BYTES: usize = 2 << 20;
/// Maximum bytes of writes in flight while an urgent read is there.
const WRITES_BESIDE_URGENT_BYTES: usize = 1 << 20;
/// How long a read is remembered after it has ended.
const MEMORY: Duration = Duration::from_millis(200);

/// Requests that have pieces left to cut, oldest first, by key.
#[derive(Debug, Default)]
struct Lane {
    uncut: VecDeque<usize>,
    /// Requests of this class that have yet to be moved, wholly or partly.
    requests: usize,
}

#[derive(Debug, Default)]
pub(super) struct Order {
    lanes: [Lane; 3],
    /// The volume's own requests.
    own: VecDeque<usize>,
    /// Bytes of urgent read pieces that are with the ring, or will be again.
    urgent_in_flight_bytes: usize,
    /// The same for other read pieces.
    reads_in_flight_bytes: usize,
    /// The same for write pieces.
    writes_in_flight_bytes: usize,
    /// Read pieces since the last write piece.
    reads_since_write: u32,
    /// When the last read and the last urgent read ended.
    last_read: Option<Duration>,
    last_urgent: Option<Duration>,
}

/// The queue whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Own,
    Of(Class),
}

impl Order {
    pub(super) fn requests(&self, class: Class) -> usize {
        self.lanes[class as usize].requests
    }

    /// Whether urgent reads come and go.
    pub(super) fn is_urgent(&self, now: Duration) -> bool {
        self.requests(Class::Urgent) > 0 || lately(self.last_urgent, now)
    }

    pub(super) fn add(&mut self, class: Class, key: usize) {
        let lane = &mut self.lanes[class as usize];
        lane.uncut.push_back(key);
        lane.requests += 1;
    }

    /// Puts a request that the engine already has in front of the others, to be cut again.
    pub(super) fn again(&mut self, class: Class, key: usize) {
        self.lanes[class as usize].uncut.push_front(key);
    }

    pub(super) fn add_own(&mut self, key: usize) {
        self.own.push_back(key);
    }

    /// Counts off a request that has been moved, or will not be.
    pub(super) fn left(&mut self, class: Class, now: Duration) {
        self.lanes[class as usize].requests -= 1;
        match class {
            Class::Urgent => (self.last_read, self.last_urgent) = (Some(now), Some(now)),
            Class::Read => self.last_read = Some(now),
            Class::Write => {}
        }
    }

    fn queue(&mut self, turn: Turn) -> &mut VecDeque<usize> {
        match turn {
            Turn::Own => &mut self.own,
            Turn::Of(class) => &mut self.lanes[class as usize].uncut,
        }
    }

    /// The queue whose turn it is, and its first request. A piece of at most `piece_bytes` will
    /// be cut off it.
    pub(super) fn next(&mut self, now: Duration, piece_bytes: usize) -> Option<(Turn, usize)> {
        if let Some(key) = self.own.front() {
            return Some((Turn::Own, *key));
        }
        let waits = |class: Class| !self.lanes[class as usize].uncut.is_empty();
        let write =
            waits(Class::Write) && fits(self.writes_in_flight_bytes, piece_bytes, self.write_cap(now));
        let read = [Class::Urgent, Class::Read].into_iter().find(|class| waits(*class));
        let read = read.filter(|class| {
            // Prefetches in flight do not count against the reads that a sequence waits for.
            match class {
                Class::Urgent => fits(self.urgent_in_flight_bytes, piece_bytes, URGENT_BYTES),
                Class::Read | Class::Write => fits(self.reads_in_flight_bytes, piece_bytes, READS_BYTES),
            }
        });
        let class = match read {
            Some(_) if write && self.reads_since_write >= READS_A_WRITE => Class::Write,
            Some(class) => class,
            None if write => Class::Write,
            None => return None,
        };
        let key = *self.lanes[class as usize].uncut.front()?;
        Some((Turn::Of(class), key))
    }

    /// The second request in a queue.
    pub(super) fn second(&mut self, turn: Turn) -> Option<usize> {
        self.queue(turn).get(1).copied()
    }

    /// Removes the first request of a queue: all of it has been cut.
    pub(super) fn cut(&mut self, turn: Turn) {
        self.queue(turn).pop_front();
    }

    /// Removes a failed request: it is not cut any further.
    pub(super) fn drop_uncut(&mut self, turn: Turn, key: usize) {
        self.queue(turn).retain(|other| *other != key);
    }

    pub(super) fn read_issued(&mut self, bytes: usize, urgent: bool) {
        self.reads_since_write = self.reads_since_write.saturating_add(1);
        *self.reads_in_flight(urgent) += bytes;
    }

    fn reads_in_flight(&mut self, urgent: bool) -> &mut usize {
        match urgent {
            true => &mut self.urgent_in_flight_bytes,
            false => &mut self.reads_in_flight_bytes,
        }
    }

    pub(super) fn write_issued(&mut self, bytes: usize) {
        self.reads_since_write = 0;
        self.writes_in_flight_bytes += bytes;
    }

    /// Counts off bytes that have been moved, or will not be.
    pub(super) fn ended(&mut self, action: Action, bytes: usize, urgent: bool) {
        match action {
            Action::Read => *self.reads_in_flight(urgent) -= bytes,
            Action::Write => self.writes_in_flight_bytes -= bytes,
            Action::Sync | Action::Punch | Action::Sum => {}
        }
    }

    /// Maximum bytes of writes in flight beside the present and recent reads.
    fn write_cap(&self, now: Duration) -> usize {
        if self.requests(Class::Urgent) > 0 {
            WRITES_BESIDE_URGENT_BYTES
        } else if lately(self.last_urgent, now) {
            WRITES_BETWEEN_URGENT_BYTES
        } else if self.requests(Class::Read) > 0 || lately(self.last_read, now) {
            WRITES_BESIDE_READS_BYTES
        } else {
            WRITES_BYTES
        }
    }
}

fn lately(moment: Option<Duration>, now: Duration) -> bool {
    moment.is_some_and(|moment| now.saturating_sub(moment) < MEMORY)
}

/// Whether one more piece may go out.
fn fits(in_flight: usize, piece_bytes: usize, cap: usize) -> bool {
    in_flight == 0 || in_flight + piece_bytes <= cap
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_read_does_not_wait_for_prefetches_in_flight() {
        let mut order = Order::default();
        // As much as the cap on reads allows, all of it ordinary.
        order.read_issued(READS_BYTES, false);
        order.add(Class::Urgent, 7);
        assert_eq!(order.next(Duration::ZERO, 1 << 20), Some((Turn::Of(Class::Urgent), 7)));
        order.add(Class::Read, 8);
        order.read_issued(URGENT_BYTES, true);
        assert_eq!(order.next(Duration::ZERO, 1 << 20), None, "both are full");
        order.ended(Action::Read, READS_BYTES, false);
        order.ended(Action::Read, URGENT_BYTES, true);
        assert_eq!(order.next(Duration::ZERO, 1 << 20), Some((Turn::Of(Class::Urgent), 7)));
    }
}
