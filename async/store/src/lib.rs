//! The engine of kvstrata's store: blocks by key, over memory that the caller owns. It has no runtime, no
//! clock and no thread: time comes in by a port, transfers go out by ports.
//!
//! ```text
//!                 store, load, forget: batches             answers
//!   an LLM engine ───────────────────────────► Store ◄──────────────── tiers below, copiers
//!     lends memory, and gets it back with       │  │  reads, writes, copies  ▲
//!     the batch's answers                       │  └─────────────────────────┘
//!                                               └─ now, wake_at ──► Runtime
//! ```
//!
//! The store is for engines that keep their own device memory and their own host memory, and want tiers
//! below: they call by key, and lend the memory of each batch. An engine that wants kvstrata to place its
//! device blocks uses the crate `kvstrata` and its `KvBlockManager`.
//!
//! Bytes go straight between lent memory and the tier below if the memory is page-aligned and there is no
//! host tier; otherwise they pass through host memory of the store.
//!
//! - [`Store`]: the calls; [`Batch`]: the future of a call
//! - [`Client`]: a queue of completions with a descriptor to poll, for callers without futures
//! - [`Outcome`]: the answer for one key; [`Miss`]: why there is nothing
//! - [`StoreParts`], [`SizeClassParts`], [`Rules`]: the parts of a store
//! - [`Copier`]: the port of copies in host memory
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests have threads and clocks")
)]

// `calls`: handles and futures; `operations`: changes under the lock; `engine`: the lock, and the parts
// that do not change; `state`: the state under the lock. Each imports only those after it.
mod calls;
mod copier;
mod engine;
mod host_blocks;
mod operations;
mod outcome;
mod size_class;
mod state;
mod stats;

pub use calls::attendant::StoreAttendant;
pub use calls::batch::Batch;
pub use calls::client::Client;
pub use calls::options::{BatchOptions, Until};
pub use calls::parts::{PartsError, Rules, SizeClassParts, StoreParts};
pub use calls::store::{Found, Store, StoreWatcher, SubmitError};
pub use copier::{Copier, Copying};
pub use outcome::{Completion, JobId, Kind, Miss, Outcome};
pub use stats::{SizeClassStats, StoreStats};
