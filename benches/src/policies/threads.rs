//! A pool of the core, run over a trace by several threads: each takes the next request, and makes all
//! of its calls.
//!
//! A request costs its thread's own time. The machine decides which request comes before which,
//! so hits differ from run to run.

use super::pool::{hashes_of, store};
use super::traffic::Trace;
use crate::clock::thread_time;
use kvstrata_core::{BlockPool, ImmutableBlock, Policy, PoolConfig};
use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

thread_local! {
    static LANE: Cell<usize> = const { Cell::new(0) };
}

/// The counts of a run of several threads.
#[derive(Clone, Copy, Debug)]
pub struct Together {
    /// Blocks of leading runs that were found.
    pub hits: u64,
    /// Nanoseconds of the threads' own time, a block of the trace.
    pub own_ns: f64,
    /// Nanoseconds from the first request to the last, a block of the trace.
    pub wall_ns: f64,
    /// Blocks with events that the policy did not get; 0 for policies other than reuse.
    pub unheard: u64,
    /// Tries that its guard has ended; 0 for policies other than reuse.
    pub setbacks: u32,
}

/// Runs the trace by so many threads over a pool that has room for a request of each.
///
/// # Panics
/// If it has less room.
#[must_use]
pub fn run(trace: &Trace, policy: Policy, capacity: usize, threads: usize) -> Together {
    assert!(capacity >= threads * trace.longest(), "{capacity} blocks for {threads} requests at once");
    let config = PoolConfig::new(capacity as u32).policy(policy).lane_of(|| LANE.get());
    let pool = BlockPool::new(config).expect("from 1 to 268,435,456 blocks");
    let (next, begin) = (AtomicUsize::new(0), Barrier::new(threads + 1));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|lane| {
                let (pool, next, begin) = (&pool, &next, &begin);
                scope.spawn(move || {
                    LANE.set(lane);
                    begin.wait();
                    work(pool, trace, next)
                })
            })
            .collect();
        begin.wait();
        let start = Instant::now();
        let done = workers.into_iter().map(|worker| worker.join().expect("no panic"));
        let (hits, own) = done.fold((0, 0.0), |(hits, own), one| (hits + one.0, own + one.1));
        let blocks = trace.blocks as f64;
        let wall_ns = start.elapsed().as_nanos() as f64 / blocks;
        let reuse = pool.reuse_stats().unwrap_or_default();
        Together { hits, own_ns: own / blocks, wall_ns, unheard: reuse.unheard, setbacks: reuse.setbacks }
    })
}

/// Returns hits, and nanoseconds of the calling thread's time.
fn work(pool: &BlockPool, trace: &Trace, next: &AtomicUsize) -> (u64, f64) {
    let (mut hashes, mut fresh, mut run) = (vec![], vec![], vec![]);
    let (mut found, mut held): (Vec<ImmutableBlock<'_>>, Vec<ImmutableBlock<'_>>) = (vec![], vec![]);
    let (mut hits, start) = (0, thread_time());
    while let Some(request) = trace.requests.get(next.fetch_add(1, Relaxed)) {
        hashes_of(&request.ids, 0, &mut hashes);
        let leading = pool.match_prefix(&hashes, &mut found);
        pool.match_any(&hashes[leading..], &mut found);
        hits += leading as u64;
        // Another thread may hold the victims for a moment.
        while pool.allocate(hashes.len() - found.len(), &mut fresh).is_err() {
            thread::yield_now();
        }
        store(pool, &hashes, &mut found, &mut fresh, &mut run, &mut held);
        pool.release(held.drain(..).rev());
    }
    (hits, (thread_time() - start).as_nanos() as f64)
}
