//! The way out: requests are cut into pieces and handed to the ring.

use super::super::format::CHUNK_BYTES;
use super::super::request::{Class, Task};
use super::super::ring::{Action, Buffer, DevicePart, Op};
use super::Engine;
use super::health::Probe;
use super::order::Turn;
use super::pieces::Part;

/// With so few requests a caller waits for its read's sum in the end. Small pieces leave only the last
/// one's sum to be made after the transfer. A write is summed while it is in flight.
const FEW_REQUESTS: usize = 2;
/// Length of small pieces, and of the pieces of urgent reads.
const SMALL_PIECE_BYTES: usize = 256 << 10;
/// Requests are merged up to this length.
const MERGED_BYTES: usize = 512 << 10;

const _: () = assert!(SMALL_PIECE_BYTES.is_multiple_of(CHUNK_BYTES));

impl Engine {
    /// Gives the ring as many pieces as it takes.
    pub(super) fn issue(&mut self) {
        while let Some(token) = self.next_piece() {
            let Some(piece) = self.pieces.get_mut(token) else { continue };
            piece.buffers.clear();
            let mut device = None;
            for part in &piece.parts {
                if part.bytes > 0
                    && let Some(request) = self.active.get(part.request)
                    && !matches!(piece.action, Action::Sync | Action::Punch)
                {
                    if let Some(range) = request.device() {
                        // The only part: requests of device memory are not merged.
                        device = Some(DevicePart { range, offset: part.offset });
                        continue;
                    }
                    let iov_base = request.address_at(part.offset).cast();
                    piece.buffers.push(Buffer { iov_base, iov_len: part.bytes });
                }
            }
            let (action, file_offset, bytes) = (piece.action, piece.file_offset, piece.bytes);
            let op = Op { action, file_offset, bytes, buffers: &piece.buffers, device };
            // SAFETY: the memory is of blocks that the requests' owners guard. A request keeps its owner
            // until all its pieces have come back (I1, I2), or the owner is kept for good. The list of
            // buffers does not change until the piece has come back: it is made only here, for pieces
            // that are not with the ring.
            unsafe { self.setup.ring.push(token, &op) };
        }
    }

    /// The next piece: first those to be resumed or retried, then sums on devices (their payloads have
    /// moved, and their callers wait for nothing else), then new ones. Out of service only the first two.
    fn next_piece(&mut self) -> Option<u32> {
        if let Some(token) = self.again.pop_front() {
            return Some(token);
        }
        // I3.
        if self.pieces.is_full() {
            return None;
        }
        let sum = self.sum_on_device();
        if sum.is_some() || self.out_of_service { sum } else { self.cut() }
    }

    /// Makes the piece that sums a payload on its device.
    fn sum_on_device(&mut self) -> Option<u32> {
        let key = self.device_sums.pop_front()?;
        let request = self.active.get_mut(key)?;
        let token = self.pieces.take(Action::Sum, request.file_offset, false)?;
        let bytes = request.payload_bytes;
        let piece = self.pieces.get_mut(token)?;
        piece.parts.push(Part { request: key, start: 0, offset: 0, bytes });
        piece.bytes = bytes;
        request.in_flight += 1;
        Some(token)
    }

    /// Cuts the next piece off the request whose turn it is. Merges several small requests
    /// into one piece.
    fn cut(&mut self) -> Option<u32> {
        let few = self.active.len() <= FEW_REQUESTS;
        let (turn, key) = self.order.next(self.now, self.setup.piece_bytes)?;
        let request = self.active.get_mut(key)?;
        let piece_bytes = match turn {
            Turn::Of(Class::Urgent) => SMALL_PIECE_BYTES.min(self.setup.piece_bytes),
            Turn::Of(Class::Read) if few => SMALL_PIECE_BYTES.min(self.setup.piece_bytes),
            Turn::Own | Turn::Of(_) => self.setup.piece_bytes,
        };
        let action = match request.task {
            Task::Read | Task::Probe(Probe::First | Probe::Last) => Action::Read,
            Task::Sync | Task::Flush | Task::Retire | Task::Probe(Probe::Sync) => Action::Sync,
            Task::Forget => Action::Punch,
            Task::Write | Task::Table { .. } | Task::Superblock | Task::Fill | Task::Probe(Probe::Write) => {
                Action::Write
            }
        };
        let whole = matches!(action, Action::Sync | Action::Punch);
        let (start, alone) = (request.issued_bytes, request.alone);
        let bytes =
            if whole { request.transfer_bytes } else { piece_bytes.min(request.transfer_bytes - start) };
        let urgent = turn == Turn::Of(Class::Urgent);
        let token = self.pieces.take(action, request.file_offset + start as u64, urgent)?;
        self.add_part(token, key, start, bytes);
        let ended =
            self.active.get(key).is_some_and(|request| request.issued_bytes == request.transfer_bytes);
        if ended {
            let merges = start == 0 && !whole && !alone && turn != Turn::Own;
            while merges && self.merges(token, turn) {}
            self.order.cut(turn);
        }
        Some(token)
    }

    /// Adds the second request in the queue to a piece, if it comes next in the file. It then takes the
    /// first one's place.
    fn merges(&mut self, token: u32, turn: Turn) -> bool {
        let Some(second) = self.order.second(turn) else { return false };
        let (Some(request), Some(piece)) = (self.active.get(second), self.pieces.get_mut(token)) else {
            return false;
        };
        let bytes = request.transfer_bytes;
        let next = piece.file_offset + piece.bytes as u64;
        let fits = piece.bytes + bytes <= MERGED_BYTES.min(self.setup.piece_bytes);
        let same = matches!(request.task, Task::Read | Task::Write) && !request.alone;
        if !fits || !same || request.file_offset != next {
            return false;
        }
        self.order.cut(turn);
        self.add_part(token, second, 0, bytes);
        self.setup.inbox.counters.merged.add(1);
        true
    }

    fn add_part(&mut self, token: u32, key: usize, start: usize, bytes: usize) {
        let (Some(request), Some(piece)) = (self.active.get_mut(key), self.pieces.get_mut(token)) else {
            return;
        };
        let part = Part { request: key, start, offset: start, bytes };
        piece.parts.push(part);
        piece.bytes += bytes;
        request.issued_bytes += bytes;
        request.in_flight += 1;
        match piece.action {
            Action::Read => self.order.read_issued(bytes, piece.urgent),
            Action::Write => {
                self.order.write_issued(bytes);
                if request.payload_in(start, bytes) > 0 && !request.alone {
                    request.unsummed += 1;
                    self.to_sum[1].push_back(part);
                }
            }
            Action::Sync | Action::Punch | Action::Sum => {}
        }
    }
}
