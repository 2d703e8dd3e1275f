//! Carries out a plan, round by round, and checks the results against the oracle.

use super::super::bounce::NoCopy;
use super::super::engine::Round;
use super::super::error::{FailureCause, IoFailure};
use super::super::pending::{Cell, Pending};
use super::super::request::{Request, Urgency};
use super::super::ring::sim::World;
use super::super::stats::ServiceState;
use super::attempt::{self, Attempt, Known};
use super::life::{Life, Opened};
use super::oracle::{BlockNumber, Slot, State, Ticket, fill, name_of};
use super::plan::{Operation, Plan};
use super::random::Random;
use super::sealing::Sealing;
use crate::arena::{BlockRead, BlockWrite};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// Rounds within which everything must be answered. The longest runs need a tenth.
const ROUNDS: u64 = 200_000;

/// A simulated volume and the known facts about it.
pub(in crate::disk) struct Harness {
    pub(super) plan: Plan,
    pub(super) path: Arc<Path>,
    pub(super) random: Random,
    pub(super) world: Rc<RefCell<World>>,
    pub(super) life: Life,
    pub(super) slots: Vec<Slot>,
    pub(super) under_way: Vec<UnderWay>,
    pub(super) known: Known,
    /// The volume was taken out of service.
    pub(super) retired: bool,
    pub(super) sealing: Sealing,
    /// Entries of the world's log that the oracle has read.
    seen: usize,
    /// For each slot: the number of log entries up to the last failure there.
    failed_at: Vec<usize>,
    pub(super) counts: Counts,
}

/// Requests of callers in this life, and their outcomes.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) asked: u64,
    pub(super) dropped: u64,
    pub(super) read: u64,
    pub(super) written: u64,
    pub(super) rejected: u64,
}

/// A request that has not ended for the oracle yet.
#[derive(Debug)]
pub(super) struct UnderWay {
    slot: u32,
    block: BlockNumber,
    ticket: Option<Ticket>,
    /// For a flush: the slots that it covers, and their moments.
    covers: Vec<(u32, u64)>,
    buffer: usize,
    /// Numbers of log entries and of lies when the request was made.
    since: usize,
    lies: u64,
    waiting: Waiting,
}

#[derive(Debug)]
pub(super) enum Waiting {
    Read(Pending<BlockWrite>),
    Write(Pending<BlockRead>),
    Flush(Pending<()>),
    /// No caller waits; the buffer shows when the request has ended.
    NobodyReads,
    NobodyWrites,
}

impl Harness {
    /// Makes the volume, in a folder of its own.
    pub(in crate::disk) fn new(plan: Plan, folder: &Path, mut random: Random) -> Result<Harness, String> {
        let path: Arc<Path> = Arc::from(folder.join("volume"));
        let (disk, attempt) = attempt::create(&path, &plan, &mut random)?;
        let Attempt { opened, .. } = attempt;
        let world = Rc::new(RefCell::new(World::new(disk, Random::new(random.next()))));
        world.borrow_mut().faults = plan.faults;
        let slots = vec![Slot::found(State::Empty, false); plan.slots as usize];
        let failed_at = vec![0; plan.slots as usize];
        let superblock = opened.file.superblock;
        let life = Life::start(opened, &plan, Arc::clone(&path), &world)?;
        let mut harness = Harness {
            plan,
            path,
            random,
            world,
            life,
            slots,
            under_way: Vec::new(),
            known: Known::default(),
            retired: false,
            sealing: Sealing::default(),
            seen: 0,
            failed_at,
            counts: Counts::default(),
        };
        harness.knows(&superblock);
        if harness.plan.fill {
            // While no request is under way: the first stretch is on its way when one arrives.
            harness.operate(Operation::Rounds(1))?;
        }
        Ok(harness)
    }

    /// Begins another life with the results of an opening.
    pub(super) fn live(&mut self, opened: Opened, slots: Vec<Slot>) -> Result<(), String> {
        self.knows(&opened.file.superblock);
        self.life = Life::start(opened, &self.plan, Arc::clone(&self.path), &self.world)?;
        self.retired = false;
        self.sealing.lives();
        (self.slots, self.seen, self.counts) = (slots, 0, Counts::default());
        self.failed_at.fill(0);
        Ok(())
    }

    pub(in crate::disk) fn operate(&mut self, operation: Operation) -> Result<(), String> {
        match operation {
            Operation::Write { slot, block } => self.write(slot, block)?,
            Operation::Read { slot, other, urgent } => {
                let held = match self.slots[slot as usize].state {
                    State::Holds(block) => block,
                    _ => self.random.below(self.plan.blocks),
                };
                self.read(slot, other.unwrap_or(held), urgent);
            }
            Operation::Forget { slot } => {
                let request = Request::forget(self.life.place(slot, self.plan.slot_bytes));
                if self.life.inbox.try_push(request).is_ok() {
                    self.slots[slot as usize].forget();
                }
            }
            Operation::Flush => self.flush(),
            Operation::DropPending => self.drop_pending(),
            Operation::Poll => self.poll()?,
            Operation::Rounds(rounds) => {
                for _ in 0..rounds {
                    if self.life.round() != Round::More {
                        return self.lost();
                    }
                }
            }
            Operation::Settle => self.settle()?,
            Operation::Crash { cut_power } => self.crash(cut_power)?,
            Operation::CleanShutdown { cut_power } => self.shut_down(cut_power)?,
            Operation::Retire { cut_power } => self.retire(cut_power)?,
            Operation::Damage => self.damage(),
        }
        Ok(())
    }

    /// Whether a caller waits for an answer.
    pub(super) fn waits(&self) -> bool {
        let nobody = |one: &UnderWay| matches!(one.waiting, Waiting::NobodyReads | Waiting::NobodyWrites);
        !self.under_way.iter().all(nobody)
    }

    pub(super) fn write(&mut self, slot: u32, block: BlockNumber) -> Result<(), String> {
        let Some((buffer, bytes)) = self.free_buffer() else { return Ok(()) };
        let mut bytes = bytes.first(self.plan.bytes_of(block));
        fill(block, &mut bytes);
        let place = self.life.place(slot, bytes.len());
        let (bytes, name) = (bytes.into_read(), name_of(block));
        let copy = match self.life.seal(slot, name, &bytes) {
            Err(NoCopy::Full) => return Ok(()),
            Err(NoCopy::Failed(cause)) => return Err(format!("sealing: {cause}")),
            Ok(copy) => copy,
        };
        let cell = Cell::new();
        let request = match copy {
            None => Request::write(bytes.into(), name, Arc::clone(&cell), place),
            Some(mut copy) => {
                self.sealing.check(&bytes, copy.bytes())?;
                let number = self.life.copy_at(copy.io_pointer().as_ptr().addr());
                self.sealing.copied.insert(number.ok_or("a copy lies in no block")?, buffer);
                Request::write_sealed(bytes, copy, name, Arc::clone(&cell), place)
            }
        };
        if self.life.inbox.try_push(request).is_ok() {
            let ticket = self.slots[slot as usize].write();
            self.begin(slot, block, Some(ticket), buffer, Waiting::Write(Pending::new(cell)));
        }
        Ok(())
    }

    pub(super) fn read(&mut self, slot: u32, block: BlockNumber, urgent: bool) {
        let Some((buffer, bytes)) = self.free_buffer() else { return };
        let cell = Cell::new();
        let urgency = if urgent { Urgency::Urgent } else { Urgency::Ordinary };
        let bytes = bytes.first(self.plan.bytes_of(block));
        let place = self.life.place(slot, bytes.len());
        let request = Request::read(bytes, name_of(block).hash, urgency, Arc::clone(&cell), place);
        if self.life.inbox.try_push(request).is_ok() {
            let ticket = self.slots[slot as usize].read();
            self.begin(slot, block, Some(ticket), buffer, Waiting::Read(Pending::new(cell)));
        }
    }

    /// A buffer that no request has, and its number. A buffer of a request without a caller may be free,
    /// but is needed to show the request's end.
    pub(super) fn free_buffer(&self) -> Option<(usize, BlockWrite)> {
        let arena = &self.life.arena;
        let mut unused =
            (0..arena.blocks()).filter(|block| self.under_way.iter().all(|one| one.buffer != *block));
        unused.find_map(|block| Some((block, arena.write(block).ok()?)))
    }

    /// The buffer that an address lies in, or from which the copy at that address was made.
    pub(super) fn buffer_of(&self, address: usize) -> Option<usize> {
        let copy = self.life.copy_at(address).and_then(|number| self.sealing.copied.get(&number).copied());
        copy.or_else(|| self.life.buffer_at(address))
    }

    pub(super) fn flush(&mut self) {
        let cell = Cell::new();
        if self.life.inbox.try_push(Request::flush(Arc::clone(&cell))).is_ok() {
            self.begin(0, 0, None, usize::MAX, Waiting::Flush(Pending::new(cell)));
        }
    }

    pub(super) fn begin(
        &mut self,
        slot: u32,
        block: BlockNumber,
        ticket: Option<Ticket>,
        buffer: usize,
        waiting: Waiting,
    ) {
        let covers = match waiting {
            Waiting::Flush(_) => (0..)
                .zip(&self.slots)
                .filter(|(_, slot)| slot.flushable())
                .map(|(n, slot)| (n, slot.moment()))
                .collect(),
            _ => Vec::new(),
        };
        self.counts.asked += u64::from(ticket.is_some());
        let world = self.world.borrow();
        let (since, lies) = (world.log.len(), world.lies);
        self.under_way.push(UnderWay { slot, block, ticket, covers, buffer, since, lies, waiting });
    }

    fn drop_pending(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        let n = self.random.below(self.under_way.len() as u64) as usize;
        let one = &mut self.under_way[n];
        one.waiting = match one.waiting {
            Waiting::Read(_) | Waiting::NobodyReads => Waiting::NobodyReads,
            Waiting::Write(_) | Waiting::NobodyWrites => Waiting::NobodyWrites,
            Waiting::Flush(_) => {
                self.under_way.swap_remove(n);
                return;
            }
        };
        self.counts.dropped += 1;
    }

    /// Takes the outcomes of ended requests.
    pub(super) fn poll(&mut self) -> Result<(), String> {
        self.read_log();
        for one in core::mem::take(&mut self.under_way) {
            self.ask(one)?;
        }
        Ok(())
    }

    fn ask(&mut self, mut one: UnderWay) -> Result<(), String> {
        let ended = match one.waiting {
            Waiting::Read(pending) => match pending.try_wait() {
                Ok(outcome) => return self.read_ended(one.slot, one.block, one.ticket, one.since, outcome),
                Err(pending) => Err(Waiting::Read(pending)),
            },
            Waiting::Write(pending) => match pending.try_wait() {
                Ok(outcome) => return self.write_ended(one.slot, one.block, one.ticket, one.since, outcome),
                Err(pending) => Err(Waiting::Write(pending)),
            },
            Waiting::Flush(pending) => match pending.try_wait() {
                Ok(outcome) => return self.flushed(&one.covers, one.lies, outcome),
                Err(pending) => Err(Waiting::Flush(pending)),
            },
            nobody => match self.life.arena.write(one.buffer) {
                Ok(_) => Ok(matches!(nobody, Waiting::NobodyWrites)),
                Err(_) => Err(nobody),
            },
        };
        match (ended, one.ticket) {
            (Ok(write), Some(ticket)) => {
                let slot = &mut self.slots[one.slot as usize];
                if write { slot.write_ended(ticket, one.block, None) } else { slot.read_dropped() }
            }
            (Ok(_), None) => {}
            (Err(waiting), _) => {
                one.waiting = waiting;
                self.under_way.push(one);
            }
        }
        Ok(())
    }

    /// Reads new incidents: silent ones make slots doubtful, loud ones excuse failures.
    fn read_log(&mut self) {
        let world = self.world.borrow();
        let shape = &self.life.superblock.shape;
        for (n, incident) in (self.seen + 1..).zip(&world.log[self.seen..]) {
            let first = incident.range.start.saturating_sub(shape.origin) / shape.stride;
            let end = incident.range.end.saturating_sub(shape.origin).div_ceil(shape.stride);
            for slot in first..end.min(u64::from(shape.slots)) {
                if incident.loud {
                    self.failed_at[slot as usize] = n;
                } else {
                    self.slots[slot as usize].doubt = true;
                }
            }
        }
        self.seen = world.log.len();
    }

    /// Whether a failed request for a slot had a reason to fail.
    fn excused(&self, slot: u32, since: usize, failure: &IoFailure) -> bool {
        let world = self.world.borrow();
        match failure.cause {
            FailureCause::OutOfService => self.retired || world.broken,
            // Gone; or four failures in a row, and a superblock that cannot be read.
            FailureCause::Away => world.was_gone || world.failures > 4,
            FailureCause::WritesPaused => world.was_full,
            FailureCause::Os { .. } | FailureCause::NoProgress { .. } => {
                self.failed_at[slot as usize] > since
            }
            _ => false,
        }
    }

    fn read_ended(
        &mut self,
        slot: u32,
        block: BlockNumber,
        ticket: Option<Ticket>,
        since: usize,
        outcome: Result<BlockWrite, IoFailure>,
    ) -> Result<(), String> {
        let excused = outcome.as_ref().is_err_and(|failure| self.excused(slot, since, failure));
        match &outcome {
            Ok(_) => self.counts.read += 1,
            Err(IoFailure { cause: FailureCause::Rejected(_), .. }) => self.counts.rejected += 1,
            Err(_) => {}
        }
        let Some(ticket) = ticket else { return Ok(()) };
        let heard = outcome.as_deref();
        self.slots[slot as usize]
            .read_ended(ticket, block, heard, excused)
            .map_err(|wrong| format!("read of slot {slot}: {wrong}"))
    }

    fn write_ended(
        &mut self,
        slot: u32,
        block: BlockNumber,
        ticket: Option<Ticket>,
        since: usize,
        outcome: Result<BlockRead, IoFailure>,
    ) -> Result<(), String> {
        let Some(ticket) = ticket else { return Ok(()) };
        let well = match &outcome {
            Ok(_) => Some(true),
            Err(failure) if !self.excused(slot, since, failure) => {
                return Err(format!("write of slot {slot}: {failure}, but nothing failed"));
            }
            // It may never have begun.
            Err(IoFailure { cause: FailureCause::OutOfService, .. }) => None,
            Err(_) => Some(false),
        };
        self.counts.written += u64::from(well == Some(true));
        self.slots[slot as usize].write_ended(ticket, block, well);
        Ok(())
    }

    fn flushed(
        &mut self,
        covers: &[(u32, u64)],
        lies: u64,
        outcome: Result<(), IoFailure>,
    ) -> Result<(), String> {
        let world = self.world.borrow();
        match outcome {
            Ok(()) => {
                for (slot, moment) in covers {
                    self.slots[*slot as usize].flushed(*moment, lies == world.lies);
                }
                Ok(())
            }
            Err(_) if self.retired || world.failures > 0 || world.was_gone || world.broken => Ok(()),
            Err(failure) => Err(format!("flush: {failure}, but nothing failed")),
        }
    }

    /// Runs until every request is answered and the table written. If the device fails meanwhile, another
    /// life begins.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS {
            // A round may end before the ring's turn.
            self.world.borrow_mut().asleep = false;
            if self.life.round() != Round::More {
                return self.lost();
            }
            let asleep = self.world.borrow().asleep;
            if asleep || self.random.once_in(64) {
                self.poll()?;
            }
            // No requests are under way, and the device will be probed again later: the known state
            // does not change.
            let waits = self.life.state() != ServiceState::Serving
                && self.life.inbox.is_empty()
                && self.world.borrow().in_flight() == 0;
            if waits {
                self.poll()?;
                if self.under_way.is_empty() {
                    return Ok(());
                }
            }
            if asleep {
                if !self.under_way.is_empty() || !self.life.inbox.is_empty() {
                    let (waiting, queue) = (&self.under_way, &self.life.inbox);
                    return Err(format!(
                        "the ring thread sleeps for ever with requests in flight: {waiting:?}, {queue:?}"
                    ));
                }
                self.slots.iter_mut().for_each(Slot::settled);
                return Ok(());
            }
        }
        let (n, flying) = (self.under_way.len(), self.world.borrow().in_flight());
        Err(format!("after {ROUNDS} rounds, requests in flight: {n}, pieces: {flying}"))
    }

    /// Checks that the volume had a reason to go out of service, and opens it again.
    pub(super) fn lost(&mut self) -> Result<(), String> {
        let world = self.world.borrow();
        if !(world.broken || world.was_gone || world.failures > 4) {
            return Err(format!("the engine ended after too few failures: {}", world.failures));
        }
        drop(world);
        self.crash(false)
    }

    fn damage(&mut self) {
        let shape = self.life.superblock.shape;
        let world = &mut *self.world.borrow_mut();
        let end = shape.superblock_b();
        let slot = shape.offset(self.random.below(u64::from(shape.slots)) as u32);
        let (at, most) = match self.random.below(8) {
            0 => (self.random.pick(&[0, end]), super::SUPERBLOCK as u64),
            1..4 => (shape.table_offset, shape.table_bytes()),
            _ => (slot, shape.stride),
        };
        let at = at + self.random.below(most);
        let bytes = self.random.pick(&[1, 1, 64, 700]).min(end + super::SUPERBLOCK as u64 - at);
        let noise = &mut self.random;
        let change = |there: &mut [u8]| there.iter_mut().for_each(|byte| *byte ^= 1 << noise.below(8));
        world.disk.damage(at, change, bytes as usize);
        world.damaged(at..at + bytes);
    }
}
