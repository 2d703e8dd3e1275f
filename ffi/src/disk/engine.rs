//! The ring thread: takes requests in, moves their pieces through the ring, and hands outcomes out.
//!
//! ```text
//!   inbox ─pull─► requests ─cut, merge─► pieces ─push─► ring
//!                  ▲    ▲                                │ turn
//!                  │    └────── resume, retry ◄──────────┤
//!                  └─ finish ◄─ verify, record ◄─ sum ◄──┘
//! ```
//!
//! - A request is cut into pieces, so that a small one never waits behind one of 64 MiB. Small requests
//!   for adjacent slots are merged into one piece.
//! - A short transfer is resumed where it stopped; EINTR and EAGAIN are retried; other
//!   errors are reported.
//! - Payloads are summed here, piece by piece, while other pieces are on their way: reads when a piece
//!   has arrived, writes while it is in flight. New pieces are handed over before the next one is
//!   summed, so that the device never waits for a sum. (XXH3 makes 25 to 50 GB/s, a fast NVMe drive
//!   moves 7 to 14.)
//! - Payloads in device memory are summed there, by a piece that the ring gets when all of the payload
//!   has moved. Payloads that come with a sum are not summed again.
//! - Payloads of an encrypted volume come sealed. A read is decrypted here when it is complete, instead
//!   of being summed.
//! - A caller that waits for one of many requests is woken once for all that have ended: a thread that is
//!   woken for each block sleeps again before the next.
//! - A device that has no room, or keeps failing, is left alone and probed: see `health.rs`.
//!
//! Invariants
//! - I1: every piece with the ring belongs to requests in `active`, counted by their `in_flight`.
//! - I2: a request leaves `active` with its owner only when its `in_flight` is 0. Otherwise, when the
//!   ring is lost, it is abandoned: its buffer is kept for good.
//! - I3: at most `depth` pieces are with the ring.
//! - I4: a read succeeds only if the slot's record names the requested block, and its seal is the sum
//!   of the bytes that came, or decrypts them. A record is made only when all bytes of its payload
//!   have been written.
//! - I5: when the thread falls asleep or ends, no waiter with an outcome is left asleep.

mod ended;
mod fill;
mod health;
mod issue;
mod order;
mod pieces;
mod probe;
mod watch;
mod writeback;

pub(super) use fill::Fill;
pub(super) use health::Probe;
pub(super) use probe::Probes;
pub(super) use watch::Watch;
pub(super) use writeback::WriteBack;

use super::cipher::Cipher;
use super::error::FailureCause;
use super::format::{CHUNK_BYTES, Record};
use super::inbox::Inbox;
use super::pending::Wake;
use super::recovery::Rejection;
use super::request::{Class, Request, Task};
use super::ring::{Completion, Ring, Wait};
use super::stats::ServiceState;
use super::table::Table;
use health::Health;
use order::Order;
use pieces::{Part, Pieces};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// With this many pieces in flight or more, the thread sleeps until half of them have ended, or for this
/// long. New requests wait meanwhile, so the time is short while urgent reads come and go.
const BATCH_FROM: usize = 8;
const BATCH_PATIENCE: Duration = Duration::from_millis(4);
const URGENT_PATIENCE: Duration = Duration::from_micros(50);
/// Bytes summed at most between two looks at completions, while no urgent read waits. That takes less
/// time than the device needs for the pieces in flight.
const SUM_BYTES: usize = 16 << 20;
/// With [`BATCH_FROM`] pieces in flight, callers are woken together: after this long, or before the ring
/// thread sleeps. So a caller that keeps a queue full sleeps once for many blocks. Callers of urgent
/// reads are woken at once.
const WAKE_PATIENCE: Duration = Duration::from_millis(1);

/// The ingredients of an engine.
pub(super) struct Setup {
    pub(super) ring: Box<dyn Ring>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) table: Table,
    /// Set in an encrypted volume.
    pub(super) cipher: Option<Arc<Cipher>>,
    /// None: the file does not outlive the volume.
    pub(super) write_back: Option<WriteBack>,
    /// Some: the parts of the file that were never written are written in the background.
    pub(super) fill: Option<Fill>,
    /// Probes of the device's health.
    pub(super) probes: Probes,
    /// None: the file has no name.
    pub(super) watch: Option<Watch>,
    /// Shared by the volumes of a set, so that their records are in order.
    pub(super) sequence: Arc<AtomicU64>,
    /// A multiple of `alignment` and of 64 KiB.
    pub(super) piece_bytes: usize,
    /// Short transfers are resumed at multiples of this: the device's alignment under O_DIRECT, else 1.
    pub(super) alignment: usize,
    pub(super) verify: bool,
    pub(super) trim: bool,
}

pub(super) struct Engine {
    setup: Setup,
    active: Slab<Request>,
    order: Order,
    pieces: Pieces,
    /// Pieces to be given to the ring again, before any new one.
    again: VecDeque<u32>,
    /// Stretches to be summed: of reads (their callers wait for the sum), and of writes.
    to_sum: [VecDeque<Part>; 2],
    /// Requests with payloads in device memory that have yet to be summed there.
    device_sums: VecDeque<usize>,
    /// Slots that are being punched.
    punching: Vec<u32>,
    /// Writes that wait for a punch or a fill of their slot, or for the write on trial.
    held: Vec<Request>,
    /// Whether the device answers, and takes writes.
    health: Health,
    /// Retired: requests in flight are awaited, and nothing else is done.
    out_of_service: bool,
    now: Duration,
    /// As much was summed as is allowed without a look at completions.
    summed: bool,
    /// Callers with outcomes, to be woken together; and since when the first of them waits for that.
    wakes: Vec<Wake>,
    wakes_since: Duration,
    done: Vec<Completion>,
    through: Vec<Part>,
}

/// The result of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    More,
    /// Everything is answered, and nothing more will come.
    Over,
    /// The ring is lost, or the volume is retired and every request answered. The table's end
    /// is not written.
    Lost,
}

impl Engine {
    pub(super) fn new(mut setup: Setup) -> Engine {
        debug_assert!(setup.piece_bytes > 0 && setup.piece_bytes.is_multiple_of(setup.alignment));
        debug_assert!(setup.piece_bytes.is_multiple_of(CHUNK_BYTES));
        let depth = setup.ring.depth();
        if setup.table.dirty_pages() > 0
            && let Some(write_back) = &mut setup.write_back
        {
            // The records that opening dropped.
            write_back.changed(setup.ring.now());
        }
        Engine {
            setup,
            active: Slab::with_capacity(2 * depth),
            order: Order::default(),
            pieces: Pieces::new(depth),
            again: VecDeque::with_capacity(depth),
            to_sum: [VecDeque::new(), VecDeque::new()],
            device_sums: VecDeque::new(),
            punching: Vec::new(),
            held: Vec::new(),
            health: Health::new(),
            out_of_service: false,
            now: Duration::ZERO,
            summed: false,
            wakes: Vec::with_capacity(depth),
            wakes_since: Duration::ZERO,
            done: Vec::with_capacity(depth + 1),
            through: Vec::new(),
        }
    }

    /// Serves until the volume closes and every request is answered, or the ring is lost. In the second
    /// case drop abandons the requests in flight and fails the queued ones.
    pub(super) fn run(&mut self) -> Round {
        loop {
            match self.round() {
                Round::More => {}
                end => {
                    self.wakes.clear();
                    return end;
                }
            }
        }
    }

    /// Takes requests, issues pieces, waits if there is nothing else to do, and answers.
    pub(super) fn round(&mut self) -> Round {
        self.now = self.setup.ring.now();
        if !self.out_of_service {
            self.pull();
        }
        // If it retired just now, it has let go of the requests that were queued here.
        if !self.out_of_service {
            self.probe();
            self.look_at_name();
        }
        if !self.out_of_service && !self.health.is_away() {
            self.write_back();
            self.fill();
        }
        let idle = self.active.is_empty() && self.held.is_empty();
        while let Some(cause) = self.begins_nothing()
            && let Some(token) = self.again.pop_front()
        {
            self.piece_ended(token, Some(cause));
        }
        self.issue();
        if self.out_of_service && self.pieces.len() == 0 && self.nothing_to_sum() {
            return Round::Lost;
        }
        let closing = idle && self.setup.inbox.closing() && self.setup.inbox.is_empty();
        if closing && self.health.is_away() {
            // Neither the table nor the mark of a clean end can be written.
            return Round::Lost;
        }
        if closing {
            match &mut self.setup.write_back {
                Some(write_back) if !write_back.is_over() => {
                    write_back.end();
                    return Round::More;
                }
                _ => return Round::Over,
            }
        }
        let wait = self.wait();
        let sleeps = !matches!(wait, Wait::No | Wait::Look);
        if sleeps || self.now.saturating_sub(self.wakes_since) >= WAKE_PATIENCE {
            self.wakes.clear();
        }
        if sleeps {
            let takes = Class::ALL.map(|class| self.takes(class));
            // Requests that cannot be taken need no bell: they are looked at when a completion
            // has made room.
            if !self.setup.inbox.doze(takes, idle) {
                return Round::More;
            }
        }
        let mut done = core::mem::take(&mut self.done);
        let turned = self.setup.ring.turn(&mut done, wait);
        if sleeps {
            self.setup.inbox.woke();
        }
        self.summed = false;
        self.now = self.setup.ring.now();
        let nothing_came = done.is_empty();
        for completion in done.drain(..) {
            self.completed(completion);
        }
        self.done = done;
        match turned {
            Ok(calls) => self.setup.inbox.counters.turns.add(u64::from(calls)),
            Err(_) => return Round::Lost,
        }
        // Completions make room for new pieces: issue these first.
        if nothing_came || self.to_sum.iter().map(VecDeque::len).sum::<usize>() > self.setup.ring.depth() {
            self.sum_some();
        }
        Round::More
    }

    fn wait(&self) -> Wait {
        let in_flight = self.pieces.len();
        if !self.nothing_to_sum() {
            match self.summed {
                true => Wait::Look,
                false => Wait::No,
            }
        } else if in_flight >= BATCH_FROM && self.order.requests(Class::Urgent) == 0 {
            let urgent = self.order.is_urgent(self.now);
            let patience = if urgent { URGENT_PATIENCE } else { BATCH_PATIENCE };
            Wait::Batch { pieces: in_flight / 2, patience }
        } else {
            match self.due_in() {
                Some(time) => Wait::For(time),
                None => Wait::Forever,
            }
        }
    }

    fn nothing_to_sum(&self) -> bool {
        self.to_sum.iter().all(VecDeque::is_empty)
    }

    /// Whether one more request of this class is taken: up to as many as could fill the ring, including
    /// those that wait for the volume's own work.
    fn takes(&self, class: Class) -> bool {
        let flushes = self.setup.write_back.as_ref().map_or(0, WriteBack::flushes);
        let waiting = if class == Class::Write { self.held.len() + flushes } else { 0 };
        !self.out_of_service && self.order.requests(class) + waiting < self.setup.ring.depth()
    }

    fn pull(&mut self) {
        let mut pulled = false;
        for class in Class::ALL {
            while self.takes(class) {
                let Some(request) = self.setup.inbox.pop(class) else { break };
                self.admit(request);
                pulled = true;
            }
        }
        if pulled {
            self.setup.inbox.made_room();
        }
    }

    fn admit(&mut self, mut request: Request) {
        match request.task {
            Task::Read => {
                match self.look_up(&request) {
                    Ok(record) => request.sequence = record.sequence,
                    Err(cause) => return self.refuse(request, cause),
                }
                if self.health.is_away() {
                    return self.refuse(request, FailureCause::Away);
                }
                if self.setup.cipher.is_some() {
                    request.set_to_open();
                }
            }
            Task::Write if let Some(cause) = self.health.refuses_writes() => {
                // The slot's former block is gone all the same: its owner has given it up.
                self.clear_record(request.slot);
                return self.refuse(request, cause);
            }
            Task::Write if self.is_busy(request.slot) => return self.held.push(request),
            Task::Write if !self.health.lets_write() => return self.held.push(request),
            Task::Write => {
                self.setup.fill.iter_mut().for_each(|fill| fill.writes(request.slot));
                // A sealed payload has its number already.
                if request.sequence == 0 {
                    // Relaxed: it matters only that numbers differ, and grow along a chain of requests
                    // that wait for each other.
                    request.sequence = self.setup.sequence.fetch_add(1, Ordering::Relaxed);
                }
                // The slot's former block is about to be overwritten.
                self.clear_record(request.slot);
            }
            Task::Forget => {
                self.clear_record(request.slot);
                // A device that is away needs no hole: the slot is written again before it is read.
                if !self.setup.trim || self.health.is_away() {
                    request.finish(&self.setup.inbox.path);
                    return;
                }
                self.punching.push(request.slot);
            }
            Task::Flush if self.health.is_away() => return self.refuse(request, FailureCause::Away),
            Task::Flush => match &mut self.setup.write_back {
                Some(write_back) => return write_back.flush(request),
                None => {
                    request.finish(&self.setup.inbox.path);
                    return;
                }
            },
            Task::Retire => {
                return self.leave();
            }
            Task::Table { .. } | Task::Superblock | Task::Fill | Task::Sync | Task::Probe(_) => {}
        }
        let class = request.class();
        let key = self.active.insert(request);
        self.order.add(class, key);
    }

    /// Goes out of service and takes no more requests. Requests with nothing in flight are answered at
    /// once, not only when the last piece has come back.
    fn leave(&mut self) {
        self.out_of_service = true;
        self.setup.inbox.counters.service.set(ServiceState::Retired as u64);
        self.setup.inbox.leave();
        let waits = |(_, request): &(usize, &Request)| request.in_flight == 0 && request.unsummed == 0;
        let keys: Vec<usize> = self.active.iter().filter(waits).map(|(key, _)| key).collect();
        let waiting = keys.into_iter().map(|key| self.active.remove(key));
        for mut request in waiting.chain(self.held.drain(..)) {
            self.setup.inbox.counters.failures.add(1);
            request.failure.get_or_insert(FailureCause::OutOfService);
            request.finish(&self.setup.inbox.path);
        }
    }

    /// Whether the volume's own work on the slot is in flight: a write would race with it.
    fn is_busy(&self, slot: u32) -> bool {
        self.punching.contains(&slot) || self.setup.fill.as_ref().is_some_and(|fill| fill.covers(slot))
    }

    /// Finds the slot's record, if it is of the block that the read names, and the buffer is as long. Another
    /// length is the caller's mistake: it says nothing about the block.
    fn look_up(&self, request: &Request) -> Result<Record, FailureCause> {
        let record = self.setup.table.get(request.slot).ok_or(FailureCause::Rejected(Rejection::Empty))?;
        let (payload_bytes, buffer_bytes) = (record.payload_bytes as usize, request.payload_bytes);
        if record.label.hash != request.name.hash {
            Err(FailureCause::Rejected(Rejection::OtherHash))
        } else if payload_bytes != buffer_bytes {
            Err(FailureCause::PayloadLength { buffer_bytes, payload_bytes })
        } else {
            Ok(record)
        }
    }

    fn refuse(&mut self, mut request: Request, cause: FailureCause) {
        request.failure = Some(cause);
        self.count_failure(cause);
        request.finish(&self.setup.inbox.path);
    }

    fn count_failure(&self, cause: FailureCause) {
        let counters = &self.setup.inbox.counters;
        match cause {
            FailureCause::Rejected(_) => counters.rejected.add(1),
            _ => {
                counters.failures.add(1);
                counters.failed_by(cause);
            }
        }
    }

    fn clear_record(&mut self, slot: u32) {
        if self.setup.table.holds(slot) {
            self.setup.table.clear(slot);
            self.table_changed();
        }
    }

    /// Only in rounds that happen anyway: an idle volume need not wake for this.
    fn look_at_name(&mut self) {
        if let Some(watch) = &mut self.setup.watch
            && let Some(removed) = watch.look(self.now)
        {
            self.setup.inbox.counters.removed.set(u64::from(removed));
        }
    }

    pub(super) fn table_changed(&mut self) {
        if let Some(write_back) = &mut self.setup.write_back {
            write_back.changed(self.now);
        }
    }

    fn write_back(&mut self) {
        while let Some(write_back) = &mut self.setup.write_back
            && let Some(request) = write_back.next(&mut self.setup.table, self.now)
        {
            let key = self.active.insert(request);
            self.order.add_own(key);
        }
    }

    /// Continues writing the file through, if there is nothing else to do.
    fn fill(&mut self) {
        // A stretch that finds no room is not tried again.
        if self.active.is_empty()
            && self.health.refuses_writes().is_none()
            && !self.setup.inbox.closing()
            && let Some(fill) = &mut self.setup.fill
        {
            let request = fill.next();
            self.setup.inbox.counters.unfilled.set(fill.left_bytes());
            match request {
                Some(request) => {
                    let key = self.active.insert(request);
                    self.order.add_own(key);
                }
                None => self.setup.fill = None,
            }
        }
    }
}

impl Drop for Engine {
    /// After an orderly end there is nothing left to do. After a lost ring or a panic, no caller may
    /// hang, and no memory that the kernel may still write may be given back (I2).
    fn drop(&mut self) {
        let inbox = Arc::clone(&self.setup.inbox);
        inbox.counters.service.set(ServiceState::Retired as u64);
        inbox.leave();
        let waiting = self.setup.write_back.as_mut().map(WriteBack::give_up).into_iter().flatten();
        for mut request in self.active.drain().chain(waiting).chain(self.held.drain(..)) {
            inbox.counters.failures.add(1);
            match request.in_flight {
                0 => {
                    request.failure.get_or_insert(FailureCause::OutOfService);
                    request.finish(&inbox.path);
                }
                _ => request.abandon(&inbox.path),
            }
        }
    }
}
