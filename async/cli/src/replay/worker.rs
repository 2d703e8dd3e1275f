//! One request, from match to release, with the calls that an engine makes.
//!
//! ```text
//!   ids       0 1 2 3 4 5 6 7 8
//!             D D H K H · d · ·         D device, H host, K disk; d: in the device, after a missing block
//!             └── run ──┘ └ rest: blocks in the device are held; others are allocated
//! ```
//!
//! Blocks for the rest are requested after the run has its place in the wait queue, so that room is made
//! for both together, and before the sources of the run are released.
//!
//! Invariants
//! - I1: `held` has the device blocks of the request's first ids, registered and
//!   referenced until the release.
//! - I2: between two requests a worker holds no block.

use super::pattern::Pattern;
use super::tally::Tally;
use super::tiers::{Tiers, hash_of};
use crate::trace::Request;
use kvstrata::manager::{Blocks, BlocksMut, OnboardOptions};
use kvstrata::tier::Tier;
use kvstrata_core::{BlockId, SequenceHash};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Serves requests one after the other. Its vectors keep their capacity between requests.
pub(super) struct Worker {
    tiers: Arc<Tiers>,
    pub(super) tally: Tally,
    pattern: Pattern,
    hashes: Vec<SequenceHash>,
    /// The tier of each block of the run; `None` for a block that another request was onboarding.
    origins: Vec<Option<Tier>>,
    scratch: Vec<u8>,
}

/// A part of a request's rest, in order.
enum Rest {
    /// Blocks in the device. They are hits if the flag is set: the run had them too, after a
    /// block that did not arrive.
    There(Blocks, bool),
    /// The number of missing blocks.
    Missing(usize),
}

impl Worker {
    pub(super) fn new(tiers: Arc<Tiers>, pattern: Pattern, block_bytes: usize) -> Worker {
        let scratch = vec![0; block_bytes];
        let (hashes, origins) = (Vec::new(), Vec::new());
        Worker { tiers, tally: Tally::default(), pattern, hashes, origins, scratch }
    }

    /// Serves an admitted request; `line` is its line in the trace.
    pub(super) async fn serve(&mut self, request: &Request, line: u64) {
        let blocks = request.hash_ids.len();
        let ids = &request.hash_ids[..blocks.min(self.tiers.manager.default_group().capacity(Tier::Device))];
        self.tally.requests += 1;
        self.tally.blocks += blocks as u64;
        self.hashes.clear();
        self.hashes.extend(ids.iter().map(|id| hash_of(*id)));
        self.tiers.clock.set(request.timestamp);
        let manager = self.tiers.manager.clone();

        let since = Instant::now();
        let found = manager.default_group().match_prefix(&self.hashes);
        let run = found.len();
        let mut rest = self.look_up(run..ids.len(), false);
        self.tally.matching.record(nanoseconds(since));
        self.origins.clear();
        self.origins.extend((0..run).map(|index| found.tier_of(index)));

        let since = Instant::now();
        let ready = found.is_ready();
        let (mut held, mut fresh);
        if ready {
            fresh = self.allocate(&rest, line).await;
            held = found.into_device();
        } else {
            // The run is no longer than the device, so it fits.
            let options = OnboardOptions::default().request(line);
            let Ok(onboard) = manager.default_group().onboard(found, options) else { return };
            fresh = self.allocate(&rest, line).await;
            held = onboard.await.blocks;
            self.tally.onboard.record(nanoseconds(since));
        }
        if held.len() < run {
            // Blocks that did not arrive are computed again.
            let mut lost = self.look_up(held.len()..run, true);
            let more = self.allocate(&lost, line).await;
            fresh = match (fresh, more) {
                // Appending cannot fail: both are of one manager and group.
                (Some(mut fresh), Some(more)) => fresh.append(more).map(|()| fresh).ok(),
                (fresh, more) => fresh.or(more),
            };
            lost.append(&mut rest);
            rest = lost;
        }
        self.verify(&held, ids, line);
        self.fill(&mut held, fresh, rest, ids, line);
        self.tally.uncached_blocks += (blocks - held.len()) as u64;

        let since = Instant::now();
        drop(held);
        self.tally.release.record(nanoseconds(since));
    }

    /// Looks the rest up in the device, and holds the blocks found, so that they are
    /// not evicted for the others.
    fn look_up(&self, range: Range<usize>, found: bool) -> Vec<Rest> {
        let (mut rest, mut missing) = (Vec::new(), 0);
        let mut at = range.start;
        while at < range.end {
            let there = self.tiers.manager.default_group().match_noted(&self.hashes[at..range.end]);
            at += there.len();
            if !there.is_empty() {
                if missing > 0 {
                    rest.push(Rest::Missing(missing));
                    missing = 0;
                }
                rest.push(Rest::There(there, found));
            }
            if at < range.end {
                missing += 1;
                at += 1;
            }
        }
        if missing > 0 {
            rest.push(Rest::Missing(missing));
        }
        rest
    }

    /// Allocates the missing blocks. Returns `None` if none is missing, or if the deadline passed, which
    /// admission prevents (I1 of `run.rs`); the missing blocks are then not served.
    async fn allocate(&mut self, rest: &[Rest], line: u64) -> Option<BlocksMut> {
        let missing = |rest: &Rest| if let Rest::Missing(count) = rest { *count } else { 0 };
        let needed = rest.iter().map(missing).sum::<usize>();
        let since = Instant::now();
        let blocks = match needed {
            0 => None,
            _ => self.tiers.manager.default_group().allocate(needed).request(line).await.ok(),
        };
        self.tally.allocation.record(nanoseconds(since));
        blocks
    }

    /// Reads every hit back from the device and compares it with the bytes of its id.
    fn verify(&mut self, held: &Blocks, ids: &[u64], line: u64) {
        let origins = std::mem::take(&mut self.origins);
        for ((block, origin), id) in held.ids().zip(&origins).zip(ids) {
            // A block that another request onboarded was in the device when this request got it.
            self.verify_one(block, origin.unwrap_or(Tier::Device), *id, line);
        }
        self.origins = origins;
    }

    fn verify_one(&mut self, block: BlockId, tier: Tier, id: u64, line: u64) {
        self.tally.hit(tier);
        if self.tiers.port.copy_out(block.0, 0, &mut self.scratch).is_err() {
            self.tally.unread += 1;
            return;
        }
        self.tally.verified_blocks += 1;
        if let Err(mismatch) = self.pattern.verify(id, &self.scratch) {
            self.tally.wrong(line, id, tier, mismatch);
        }
    }

    /// Fills the rest, up to the first block that cannot be filled.
    fn fill(
        &mut self,
        held: &mut Blocks,
        mut fresh: Option<BlocksMut>,
        rest: Vec<Rest>,
        ids: &[u64],
        line: u64,
    ) {
        for part in rest {
            match part {
                Rest::There(there, found) => {
                    let hits = if found { there.len() } else { 0 };
                    for (block, id) in there.ids().zip(&ids[held.len()..]).take(hits) {
                        self.verify_one(block, Tier::Device, *id, line);
                    }
                    // Appending cannot fail: both are of one manager and group.
                    let _ = held.append(there);
                }
                Rest::Missing(count) => {
                    let Some(blocks) = fresh.as_mut().map(|fresh| fresh.split_to(count)) else { return };
                    if !self.fill_list(held, blocks, ids) {
                        return;
                    }
                }
            }
        }
    }

    /// Fills the next blocks, as an engine would compute them, and registers them. Returns false if the
    /// device refused the bytes of one block; that block and the following ones are then missing.
    fn fill_list(&mut self, held: &mut Blocks, mut blocks: BlocksMut, ids: &[u64]) -> bool {
        let (next, count) = (held.len(), blocks.len());
        let filled = (next..).zip(blocks.ids()).take_while(|(at, id)| {
            let since = Instant::now();
            self.pattern.fill(ids[*at], &mut self.scratch);
            let written = self.tiers.port.copy_in(id.0, 0, &self.scratch).is_ok();
            match written {
                true => self.tally.filled.add(self.scratch.len(), since),
                false => self.tally.unwritten += 1,
            }
            written
        });
        let filled = filled.count();
        let registered = blocks.split_to(filled).register(&self.hashes[next..next + filled], Some(held));
        let appended = registered.is_ok_and(|filled| held.append(filled).is_ok());
        appended && filled == count
    }
}

pub(super) fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
