//! Any text as a manager's metrics is refused with its line, or shown by `top` without any
//! control sequence of a terminal.
#![no_main]

#[expect(dead_code, reason = "each target uses one of the checks")]
#[path = "../../async/cli/tests/fuzzed/checks.rs"]
mod checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checks::exposition(bytes));
