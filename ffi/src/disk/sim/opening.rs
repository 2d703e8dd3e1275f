//! From one life to the next: an opening finds the contents of the file, and an opening that is cut short
//! costs nothing.
//!
//! Invariants
//! - I1: at any moment one copy of the superblock is intact on the device: a loss of power alone never
//!   starts a volume over, and never costs a salt that a record needs.
//! - I2: another key, or a key for a volume without one, is refused by name, and the file
//!   does not change.

use super::super::error::VolumeError;
use super::super::format::Superblock;
use super::super::recovery::{Label, Recovery};
use super::SUPERBLOCK;
use super::attempt::Attempt;
use super::harness::Harness;
use super::image::{self, Reader};
use super::life;
use super::oracle::{BlockNumber, Slot, State, name_of};
use super::plan::key_of;
use kvstrata_core::SequenceHash;
use std::collections::BTreeMap;

impl Harness {
    /// Opens the file again, and compares the result with the file's contents.
    pub(super) fn reopen(&mut self) -> Result<(), String> {
        self.life.close();
        if cfg!(feature = "encryption") && self.random.once_in(4) {
            self.try_other_keys()?;
        }
        while self.random.once_in(4) {
            let attempt = self.attempt()?;
            let part = attempt.take_part(&mut self.world.borrow_mut().disk, &mut self.random);
            self.known.add(&attempt.opened.file.superblock, part.certain);
            self.slots.iter_mut().for_each(|slot| slot.synced |= part.synced && slot.arrived);
            drop(attempt);
            let cut_power = self.random.once_in(2);
            self.check_file(cut_power, true).map_err(|wrong| format!("after half an opening: {wrong}"))?;
        }
        let attempt = self.attempt()?;
        let slots = self.slots_of(&attempt.recovery)?;
        attempt.take(&mut self.world.borrow_mut().disk);
        self.live(attempt.opened, slots)?;
        if self.random.once_in(4) {
            self.read_all()?;
        }
        Ok(())
    }

    fn attempt(&self) -> Result<Attempt, String> {
        Attempt::new(&self.path, &self.plan, &mut self.world.borrow_mut().disk)
    }

    /// I2.
    fn try_other_keys(&self) -> Result<(), String> {
        if image::superblock(&self.world.borrow().disk).is_none() {
            // The volume would be started over.
            return Ok(());
        }
        let before = std::fs::read(&self.path).map_err(|error| error.to_string())?;
        let encrypted = self.plan.encrypted;
        for (key, wrong) in [(key_of(0x5B), if encrypted { "key" } else { "seal_kind" }), (None, "seal_kind")]
        {
            if key.is_none() && !encrypted {
                continue;
            }
            match life::open(&self.path, &self.plan, key).map(|(_, recovery)| recovery) {
                Err(VolumeError::Foreign { field, .. }) if field == wrong => {}
                other => return Err(format!("with another key: {other:?} instead of a wrong {wrong}")),
            }
        }
        match std::fs::read(&self.path) {
            Ok(after) if after == before => Ok(()),
            _ => Err("an opening with another key has changed the file".to_owned()),
        }
    }

    /// The state of each slot after an opening with this result.
    fn slots_of(&self, recovery: &Recovery) -> Result<Vec<Slot>, String> {
        let blocks: BTreeMap<SequenceHash, BlockNumber> =
            (0..self.plan.blocks).map(|block| (name_of(block).hash, block)).collect();
        let disk = &mut self.world.borrow_mut().disk;
        let shape = &self.life.superblock.shape;
        let mut slots = Vec::with_capacity(self.plan.slots as usize);
        for slot in 0..shape.slots {
            let gone = image::record_bytes(disk, shape, slot) == [0; 64];
            slots.push(if gone { Slot::found(State::Empty, false) } else { Slot::dropped() });
        }
        // The engine's table equals the file's now.
        disk.heal(shape.table_offset..shape.table_offset + shape.table_bytes());
        let Some((superblock, ..)) = image::superblock(disk) else { return Ok(slots) };
        let reader = Reader::new(disk, superblock, self.plan.key().as_ref());
        for found in &recovery.blocks {
            let block = blocks.get(&found.label.hash).copied();
            let Some(block) = block.filter(|block| Label::from(name_of(*block)) == found.label) else {
                if self.known.salts_lost {
                    // Its label has the mask of another epoch, so no request names it.
                    slots[found.slot as usize] = Slot::found(State::Unknown, true);
                    continue;
                }
                return Err(format!("opening found a block that was never written: {found:?}"));
            };
            let start = shape.offset(found.slot);
            let record = reader.record(found.slot).ok().flatten();
            let payload = record.and_then(|record| reader.payload(disk, found.slot, &record));
            let intact = payload.is_some_and(|payload| self.plan.is_whole(block, &payload));
            if intact {
                disk.heal(start..start + self.plan.slot_bytes as u64);
            }
            slots[found.slot as usize] = Slot::found(State::Holds(block), !intact);
        }
        Ok(slots)
    }

    /// Checks that the file has one of the known superblocks, unless it was harmed (I1). `tears`: the end
    /// of the last life may have torn one copy. Returns the superblock; None if all known state is lost.
    pub(super) fn check_superblocks(&mut self, tears: bool) -> Result<Option<Superblock>, String> {
        let world = self.world.borrow();
        let shape = &self.life.superblock.shape;
        let copies = [0, shape.superblock_b()].map(|at| at..at + SUPERBLOCK as u64);
        let touched = copies.into_iter().filter(|copy| world.disk.is_tainted(copy.clone())).count();
        // A sync that lied leaves both copies to the next loss of power.
        let lied = world.lies > 0;
        let found = image::superblock(&world.disk).map(|(superblock, ..)| superblock);
        let known = &mut self.known;
        let same = |superblock: &Superblock| {
            known
                .any_of
                .iter()
                .any(|(volume, salts)| (*volume, *salts) == (superblock.volume_id, superblock.salts))
        };
        if found.as_ref().is_some_and(same) {
            return Ok(found);
        }
        let older =
            found.is_some_and(|found| known.any_of.iter().any(|(volume, _)| *volume == found.volume_id));
        let enough = if older || tears { 1 } else { 2 };
        if known.certain && touched < enough && !lied {
            let wrong = if older { "has lost a salt" } else { "starts over" };
            return Err(format!("the volume {wrong}, but the harmed superblocks are only {touched}"));
        }
        known.salts_lost |= older;
        if !older {
            known.start_over();
        }
        // None of the known state is left.
        self.slots.fill(Slot::dropped());
        Ok(None)
    }

    /// Notes that the superblocks of a new life are on the device for good.
    pub(super) fn knows(&mut self, superblock: &Superblock) {
        self.known.lives(superblock);
    }
}
