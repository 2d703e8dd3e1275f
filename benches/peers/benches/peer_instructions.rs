//! Instruction counts of the peers' operations; ours are in `benches/instructions.rs`, under the same names.
#![allow(missing_docs, reason = "items of the benchmark macros have no documentation")]

use gungraun::{library_benchmark, library_benchmark_group, main};
use kvstrata_bench_peers::kvbm::{self, AllocateFree, LifeCycle, Manager, MatchPrefix, Setup};
use kvstrata_bench_peers::tokens::Split;
use kvstrata_benches::work::Work;
use std::hint::black_box;

/// As ours.
const CAPACITY: u32 = 4_096;

fn manager() -> &'static Manager {
    Box::leak(Box::new(kvbm::manager(Setup::Documented, CAPACITY)))
}

fn ready<W: Work>(mut work: W) -> W {
    work.prepare(2);
    work.run();
    work
}

fn inactive() -> MatchPrefix<'static> {
    let manager = manager();
    ready(MatchPrefix::inactive(manager, kvbm::fill(manager).leak()))
}

fn active() -> MatchPrefix<'static> {
    let manager = manager();
    ready(MatchPrefix::active(manager, kvbm::fill(manager).leak()))
}

fn cycle() -> LifeCycle<'static> {
    let manager = manager();
    kvbm::fill(manager);
    ready(LifeCycle::new(manager))
}

#[library_benchmark]
#[bench::one(ready(AllocateFree::new(manager(), 1)))]
#[bench::sixty_four(ready(AllocateFree::new(manager(), 64)))]
fn allocate_free(mut work: AllocateFree<'static>) -> AllocateFree<'static> {
    work.run();
    black_box(work)
}

#[library_benchmark]
#[bench::sixteen(cycle())]
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
#[bench::k128(ready(Split::default()))]
fn tokens(mut work: Split) -> Split {
    work.run();
    black_box(work)
}

library_benchmark_group!(name = peers, benchmarks = [allocate_free, life_cycle, match_128, tokens]);
main!(library_benchmark_groups = peers);
