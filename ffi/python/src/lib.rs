//! The Python module `kvstrata._kvstrata`: the keyed store of the façade, over buffers of Python objects.
//!
//! ```text
//!   Python: keys, buffers ─► Store ─► Held: views and references ─┐
//!                              │        a Loan owns them          ▼
//!                              ├───► HostArena over the same bytes ──► store's threads: transfers
//!                              │                                           │ the last one ends
//!   Python: the next call ◄── release, under the GIL ◄── Ended ◄───────────┘ the loan is dropped
//! ```
//!
//! Invariants
//! - I1: no thread of the store takes the GIL or touches a Python object. A loan that ends there only adds
//!   its views to a list, which the next call from Python releases.
//! - I2: each lock of this crate is taken only by a thread that holds the GIL, and never across a release
//!   of the GIL; the exception is the list of ended loans, under which nothing waits. So a fork, which
//!   Python does with the GIL held, leaves no lock of ours taken for ever.
//! - I3: a call in a forked child checks the process before it takes a lock.

mod buffers;
mod command;
mod completion;
mod dlpack;
mod errors;
mod fields;
mod handle;
mod keys;
mod loans;
mod settings;
mod shared;
mod spans;
mod waits;

use pyo3::prelude::*;

/// Loads the module.
#[pymodule]
fn _kvstrata(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("KvstrataError", py.get_type::<errors::KvstrataError>())?;
    module.add("OpenError", py.get_type::<errors::OpenError>())?;
    module.add("SubmitError", py.get_type::<errors::SubmitError>())?;
    module.add("BusyError", py.get_type::<errors::BusyError>())?;
    module.add("ForkedError", py.get_type::<errors::ForkedError>())?;
    module.add("ClosedError", py.get_type::<errors::ClosedError>())?;
    module.add_class::<handle::Store>()?;
    module.add_class::<completion::Completion>()?;
    module.add("_OUTCOMES", completion::outcomes(py)?)?;
    module.add_function(wrap_pyfunction!(command::run_command, module)?)?;
    let close_all = wrap_pyfunction!(shared::close_all, module)?;
    py.import("atexit")?.call_method1("register", (close_all,))?;
    Ok(())
}
