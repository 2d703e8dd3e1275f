//! From one life to the next: how it ends, what is left in the file, and what the next one finds there.

use super::super::engine::Round;
use super::super::format::Record;
use super::super::recovery::Recovery;
use super::super::request::release_lost;
use super::disk::Disk;
use super::harness::Harness;
use super::life;
use super::oracle::{BlockNumber, Slot, State, is_block, name_of};
use super::{SUPERBLOCK, image};
use kvstrata_core::SequenceHash;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rounds within which a volume must end.
const ROUNDS: u64 = 200_000;

impl Harness {
    /// The process dies, and with it the machine if the power is cut.
    pub(super) fn crash(&mut self, cut_power: bool) -> Result<(), String> {
        self.end_life()?;
        self.check_file(cut_power)?;
        self.reopen()
    }

    /// The volume is dropped, and everything is there at the next opening.
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
        self.end_life()?;
        let world = self.world.borrow();
        let shape = &self.life.superblock.shape;
        let copies = [0, shape.superblock_b()].map(|at| at..at + SUPERBLOCK as u64);
        let whole = copies.into_iter().all(|copy| !world.disk.is_tainted(copy));
        let clean = image::superblock(&world.disk).is_some_and(|(_, _, clean)| clean);
        if whole && !clean && world.failures == before.0 {
            return Err("ended in order, and there is no clean mark".to_owned());
        }
        let synced = world.lies == before.1;
        drop(world);
        if clean && whole {
            for slot in &mut self.slots {
                slot.settled();
                slot.synced |= synced;
            }
        }
        self.check_file(cut_power)?;
        self.reopen()
    }

    /// Ends the engine: everybody has been told, and every buffer is back, but those that the device still had.
    fn end_life(&mut self) -> Result<(), String> {
        // The old life stays in its place until the next one, for its shape; its engine goes now.
        self.life.stop();
        let (in_flight, again) = self.world.borrow_mut().crash();
        let gave_up = self.world.borrow().gone || self.world.borrow().failures >= 32;
        self.world.borrow_mut().broken = true;
        self.poll()?;
        let life = &self.life;
        let kept: BTreeSet<usize> =
            (0..life.arena.blocks()).filter(|block| life.arena.write(*block).is_err()).collect();
        let buffers = |of: &[usize]| -> BTreeSet<usize> {
            of.iter().filter_map(|address| life.buffer_at(*address)).collect()
        };
        let (touched, unfinished) = (buffers(&in_flight), buffers(&again));
        let may_be: BTreeSet<usize> = touched.union(&unfinished).copied().collect();
        // Out of service, the engine ends what would have come again.
        if kept != may_be && !(gave_up && kept.is_superset(&touched) && kept.is_subset(&may_be)) {
            return Err(format!(
                "the device had the buffers {touched:?}, {unfinished:?} half; {kept:?} are kept"
            ));
        }
        release_lost(&self.path);
        if let Some(block) = kept.iter().find(|block| life.arena.write(**block).is_err()) {
            return Err(format!("buffer {block} is neither back nor kept for the device"));
        }
        // Of whom nobody hears: they were dropped, and their buffers kept.
        self.under_way.clear();
        self.check_counts(in_flight.is_empty())
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
        if adds_up { Ok(()) } else { Err(format!("does not add up: {counts:?}, {stats:?}")) }
    }

    /// What is known to be in the file is there, unless something silent happened to it.
    fn check_file(&mut self, cut_power: bool) -> Result<(), String> {
        let world = &mut *self.world.borrow_mut();
        if cut_power {
            world.disk.cut_power(&mut world.random);
        }
        let (disk, ours) = (&world.disk, &self.life.superblock);
        match image::superblock(disk) {
            Some((superblock, ..)) if superblock.volume_id == ours.volume_id => {}
            // Both copies are gone, or were never synced: it starts over.
            _ => return Ok(()),
        }
        for (slot, known) in (0..).zip(&self.slots) {
            let there = if cut_power { known.synced } else { known.arrived };
            let record_at = image::record_offset(&ours.shape, slot);
            if !there || known.doubt || disk.is_tainted(record_at..record_at + 64) {
                continue;
            }
            let bytes = image::record_bytes(disk, &ours.shape, slot);
            let record = Record::decode(&bytes, ours.volume_id, slot);
            let wrong =
                || format!("slot {slot} is {known:?}, and the file has {record:?}, power cut: {cut_power}");
            match known.state {
                State::Unknown => {}
                State::Empty if record == Ok(None) => {}
                State::Holds(block) => {
                    let name = name_of(block);
                    if !record.as_ref().is_ok_and(|record| record.is_some_and(|r| r.name() == name)) {
                        return Err(wrong());
                    }
                    let start = ours.shape.offset(slot);
                    let payload = start..start + self.plan.slot_bytes as u64;
                    if !disk.is_tainted(payload.clone()) && !is_block(block, &disk.read_vec(&payload)) {
                        return Err(format!("{}; and other bytes", wrong()));
                    }
                }
                State::Empty => return Err(wrong()),
            }
        }
        Ok(())
    }

    /// Opens the file again, and holds what opening says against what the file has.
    fn reopen(&mut self) -> Result<(), String> {
        let expected = image::expected(&self.world.borrow().disk);
        let ends = |disk: &Disk| {
            let end = disk.bytes() - SUPERBLOCK as u64;
            [0, end].map(|at| (at, disk.read_vec(&(at..at + SUPERBLOCK as u64))))
        };
        let before = ends(&self.world.borrow().disk);
        self.life.close();
        let (opened, recovery) = life::open(&self.path, &self.plan)?;
        if recovery != expected {
            return Err(format!("opening found {recovery:?}\nand the file has {expected:?}"));
        }
        let slots = self.slots_of(&recovery)?;
        let mut world = self.world.borrow_mut();
        for (at, old) in before {
            world.disk.written_beside(at, &old);
        }
        drop(world);
        self.live(opened, slots)?;
        if self.random.once_in(4) {
            self.read_all()?;
        }
        Ok(())
    }

    fn slots_of(&mut self, recovery: &Recovery) -> Result<Vec<Slot>, String> {
        let blocks: BTreeMap<SequenceHash, BlockNumber> =
            (0..self.plan.blocks).map(|block| (name_of(block).hash, block)).collect();
        let disk = &mut self.world.borrow_mut().disk;
        let shape = &self.life.superblock.shape;
        let mut slots = Vec::with_capacity(self.plan.slots as usize);
        for slot in 0..shape.slots {
            let mut found = Slot::found(State::Empty, false);
            // What opening dropped is in the file until the table is written.
            found.arrived = image::record_bytes(disk, shape, slot) == [0; 64];
            slots.push(found);
        }
        // The engine's table is the file's now.
        disk.heal(shape.table_offset..shape.table_offset + shape.table_bytes());
        for found in &recovery.blocks {
            let block = blocks.get(&found.name.hash).copied();
            let Some(block) = block.filter(|block| name_of(*block) == found.name) else {
                return Err(format!("opening found a block that was never written: {found:?}"));
            };
            let start = shape.offset(found.slot);
            let payload = start..start + self.plan.slot_bytes as u64;
            let intact = is_block(block, &disk.read_vec(&payload));
            if intact {
                disk.heal(payload);
            }
            slots[found.slot as usize] = Slot::found(State::Holds(block), !intact);
        }
        Ok(slots)
    }

    /// Reads whatever is there, to the last slot.
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

    /// The end of a simulation: a device that is well again, and everything that is known is there.
    pub(in crate::disk) fn finish(mut self) -> Result<(), String> {
        self.world.borrow_mut().faults = Default::default();
        self.settle()?;
        self.read_all()?;
        self.shut_down(false)?;
        self.read_all()?;
        self.end_life()?;
        match Arc::strong_count(&self.life.arena) {
            1 => Ok(()),
            owners => Err(format!("{owners} owners of the buffers, where nobody but the caller is left")),
        }
    }
}
