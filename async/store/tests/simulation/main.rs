//! Stores of all kinds in virtual time: callers that share keys, a disk that is slow, fails, rots and hangs,
//! copies that take time or are abandoned.
//!
//! ```text
//!   seed ──► settings ──► a store over host memory and a simulated disk
//!        ──► callers: store ─ load ─ check the bytes ─ forget ─ look up ─ drop futures
//!        ──► rot in host memory and on the disk; a close in between
//!        ──► the next process, over the same disk
//! ```
//!
//! Each run is of one thread, and time jumps to the next timer when all wait: a seed does the same each time.
//!
//! `KVSTRATA_SEED=17 cargo test -p kvstrata-store --test simulation seeds -- --nocapture` replays a seed;
//! `KVSTRATA_SEEDS=100000` runs the first so many.
//!
//! Checked, by the invariants of `async/store/src/operations/mod.rs`
//! - I1: each batch ends, with an answer for each key, and gives its memory back.
//! - I2: loaded bytes are the key's; memory of an absent key is as it was.
//! - I3: at the end all blocks are free or idle, on both sides, and staging is whole. The disk's contract
//!   holds: no block is written while it is read, none is used that was not reserved.
//! - I4: a forgotten key is not found, unless a store of it was under way.
//! - Without faults, keys that are found can be loaded.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests have threads and clocks")]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../../../tests/common/sim/mod.rs"]
mod sim;
#[path = "../../../tiers/tests/common/virtual_runtime.rs"]
mod virtual_runtime;

/// The clock of simulated hardware.
mod time {
    pub use kvstrata_testing::virtual_time::{Handle, Instant, sleep_until};
}

use kvstrata_store::StoreAttendant as Attendant;
use kvstrata_tiers::{Next, Runtime, Task, Work};

mod caller;
mod content;
mod copier;
mod directed;
mod seeds;
mod settings;
mod world;
