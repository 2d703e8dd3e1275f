//! Probes of the device's health, and their consequences.
//!
//! Invariants
//! - I1: a probe writes the bytes that are there already, and only before the table's end has begun.
//!   Whatever becomes of it, the copy at the file's start stays intact.

use super::super::error::FailureCause;
use super::super::format::{SUPERBLOCK_BYTES, Superblock};
use super::super::request::{Request, Task};
use super::super::ring::Action;
use super::super::table::Extent;
use super::Engine;
use super::WriteBack;
use super::ended::turn_of;
use super::health::{Probe, Probed};
use super::order::Turn;
use crate::arena::{ArenaError, HostArena};
use std::sync::Arc;
use std::time::Duration;

/// Blocks of the probes' memory.
const WRITTEN: usize = 0;
const READ: usize = 1;

/// Memory of the probes: the superblock as it was written at the opening, and room to read it back.
#[derive(Debug)]
pub(in crate::disk) struct Probes {
    memory: Arc<HostArena>,
    last: u64,
}

impl Probes {
    pub(in crate::disk) fn new(superblock: &Superblock) -> Result<Probes, ArenaError> {
        let memory = HostArena::new(2, SUPERBLOCK_BYTES)?;
        if let Ok(mut bytes) = memory.write(WRITTEN) {
            bytes.copy_from_slice(&superblock.to_bytes());
        }
        Ok(Probes { memory, last: superblock.shape.file_bytes - SUPERBLOCK_BYTES as u64 })
    }

    /// None if the memory of the previous probe is still in use, which does not happen with one in
    /// flight at a time.
    fn request(&self, probe: Probe) -> Option<Request> {
        let task = Task::Probe(probe);
        let read = |at| {
            let room = self.memory.write(READ).ok()?;
            Some(Request::own_read(room, task, at, SUPERBLOCK_BYTES))
        };
        match probe {
            Probe::First => read(0),
            Probe::Last => read(self.last),
            Probe::Sync => {
                let mut sync = Request::sync();
                sync.task = task;
                Some(sync)
            }
            Probe::Write => {
                let bytes = self.memory.read(WRITTEN).ok()?;
                Some(Request::own(bytes, task, self.last, SUPERBLOCK_BYTES))
            }
        }
    }

    fn is_ours(&self, read: Option<&[u8]>) -> bool {
        let written = self.memory.read(WRITTEN).ok();
        written.zip(read).is_some_and(|(written, read)| *written == *read)
    }
}

impl Engine {
    /// Time until the engine has work of its own: write-back, or a probe. Out of service it has none.
    /// While the device is away no table is written, and a due write-back would never end.
    pub(super) fn due_in(&self) -> Option<Duration> {
        if self.out_of_service {
            return None;
        }
        let write_back = self.setup.write_back.as_ref().filter(|_| !self.health.is_away());
        let table = write_back.and_then(|write_back| write_back.due_in(self.now));
        let probe = self.health.due().filter(|_| !self.setup.inbox.closing());
        let probe = probe.map(|due| due.saturating_sub(self.now));
        table.into_iter().chain(probe).min()
    }

    /// Why no transfer may begin, if that is so.
    pub(super) fn begins_nothing(&self) -> Option<FailureCause> {
        match self.out_of_service {
            true => Some(FailureCause::OutOfService),
            false => self.health.is_away().then_some(FailureCause::Away),
        }
    }

    /// Probes the device, if a probe is due.
    pub(super) fn probe(&mut self) {
        if self.setup.inbox.closing() {
            return;
        }
        if let Some(probe) = self.health.probe(self.now) {
            self.begin_probe(probe);
        }
    }

    fn begin_probe(&mut self, probe: Probe) {
        match self.setup.probes.request(probe) {
            Some(request) => {
                self.setup.inbox.counters.probes.add(1);
                let key = self.active.insert(request);
                self.order.add_own(key);
            }
            None => self.probe_ended(probe, Probed::Failed(FailureCause::Os { errno: libc::ENOMEM })),
        }
    }

    /// Takes the result of a probe's step.
    pub(super) fn probed(&mut self, probe: Probe, request: Request) {
        let how = match request.failure {
            Some(cause) => Probed::Failed(cause),
            None if matches!(probe, Probe::First | Probe::Last) => {
                match self.setup.probes.is_ours(request.own_bytes()) {
                    true => Probed::Well,
                    false => Probed::Other,
                }
            }
            None => Probed::Well,
        };
        // This frees its memory for the next step.
        request.finish(&self.setup.inbox.path);
        self.probe_ended(probe, how);
    }

    fn probe_ended(&mut self, probe: Probe, how: Probed) {
        let was_away = self.health.is_away();
        let next = self.health.probed(probe, how, self.now);
        if let Some(next) = next {
            return self.begin_probe(next);
        }
        self.health_changed(was_away);
        if was_away && !self.health.is_away() {
            // Pages that the device had written and not kept, when it went away, are in memory alone.
            let pages = self.setup.table.pages();
            self.setup.table.redirty(Extent { first_page: 0, pages });
            self.table_changed();
        }
    }

    /// Takes the end of a piece, successful or not, as news of the device's health.
    pub(super) fn note_health(&mut self, token: u32, action: Action, failure: Option<FailureCause>) {
        let Some(piece) = self.pieces.get_mut(token) else { return };
        let first = piece.parts.first().and_then(|part| self.active.get(part.request));
        let task = first.map(|request| request.task);
        if matches!(task, Some(Task::Probe(_))) {
            return;
        }
        let was_away = self.health.is_away();
        match failure {
            None => self.health.went_well(),
            Some(cause) => {
                let slot = matches!(task, Some(Task::Read | Task::Write));
                self.health.failed(cause, action, slot, self.now);
            }
        }
        self.health_changed(was_away);
    }

    /// Publishes the device's health, and fails the waiting requests if the device has just gone away.
    fn health_changed(&mut self, was_away: bool) {
        if self.out_of_service {
            return;
        }
        let counters = &self.setup.inbox.counters;
        counters.doubt.set(u64::from(self.health.is_in_doubt()));
        let (before, now) = (counters.service.get(), self.health.service());
        if before != now as u64 {
            counters.service.set(now as u64);
            counters.changed_to(now);
        }
        if self.health.is_away() && !was_away {
            self.fail_waiting();
        }
    }

    /// Fails requests with nothing in flight at once. Others fail when their last piece has come back.
    fn fail_waiting(&mut self) {
        let uncut = |(_, request): &(usize, &Request)| {
            request.issued_bytes < request.transfer_bytes && !matches!(request.task, Task::Probe(_))
        };
        let keys: Vec<usize> = self.active.iter().filter(uncut).map(|(key, _)| key).collect();
        for key in keys {
            let Some(request) = self.active.get_mut(key) else { continue };
            request.failure.get_or_insert(FailureCause::Away);
            request.issued_bytes = request.transfer_bytes;
            let (turn, waits) = (turn_of(request), request.in_flight == 0);
            self.order.drop_uncut(turn, key);
            if waits {
                if let Turn::Of(class) = turn {
                    self.order.left(class, self.now);
                }
                self.settle(key);
            }
        }
        let flushes = self.setup.write_back.as_mut().map(WriteBack::fail_waiting);
        let held = core::mem::take(&mut self.held);
        for mut request in flushes.into_iter().flatten().chain(held) {
            if request.task == Task::Write {
                self.clear_record(request.slot);
            }
            request.failure.get_or_insert(FailureCause::Away);
            self.count_failure(FailureCause::Away);
            request.finish(&self.setup.inbox.path);
        }
    }
}
