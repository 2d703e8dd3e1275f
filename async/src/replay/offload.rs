//! Down: victims of the device go to the host, victims of the host to the disk, victims of the disk are forgotten.
//!
//! ```text
//!   device victims ─┬─ host has it: refresh ─────────────────────────────────────────────────────┐
//!   (oldest first)  ├─ copy to a host block, free or made free ─► host victims ─┬─ disk has it: refresh
//!                   │                                                           ├─ not worth a write, or over the budget
//!                   │                                                           └─ write to a slot, all in flight
//!                   └─ no host block to be had: stage, write to a slot              at once, then wait
//! ```
//!
//! A victim is out of its pool, and its owner's until its bytes are below: nobody finds it, nobody reuses it. A copy or
//! write that fails loses the block, which is a miss later on.
//!
//! Invariants
//! - I1: the order of victims is the order of release below, so that recency goes down with the blocks.
//! - I2: a host block is reused only after its write has ended; a slot is registered only after its write succeeded.

use super::tiers::{Disk, HostTier};
use super::worker::Worker;
use crate::disk::{WriteOutcome, Writing, take_free};
use kvstrata_core::storage::DevicePort;
use kvstrata_core::{EvictedBlock, ImmutableBlock, MutableBlock};
use kvstrata_ffi::disk::Name;
use std::time::Instant;

/// Victims taken care of at a time: the most host blocks asked for, and writes in flight, at once.
const BATCH: usize = 128;

/// A victim on its way to the disk.
enum Down<'t> {
    /// The disk has it: dropping the reference refreshes it.
    There(ImmutableBlock<'t>),
    Writing(Write<'t>),
}

/// A write under way, and what it takes to begin again in another slot.
struct Write<'t> {
    writing: Writing<'t>,
    name: Name,
    /// The arena's block that holds the bytes until the write has ended.
    source: usize,
}

impl<'t, D: DevicePort> Worker<'t, D> {
    /// Takes `victims` down and moves their device blocks to `fresh`.
    pub(super) fn offload(&mut self) {
        let tiers = self.tiers;
        let victims = core::mem::take(&mut self.victims);
        match (&tiers.host, &tiers.disk) {
            (Some(host), _) => self.offload_to_host(host, &victims),
            (None, Some(disk)) => self.offload_to_disk(disk, &victims),
            (None, None) => {}
        }
        self.fresh.extend(victims.into_iter().map(EvictedBlock::into_mutable));
    }

    fn offload_to_host(&mut self, host: &'t HostTier, victims: &[EvictedBlock<'t>]) {
        let mut rest = victims;
        while !rest.is_empty() {
            let batch = &rest[..rest.len().min(BATCH)];
            let present: Vec<_> = batch.iter().map(|victim| host.pool.lookup(victim.hash())).collect();
            let wanted = present.iter().filter(|there| there.is_none()).count();
            let mut room = self.make_host_room(host, wanted);
            let mut done = 0;
            for (victim, there) in batch.iter().zip(present) {
                // Dropping what is there already is a release: it is the most recent one now (I1).
                if there.is_none() {
                    let Some(block) = room.pop() else { break };
                    self.copy_to_host(host, victim, block);
                }
                done += 1;
            }
            if done == 0 {
                // All host blocks are in use by requests: the next victim goes past them.
                done = 1;
                match &self.tiers.disk {
                    Some(disk) => self.offload_to_disk(disk, &rest[..1]),
                    None => self.tally.dropped_blocks += 1,
                }
            }
            rest = &rest[done..];
        }
    }

    fn copy_to_host(&mut self, host: &'t HostTier, victim: &EvictedBlock<'t>, block: MutableBlock<'t>) {
        let since = Instant::now();
        let Ok(mut bytes) = host.arena.write(block.id().index()) else {
            self.tally.failures.host_busy += 1;
            return;
        };
        if self.tiers.port.copy_out(victim.id().0, 0, &mut bytes).is_err() {
            self.tally.failures.device_read += 1;
            return;
        }
        self.tally.device_to_host.add(bytes.len(), since);
        drop(bytes);
        host.parents.set(block.id(), self.tiers.parents.get(victim.id()));
        // A block from the pool is `Reset`, so this is never refused. If another worker was quicker, its copy stays and this one
        // is freed. Dropping the reference releases it: most recent.
        if let Ok(complete) = block.complete(victim.hash()) {
            drop(host.pool.register(complete, None));
        }
    }

    /// Up to `wanted` host blocks: free ones, then those of victims, which go to the disk.
    fn make_host_room(&mut self, host: &'t HostTier, wanted: usize) -> Vec<MutableBlock<'t>> {
        let mut room = take_free(&host.pool, wanted);
        if room.len() < wanted {
            let mut victims = Vec::new();
            host.pool.evict(wanted - room.len(), &mut victims);
            if let Some(disk) = &self.tiers.disk {
                self.host_victims_to_disk(host, disk, &victims);
            }
            room.extend(victims.into_iter().map(EvictedBlock::into_mutable));
        }
        room
    }

    fn host_victims_to_disk(&mut self, host: &'t HostTier, disk: &'t Disk, victims: &[EvictedBlock<'t>]) {
        let since = Instant::now();
        let mut down = Vec::with_capacity(victims.len());
        let (places, mut slots) = self.make_disk_room(disk, victims);
        for (victim, place) in victims.iter().zip(places) {
            match place {
                Place::There(there) => down.push(Down::There(there)),
                Place::Refused => {}
                Place::Wanted => {
                    let Some(slot) = slots.pop() else { continue };
                    let name = Name { hash: victim.hash(), parent: host.parents.get(victim.id()) };
                    down.extend(self.write(disk, slot, name, victim.id().index()).map(Down::Writing));
                }
            }
        }
        self.finish(disk, down, since);
    }

    /// Device to disk with no host tier between: through the worker's staging blocks, as many at a time as there are.
    fn offload_to_disk(&mut self, disk: &'t Disk, victims: &[EvictedBlock<'t>]) {
        for batch in victims.chunks(self.staging.len()) {
            let since = Instant::now();
            let mut down = Vec::with_capacity(batch.len());
            let (places, mut slots) = self.make_disk_room(disk, batch);
            for ((victim, place), staging) in batch.iter().zip(places).zip(self.staging.clone()) {
                match place {
                    Place::There(there) => {
                        down.push(Down::There(there));
                        continue;
                    }
                    Place::Refused => continue,
                    Place::Wanted => {}
                }
                let Some(slot) = slots.pop() else { continue };
                let copied = Instant::now();
                let Ok(mut bytes) = disk.arena.write(staging) else {
                    self.tally.failures.host_busy += 1;
                    continue;
                };
                if self.tiers.port.copy_out(victim.id().0, 0, &mut bytes).is_err() {
                    self.tally.failures.device_read += 1;
                    continue;
                }
                self.tally.device_to_host.add(bytes.len(), copied);
                drop(bytes);
                let name = Name { hash: victim.hash(), parent: self.tiers.parents.get(victim.id()) };
                down.extend(self.write(disk, slot, name, staging).map(Down::Writing));
            }
            self.finish(disk, down, since);
        }
    }

    /// Asks for each of `victims` what becomes of it, and takes slots for those to be written; fewer if requests hold too many.
    fn make_disk_room(
        &mut self,
        disk: &'t Disk,
        victims: &[EvictedBlock<'t>],
    ) -> (Vec<Place<'t>>, Vec<MutableBlock<'t>>) {
        // Those that are there first, and held, so that making room for the others does not evict them.
        let mut places: Vec<Place<'t>> = victims
            .iter()
            .map(|victim| disk.tier.lookup(victim.hash()).map_or(Place::Wanted, Place::There))
            .collect();
        for (victim, place) in victims.iter().zip(&mut places) {
            if matches!(place, Place::Wanted) && !disk.tier.admits(victim.hash(), self.now) {
                *place = Place::Refused;
            }
        }
        let wanted = places.iter().filter(|place| matches!(place, Place::Wanted)).count();
        let slots = disk.tier.take(wanted);
        self.tally.dropped_blocks += (wanted - slots.len()) as u64;
        (places, slots)
    }

    /// Starts to write the bytes of the arena's block `source`.
    fn write(
        &mut self,
        disk: &'t Disk,
        slot: MutableBlock<'t>,
        name: Name,
        source: usize,
    ) -> Option<Write<'t>> {
        match disk.arena.read(source) {
            Ok(bytes) => Some(Write { writing: disk.tier.write(slot, name, bytes), name, source }),
            Err(_) => {
                self.tally.failures.host_busy += 1;
                None
            }
        }
    }

    /// Waits for all, in their order (I1); what has arrived is found from now on.
    fn finish(&mut self, disk: &'t Disk, down: Vec<Down<'t>>, since: Instant) {
        let mut written_bytes = 0;
        for victim in down {
            let mut next = match victim {
                // A release: it is the most recent one now.
                Down::There(block) => {
                    drop(block);
                    continue;
                }
                Down::Writing(write) => Some(write),
            };
            while let Some(Write { writing, name, source }) = next.take() {
                match disk.tier.finish(writing) {
                    WriteOutcome::Stored => written_bytes += self.tiers.block_bytes,
                    WriteOutcome::Failed => self.tally.failures.disk_write += 1,
                    // Once a volume at most: slots of a lost one are not taken again.
                    WriteOutcome::Lost => match disk.tier.take(1).pop() {
                        Some(slot) => next = self.write(disk, slot, name, source),
                        None => self.tally.dropped_blocks += 1,
                    },
                }
            }
        }
        if written_bytes > 0 {
            self.tally.host_to_disk.add(written_bytes, since);
        }
    }
}

/// What becomes of a victim on its way to the disk.
enum Place<'t> {
    /// The disk has it.
    There(ImmutableBlock<'t>),
    /// It is to be written.
    Wanted,
    /// It is not worth a write, or there is no budget for it.
    Refused,
}
