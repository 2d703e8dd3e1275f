//! Calls that move no bytes, beside the core's handles: the time that the façade adds to a block and to
//! a request.
//!
//! Both have a pool of [`CAPACITY`] blocks, with the policy that a device has by default, visited in the
//! same scattered order. The manager's calls need not wait here, and are polled once.

use super::ground::{build, now, settings};
use super::report::{Cell, Table};
use crate::disk::Failure;
use crate::inputs::{Scattered, sequence};
use crate::ours::{self, AllocateFree, register};
use crate::rounds::{Effort, Samples};
use crate::work::{Timed, Work};
use crate::{CAPACITY, PREFIX};
use kvstrata::manager::KvBlockManager;
use kvstrata_core::{BlockPool, CompleteBlock, ImmutableBlock, MutableBlock, Policy, SequenceHash};

/// Blocks of a request.
const SIZES: [usize; 4] = [1, 16, 128, 1024];
/// Bytes of a block: the minimum, since none are moved.
const BLOCK_BYTES: usize = 64;
/// Sequences from here on are in no pool yet.
const FRESH: u64 = 1 << 32;
/// Nanoseconds a block and a request that the façade may add.
const REACH: [f64; 2] = [300.0, 2000.0];

/// Finds a run and releases it, by the core.
struct CoreHit<'p> {
    pool: &'p BlockPool,
    hashes: &'p [SequenceHash],
    blocks: usize,
    order: Scattered,
    held: Vec<ImmutableBlock<'p>>,
}

impl Work for CoreHit<'_> {
    fn items(&self) -> u64 {
        self.blocks as u64
    }

    #[inline]
    fn run(&mut self) {
        let hashes = &self.hashes[self.order.step() * self.blocks..][..self.blocks];
        assert_eq!(self.pool.match_prefix(hashes, &mut self.held), self.blocks);
        self.pool.release(self.held.drain(..).rev());
    }
}

/// The same by the façade.
struct Hit<'p> {
    manager: &'p KvBlockManager,
    hashes: &'p [SequenceHash],
    blocks: usize,
    order: Scattered,
}

impl Work for Hit<'_> {
    fn items(&self) -> u64 {
        self.blocks as u64
    }

    #[inline]
    fn run(&mut self) {
        let hashes = &self.hashes[self.order.step() * self.blocks..][..self.blocks];
        let found = self.manager.default_group().match_prefix(hashes);
        assert!(found.is_ready() && found.len() == self.blocks);
    }
}

/// Allocates free blocks and releases them, by the façade. (By the core: [`AllocateFree`].)
struct Allocate<'p> {
    manager: &'p KvBlockManager,
    blocks: usize,
}

impl Work for Allocate<'_> {
    fn items(&self) -> u64 {
        self.blocks as u64
    }

    #[inline]
    fn run(&mut self) {
        drop(now(self.manager.default_group().allocate(self.blocks)).expect("free blocks"));
    }
}

/// Names that no pool knows, made before the clock starts.
#[derive(Default)]
pub(super) struct Fresh {
    hashes: Vec<SequenceHash>,
    taken: usize,
    number: u64,
}

impl Fresh {
    /// Starts names that are distinct from those of other starts, for all requests that there may be.
    pub(super) fn start_at(&mut self, start: u64) {
        self.number = start << 24;
    }

    pub(super) fn make(&mut self, requests: u64, blocks: usize) {
        self.hashes.clear();
        self.taken = 0;
        for _ in 0..requests {
            sequence(FRESH + self.number, blocks, &mut self.hashes);
            self.number += 1;
        }
    }

    pub(super) fn take(&mut self, blocks: usize) -> &[SequenceHash] {
        self.taken += blocks;
        &self.hashes[self.taken - blocks..self.taken]
    }
}

/// Allocates by eviction, registers, releases, by the core.
struct CoreCycle<'p> {
    pool: &'p BlockPool,
    blocks: usize,
    fresh: Fresh,
    owned: Vec<MutableBlock<'p>>,
    complete: Vec<CompleteBlock<'p>>,
    held: Vec<ImmutableBlock<'p>>,
}

impl Work for CoreCycle<'_> {
    fn items(&self) -> u64 {
        self.blocks as u64
    }

    fn prepare(&mut self, runs: u64) {
        self.fresh.make(runs, self.blocks);
    }

    #[inline]
    fn run(&mut self) {
        let hashes = self.fresh.take(self.blocks);
        self.pool.allocate(self.blocks, &mut self.owned).expect("all are evictable");
        register(self.pool, &mut self.owned, &mut self.complete, hashes, &mut self.held);
        self.pool.release(self.held.drain(..).rev());
    }
}

/// The same by the façade, without a tier below: nothing is copied.
struct Cycle<'p> {
    manager: &'p KvBlockManager,
    blocks: usize,
    fresh: Fresh,
    /// Uses the call that does not wait.
    at_once: bool,
}

impl Work for Cycle<'_> {
    fn items(&self) -> u64 {
        self.blocks as u64
    }

    fn prepare(&mut self, runs: u64) {
        self.fresh.make(runs, self.blocks);
    }

    #[inline]
    fn run(&mut self) {
        let blocks = match self.at_once {
            true => self.manager.default_group().try_allocate(self.blocks).expect("all are evictable"),
            false => now(self.manager.default_group().allocate(self.blocks)).expect("all are evictable"),
        };
        drop(blocks.register(self.fresh.take(self.blocks), None).expect("fresh names"));
    }
}

/// Makes a manager with a device full of blocks without holders, in the core's sequences.
pub(super) fn full(host: u32) -> Result<KvBlockManager, Failure> {
    let manager = build(settings(BLOCK_BYTES, CAPACITY, host))?;
    for number in 0..u64::from(CAPACITY) / PREFIX as u64 {
        let mut hashes = Vec::with_capacity(PREFIX);
        sequence(number, PREFIX, &mut hashes);
        let blocks = now(manager.default_group().allocate(PREFIX))?;
        drop(blocks.register(&hashes, None).map_err(|error| error.why)?);
    }
    Ok(manager)
}

/// Measures this part.
///
/// # Errors
/// A manager that cannot be made.
pub fn measure(effort: Effort) -> Result<Vec<Table>, Failure> {
    let mut table = Table::new(
        "Calls that move no bytes, by the façade and by the core's handles; nanoseconds a request",
        &[
            "operation",
            "blocks",
            "core",
            "façade",
            "more, a block",
            "reach, a block",
            "more, a request",
            "reach, a request",
        ],
    );
    let mut rows = |what: &str, blocks: usize, core: &mut dyn Timed, ours: &mut dyn Timed| {
        let samples = Samples::take(effort, &mut [core, ours]);
        let more = samples.more(1, 0);
        let (a_block, request) = (more.per(blocks as f64), blocks == 1);
        table.rows.push(vec![
            Cell::word(what),
            Cell::number(blocks as f64, 0),
            Cell::figure(samples.time(0), 0),
            Cell::figure(samples.time(1), 0),
            Cell::range(a_block, 1),
            if request { Cell::none() } else { Cell::reach("≤ 300", a_block.median <= REACH[0]) },
            Cell::range(more, 0),
            if request { Cell::reach("≤ 2,000", more.median <= REACH[1]) } else { Cell::none() },
        ]);
    };
    {
        let (pool, manager) = (ours::pool_by(Policy::Reuse, CAPACITY), full(1024)?);
        let hashes = ours::fill(&pool).concat();
        for blocks in SIZES {
            let order = Scattered::new(CAPACITY as usize / blocks);
            let mut ours = Hit { manager: &manager, hashes: &hashes, blocks, order: order.clone() };
            let held = Vec::with_capacity(blocks);
            let mut core = CoreHit { pool: &pool, hashes: &hashes, blocks, order, held };
            rows("device hit: match and release", blocks, &mut core, &mut ours);
        }
    }
    {
        let (pool, manager) =
            (ours::pool_by(Policy::Reuse, CAPACITY), build(settings(BLOCK_BYTES, CAPACITY, 1024))?);
        for blocks in SIZES {
            let mut ours = Allocate { manager: &manager, blocks };
            rows("allocate and free", blocks, &mut AllocateFree::new(&pool, blocks), &mut ours);
        }
    }
    for at_once in [false, true] {
        let (pool, manager) = (ours::pool_by(Policy::Reuse, CAPACITY), full(0)?);
        ours::fill(&pool);
        let what = match at_once {
            false => "allocate by eviction, register, release",
            true => "the same, try_allocate",
        };
        for blocks in SIZES {
            let (owned, complete, held) =
                (Vec::with_capacity(blocks), Vec::with_capacity(blocks), Vec::with_capacity(blocks));
            let (mut fresh, mut same) = (Fresh::default(), Fresh::default());
            // Names are used once in all rows of a pool.
            fresh.start_at(blocks as u64);
            same.start_at(blocks as u64);
            let mut core = CoreCycle { pool: &pool, blocks, fresh, owned, complete, held };
            rows(what, blocks, &mut core, &mut Cycle { manager: &manager, blocks, fresh: same, at_once });
        }
    }
    table.notes.push(format!(
        "A device of {CAPACITY} blocks; the thread's own time. \"More\" is taken within a round; a request of one block has the request's part and a block's."
    ));
    Ok(vec![table])
}
