//! Random strings of operations on the pool and on the oracle (see `model/mod.rs`), for every policy.

#[path = "model/mod.rs"]
mod model;

use kvstrata_core::{Duplicates, Policy};
use model::{Operation, Setup};
use proptest::prelude::*;

fn setup() -> impl Strategy<Value = Setup> {
    let policy = prop::sample::select(Policy::ALL.to_vec());
    // Two of three are as in engines.
    let duplicates = prop_oneof![2 => Just(Duplicates::Reject), 1 => Just(Duplicates::Keep)];
    (policy, duplicates, 1u8..100, 1u8..20, 0u8..8).prop_map(
        |(policy, duplicates, capacity, page_size, requests)| Setup {
            policy,
            duplicates,
            capacity,
            page_size,
            requests,
        },
    )
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec(any::<[u8; 4]>().prop_map(Operation::from_bytes), 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pool_under_random_operations_matches_the_oracle(setup in setup(), operations in operations()) {
        model::run(setup, &operations);
    }
}
