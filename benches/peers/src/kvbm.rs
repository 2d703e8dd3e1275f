//! The operations on `kvbm-logical`'s `BlockManager`. Ours are in `kvstrata_benches::ours`, under the
//! same names.
//!
//! The calls are those of its README and of its own `benches/block_manager.rs`: `allocate_blocks`,
//! `stage`, `register_blocks` (its batch form, one lock), `match_blocks`, and drop to release.

use dynamo_tokens::PositionalLineageHash as SequenceHash;
use kvbm_logical::manager::FrequencyTrackingCapacity;
use kvbm_logical::{BlockManager, BlockRegistry, CompleteBlock, ImmutableBlock, MutableBlock};
use kvstrata_benches::inputs::{Scattered, mix};
use kvstrata_benches::work::Work;
use kvstrata_benches::{CYCLE, PAGE, PREFIX};
use std::hint::black_box;

const FRESH: u64 = 1 << 32;

/// The tier that its type parameter marks.
#[derive(Clone, Debug)]
pub struct Tier;

/// The peer's manager of blocks.
pub type Manager = BlockManager<Tier>;

/// The configuration of a manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setup {
    /// As its README and its feature `testing` build it: LRU, a registry with a TinyLFU tracker of
    /// medium size.
    Documented,
    /// The least that its builder accepts: LRU, no tracker.
    Leanest,
}

/// Makes a manager of `capacity` free blocks.
pub fn manager(setup: Setup, capacity: u32) -> Manager {
    let registry = match setup {
        Setup::Documented => {
            BlockRegistry::builder().frequency_tracker(FrequencyTrackingCapacity::Medium.create_tracker())
        }
        Setup::Leanest => BlockRegistry::builder(),
    };
    let builder = Manager::builder().block_count(capacity as usize).block_size(PAGE as usize);
    builder.registry(registry.build()).with_lru_backend().build().expect("a valid configuration")
}

/// Appends the `len` hashes of sequence `number`, each with its position and its parent, as
/// `dynamo-tokens` would make them.
fn sequence(number: u64, len: usize, out: &mut Vec<SequenceHash>) {
    let mut parent = None;
    out.extend((0..len as u64).map(|position| {
        let hash = mix((number << 20) | position);
        SequenceHash::new(hash, parent.replace(hash), position)
    }));
}

/// Fills the manager with inactive blocks, in sequences of [`PREFIX`], and returns the hashes of each.
pub fn fill(manager: &Manager) -> Vec<Vec<SequenceHash>> {
    let prefixes = (0..manager.total_blocks() / PREFIX).map(|number| {
        let mut hashes = Vec::with_capacity(PREFIX);
        sequence(number as u64, PREFIX, &mut hashes);
        let blocks = manager.allocate_blocks(PREFIX).expect("room");
        drop(register(manager, blocks, &hashes));
        hashes
    });
    prefixes.collect()
}

fn register(
    manager: &Manager,
    blocks: Vec<MutableBlock<Tier>>,
    hashes: &[SequenceHash],
) -> Vec<ImmutableBlock<Tier>> {
    let stage = |(block, hash): (MutableBlock<Tier>, &SequenceHash)| -> CompleteBlock<Tier> {
        block.stage(*hash, PAGE as usize).expect("a fresh block")
    };
    manager.register_blocks(blocks.into_iter().zip(hashes).map(stage).collect())
}

/// Allocates `n` blocks and frees them.
pub struct AllocateFree<'p> {
    manager: &'p Manager,
    n: usize,
}

impl<'p> AllocateFree<'p> {
    /// Takes `n` blocks of `manager`, which has free ones.
    pub fn new(manager: &'p Manager, n: usize) -> Self {
        AllocateFree { manager, n }
    }
}

impl Work for AllocateFree<'_> {
    fn items(&self) -> u64 {
        self.n as u64
    }

    #[inline]
    fn run(&mut self) {
        drop(black_box(self.manager.allocate_blocks(self.n).expect("room")));
    }
}

/// [`CYCLE`] blocks: allocated by eviction, filled, registered, released, matched, released.
pub struct LifeCycle<'p> {
    manager: &'p Manager,
    hashes: Vec<SequenceHash>,
    next: usize,
    number: u64,
}

impl<'p> LifeCycle<'p> {
    /// Works in `manager`, which [`fill`] has filled.
    pub fn new(manager: &'p Manager) -> Self {
        LifeCycle { manager, hashes: Vec::new(), next: 0, number: FRESH }
    }
}

impl Work for LifeCycle<'_> {
    fn items(&self) -> u64 {
        CYCLE as u64
    }

    fn prepare(&mut self, runs: u64) {
        self.hashes.clear();
        self.next = 0;
        for _ in 0..runs {
            sequence(self.number, CYCLE, &mut self.hashes);
            self.number += 1;
        }
    }

    #[inline]
    fn run(&mut self) {
        let hashes = &self.hashes[self.next..][..CYCLE];
        self.next += CYCLE;
        let blocks = self.manager.allocate_blocks(CYCLE).expect("all are evictable");
        drop(register(self.manager, blocks, hashes));
        let matched = self.manager.match_blocks(hashes);
        assert_eq!(matched.len(), CYCLE);
    }
}

/// Matches a prefix of [`PREFIX`] blocks and releases it; another prefix each time, over the whole pool.
pub struct MatchPrefix<'p> {
    manager: &'p Manager,
    prefixes: &'p [Vec<SequenceHash>],
    order: Scattered,
    /// References of other holders.
    _others: Vec<Vec<ImmutableBlock<Tier>>>,
}

impl<'p> MatchPrefix<'p> {
    /// Matches prefixes without holders.
    pub fn inactive(manager: &'p Manager, prefixes: &'p [Vec<SequenceHash>]) -> Self {
        MatchPrefix { manager, prefixes, order: Scattered::new(prefixes.len()), _others: Vec::new() }
    }

    /// Matches prefixes that another holder has, all of them.
    pub fn active(manager: &'p Manager, prefixes: &'p [Vec<SequenceHash>]) -> Self {
        let others = prefixes.iter().map(|prefix| manager.match_blocks(prefix)).collect();
        MatchPrefix { _others: others, ..MatchPrefix::inactive(manager, prefixes) }
    }
}

impl Work for MatchPrefix<'_> {
    fn items(&self) -> u64 {
        PREFIX as u64
    }

    #[inline]
    fn run(&mut self) {
        let matched = self.manager.match_blocks(&self.prefixes[self.order.step()]);
        assert_eq!(matched.len(), PREFIX);
    }
}
