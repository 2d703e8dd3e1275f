//! The C interface of kvstrata's store: `libkvstrata.so` and `include/kvstrata.h`.
//!
//! ```text
//!   an engine in C or C++
//!      │ kvs_open, kvs_client_open        handles
//!      │ kvs_submit_store, …_load         keys are copied, memory is lent
//!      ▼                                  ▲ kvs_drain or the callback: the memory is the engine's again
//!   kvs_client ── book of jobs ───────────┘
//!      │ kvstrata::store::Client          batches, answers
//!      ▼
//!   kvs_store ── kvstrata::store::KvStore
//! ```
//!
//! The header is made from these sources by cbindgen, and its comments are the comments here. So items have
//! the header's names. `ci/steps/c` compares it with the committed file.
//!
//! Invariants
//! - I1: nothing unwinds into the caller: each function runs inside `edge.rs`.
//! - I2: no allocation changes sides: the caller gets handles, and frees them here. Everything else is
//!   written into the caller's memory.
//! - I3: a handle in a forked process is not touched beyond its origin, which never changes.
//!
//! The caller's promises, which proofs here name:
//! - C1: a pointer to a handle is NULL, or comes from the function that makes it and was not freed.
//! - C2: a pointer to a struct, or to an array of a given length, is NULL, or points to that much memory,
//!   which no other thread changes during the call. The memory behind an outgoing pointer is writable.
//! - C3: a string is NULL, or ends with a NUL.
//! - C4: memory and arrays that were given to a job stay valid until its completion has been reported.
//!   Until then, no thread of the caller writes the memory of a store, or touches that of a load or the
//!   outcomes.
#![allow(non_camel_case_types, reason = "these are the header's names")]
#![allow(clippy::missing_safety_doc, reason = "callers are in C: C1 to C4, and the header's text, say it")]

// Modules import only from groups above, and from their own. The header has the functions in this order.

// Values that cross the edge.
mod status;
mod text;
mod version;

// The edge.
mod bell;
mod edge;
mod last_error;
mod sized;

// A store.
mod namespaces;
mod open;
mod store;

// Batches.
mod keys;
mod options;
mod outcome;

mod lookup;

mod client;

mod figures;

mod close;

#[cfg(test)]
mod tests;
