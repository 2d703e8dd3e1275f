//! From one life to the next: how a life ends, and what is left in the file.

use super::super::engine::Round;
use super::super::request::{Request, release_lost};
use super::super::stats::ServiceState;
use super::harness::Harness;
use super::image::Reader;
use super::oracle::{State, name_of};
use super::{SUPERBLOCK, image};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Rounds within which a volume must end.
const ROUNDS: u64 = 200_000;

impl Harness {
    /// The process dies; the machine too, if the power is cut.
    pub(super) fn crash(&mut self, cut_power: bool) -> Result<(), String> {
        let tears = self.end_life()?;
        self.check_file(cut_power, tears)?;
        self.reopen()
    }

    /// The volume is retired: requests in flight are answered, and no others are taken.
    pub(super) fn retire(&mut self, cut_power: bool) -> Result<(), String> {
        if self.life.inbox.try_push(Request::retire()).is_err() {
            return Ok(());
        }
        self.retired = true;
        let mut rounds = 0;
        loop {
            self.world.borrow_mut().asleep = false;
            match self.life.round() {
                Round::Lost => break,
                Round::More if rounds < ROUNDS && !self.world.borrow().asleep => rounds += 1,
                _ => return Err("the retired volume goes on".to_owned()),
            }
        }
        let broken = self.world.borrow().broken;
        if !broken {
            let in_flight = self.world.borrow().in_flight();
            if in_flight > 0 {
                return Err(format!("the volume retired with pieces in flight: {in_flight}"));
            }
            // A request that comes now is answered at once.
            let urgent = self.random.once_in(2);
            self.read(0, 0, urgent);
            self.flush();
            if !self.life.inbox.is_empty() {
                return Err("the retired volume left a caller without an answer".to_owned());
            }
        }
        let tears = self.end_life()?;
        self.check_file(cut_power, tears)?;
        self.reopen()
    }

    /// The volume is dropped; all its blocks are there at the next opening.
    pub(super) fn shut_down(&mut self, cut_power: bool) -> Result<(), String> {
        let before = (self.world.borrow().failures, self.world.borrow().lies);
        self.life.inbox.close();
        let mut rounds = 0;
        loop {
            match self.life.round() {
                Round::More if rounds < ROUNDS => rounds += 1,
                Round::More => return Err("the volume does not end".to_owned()),
                Round::Lost => return self.lost(),
                Round::Over => break,
            }
        }
        let tears = self.end_life()?;
        let world = self.world.borrow();
        let shape = &self.life.superblock.shape;
        let copies = [0, shape.superblock_b()].map(|at| at..at + SUPERBLOCK as u64);
        let whole = copies.into_iter().all(|copy| !world.disk.is_tainted(copy));
        let clean = image::superblock(&world.disk).is_some_and(|(_, _, clean)| clean);
        if whole && !clean && world.failures == before.0 {
            return Err("the volume ended in order, but without a clean mark".to_owned());
        }
        let synced = world.lies == before.1;
        drop(world);
        if clean && whole {
            for slot in &mut self.slots {
                slot.settled();
                slot.synced |= synced;
            }
        }
        self.check_file(cut_power, tears)?;
        self.reopen()
    }

    /// Ends the engine. Every request must have been answered, and every buffer must be back, except
    /// those that the device still had. Returns whether parts of a write may be missing.
    fn end_life(&mut self) -> Result<bool, String> {
        // The old life stays until the next one, for its shape; its engine goes now.
        self.life.stop();
        let (in_flight, again) = self.world.borrow_mut().crash();
        let gave_up = self.retired || self.world.borrow().was_gone || self.world.borrow().failures > 4;
        self.world.borrow_mut().broken = true;
        self.poll()?;
        if self.waits() {
            return Err(format!("the life ended, but these requests have no answer: {:?}", self.under_way));
        }
        let life = &self.life;
        let kept: BTreeSet<usize> =
            (0..life.arena.blocks()).filter(|block| life.arena.write(*block).is_err()).collect();
        let buffers = |of: &[usize]| -> BTreeSet<usize> {
            of.iter().filter_map(|address| self.buffer_of(*address)).collect()
        };
        let (touched, unfinished) = (buffers(&in_flight), buffers(&again));
        let may_be: BTreeSet<usize> = touched.union(&unfinished).copied().collect();
        // If the volume went out of service, the engine ended the pieces that would have come again.
        if kept != may_be && !(gave_up && kept.is_superset(&touched) && kept.is_subset(&may_be)) {
            return Err(format!(
                "the device had the buffers {touched:?} and half of {unfinished:?}; kept are {kept:?}"
            ));
        }
        let copies = life.copies();
        if let Some(copy) =
            in_flight.iter().find_map(|one| life.copy_at(*one).filter(|n| !copies.contains(n)))
        {
            return Err(format!("the device had the sealed copy {copy}, but it is free"));
        }
        release_lost(&self.path);
        if let Some(block) = kept.iter().find(|block| life.arena.write(**block).is_err()) {
            return Err(format!("buffer {block} is neither back nor kept for the device"));
        }
        if !life.copies().is_empty() {
            return Err("a sealed copy is neither back nor kept for the device".to_owned());
        }
        // The rest will not be answered: their callers dropped them, and the buffers were kept.
        self.under_way.clear();
        self.check_counts(in_flight.is_empty())?;
        Ok(!in_flight.is_empty() || !again.is_empty() || self.world.borrow().failures > 0)
    }

    /// Each request is counted once.
    fn check_counts(&self, orderly: bool) -> Result<(), String> {
        let (counts, stats) = (self.counts, self.life.inbox.counters.snapshot(0));
        let ended = stats.reads + stats.writes + stats.rejected;
        let heard = counts.read + counts.written + counts.rejected;
        let quiet = orderly && stats.failures == 0;
        let adds_up = ended + stats.failures >= counts.asked
            && ended <= counts.asked
            && (!quiet || ended == counts.asked)
            && (heard..=heard + counts.dropped).contains(&ended)
            && stats.reads >= counts.read
            && stats.writes >= counts.written
            && stats.rejected >= counts.rejected;
        if adds_up { Ok(()) } else { Err(format!("the counters do not add up: {counts:?}, {stats:?}")) }
    }

    /// Checks that the known state is in the file, unless a silent fault happened to it. `tears`: parts
    /// of the last writes may be missing even without a loss of power.
    pub(super) fn check_file(&mut self, cut_power: bool, tears: bool) -> Result<(), String> {
        if cut_power {
            let world = &mut *self.world.borrow_mut();
            world.disk.cut_power(&mut world.random);
            self.slots.iter_mut().for_each(|slot| slot.arrived = slot.synced);
        }
        let Some(superblock) = self.check_superblocks(cut_power || tears)? else { return Ok(()) };
        let (disk, shape) = (&self.world.borrow().disk, &superblock.shape);
        let reader = Reader::new(disk, superblock, self.plan.key().as_ref());
        for (slot, known) in (0..).zip(&self.slots) {
            let record_at = image::record_offset(shape, slot);
            if !known.arrived || known.doubt || disk.is_tainted(record_at..record_at + 64) {
                continue;
            }
            let record = reader.record(slot);
            let wrong =
                || format!("slot {slot} is {known:?}, but the file has {record:?}; power cut: {cut_power}");
            match known.state {
                State::Unknown => {}
                State::Empty if record == Ok(None) => {}
                State::Holds(block) => {
                    let Ok(Some(record)) = record else { return Err(wrong()) };
                    if record.label != name_of(block).into() {
                        return Err(wrong());
                    }
                    let start = shape.offset(slot);
                    let payload = reader.payload(disk, slot, &record);
                    let intact = payload.is_some_and(|payload| self.plan.is_whole(block, &payload));
                    if !intact && !disk.is_tainted(start..start + self.plan.slot_bytes as u64) {
                        return Err(format!("{}; other bytes", wrong()));
                    }
                }
                State::Empty => return Err(wrong()),
            }
        }
        Ok(())
    }

    /// Reads all known blocks, to the last slot.
    pub(super) fn read_all(&mut self) -> Result<(), String> {
        for slot in 0..self.plan.slots {
            let State::Holds(block) = self.slots[slot as usize].state else { continue };
            if self.free_buffer().is_none() || self.under_way.len() >= self.plan.queue {
                self.settle()?;
            }
            // Another life may have begun.
            if self.slots[slot as usize].state == State::Holds(block) {
                self.read(slot, block, self.plan.urgent == 10);
            }
        }
        self.settle()
    }

    /// Waits until the volume has found out by itself that the device is well again.
    fn recover(&mut self) -> Result<(), String> {
        let mut rounds = 0;
        while self.life.state() != ServiceState::Serving {
            if self.life.round() != Round::More {
                return self.lost();
            }
            rounds += 1;
            if rounds == ROUNDS {
                let shape = &self.life.superblock.shape;
                let copies = [0, shape.superblock_b()].map(|at| at..at + SUPERBLOCK as u64);
                let world = self.world.borrow();
                if !copies.into_iter().all(|copy| world.disk.is_tainted(copy)) {
                    return Err(format!(
                        "the device is well again, but the volume is {:?}",
                        self.life.state()
                    ));
                }
                drop(world);
                // The volume cannot recognise its own superblocks any more.
                return self.crash(false);
            }
        }
        Ok(())
    }

    /// Ends a simulation: the device is well again, and all known blocks must be there.
    pub(in crate::disk) fn finish(mut self) -> Result<(), String> {
        self.world.borrow_mut().faults = Default::default();
        self.world.borrow_mut().well();
        self.recover()?;
        self.settle()?;
        self.read_all()?;
        self.shut_down(false)?;
        self.read_all()?;
        self.end_life()?;
        match Arc::strong_count(&self.life.arena) {
            1 => Ok(()),
            owners => Err(format!("the buffers have {owners} owners; the caller should be the only one")),
        }
    }
}
