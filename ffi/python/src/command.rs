//! The `kvstrata` command, within the process of the interpreter.

use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the command. The first argument is its name. Returns the exit code.
#[pyfunction]
#[pyo3(text_signature = "(arguments, /)")]
pub(crate) fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| kvstrata_cli::run(arguments))
}
