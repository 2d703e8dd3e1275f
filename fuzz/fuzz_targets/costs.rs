//! Any bytes as the stored costs of a device (`kvstrata tune`): they are refused, or make a table that
//! answers queries and is stored unchanged.
#![no_main]

#[expect(dead_code, reason = "each target uses one of the checks")]
#[path = "../../async/cli/tests/fuzzed/checks.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checks::costs(bytes));
