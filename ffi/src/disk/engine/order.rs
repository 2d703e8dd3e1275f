//! Whose turn it is: the order in which requests are cut into pieces.
//!
//! - The volume's own requests first (they are few), then urgent reads, reads, writes. After [`READS_A_WRITE`] read
//!   pieces a waiting write gets its turn all the same.
//! - While reads come and go, writes in flight are capped in bytes, more tightly while an urgent read waits: a read
//!   queues in the device behind the writes that are there when it comes, so the cap is its waiting time. A cap that
//!   held only while a read is there would come too late: it holds for [`MEMORY`] after the last one.
//! - Without reads writes have no cap.

use super::super::request::Class;
use std::collections::VecDeque;
use std::time::Duration;

/// A waiting write goes after this many read pieces at the latest.
const READS_A_WRITE: u32 = 16;
/// Writes in flight at most, in bytes, while reads come and go. One piece may always go.
pub(super) const WRITES_BESIDE_READS_BYTES: usize = 4 << 20;
/// The same while an urgent read is there.
pub(super) const WRITES_BESIDE_URGENT_BYTES: usize = 1 << 20;
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
    /// The volume's own.
    own: VecDeque<usize>,
    /// Bytes of write pieces that are with the ring, or will be again.
    writes_in_flight_bytes: usize,
    /// Read pieces since the last write piece.
    reads_since_write: u32,
    /// When the last read ended.
    last_read: Option<Duration>,
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Own,
    Of(Class),
}

impl Order {
    pub(super) fn requests(&self, class: Class) -> usize {
        self.lanes[class as usize].requests
    }

    pub(super) fn add(&mut self, class: Class, key: usize) {
        let lane = &mut self.lanes[class as usize];
        lane.uncut.push_back(key);
        lane.requests += 1;
    }

    pub(super) fn add_own(&mut self, key: usize) {
        self.own.push_back(key);
    }

    /// A request has been moved, or will not be.
    pub(super) fn left(&mut self, class: Class, now: Duration) {
        self.lanes[class as usize].requests -= 1;
        if class != Class::Write {
            self.last_read = Some(now);
        }
    }

    fn queue(&mut self, turn: Turn) -> &mut VecDeque<usize> {
        match turn {
            Turn::Own => &mut self.own,
            Turn::Of(class) => &mut self.lanes[class as usize].uncut,
        }
    }

    /// Whose turn it is, and the request. A piece of at most `piece_bytes` will be cut off it.
    pub(super) fn next(&mut self, now: Duration, piece_bytes: usize) -> Option<(Turn, usize)> {
        if let Some(key) = self.own.front() {
            return Some((Turn::Own, *key));
        }
        let waits = |class: Class| !self.lanes[class as usize].uncut.is_empty();
        let write = waits(Class::Write) && self.write_allowed(now, piece_bytes);
        let read = [Class::Urgent, Class::Read].into_iter().find(|class| waits(*class));
        let class = match read {
            Some(_) if write && self.reads_since_write >= READS_A_WRITE => Class::Write,
            Some(class) => class,
            None if write => Class::Write,
            None => return None,
        };
        let key = *self.lanes[class as usize].uncut.front()?;
        Some((Turn::Of(class), key))
    }

    /// The request whose turn it would be after the one in front.
    pub(super) fn second(&mut self, turn: Turn) -> Option<usize> {
        self.queue(turn).get(1).copied()
    }

    /// The one in front has been cut to its end.
    pub(super) fn cut(&mut self, turn: Turn) {
        self.queue(turn).pop_front();
    }

    /// A request that failed is not cut any further.
    pub(super) fn drop_uncut(&mut self, turn: Turn, key: usize) {
        self.queue(turn).retain(|other| *other != key);
    }

    pub(super) fn read_issued(&mut self) {
        self.reads_since_write = self.reads_since_write.saturating_add(1);
    }

    pub(super) fn write_issued(&mut self, bytes: usize) {
        self.reads_since_write = 0;
        self.writes_in_flight_bytes += bytes;
    }

    /// Bytes that have been written, or will not be.
    pub(super) fn write_ended(&mut self, bytes: usize) {
        self.writes_in_flight_bytes -= bytes;
    }

    /// Whether one more write piece may go out beside the reads that there are, or lately were.
    fn write_allowed(&self, now: Duration, piece_bytes: usize) -> bool {
        let cap = if self.requests(Class::Urgent) > 0 {
            WRITES_BESIDE_URGENT_BYTES
        } else if self.requests(Class::Read) > 0
            || self.last_read.is_some_and(|last| now.saturating_sub(last) < MEMORY)
        {
            WRITES_BESIDE_READS_BYTES
        } else {
            return true;
        };
        self.writes_in_flight_bytes == 0 || self.writes_in_flight_bytes + piece_bytes <= cap
    }
}
