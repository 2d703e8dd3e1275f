//! Any file of settings is refused with messages free of control sequences, or makes a configuration
//! that is read back as it was written.
#![no_main]

#[expect(dead_code, reason = "each target uses one of the checks")]
#[path = "../../async/cli/tests/fuzzed/checks.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checks::settings(bytes));
