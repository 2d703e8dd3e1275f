//! Tiers of all kinds in virtual time: engines that share prefixes, hardware that is slow, fails, rots
//! and hangs.
//!
//! ```text
//!   seed ──► settings ──► tiers over a simulated device, host memory and disk
//!        ──► engines: match ─ onboard ─ check ─ allocate ─ fill ─ register ─ decode ─ offload ─ release
//!        ──► a ticker: rot, a lost volume, a shutdown in between             └── checks after each step ──┘
//!        ──► the next process, over the same disk
//! ```
//!
//! Each run is of one thread, and time jumps to the next timer when all wait: a seed does the same each time.
//!
//! `KVSTRATA_SEED=17 cargo test -p kvstrata-tiers --test simulation seeds -- --nocapture` replays a seed and
//! prints its events; `KVSTRATA_SEEDS=100000` runs the first so many, `KVSTRATA_SEEDS=500..900` a range.
//!
//! | file | contents |
//! |---|---|
//! | `seeds.rs` | the seeds, and that each does the same twice |
//! | `settings.rs`, `world.rs` | a seed's settings; the manager, its tiers, a run from beginning to end |
//! | `engine.rs`, `seldom.rs` | one request after another; rare actions of engines |
//! | `pace.rs`, `layers.rs` | the model's iterations; calls that wait for one; offloads behind its layers |
//! | `classes.rs` | classes for eviction, and pins |
//! | `groups.rs` | three groups of layers |
//! | `directed.rs`, `purges.rs`, `restart.rs` | cases that seeds find rarely |
//! | `watchdog.rs` | a loop that does not end |
//! | `books.rs`, `check.rs` | the blocks that engines hold, and the conditions on them |
//! | `recorder.rs` | calls to the ports and pools |
//! | `content.rs`, `patience.rs` | bytes that identify their block; futures that are dropped |
//! | `drops.rs` | every await point, dropped at every point |
//!
//! Checked, by the invariants of `async/tiers/src/operations/mod.rs`
//! - I1: capacity = free + inactive + active + owned; owned = blocks of engines and transfers;
//!   active = held blocks; staging too.
//! - I2, I3: every block that is reported has its bytes, in the device, from the report until
//!   it is released; layer by layer where layers are reported. No caller writes another's
//!   blocks, and no block has two owners.
//! - I4: each waiting call is answered by its deadline. Urgent calls wait for no iteration of the model.
//!   At the end nothing is in flight and no call waits, whatever was dropped or failed.
//! - I5: allocations are served in the order in which they came; one that fits is served in the end.
//! - I6: no pool has a hash twice, except the device, for blocks announced layer by layer and computed
//!   meanwhile; no two copies of a hash go the same way at once.
//! - Pinned blocks stay in the device; of the blocks that may be evicted, lower classes go first.
//! - I8: a slow disk that takes one block at a time keeps no call from its answer, however long requests
//!   may wait for its writes. Blocks dropped for that are counted by their cause and by their tier;
//!   without such a disk none are counted so.
//! - Counters are those of the movers.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the watchdog has a thread and a clock"
)]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../../../tests/common/sim/mod.rs"]
mod sim;
#[path = "../common/virtual_runtime.rs"]
mod virtual_runtime;

/// The clock of simulated hardware.
mod time {
    pub use kvstrata_testing::virtual_time::{Handle, Instant, sleep_until};
}

use kvstrata_tiers::{Attendant, Next, Runtime, Task, Work};

mod books;
mod check;
mod classes;
mod content;
mod directed;
mod drops;
mod engine;
mod groups;
mod layers;
mod pace;
mod patience;
mod purges;
mod recorder;
mod restart;
mod seeds;
mod seldom;
mod settings;
mod watchdog;
mod world;
