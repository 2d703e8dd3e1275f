//! The edge: each function's body runs here, so that no panic leaves the library, and each failure leaves
//! its message.

use crate::last_error::remember;
use crate::status::kvs_status::{KVS_FORKED, KVS_OK, KVS_PANIC};
use crate::status::{Failure, kvs_status};
use kvstrata_ffi::process::Origin;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of a function.
pub(crate) fn edge(body: impl FnOnce() -> Result<(), Failure>) -> kvs_status {
    // State behind a panic is safe to use: locks are taken whether they are poisoned or not, and each
    // change under them is whole before the next call that may panic.
    let result = catch_unwind(AssertUnwindSafe(|| {
        #[cfg(test)]
        panics::perhaps("edge");
        body()
    }));
    match result {
        Ok(Ok(())) => KVS_OK,
        Ok(Err(Failure { status, message })) => {
            remember(message);
            status
        }
        Err(panic) => {
            remember(format!("a bug in kvstrata: {}; please report it", said(&*panic)));
            // Its drop is foreign code, and may panic again.
            std::mem::forget(panic);
            KVS_PANIC
        }
    }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a text")
}

/// Refuses a handle of another process (I3).
pub(crate) fn check_here(origin: Origin, handle: &str) -> Result<(), Failure> {
    if origin.is_here() {
        return Ok(());
    }
    let process = origin.process();
    let message =
        format!("{handle}: made in process {process}; open a store in this process, after the fork");
    Err(Failure::new(KVS_FORKED, message))
}

/// Panics on request, for tests.
#[cfg(test)]
pub(crate) mod panics {
    use std::cell::Cell;

    thread_local! {
        static NEXT: Cell<&'static str> = const { Cell::new("") };
    }

    /// Panics at this place if that was asked for.
    pub(crate) fn perhaps(place: &str) {
        if NEXT.get() == place {
            NEXT.set("");
            panic!("on request, at {place}");
        }
    }

    /// Asks this thread's next call to panic at a place.
    pub(crate) fn at(place: &'static str) {
        NEXT.set(place);
    }
}
