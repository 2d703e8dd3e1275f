//! Calls of callers' code: wakers, ports, subscribers of `tracing`. The panic hook has reported a panic
//! in it; nothing else is harmed.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Makes a call that may panic, and drops the panic. The caller's own data must be whole before and after
/// the call.
pub fn contained(call: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(call));
}
