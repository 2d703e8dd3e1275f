//! Criterion: each operation, the peer's and ours, in one group and one process.
//!
//! Criterion finishes one contender before it starts the next; for ratios on a shared
//! machine, see `src/bin/beside.rs`.
#![allow(missing_docs, reason = "items of the benchmark macros have no documentation")]

use criterion::{Criterion, criterion_group, criterion_main};
use kvstrata_bench_peers::kvbm::{self, Setup};
use kvstrata_bench_peers::{malloc, tokens};
use kvstrata_benches::work::{Timed, Together};
use kvstrata_benches::{CAPACITY, ours};

/// One group: the peer as documented, the peer at its leanest if that differs, ours.
fn group(criterion: &mut Criterion, name: &str, contenders: &mut [(&str, &mut dyn Timed)]) {
    let mut group = criterion.benchmark_group(name);
    for (who, work) in contenders {
        group.bench_function(*who, |bencher| bencher.iter_custom(|runs| work.time(runs)));
    }
    group.finish();
}

fn allocate(criterion: &mut Criterion) {
    let managers = [Setup::Documented, Setup::Leanest].map(|setup| kvbm::manager(setup, CAPACITY));
    let pool = ours::pool(CAPACITY);
    for n in [1, 64] {
        let theirs = |setup: usize| kvbm::AllocateFree::new(&managers[setup], n);
        let ours = || ours::AllocateFree::new(&pool, n);
        group(
            criterion,
            &format!("allocate_free_{n}"),
            &mut [("kvbm", &mut theirs(0)), ("kvbm-leanest", &mut theirs(1)), ("kvstrata", &mut ours())],
        );
        group(
            criterion,
            &format!("allocate_free_{n}_2_threads"),
            &mut [
                ("kvbm", &mut Together::new([theirs(0), theirs(0)])),
                ("kvstrata", &mut Together::new([ours(), ours()])),
            ],
        );
    }
}

fn registered(criterion: &mut Criterion) {
    let managers = [Setup::Documented, Setup::Leanest].map(|setup| kvbm::manager(setup, CAPACITY));
    let pool = ours::pool(CAPACITY);
    let theirs = managers.each_ref().map(kvbm::fill);
    let ours = ours::fill(&pool);
    group(
        criterion,
        "match_128_inactive",
        &mut [
            ("kvbm", &mut kvbm::MatchPrefix::inactive(&managers[0], &theirs[0])),
            ("kvbm-leanest", &mut kvbm::MatchPrefix::inactive(&managers[1], &theirs[1])),
            ("kvstrata", &mut ours::MatchPrefix::inactive(&pool, &ours)),
        ],
    );
    group(
        criterion,
        "match_128_active",
        &mut [
            ("kvbm", &mut kvbm::MatchPrefix::active(&managers[0], &theirs[0])),
            ("kvbm-leanest", &mut kvbm::MatchPrefix::active(&managers[1], &theirs[1])),
            ("kvstrata", &mut ours::MatchPrefix::active(&pool, &ours)),
        ],
    );
    group(
        criterion,
        "life_cycle_16",
        &mut [
            ("kvbm", &mut kvbm::LifeCycle::new(&managers[0])),
            ("kvbm-leanest", &mut kvbm::LifeCycle::new(&managers[1])),
            ("kvstrata", &mut ours::LifeCycle::new(&pool)),
        ],
    );
}

fn tokens(criterion: &mut Criterion) {
    let contenders = |malloc: &str, criterion: &mut Criterion| {
        let (mut theirs, mut ours) = (tokens::Split::default(), ours::Split::anew());
        let mut contenders: [(&str, &mut dyn Timed); 2] =
            [("dynamo-tokens", &mut theirs), ("kvstrata", &mut ours)];
        group(criterion, &format!("tokens_131072_{malloc}_malloc"), &mut contenders);
    };
    contenders("plain", criterion);
    if malloc::tune() {
        contenders("tuned", criterion);
    }
}

// Tokens first: the pools would change a plain malloc (see `malloc`), and a tuned one does not slow down
// the peer's pool.
criterion_group!(benches, tokens, allocate, registered);
criterion_main!(benches);
