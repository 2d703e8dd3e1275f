//! The way back: completed pieces are resumed, retried or summed, and requests are answered.

use super::super::cipher::{Binding, Sealed};
use super::super::error::FailureCause;
use super::super::format::Record;
use super::super::recovery::Rejection;
use super::super::request::{Class, Request, Task, Urgency};
use super::super::ring::{Action, Completion};
use super::order::Turn;
use super::pieces::Part;
use super::{BATCH_FROM, Engine, Fill, SUM_BYTES};
use std::collections::VecDeque;

/// A piece is given up after this many retries without a byte moved.
const RETRIES: u32 = 1000;

impl Engine {
    pub(super) fn completed(&mut self, completion: Completion) {
        let Some(piece) = self.pieces.get_mut(completion.token) else { return };
        let (action, bytes, urgent) = (piece.action, piece.bytes, piece.urgent);
        if action == Action::Sum {
            return self.summed_on_device(completion.token);
        }
        let counters = &self.setup.inbox.counters;
        let moves = matches!(action, Action::Read | Action::Write);
        let failed = match usize::try_from(completion.result) {
            Ok(_) if !moves => return self.piece_ended(completion.token, None),
            Ok(moved) if moved >= bytes => {
                counters.moved(action, bytes);
                return self.piece_ended(completion.token, None);
            }
            // O_DIRECT continues at aligned offsets only: bytes past the last one are moved again.
            Ok(moved) if moved >= self.setup.alignment => {
                let moved = moved / self.setup.alignment * self.setup.alignment;
                counters.moved(action, moved);
                counters.resumed.add(1);
                piece.retries = 0;
                let mut through = core::mem::take(&mut self.through);
                piece.advance(moved, &mut through);
                self.order.ended(action, moved, urgent);
                through.drain(..).for_each(|part| self.part_ended(part, action, None));
                self.through = through;
                None
            }
            Ok(moved) if moved > 0 && piece.retries < RETRIES => {
                piece.retries += 1;
                counters.resumed.add(1);
                None
            }
            Ok(_) => {
                let done_bytes = piece.parts.first().map_or(0, |part| part.offset);
                Some(FailureCause::NoProgress { done_bytes })
            }
            Err(_) => match completion.result.wrapping_neg() {
                libc::EINTR | libc::EAGAIN if piece.retries < RETRIES => {
                    piece.retries += 1;
                    counters.retried.add(1);
                    None
                }
                // Punching is optional, and not supported everywhere. Without the hole nothing is wrong.
                libc::EOPNOTSUPP if action == Action::Punch => {
                    return self.piece_ended(completion.token, None);
                }
                number => Some(FailureCause::of_number(number)),
            },
        };
        match failed {
            Some(cause) => self.piece_ended(completion.token, Some(cause)),
            None => self.again.push_back(completion.token),
        }
    }

    /// Takes the result of a sum on a device. A failure is no fault of the volume's device.
    fn summed_on_device(&mut self, token: u32) {
        let sum = self.setup.ring.take_sum(token);
        let mut through = core::mem::take(&mut self.through);
        self.pieces.end(token, &mut through);
        for part in through.drain(..) {
            let Some(request) = self.active.get_mut(part.request) else { continue };
            request.in_flight -= 1;
            request.unsummed -= 1;
            match sum {
                Ok(sum) => request.summed_on_device(sum),
                Err(cause) => request.failure = Some(cause),
            }
            self.settle(part.request);
        }
        self.through = through;
    }

    /// Ends a piece, successful or not.
    pub(super) fn piece_ended(&mut self, token: u32, failure: Option<FailureCause>) {
        let Some(piece) = self.pieces.get_mut(token) else { return };
        let (action, bytes, urgent) = (piece.action, piece.bytes, piece.urgent);
        let merged = piece.parts.len() > 1;
        self.note_health(token, action, failure);
        self.order.ended(action, bytes, urgent);
        let mut through = core::mem::take(&mut self.through);
        self.pieces.end(token, &mut through);
        match failure.is_some() && merged && self.begins_nothing().is_none() {
            // One bad sector must not fail its neighbours: each request is issued again, alone.
            true => through.drain(..).rev().for_each(|part| self.again_alone(part)),
            false => through.drain(..).for_each(|part| self.part_ended(part, action, failure)),
        }
        self.through = through;
    }

    /// Cuts a request again that was wholly merged into a failed piece.
    fn again_alone(&mut self, part: Part) {
        let Some(request) = self.active.get_mut(part.request) else { return };
        request.alone = true;
        request.in_flight -= 1;
        request.issued_bytes = 0;
        if let Turn::Of(class) = turn_of(request) {
            self.order.again(class, part.request);
        }
    }

    /// Ends a stretch of a request. With the last stretch the request ends (I2).
    fn part_ended(&mut self, part: Part, action: Action, failure: Option<FailureCause>) {
        let Some(request) = self.active.get_mut(part.request) else { return };
        request.in_flight -= 1;
        if let Some(cause) = failure {
            request.failure.get_or_insert(cause);
            if request.issued_bytes < request.transfer_bytes {
                // The rest of a failed request is not worth moving.
                request.issued_bytes = request.transfer_bytes;
                let turn = turn_of(request);
                self.order.drop_uncut(turn, part.request);
            }
        } else if action == Action::Read && self.setup.verify {
            let whole = Part { offset: part.start, bytes: part.offset + part.bytes - part.start, ..part };
            if request.payload_in(whole.start, whole.bytes) > 0 {
                request.unsummed += 1;
                match request.urgency {
                    Urgency::Urgent => self.to_sum[0].push_front(whole),
                    Urgency::Ordinary => self.to_sum[0].push_back(whole),
                }
            }
        }
        let moved = request.in_flight == 0 && request.issued_bytes == request.transfer_bytes;
        if moved && let Turn::Of(class) = turn_of(request) {
            // The remaining work takes no room in the ring.
            self.order.left(class, self.now);
        }
        let sums = request.task == Task::Write || self.setup.verify;
        if moved && sums && request.device().is_some() && request.failure.is_none() {
            request.unsummed += 1;
            match request.urgency {
                Urgency::Urgent => self.device_sums.push_front(part.request),
                Urgency::Ordinary => self.device_sums.push_back(part.request),
            }
        }
        if moved && request.is_to_open() {
            // It takes its turn among the sums, after new pieces have been handed over.
            request.unsummed += 1;
            let whole = Part { start: 0, offset: 0, bytes: request.payload_bytes, ..part };
            match request.urgency {
                Urgency::Urgent => self.to_sum[0].push_front(whole),
                Urgency::Ordinary => self.to_sum[0].push_back(whole),
            }
        }
        self.settle(part.request);
    }

    /// Sums waiting stretches, reads before writes, up to the limit for one round.
    pub(super) fn sum_some(&mut self) {
        let mut summed = 0;
        while let Some(part) = self.to_sum.iter_mut().find_map(VecDeque::pop_front) {
            let Some(request) = self.active.get_mut(part.request) else { continue };
            request.unsummed -= 1;
            if request.failure.is_none() {
                // SAFETY: a read's piece has ended, and a write's bytes do not change (I3
                // of the request).
                unsafe { request.sum_up(part.start, part.bytes) };
            }
            self.settle(part.request);
            summed += part.bytes;
            let urgent = self.order.requests(Class::Urgent) > 0 || self.setup.inbox.waits(Class::Urgent);
            if summed >= SUM_BYTES || urgent {
                self.summed = true;
                return;
            }
        }
    }

    /// Ends a request that has no work left.
    pub(super) fn settle(&mut self, key: usize) {
        let Some(request) = self.active.get(key) else { return };
        if request.in_flight > 0 || request.unsummed > 0 || request.issued_bytes < request.transfer_bytes {
            return;
        }
        let mut request = self.active.remove(key);
        let mut frees = matches!(request.task, Task::Forget | Task::Fill);
        match request.task {
            Task::Read => self.read_through(&mut request),
            Task::Write => {
                // If it was on trial, its end lets the next write go, or all of them.
                frees |= self.health.write_ended();
                self.write_through(&request);
            }
            Task::Forget => {
                // Only once: another punch of the same slot may still be on its way.
                if let Some(at) = self.punching.iter().position(|slot| *slot == request.slot) {
                    self.punching.swap_remove(at);
                }
            }
            Task::Table { extent, number } => {
                if let Some(write_back) = &mut self.setup.write_back {
                    write_back.extent_ended(&mut self.setup.table, extent, number, request.failure, self.now);
                }
            }
            Task::Superblock => {
                if let Some(write_back) = &mut self.setup.write_back {
                    write_back.superblock_ended(request.failure);
                }
            }
            Task::Sync => {
                let flushes =
                    self.setup.write_back.as_mut().map(|write_back| write_back.sync_ended(request.failure));
                for flush in flushes.into_iter().flatten() {
                    flush.finish(&self.setup.inbox.path);
                }
            }
            Task::Fill => self.setup.fill.iter_mut().for_each(Fill::ended),
            Task::Probe(probe) => return self.probed(probe, request),
            Task::Flush | Task::Retire => {}
        }
        match request.failure {
            Some(cause) => self.count_failure(cause),
            None if matches!(request.task, Task::Read | Task::Write) => {
                self.health.moved(request.task == Task::Write);
            }
            None => {}
        }
        let urgent = request.urgency == Urgency::Urgent;
        let wake = request.finish(&self.setup.inbox.path);
        if let Some(wake) = wake.filter(|_| !urgent && self.pieces.len() >= BATCH_FROM) {
            if self.wakes.is_empty() {
                self.wakes_since = self.now;
            }
            wake.put_off(&mut self.wakes);
        }
        if frees {
            core::mem::take(&mut self.held).into_iter().for_each(|request| self.admit(request));
        }
    }

    /// I4, for reads.
    fn read_through(&mut self, request: &mut Request) {
        if request.failure.is_some() {
            return;
        }
        // Looked up again: a write or a forget in the meantime, though none should come, decides. Then
        // the bytes read are not the bytes written, and prove nothing about them.
        let cause = match self.look_up(request) {
            Err(cause) => Some(cause),
            Ok(record) if record.sequence != request.sequence => {
                Some(FailureCause::Rejected(Rejection::Empty))
            }
            Ok(record) => self.verify(request, &record).err().map(FailureCause::Rejected),
        };
        request.failure = cause;
        match cause {
            None => self.setup.inbox.counters.reads.add(1),
            Some(FailureCause::Rejected(Rejection::Payload)) => self.clear_record(request.slot),
            Some(_) => {}
        }
    }

    /// Compares a payload with its record's seal, or decrypts it.
    fn verify(&self, request: &mut Request, record: &Record) -> Result<(), Rejection> {
        let Some(cipher) = &self.setup.cipher else {
            return if self.setup.verify { request.verify(&record.seal) } else { Ok(()) };
        };
        let sealed = Sealed { sequence: record.sequence, tag: record.seal };
        let binding = Binding { slot: request.slot, label: record.label };
        let payload = request.payload_to_open();
        let opened = payload.is_some_and(|payload| cipher.open(&sealed, &binding, payload));
        if opened { Ok(()) } else { Err(Rejection::Payload) }
    }

    /// I4, for writes.
    fn write_through(&mut self, request: &Request) {
        if request.failure.is_some() {
            return;
        }
        self.setup.inbox.counters.writes.add(1);
        let record = Record {
            label: request.name.into(),
            sequence: request.sequence,
            seal: request.seal(),
            // The options keep slots below 4 GiB.
            payload_bytes: request.payload_bytes as u32,
        };
        self.setup.table.set(request.slot, &record);
        self.table_changed();
    }
}

/// The queue that a request of the engine is in.
pub(super) fn turn_of(request: &Request) -> Turn {
    match request.task {
        Task::Table { .. } | Task::Superblock | Task::Fill | Task::Sync | Task::Probe(_) => Turn::Own,
        Task::Read | Task::Write | Task::Flush | Task::Forget | Task::Retire => Turn::Of(request.class()),
    }
}
