//! Any text that claims to be a manager's metrics is refused by line, or shown by `top` without anything that a terminal obeys.
#![no_main]

#[expect(dead_code, reason = "each target uses one of the checks")]
#[path = "../../async/cli/tests/fuzzed/checks.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checks::exposition(bytes));
