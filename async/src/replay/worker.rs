//! One request, from match to release.
//!
//! Invariants
//! - I1: `held[i]` is the device's block of the request's id `i`, registered and referenced until the release;
//!   `beyond[j]` belongs to the `j`th id behind the run.
//! - I2: between two requests a worker holds nothing.

use super::pattern::Pattern;
use super::tally::{Tally, Tier};
use super::tiers::{Tiers, hash_of};
use crate::trace::Request;
use kvstrata_core::storage::DevicePort;
use kvstrata_core::{EvictedBlock, ImmutableBlock, MutableBlock, SequenceHash};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

/// How often a worker looks again for blocks that others are about to give back. Admission (`gate.rs`) says that they
/// come; one case it does not cover, parents pinned by children of another sequence in a trace where an id does not
/// always follow the same one, is served with fewer blocks.
const PATIENCE: usize = 100_000;

/// A block of the run that a request hits.
#[derive(Debug)]
pub(super) enum Found<'t> {
    Device(ImmutableBlock<'t>),
    Host(ImmutableBlock<'t>),
    Disk(ImmutableBlock<'t>),
}

/// A thread that serves requests. Its vectors keep their room from one request to the next.
pub(super) struct Worker<'t, D> {
    pub(super) tiers: &'t Tiers<D>,
    pub(super) tally: Tally,
    pub(super) staging: Range<usize>,
    pub(super) fresh: Vec<MutableBlock<'t>>,
    pub(super) victims: Vec<EvictedBlock<'t>>,
    pub(super) held: Vec<ImmutableBlock<'t>>,
    /// Which tier each of `held` was found in; `None` for one that is no hit.
    pub(super) origins: Vec<Option<Tier>>,
    /// Behind the run: blocks that the device has all the same. No hits, since what they follow is missing, but nothing
    /// that a second block need be found for.
    beyond: Vec<Option<ImmutableBlock<'t>>>,
    pattern: Pattern,
    hashes: Vec<SequenceHash>,
    scratch: Vec<u8>,
    /// The trace's time.
    pub(super) now: Duration,
}

impl<'t, D: DevicePort> Worker<'t, D> {
    pub(super) fn new(tiers: &'t Tiers<D>, number: usize, pattern: Pattern) -> Worker<'t, D> {
        Worker {
            tiers,
            tally: Tally::default(),
            staging: tiers.staging(number),
            fresh: Vec::new(),
            victims: Vec::new(),
            held: Vec::new(),
            origins: Vec::new(),
            beyond: Vec::new(),
            pattern,
            hashes: Vec::new(),
            scratch: vec![0; tiers.block_bytes],
            now: Duration::ZERO,
        }
    }

    /// Serves a request that has been admitted; `line` is where it stands in the trace.
    pub(super) fn serve(&mut self, request: &Request, line: u64) {
        let blocks = request.hash_ids.len();
        let ids = &request.hash_ids[..blocks.min(self.tiers.device.capacity())];
        self.tally.requests += 1;
        self.tally.blocks += blocks as u64;
        self.hashes.clear();
        self.hashes.extend(ids.iter().map(|id| hash_of(*id)));
        // A time that is none is taken for the beginning.
        self.now = Duration::try_from_secs_f64(request.timestamp / 1000.0).unwrap_or_default();
        if let Some(disk) = &self.tiers.disk {
            self.hashes.iter().for_each(|hash| disk.tier.used(*hash));
        }

        let since = Instant::now();
        let run = self.match_run();
        self.tally.matching.record(nanoseconds(since));

        let since = Instant::now();
        let on_device = run.iter().filter(|found| matches!(found, Found::Device(_))).count();
        let beyond = self.beyond.iter().flatten().count();
        self.allocate(ids.len() - on_device - beyond);
        self.tally.allocation.record(nanoseconds(since));

        let since = Instant::now();
        let hits = run.len();
        self.onboard(run, ids);
        if hits > on_device {
            self.tally.onboard.record(nanoseconds(since));
        }

        self.verify(ids, line);
        if self.held.len() == hits {
            self.fill(ids);
        }
        self.tally.uncached_blocks += (blocks - self.held.len()) as u64;
        self.fresh.clear();
        self.beyond.clear();

        let since = Instant::now();
        self.tiers.device.release(self.held.drain(..).rev());
        self.tally.release.record(nanoseconds(since));
    }

    /// The longest leading run over all tiers, each block held in the highest tier that has it.
    fn match_run(&mut self) -> Vec<Found<'t>> {
        let run = self.leading_run();
        self.beyond.extend(self.hashes[run.len()..].iter().map(|hash| self.tiers.device.lookup(*hash)));
        run
    }

    fn leading_run(&mut self) -> Vec<Found<'t>> {
        let tiers = self.tiers;
        let mut run = Vec::with_capacity(self.hashes.len());
        loop {
            tiers.device.match_prefix(&self.hashes[run.len()..], &mut self.held);
            run.extend(self.held.drain(..).map(Found::Device));
            let Some(next) = self.hashes.get(run.len()) else { return run };
            let host = tiers.host.as_ref().and_then(|host| host.pool.lookup(*next)).map(Found::Host);
            let below = host.or_else(|| tiers.disk.as_ref()?.tier.lookup(*next).map(Found::Disk));
            match below {
                Some(found) => run.push(found),
                None => return run,
            }
        }
    }

    /// Fills `fresh` with blocks, free ones first; what must leave for them goes down.
    fn allocate(&mut self, needed: usize) {
        let pool = &self.tiers.device;
        let mut patience = if self.tiers.workers == 1 { 0 } else { PATIENCE };
        while self.fresh.len() < needed {
            let missing = needed - self.fresh.len();
            let free = pool.free().min(missing);
            if free > 0 && pool.allocate_free(free, &mut self.fresh).is_ok() {
                continue;
            }
            if pool.evict(missing, &mut self.victims) > 0 {
                self.offload();
            } else if patience == 0 {
                return;
            } else {
                patience -= 1;
                thread::yield_now();
            }
        }
    }

    /// Reads every hit back from the device and compares it with what its id says.
    fn verify(&mut self, ids: &[u64], line: u64) {
        for ((block, origin), id) in self.held.iter().zip(&self.origins).zip(ids) {
            let Some(tier) = *origin else { continue };
            self.tally.hit(tier);
            if self.tiers.port.copy_out(block.id().0, 0, &mut self.scratch).is_err() {
                self.tally.failures.device_read += 1;
                continue;
            }
            self.tally.verified_blocks += 1;
            if let Err(mismatch) = self.pattern.verify(*id, &self.scratch) {
                self.tally.wrong(line, *id, tier, mismatch);
            }
        }
    }

    /// Makes the blocks behind the run, all of which is held.
    fn fill(&mut self, ids: &[u64]) {
        let mut beyond = core::mem::take(&mut self.beyond);
        for there in beyond.drain(..) {
            let index = self.held.len();
            if let Some(block) = there {
                self.held.push(block);
                self.origins.push(None);
            } else {
                let Some(block) = self.fresh.pop() else { break };
                if !self.fill_one(block, ids[index], index) {
                    break;
                }
            }
        }
        self.beyond = beyond;
    }

    /// Computes a block, as an engine would, and registers it. False: the device refused its bytes.
    pub(super) fn fill_one(&mut self, block: MutableBlock<'t>, id: u64, index: usize) -> bool {
        let since = Instant::now();
        self.pattern.fill(id, &mut self.scratch);
        if self.tiers.port.copy_in(block.id().0, 0, &self.scratch).is_err() {
            self.tally.failures.device_write += 1;
            return false;
        }
        self.tally.filled.add(self.tiers.block_bytes, since);
        self.register(block, index, None)
    }

    /// Makes a block whose bytes are on the device known, as the request's next one.
    pub(super) fn register(&mut self, block: MutableBlock<'t>, index: usize, origin: Option<Tier>) -> bool {
        debug_assert_eq!(index, self.held.len());
        let parent = index.checked_sub(1).map(|parent| self.hashes[parent]);
        self.tiers.parents.set(block.id(), parent);
        // A block from the pool is `Reset`, so this is never refused.
        let Ok(complete) = block.complete(self.hashes[index]) else { return false };
        let parent = if self.tiers.linked { self.held.last() } else { None };
        let registered = self.tiers.device.register(complete, parent).into_block();
        self.held.push(registered);
        self.origins.push(origin);
        true
    }
}

pub(super) fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
