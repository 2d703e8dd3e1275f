//! Status codes, and failures.

use std::ffi::{CStr, c_char};

/// The answer of a call. Numbers never change; new ones may be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum kvs_status {
    /// Done.
    KVS_OK = 0,
    /// The time limit passed first. The work goes on; call again.
    KVS_TIMEOUT = 1,
    /// As many batches are under way as may be (transfer.queue). Nothing has begun; drain, then try again.
    KVS_BUSY = 2,
    /// The store is closed. Nothing has begun.
    KVS_CLOSED = 3,
    /// The buffer is too small. The size that is needed was written.
    KVS_TOO_SMALL = 4,
    /// An argument is wrong: the message names it. Nothing has begun.
    KVS_INVALID = 5,
    /// The settings are wrong: the message names each of them.
    KVS_SETTINGS = 6,
    /// There is not enough memory.
    KVS_MEMORY = 7,
    /// A disk or a file cannot be used.
    KVS_IO = 8,
    /// The system refused a thread, a descriptor or an address.
    KVS_SYSTEM = 9,
    /// This process was forked from the one that made the handle. The handle is of no use here, not even to
    /// be freed. Open a store in this process, after the fork.
    KVS_FORKED = 10,
    /// A bug of the library, stopped at its edge. The message is worth a report. Memory that was given to
    /// the call may be in use until kvs_client_free has answered KVS_OK.
    KVS_PANIC = 11,
}

use kvs_status::*;

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: kvs_status,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: kvs_status, message: impl Into<String>) -> Failure {
        Failure { status, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(KVS_INVALID, message)
    }

    /// The system refused something.
    pub(crate) fn system(what: &str, error: &std::io::Error) -> Failure {
        Failure::new(KVS_SYSTEM, format!("{what}: {error}"))
    }
}

/// Returns the name of a status, for example "KVS_TIMEOUT"; "unknown" for other numbers. It is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn kvs_status_name(status: i32) -> *const c_char {
    name(status).as_ptr()
}

fn name(status: i32) -> &'static CStr {
    const NAMES: [(kvs_status, &CStr); 12] = [
        (KVS_OK, c"KVS_OK"),
        (KVS_TIMEOUT, c"KVS_TIMEOUT"),
        (KVS_BUSY, c"KVS_BUSY"),
        (KVS_CLOSED, c"KVS_CLOSED"),
        (KVS_TOO_SMALL, c"KVS_TOO_SMALL"),
        (KVS_INVALID, c"KVS_INVALID"),
        (KVS_SETTINGS, c"KVS_SETTINGS"),
        (KVS_MEMORY, c"KVS_MEMORY"),
        (KVS_IO, c"KVS_IO"),
        (KVS_SYSTEM, c"KVS_SYSTEM"),
        (KVS_FORKED, c"KVS_FORKED"),
        (KVS_PANIC, c"KVS_PANIC"),
    ];
    NAMES.iter().find(|(of, _)| *of as i32 == status).map_or(c"unknown", |(_, name)| name)
}
