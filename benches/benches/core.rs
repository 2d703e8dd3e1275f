//! Criterion: our operations alone. Beside the peers they are in `peers/benches/operations.rs`.
#![allow(missing_docs, reason = "items of the benchmark macros have no documentation")]

use criterion::{Criterion, criterion_group, criterion_main};
use kvstrata_benches::work::{Timed, Together};
use kvstrata_benches::{CAPACITY, ours};
use kvstrata_core::Policy;

fn operations(criterion: &mut Criterion) {
    let mut measure = |name: &str, work: &mut dyn Timed| {
        criterion.bench_function(name, |bencher| bencher.iter_custom(|runs| work.time(runs)));
    };

    let pool = ours::pool(CAPACITY);
    let allocate = |n| ours::AllocateFree::new(&pool, n);
    measure("allocate_free/1", &mut allocate(1));
    measure("allocate_free/64", &mut allocate(64));
    measure("allocate_free/1, 2 threads", &mut Together::new([allocate(1), allocate(1)]));
    measure("allocate_free/64, 2 threads", &mut Together::new([allocate(64), allocate(64)]));

    let prefixes = ours::fill(&pool);
    measure("match_128/inactive", &mut ours::MatchPrefix::inactive(&pool, &prefixes));
    measure("match_128/active", &mut ours::MatchPrefix::active(&pool, &prefixes));
    measure("life_cycle_16", &mut ours::LifeCycle::new(&pool));
    measure("tokens_131072", &mut ours::Split::anew());

    for policy in Policy::ALL {
        let pool = ours::pool_by(policy, CAPACITY);
        println!("{policy}: {:.1} bytes a block", pool.memory_bytes() as f64 / f64::from(CAPACITY));
        ours::fill(&pool);
        measure(&format!("evict_16/{policy}"), &mut ours::Evict::new(&pool));
        measure(&format!("life_cycle_16/{policy}"), &mut ours::LifeCycle::new(&pool));
    }
}

criterion_group!(benches, operations);
criterion_main!(benches);
