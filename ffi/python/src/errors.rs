//! The exceptions.

use kvstrata::store::SubmitError as Refusal;
use pyo3::PyErr;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

pyo3::create_exception!(kvstrata, KvstrataError, PyException, "The base of kvstrata's exceptions.");
pyo3::create_exception!(
    kvstrata,
    OpenError,
    KvstrataError,
    "A store cannot be opened. The message names each wrong or missing setting, its value and the remedy."
);
pyo3::create_exception!(
    kvstrata,
    SubmitError,
    KvstrataError,
    "A batch has not begun. The message names the argument, its value and the remedy."
);
pyo3::create_exception!(
    kvstrata,
    BusyError,
    SubmitError,
    "As many batches are under way as may wait (transfer.queue). Drain some, then try again."
);
pyo3::create_exception!(
    kvstrata,
    ForkedError,
    KvstrataError,
    "This process was forked from the one that opened the store. Open a store after the fork."
);
pyo3::create_exception!(kvstrata, ClosedError, KvstrataError, "The store is closed.");

/// Makes a [`SubmitError`].
pub(crate) fn refused(message: impl Into<String>) -> PyErr {
    SubmitError::new_err(message.into())
}

/// Makes the exception of use after a fork.
pub(crate) fn forked() -> PyErr {
    ForkedError::new_err(Refusal::Forked.to_string())
}

/// Makes the exception of use after the end.
pub(crate) fn closed() -> PyErr {
    ClosedError::new_err("the store is closed; open another one")
}

/// Translates a refusal of the store.
pub(crate) fn of_refusal(refusal: Refusal) -> PyErr {
    match refusal {
        Refusal::Closed => closed(),
        Refusal::Forked => forked(),
        Refusal::Busy { .. } => BusyError::new_err(refusal.to_string()),
        other => refused(other.to_string()),
    }
}

/// Returns the name of an object's type, for messages.
pub(crate) fn type_name(of: &Bound<'_, PyAny>) -> String {
    of.get_type().name().map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}
