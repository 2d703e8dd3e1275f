//! Random operations on a pool and on its oracle: the model of the property test, steered by coverage.
#![no_main]

#[path = "../../core/tests/model/mod.rs"]
mod model;

use arbitrary::{Arbitrary, Result, Unstructured};
use kvstrata_core::Policy;
use libfuzzer_sys::fuzz_target;
use model::{Operation, Setup};

/// What one input says; `cargo fuzz fmt` prints it.
#[derive(Debug)]
struct Case {
    setup: Setup,
    operations: Vec<Operation>,
}

fuzz_target!(|case: Case| model::run(case.setup, &case.operations));

impl<'a> Arbitrary<'a> for Case {
    /// Three bytes say how the pool is built; the rest are operations, until nothing is left.
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Self> {
        let setup = Setup {
            policy: *input.choose(&Policy::ALL)?,
            capacity: input.int_in_range(1..=100)?,
            page_size: input.int_in_range(1..=20)?,
        };
        let mut operations = Vec::with_capacity(input.len());
        while !input.is_empty() {
            operations.push(operation(input)?);
        }
        Ok(Case { setup, operations })
    }
}

fn operation(input: &mut Unstructured<'_>) -> Result<Operation> {
    Ok(match input.int_in_range(0..=10_u8)? {
        0 => Operation::AllocateAndDrop { count: input.arbitrary()? },
        1 => Operation::Store { from: input.arbitrary()?, count: input.arbitrary()? },
        2 => Operation::EvictThenStore {
            evict: input.arbitrary()?,
            from: input.arbitrary()?,
            count: input.arbitrary()?,
        },
        3 => Operation::Match { from: input.arbitrary()?, count: input.arbitrary()? },
        4 => Operation::MatchAny { from: input.arbitrary()?, step: input.arbitrary()? },
        5 => Operation::Release { count: input.arbitrary()?, tail_first: input.arbitrary()? },
        6 => Operation::DropOne { which: input.arbitrary()? },
        7 => Operation::CloneOne { which: input.arbitrary()? },
        8 => Operation::SetPriority { which: input.arbitrary()?, class: input.arbitrary()? },
        9 => Operation::Unregister { hash: input.arbitrary()? },
        _ => Operation::Upgrade { which: input.arbitrary()? },
    })
}
