//! Instruction counts of our operations, under valgrind's callgrind: the same on a busy machine as on an
//! idle one.
#![allow(missing_docs, reason = "items of the benchmark macros have no documentation")]

use gungraun::{library_benchmark, library_benchmark_group, main};
use kvstrata_benches::ours::{self, AllocateFree, LifeCycle, MatchPrefix, Split};
use kvstrata_benches::work::Work;
use kvstrata_core::{BlockPool, SequenceHash};
use std::hint::black_box;

/// Enough for the operations to take their usual course; building the pool under valgrind takes a moment.
const CAPACITY: u32 = 4_096;

/// Lives as long as the process: the measured operation borrows it, and its drop is not measured.
fn filled() -> (&'static BlockPool, &'static [Vec<SequenceHash>]) {
    let pool = Box::leak(Box::new(ours::pool(CAPACITY)));
    (pool, ours::fill(pool).leak())
}

/// Prepared, and warmed up.
fn ready<W: Work>(mut work: W) -> W {
    work.prepare(2);
    work.run();
    work
}

fn allocate(n: usize) -> AllocateFree<'static> {
    ready(AllocateFree::new(Box::leak(Box::new(ours::pool(CAPACITY))), n))
}

fn inactive() -> MatchPrefix<'static> {
    let (pool, prefixes) = filled();
    ready(MatchPrefix::inactive(pool, prefixes))
}

fn active() -> MatchPrefix<'static> {
    let (pool, prefixes) = filled();
    ready(MatchPrefix::active(pool, prefixes))
}

#[library_benchmark]
#[bench::one(allocate(1))]
#[bench::sixty_four(allocate(64))]
fn allocate_free(mut work: AllocateFree<'static>) -> AllocateFree<'static> {
    work.run();
    black_box(work)
}

#[library_benchmark]
#[bench::sixteen(ready(LifeCycle::new(filled().0)))]
fn life_cycle(mut work: LifeCycle<'static>) -> LifeCycle<'static> {
    work.run();
    black_box(work)
}

#[library_benchmark]
#[bench::inactive(inactive())]
#[bench::active(active())]
fn match_128(mut work: MatchPrefix<'static>) -> MatchPrefix<'static> {
    work.run();
    black_box(work)
}

#[library_benchmark]
#[bench::k128(ready(Split::anew()))]
fn tokens(mut work: Split) -> Split {
    work.run();
    black_box(work)
}

library_benchmark_group!(name = kvstrata, benchmarks = [allocate_free, life_cycle, match_128, tokens]);
main!(library_benchmark_groups = kvstrata);
