//! Random strings of operations on the pool and on the oracle (see `model/mod.rs`), for every policy.

#[path = "model/mod.rs"]
mod model;

use kvstrata_core::Policy;
use model::{Operation, Setup};
use proptest::prelude::*;

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        1 => any::<u8>().prop_map(|count| Operation::AllocateAndDrop { count }),
        6 => any::<(u8, u8)>().prop_map(|(from, count)| Operation::Store { from, count }),
        2 => any::<(u8, u8, u8)>().prop_map(|(evict, from, count)| Operation::EvictThenStore { evict, from, count }),
        6 => any::<(u8, u8)>().prop_map(|(from, count)| Operation::Match { from, count }),
        2 => any::<(u8, u8)>().prop_map(|(from, step)| Operation::MatchAny { from, step }),
        8 => any::<(u8, bool)>().prop_map(|(count, tail_first)| Operation::Release { count, tail_first }),
        1 => any::<u8>().prop_map(|which| Operation::DropOne { which }),
        1 => any::<u8>().prop_map(|which| Operation::CloneOne { which }),
        1 => any::<(u8, u8)>().prop_map(|(which, class)| Operation::SetPriority { which, class }),
        1 => any::<u8>().prop_map(|hash| Operation::Unregister { hash }),
        1 => any::<u8>().prop_map(|which| Operation::Upgrade { which }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_pool_does_what_the_oracle_does(
        policy in prop::sample::select(Policy::ALL.to_vec()),
        capacity in 1u8..100,
        page_size in 1u8..20,
        operations in prop::collection::vec(operation(), 1..400),
    ) {
        model::run(Setup { policy, capacity, page_size }, &operations);
    }
}
