//! Random operations on a pool and on its oracle: the model of the property test, steered by coverage.
#![no_main]

#[path = "../../core/tests/model/mod.rs"]
mod model;

use arbitrary::{Arbitrary, Result, Unstructured};
use kvstrata_core::{Duplicates, Policy};
use libfuzzer_sys::fuzz_target;
use model::{Operation, Setup};

/// The contents of one input; `cargo fuzz fmt` prints it.
#[derive(Debug)]
struct Case {
    setup: Setup,
    operations: Vec<Operation>,
}

fuzz_target!(|case: Case| model::run(case.setup, &case.operations));

impl<'a> Arbitrary<'a> for Case {
    /// Five bytes set how the pool is built; the rest are operations, four bytes each, until the input
    /// is used up.
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Self> {
        let setup = Setup {
            policy: *input.choose(&Policy::ALL)?,
            duplicates: *input.choose(&[Duplicates::Reject, Duplicates::Keep])?,
            capacity: input.int_in_range(1..=100)?,
            page_size: input.int_in_range(1..=20)?,
            requests: input.arbitrary()?,
        };
        let mut operations = Vec::with_capacity(input.len() / 4 + 1);
        while !input.is_empty() {
            // Missing bytes of the last four are zeros.
            operations.push(Operation::from_bytes(input.arbitrary()?));
        }
        Ok(Case { setup, operations })
    }
}
