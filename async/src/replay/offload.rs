//! Down: victims of the device go to the host, victims of the host to the disk, victims of the disk are forgotten.
//!
//! ```text
//!   device victims ─┬─ host has it: refresh ─────────────────────────────────────────────────────┐
//!   (oldest first)  ├─ copy to a host block, free or made free ─► host victims ─┬─ disk has it: refresh
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

use super::tiers::{DiskTier, HostTier};
use super::worker::Worker;
use kvstrata_core::storage::DevicePort;
use kvstrata_core::{BlockPool, EvictedBlock, ImmutableBlock, MutableBlock, SequenceHash};
use kvstrata_ffi::arena::BlockRead;
use kvstrata_ffi::disk::{Name, Pending};
use std::time::Instant;

/// Victims taken care of at a time: the most host blocks asked for, and writes in flight, at once.
const BATCH: usize = 128;

/// A victim on its way to the disk.
enum Down<'t> {
    /// The disk has it: dropping the reference refreshes it.
    There(ImmutableBlock<'t>),
    Writing {
        slot: MutableBlock<'t>,
        hash: SequenceHash,
        request: Pending<BlockRead>,
    },
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
            let present: Present<'t> = batch.iter().map(|victim| host.pool.lookup(victim.hash())).collect();
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
        register(&host.pool, block, victim.hash());
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

    fn host_victims_to_disk(&mut self, host: &'t HostTier, disk: &'t DiskTier, victims: &[EvictedBlock<'t>]) {
        let since = Instant::now();
        let mut down = Vec::with_capacity(victims.len());
        let (present, mut slots) = self.make_disk_room(disk, victims);
        for (victim, there) in victims.iter().zip(present) {
            if let Some(there) = there {
                down.push(Down::There(there));
                continue;
            }
            let Some(slot) = slots.pop() else { continue };
            match host.arena.read(victim.id().index()) {
                Ok(bytes) => down.push(write(disk, slot, victim.hash(), bytes)),
                Err(_) => self.tally.failures.host_busy += 1,
            }
        }
        self.finish(disk, down, since);
    }

    /// Device to disk with no host tier between: through the worker's staging blocks, as many at a time as there are.
    fn offload_to_disk(&mut self, disk: &'t DiskTier, victims: &[EvictedBlock<'t>]) {
        for batch in victims.chunks(self.staging.len()) {
            let since = Instant::now();
            let mut down = Vec::with_capacity(batch.len());
            let (present, mut slots) = self.make_disk_room(disk, batch);
            for ((victim, there), staging) in batch.iter().zip(present).zip(self.staging.clone()) {
                if let Some(there) = there {
                    down.push(Down::There(there));
                    continue;
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
                down.push(write(disk, slot, victim.hash(), bytes.into_read()));
            }
            self.finish(disk, down, since);
        }
    }

    /// Holds those of `victims` that the disk has, and takes slots for the others; fewer if requests hold too many.
    fn make_disk_room(
        &mut self,
        disk: &'t DiskTier,
        victims: &[EvictedBlock<'t>],
    ) -> (Present<'t>, Vec<MutableBlock<'t>>) {
        let present: Present<'t> = victims.iter().map(|victim| disk.pool.lookup(victim.hash())).collect();
        let wanted = present.iter().filter(|there| there.is_none()).count();
        let mut slots = take_free(&disk.pool, wanted);
        if slots.len() < wanted {
            let mut forgotten = Vec::new();
            disk.pool.evict(wanted - slots.len(), &mut forgotten);
            slots.extend(forgotten.into_iter().map(EvictedBlock::into_mutable));
        }
        self.tally.dropped_blocks += (wanted - slots.len()) as u64;
        (present, slots)
    }

    /// Waits for all, in their order (I1); what has arrived is found from now on.
    fn finish(&mut self, disk: &'t DiskTier, down: Vec<Down<'t>>, since: Instant) {
        let mut written_bytes = 0;
        for victim in down {
            match victim {
                Down::There(block) => drop(block),
                Down::Writing { slot, hash, request } => match request.wait() {
                    Ok(bytes) => {
                        written_bytes += bytes.len();
                        register(&disk.pool, slot, hash);
                    }
                    Err(_) => self.tally.failures.disk_write += 1,
                },
            }
        }
        if written_bytes > 0 {
            self.tally.host_to_disk.add(written_bytes, since);
        }
    }
}

/// Which victims the tier below has; held, so that making room for the others does not evict them.
type Present<'t> = Vec<Option<ImmutableBlock<'t>>>;

fn write<'t>(disk: &'t DiskTier, slot: MutableBlock<'t>, hash: SequenceHash, bytes: BlockRead) -> Down<'t> {
    let request = disk.volume.write(slot.id().0, Name { hash, parent: None }, bytes);
    Down::Writing { slot, hash, request }
}

/// Up to `wanted` free blocks.
fn take_free(pool: &BlockPool, wanted: usize) -> Vec<MutableBlock<'_>> {
    let mut taken = Vec::with_capacity(wanted);
    let free = pool.free().min(wanted);
    // Somebody else may be quicker; then victims make up for it.
    let _ = pool.allocate_free(free, &mut taken);
    taken
}

/// Makes a block of a lower tier known; if another worker was quicker, its copy stays and this one is freed. Dropping the
/// reference releases it: most recent.
fn register(pool: &BlockPool, block: MutableBlock<'_>, hash: SequenceHash) {
    // A block from the pool is `Reset`, so this is never refused.
    if let Ok(complete) = block.complete(hash) {
        drop(pool.register(complete, None));
    }
}
