//! Any bytes as the head of a request to the metrics' endpoint: however they are cut into pieces,
//! the method and path are the same.
#![no_main]

#[expect(dead_code, reason = "each target uses one of the checks")]
#[path = "../../async/cli/tests/fuzzed/checks.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checks::head(bytes));
