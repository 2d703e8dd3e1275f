//! Up: the blocks of a run are brought to the device in order, while reads from the disk run ahead.
//!
//! ```text
//!   run       D  H  K  H  K  K  K …             D device, H host, K disk
//!   reads           └────── in flight: up to S ──────┘  into the worker's S staging blocks
//!   device    held ◄ copied ◄ waited for, copied …      one after the other, as parents come before children
//! ```
//!
//! A block that does not arrive, or is not what it should be, is a miss of that cause, and is computed anew; one that the disk could
//! not give back is forgotten there.
//!
//! Invariants
//! - I1: a block below is held from the match until its bytes have arrived, or its read has ended.
//! - I2: staging block `s` is in `idle`, or in the one request in flight that has its number.

use super::tally::Tier;
use super::worker::{Found, Worker};
use crate::disk::ReadOutcome;
use kvstrata_core::storage::DevicePort;
use kvstrata_core::{BlockRef, ImmutableBlock};
use kvstrata_ffi::arena::BlockWrite;
use kvstrata_ffi::disk::{Pending, Urgency};
use std::collections::VecDeque;
use std::time::Instant;

/// Reads from the disk, in the order of the run.
struct ReadAhead {
    /// Positions in the run that are on disk and have not been asked for.
    ahead: VecDeque<usize>,
    in_flight: VecDeque<InFlight>,
    idle: Vec<usize>,
    /// Blocks that the disk could not give back.
    gone: Vec<BlockRef>,
}

struct InFlight {
    /// Position in the run.
    index: usize,
    staging: usize,
    /// `None` where the staging block could not be had.
    request: Option<Pending<BlockWrite>>,
}

/// What has arrived, in its buffer.
struct Arrived {
    staging: usize,
    bytes: Option<BlockWrite>,
}

impl<'t, D: DevicePort> Worker<'t, D> {
    /// Brings the run to the device: `held` has all of it afterwards, unless `fresh` ran out.
    pub(super) fn onboard(&mut self, run: Vec<Found<'t>>, ids: &[u64]) {
        self.origins.clear();
        let on_disk = |(index, found): (usize, &Found<'t>)| matches!(found, Found::Disk(_)).then_some(index);
        let mut reads = ReadAhead {
            ahead: run.iter().enumerate().filter_map(on_disk).collect(),
            in_flight: VecDeque::new(),
            idle: self.staging.clone().collect(),
            gone: Vec::new(),
        };
        let since = Instant::now();
        let mut read_bytes = 0;
        let (mut from_host, mut from_disk) = (Vec::new(), Vec::new());
        self.read_ahead(&mut reads, &run);
        for (index, found) in run.iter().enumerate() {
            let (tier, arrived) = match found {
                Found::Device(block) => {
                    self.held.push(block.clone());
                    self.origins.push(Some(Tier::Device));
                    continue;
                }
                Found::Host(_) => (Tier::Host, None),
                Found::Disk(_) => (Tier::Disk, self.arrive(&mut reads, &run)),
            };
            let Some(fresh) = self.fresh.pop() else { break };
            let came = match (found, &arrived) {
                (Found::Host(block), _) => self.up_from_host(block, fresh.id().0),
                (_, Some(Arrived { bytes: Some(bytes), .. })) => {
                    read_bytes += bytes.len();
                    self.up(bytes, fresh.id().0)
                }
                _ => false,
            };
            let whole = if came {
                self.register(fresh, index, Some(tier))
            } else {
                self.fill_one(fresh, ids[index], index)
            };
            if let Some(Arrived { staging, bytes }) = arrived {
                drop(bytes);
                reads.idle.push(staging);
                self.read_ahead(&mut reads, &run);
            }
            if !whole {
                break;
            }
        }
        // Buffers in flight are waited for, so that the next request finds them idle (I2).
        while self.arrive(&mut reads, &run).is_some() {}
        if read_bytes > 0 {
            self.tally.disk_to_host.add(read_bytes, since);
        }
        for found in run {
            match found {
                Found::Device(_) => {}
                Found::Host(block) => from_host.push(block),
                Found::Disk(block) => from_disk.push(block),
            }
        }
        if let Some(host) = &self.tiers.host {
            host.pool.release(from_host.into_iter().rev());
        }
        if let Some(disk) = &self.tiers.disk {
            disk.tier.pool().release(from_disk.into_iter().rev());
            reads.gone.into_iter().for_each(|block| disk.tier.unregister(block));
        }
    }

    fn up_from_host(&mut self, block: &ImmutableBlock<'t>, device_block: u32) -> bool {
        let Some(host) = &self.tiers.host else { return false };
        match host.arena.read(block.id().index()) {
            Ok(bytes) => self.up(&bytes, device_block),
            Err(_) => {
                self.tally.failures.host_busy += 1;
                false
            }
        }
    }

    fn up(&mut self, bytes: &[u8], device_block: u32) -> bool {
        let since = Instant::now();
        if self.tiers.port.copy_in(device_block, 0, bytes).is_err() {
            self.tally.failures.device_write += 1;
            return false;
        }
        self.tally.host_to_device.add(bytes.len(), since);
        true
    }

    /// Asks for as many of the next blocks on disk as there are idle staging blocks.
    fn read_ahead(&mut self, reads: &mut ReadAhead, run: &[Found<'t>]) {
        let Some(disk) = &self.tiers.disk else { return };
        while !reads.idle.is_empty()
            && let Some(index) = reads.ahead.pop_front()
            && let Found::Disk(block) = &run[index]
            && let Some(staging) = reads.idle.pop()
        {
            let buffer = disk.arena.write(staging).ok();
            let request = buffer.map(|buffer| disk.tier.read(block, Urgency::Urgent, buffer));
            reads.in_flight.push_back(InFlight { index, staging, request });
        }
    }

    /// Waits for the oldest read.
    fn arrive(&mut self, reads: &mut ReadAhead, run: &[Found<'t>]) -> Option<Arrived> {
        let InFlight { index, staging, request } = reads.in_flight.pop_front()?;
        let bytes = match request.map(Pending::wait) {
            Some(Ok(bytes)) => Some(bytes),
            Some(Err(failure)) => {
                if let (Some(disk), Found::Disk(block)) = (&self.tiers.disk, &run[index]) {
                    reads.gone.push(block.downgrade());
                    match disk.tier.rejected(block, &failure) {
                        ReadOutcome::Rejected => {}
                        ReadOutcome::Failed => self.tally.failures.disk_read += 1,
                    }
                }
                None
            }
            None => {
                self.tally.failures.host_busy += 1;
                None
            }
        };
        Some(Arrived { staging, bytes })
    }
}
