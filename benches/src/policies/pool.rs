//! A pool of the core, run over a trace: match, evict, register, release tail first.
//!
//! One tier, all of a request's victims before its registrations; one request at a time, or many that
//! are in use for as long as they fit.

use super::traffic::{Trace, key_of};
use kvstrata_core::{
    BlockPool, CompleteBlock, ImmutableBlock, MutableBlock, Policy, PoolConfig, Priority, SequenceHash,
};
use std::collections::{HashSet, VecDeque};
use std::time::Instant;

/// A request's work takes less: longer times were interrupted.
const INTERRUPTED_NS: u64 = 100_000;

/// The counts of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Blocks of leading runs that were found.
    pub hits: u64,
    /// Blocks that were evicted.
    pub evictions: u64,
    /// Nanoseconds of the evictions that were timed.
    pub evict_ns: u64,
    /// Evictions that were timed, and not interrupted.
    pub evictions_timed: u64,
    /// Nanoseconds of hits, registrations and releases.
    pub touch_ns: u64,
    /// Blocks that looks at the next victims have shown, and nanoseconds of the looks.
    pub shown: u64,
    /// See `shown`.
    pub look_ns: u64,
    /// Evicted blocks that were shown as the next so many.
    pub foreseen: u64,
}

/// The way in which a trace is run.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// Blocks that requests keep in use; see [`run_held`].
    pub in_use: usize,
    /// Whether the run is timed.
    pub timed: bool,
    /// Maximum victims of one call.
    pub most: usize,
    /// Number of next victims that are looked at before each eviction.
    pub look: usize,
    /// For each request, the number of leading blocks that are of use: those behind get the least priority.
    pub of_use: Option<&'a [usize]>,
    /// The number of the set of hashes that blocks have: a policy may choose its samples by them.
    pub names: u64,
}

impl How<'static> {
    /// One request at a time, without timing.
    pub const PLAIN: How<'static> =
        How { in_use: 0, timed: false, most: usize::MAX, look: 0, of_use: None, names: 0 };
}

/// Makes a pool of so many blocks, for one thread.
#[must_use]
pub fn pool(policy: Policy, capacity: usize) -> BlockPool {
    let config = PoolConfig::new(capacity as u32).policy(policy).lane_of(|| 0);
    BlockPool::new(config).expect("from 1 to 268,435,456 blocks")
}

/// Appends the names of blocks.
pub(super) fn hashes_of(ids: &[u32], names: u64, out: &mut Vec<SequenceHash>) {
    out.clear();
    out.extend(ids.iter().map(|id| hash_of(*id, names)));
}

fn hash_of(id: u32, names: u64) -> SequenceHash {
    // Multiplied by an odd number, and rotated: another bijection for each set.
    let key = key_of(id).wrapping_mul(2 * names + 1).rotate_left(7 * names as u32);
    SequenceHash::from_u128((u128::from(key) << 64) | u128::from(key.rotate_left(17) ^ u64::from(id)))
}

/// Runs the trace over a pool of so many blocks; a request longer than the pool is cut off.
#[must_use]
pub fn run(trace: &Trace, policy: Policy, capacity: usize, timed: bool) -> Outcome {
    run_so(trace, policy, capacity, How { timed, ..How::PLAIN })
}

/// Runs the same, but a request keeps its blocks in use while at most `in_use` blocks are: beyond that the
/// oldest releases its own. The rest of the pool is for a request's blocks; a longer request is cut off.
#[must_use]
pub fn run_held(trace: &Trace, policy: Policy, capacity: usize, in_use: usize, timed: bool) -> Outcome {
    run_so(trace, policy, capacity, How { in_use, timed, ..How::PLAIN })
}

/// Runs the trace as `how` says.
#[must_use]
pub fn run_so(trace: &Trace, policy: Policy, capacity: usize, how: How<'_>) -> Outcome {
    let How { in_use, timed, most, look, of_use, names } = how;
    let pool = pool(policy, capacity);
    let mut next = vec![];
    let mut requests = VecDeque::new();
    let mut out = Outcome::default();
    let (mut hashes, mut victims, mut fresh, mut run) = (vec![], vec![], vec![], vec![]);
    let (mut found, mut held): (Vec<ImmutableBlock<'_>>, Vec<ImmutableBlock<'_>>) = (vec![], vec![]);
    for (at, request) in trace.requests.iter().enumerate() {
        let ids = &request.ids[..request.ids.len().min(capacity - in_use)];
        hashes_of(ids, names, &mut hashes);
        let watch = Watch::start(timed);
        let leading = pool.match_prefix(&hashes, &mut found);
        pool.match_any(&hashes[leading..], &mut found);
        out.touch_ns += watch.stop().unwrap_or(0);
        out.hits += leading as u64;
        let missing = hashes.len() - found.len();
        let wanted = missing.saturating_sub(pool.free());
        if look > 0 && wanted > 0 {
            next.clear();
            let watch = Watch::start(true);
            pool.next_victims(look, &mut next);
            if let Some(ns) = watch.stop() {
                (out.look_ns, out.shown) = (out.look_ns + ns, out.shown + next.len() as u64);
            }
        }
        let watch = Watch::start(timed);
        let mut evicted = 0;
        while evicted < wanted && pool.evict(most.min(wanted - evicted), &mut victims) > 0 {
            evicted = victims.len();
        }
        if let Some(ns) = watch.stop() {
            out.evict_ns += ns;
            out.evictions_timed += evicted as u64;
        }
        assert_eq!(evicted, wanted, "a request is at most as long as the pool");
        out.evictions += evicted as u64;
        let foreseen: HashSet<_> = next.iter().take(wanted).map(|(_, hash)| *hash).collect();
        out.foreseen += victims.iter().filter(|victim| foreseen.contains(&victim.hash())).count() as u64;
        victims.clear();
        pool.allocate(missing, &mut fresh).expect("as many were evicted");
        let watch = Watch::start(timed);
        store(&pool, &hashes, &mut found, &mut fresh, &mut run, &mut held);
        if let Some(of_use) = of_use {
            held.iter().skip(of_use[at]).for_each(|block| block.set_priority(Priority::Low));
        }
        if in_use > 0 {
            requests.push_back(std::mem::take(&mut held));
            while pool.active() > in_use
                && let Some(mut oldest) = requests.pop_front()
            {
                pool.release(oldest.drain(..).rev());
            }
        }
        pool.release(held.drain(..).rev());
        out.touch_ns += watch.stop().unwrap_or(0);
    }
    out
}

/// Holds all blocks of a request: those that were found, and new ones, registered behind those before them.
pub(super) fn store<'p>(
    pool: &'p BlockPool,
    hashes: &[SequenceHash],
    found: &mut Vec<ImmutableBlock<'p>>,
    fresh: &mut Vec<MutableBlock<'p>>,
    run: &mut Vec<CompleteBlock<'p>>,
    held: &mut Vec<ImmutableBlock<'p>>,
) {
    let mut there = found.drain(..).peekable();
    for hash in hashes {
        match there.next_if(|block| block.hash() == *hash) {
            Some(block) => {
                register(pool, run, held);
                held.push(block);
            }
            None => {
                let block = fresh.pop().expect("as many as are missing");
                run.push(block.complete(*hash).expect("a new block is Reset"));
            }
        }
    }
    drop(there);
    register(pool, run, held);
}

fn register<'p>(pool: &'p BlockPool, run: &mut Vec<CompleteBlock<'p>>, held: &mut Vec<ImmutableBlock<'p>>) {
    if !run.is_empty() {
        let parent = held.last().cloned();
        pool.register_sequence(run, parent.as_ref(), held);
        // Its own handle still holds it, so this is not its last release.
        drop(parent);
    }
}

/// A timer that rejects interrupted times.
struct Watch(Option<Instant>);

impl Watch {
    fn start(timed: bool) -> Watch {
        Watch(timed.then(Instant::now))
    }

    /// Returns nanoseconds; none if the time was interrupted, or nothing is timed.
    fn stop(self) -> Option<u64> {
        self.0.map(|start| start.elapsed().as_nanos() as u64).filter(|ns| *ns < INTERRUPTED_NS)
    }
}
