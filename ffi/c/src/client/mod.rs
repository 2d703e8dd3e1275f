//! Clients: jobs, from the call to the completion.
//!
//! | file | contents |
//! |---|---|
//! | `handle.rs` | the handle: open |
//! | `submit.rs` | the calls that begin jobs |
//! | `completions.rs` | the descriptor, wait, drain |
//! | `free.rs` | the end |
//! | `callbacks.rs` | the thread that calls a callback |
//! | `shared.rs` | their common parts: the book under its lock, the bell |
//! | `book.rs` | the jobs of a client |
//! | `loan.rs` | the end of a batch's memory |

// Modules import only from groups above, and from their own.

mod book;
mod loan;
mod shared;

mod callbacks;
mod handle;

mod submit;

mod completions;

mod free;

#[cfg(test)]
pub(crate) use {
    book::kvs_completion,
    completions::{kvs_drain, kvs_wait},
    free::kvs_client_free,
    handle::{kvs_client, kvs_client_open, kvs_client_options},
    submit::{kvs_submit_load, kvs_submit_store},
};
