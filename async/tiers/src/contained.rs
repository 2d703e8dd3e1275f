//! Callers' code is called: wakers, ports, subscribers of `tracing`. One that panics has said so by the panic hook, and takes nobody else along.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls what may panic. What the caller owns is as it should be before and after the call.
pub fn contained(call: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(call));
}
