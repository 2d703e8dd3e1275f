//! Any bytes as the stored costs of a device (`kvstrata tune`): refused, or a table that can be asked, and that is stored as it was.
#![no_main]

#[expect(dead_code, reason = "each target uses one of the checks")]
#[path = "../../async/cli/tests/fuzzed/checks.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checks::costs(bytes));
