//! What the ring thread does: requests in, pieces through the ring, outcomes out.
//!
//! ```text
//!   inbox ─pull─► active requests ─cut─► pieces ─push─► ring
//!                      ▲                                  │ turn
//!                      └───── resume, retry, finish ◄─────┘
//! ```
//!
//! - Reads go first; after [`READS_A_WRITE`] read pieces a waiting write gets its turn all the same.
//! - While reads are about, at most [`WRITES_BESIDE_READS_BYTES`] of writes are in flight, so that a read
//!   never queues in the device behind a pile of offloads.
//! - A request is cut into pieces, so that a small one never waits behind one of 64 MiB.
//! - A short transfer is resumed where it stopped, EINTR and EAGAIN are retried, the rest is reported.
//!
//! Invariants
//! - I1: every piece in `pieces` belongs to a request in `active`, counted by its `in_flight`.
//! - I2: a request leaves `active` with its owner only when its `in_flight` is 0; otherwise, when the ring
//!   is lost, it is abandoned: its buffer is kept for good.
//! - I3: at most `depth` pieces are with the ring.

use super::error::{Direction, FailureCause};
use super::inbox::Inbox;
use super::request::Request;
use super::ring::{Completion, Op, Ring};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;

/// A waiting write goes after this many read pieces at the latest.
const READS_A_WRITE: u32 = 16;
/// Writes in flight at most, in bytes, while reads come and go. One piece may always go.
const WRITES_BESIDE_READS_BYTES: usize = 4 << 20;
/// A piece is given up after this many retries without a byte moved.
const RETRIES: u32 = 1000;

/// Part of a request, with the ring or waiting to be given to it again.
#[derive(Debug, Clone, Copy)]
struct Piece {
    request: usize,
    direction: Direction,
    /// Where in the slot what is left of it starts.
    offset: usize,
    bytes: usize,
    retries: u32,
}

/// Requests of one direction that have pieces left to cut, oldest first, by key in `active`.
#[derive(Debug, Default)]
struct Lane {
    uncut: VecDeque<usize>,
    /// Requests of this direction in `active`.
    requests: usize,
}

pub(super) struct Engine {
    ring: Box<dyn Ring>,
    inbox: Arc<Inbox>,
    active: Slab<Request>,
    reads: Lane,
    writes: Lane,
    pieces: Slab<Piece>,
    /// Pieces to be given to the ring again, before any new one.
    again: VecDeque<Piece>,
    /// Bytes of write pieces that are with the ring or in `again`.
    writes_in_flight_bytes: usize,
    /// Read pieces since the last write piece.
    reads_since_write: u32,
    piece_bytes: usize,
    /// Short transfers are resumed at multiples of this: the device's alignment under O_DIRECT, else 1.
    alignment: usize,
}

impl Engine {
    /// `piece_bytes` is a positive multiple of `alignment`.
    pub(super) fn new(
        ring: Box<dyn Ring>,
        inbox: Arc<Inbox>,
        piece_bytes: usize,
        alignment: usize,
    ) -> Engine {
        debug_assert!(piece_bytes > 0 && piece_bytes.is_multiple_of(alignment));
        let depth = ring.depth();
        Engine {
            ring,
            inbox,
            active: Slab::with_capacity(2 * depth),
            reads: Lane::default(),
            writes: Lane::default(),
            pieces: Slab::with_capacity(depth),
            again: VecDeque::with_capacity(depth),
            writes_in_flight_bytes: 0,
            reads_since_write: 0,
            piece_bytes,
            alignment,
        }
    }

    /// Serves until the volume closes and everything is answered, or the ring is lost.
    pub(super) fn run(&mut self) {
        let mut done = Vec::with_capacity(self.ring.depth() + 1);
        loop {
            self.pull();
            self.issue();
            let idle = self.active.is_empty();
            if idle && self.inbox.closing() && self.inbox.is_empty() {
                return;
            }
            let (reads, writes) = (self.takes(Direction::Read), self.takes(Direction::Write));
            // With both lanes full there is nothing to be woken for but completions: callers need no bell.
            if (reads || writes) && !self.inbox.doze(reads, writes, idle) {
                continue;
            }
            let turned = self.ring.turn(&mut done);
            self.inbox.woke();
            self.inbox.counters.turns.add(1);
            for completion in done.drain(..) {
                self.completed(completion);
            }
            if turned.is_err() {
                // Drop abandons what is in flight and fails what is queued.
                return;
            }
        }
    }

    fn lane(&mut self, direction: Direction) -> &mut Lane {
        match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        }
    }

    /// Whether one more request of this direction would be taken in: as many as could fill the ring.
    fn takes(&self, direction: Direction) -> bool {
        let lane = match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        };
        lane.requests < self.ring.depth()
    }

    fn pull(&mut self) {
        let mut pulled = false;
        for direction in [Direction::Read, Direction::Write] {
            while self.takes(direction) {
                let Some(request) = self.inbox.pop(direction) else { break };
                let key = self.active.insert(request);
                let lane = self.lane(direction);
                lane.uncut.push_back(key);
                lane.requests += 1;
                pulled = true;
            }
        }
        if pulled {
            self.inbox.made_room();
        }
    }

    fn issue(&mut self) {
        // I3.
        while self.pieces.len() < self.ring.depth() {
            let Some(piece) = self.again.pop_front().or_else(|| self.cut()) else { break };
            let Some(request) = self.active.get(piece.request) else { continue };
            let op = Op {
                direction: piece.direction,
                address: request.address_at(piece.offset),
                // At most `piece_bytes`, which the options keep below 2 GiB.
                bytes: piece.bytes as u32,
                file_offset: request.file_offset + piece.offset as u64,
            };
            let token = self.pieces.insert(piece) as u32;
            // SAFETY: the memory is the block that the request's owner guards, and the request keeps its
            // owner until its pieces have all come back (I1, I2), or has it kept for good.
            unsafe { self.ring.push(token, &op) };
        }
    }

    /// Cuts the next piece off the request whose turn it is.
    fn cut(&mut self) -> Option<Piece> {
        let reads = !self.reads.uncut.is_empty();
        let writes = !self.writes.uncut.is_empty() && self.write_allowed();
        let direction = match (reads, writes) {
            (true, true) if self.reads_since_write >= READS_A_WRITE => Direction::Write,
            (true, _) => Direction::Read,
            (false, true) => Direction::Write,
            (false, false) => return None,
        };
        let piece_bytes = self.piece_bytes;
        let key = *self.lane(direction).uncut.front()?;
        let request = self.active.get_mut(key)?;
        let offset = request.issued_bytes;
        let bytes = piece_bytes.min(request.transfer_bytes - offset);
        request.issued_bytes += bytes;
        request.in_flight += 1;
        if request.issued_bytes == request.transfer_bytes {
            self.lane(direction).uncut.pop_front();
        }
        match direction {
            Direction::Read => self.reads_since_write = self.reads_since_write.saturating_add(1),
            Direction::Write => {
                self.reads_since_write = 0;
                self.writes_in_flight_bytes += bytes;
            }
        }
        Some(Piece { request: key, direction, offset, bytes, retries: 0 })
    }

    /// Whether one more write piece may go out beside the reads that there are.
    fn write_allowed(&self) -> bool {
        self.reads.requests == 0
            || self.writes_in_flight_bytes == 0
            || self.writes_in_flight_bytes + self.piece_bytes <= WRITES_BESIDE_READS_BYTES
    }

    fn completed(&mut self, completion: Completion) {
        let Some(mut piece) = self.pieces.try_remove(completion.token as usize) else { return };
        let failed = match usize::try_from(completion.result) {
            Ok(moved) if moved >= piece.bytes => {
                self.count_bytes(piece.direction, piece.bytes);
                return self.piece_ended(piece, None);
            }
            // O_DIRECT goes on from aligned places only: what lies past the last one is moved again.
            Ok(moved) if moved >= self.alignment => {
                let moved = moved / self.alignment * self.alignment;
                self.count_bytes(piece.direction, moved);
                if piece.direction == Direction::Write {
                    self.writes_in_flight_bytes -= moved;
                }
                piece.offset += moved;
                piece.bytes -= moved;
                piece.retries = 0;
                self.inbox.counters.resumed.add(1);
                None
            }
            Ok(moved) if moved > 0 && piece.retries < RETRIES => {
                piece.retries += 1;
                self.inbox.counters.resumed.add(1);
                None
            }
            Ok(_) => Some(FailureCause::NoProgress { done_bytes: piece.offset }),
            Err(_) => match completion.result.wrapping_neg() {
                libc::EINTR | libc::EAGAIN if piece.retries < RETRIES => {
                    piece.retries += 1;
                    self.inbox.counters.retried.add(1);
                    None
                }
                errno => Some(FailureCause::Os { errno }),
            },
        };
        match failed {
            Some(cause) => self.piece_ended(piece, Some(cause)),
            None => self.again.push_back(piece),
        }
    }

    fn count_bytes(&self, direction: Direction, bytes: usize) {
        match direction {
            Direction::Read => self.inbox.counters.read_bytes.add(bytes as u64),
            Direction::Write => self.inbox.counters.written_bytes.add(bytes as u64),
        }
    }

    /// A piece is through, well or not. With the last one its request ends (I2).
    fn piece_ended(&mut self, piece: Piece, failure: Option<FailureCause>) {
        let Piece { request: key, direction, bytes, .. } = piece;
        if direction == Direction::Write {
            self.writes_in_flight_bytes -= bytes;
        }
        let Some(request) = self.active.get_mut(key) else { return };
        request.in_flight -= 1;
        if let Some(cause) = failure {
            request.failure.get_or_insert(cause);
            if request.issued_bytes < request.transfer_bytes {
                // The rest of a failed request is not worth moving.
                request.issued_bytes = request.transfer_bytes;
                self.lane(direction).uncut.retain(|other| *other != key);
            }
        }
        let Some(request) = self.active.get(key) else { return };
        if request.in_flight == 0 && request.issued_bytes == request.transfer_bytes {
            self.lane(direction).requests -= 1;
            let request = self.active.remove(key);
            let counters = &self.inbox.counters;
            match (request.failure, direction) {
                (Some(_), _) => counters.failures.add(1),
                (None, Direction::Read) => counters.reads.add(1),
                (None, Direction::Write) => counters.writes.add(1),
            }
            request.finish(&self.inbox.path);
        }
    }
}

impl Drop for Engine {
    /// After an orderly end there is nothing left to do. After a lost ring, or a panic: nobody may hang,
    /// and no memory that the kernel may still write may be given back (I2).
    fn drop(&mut self) {
        self.inbox.leave();
        for request in self.active.drain() {
            self.inbox.counters.failures.add(1);
            match request.in_flight {
                0 => {
                    let mut request = request;
                    request.failure.get_or_insert(FailureCause::OutOfService);
                    request.finish(&self.inbox.path);
                }
                _ => request.abandon(&self.inbox.path),
            }
        }
    }
}
