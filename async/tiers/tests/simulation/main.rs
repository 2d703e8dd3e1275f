//! Tiers of all kinds in virtual time: engines that share prefixes, hardware that is slow, fails, rots and hangs.
//!
//! ```text
//!   seed ──► settings ──► tiers over a simulated device, host memory and disk
//!        ──► engines: match ─ onboard ─ check bytes ─ allocate ─ fill ─ register ─ decode ─ offload ─ release
//!        ──► a ticker: rot, a lost volume, a shutdown in between                      └── checks after each step ──┘
//!        ──► the next process, over the same disk
//! ```
//!
//! Each run is of one thread, and time jumps to the next timer when all wait: what a seed does, it does each time.
//!
//! `KVSTRATA_SEED=17 cargo test -p kvstrata-tiers --test simulation seeds -- --nocapture` replays one and tells what it does;
//! `KVSTRATA_SEEDS=100000` runs the first so many, `KVSTRATA_SEEDS=500..900` those.
//!
//! | file | what |
//! |---|---|
//! | `seeds.rs` | the seeds, and that each does the same twice |
//! | `settings.rs`, `world.rs` | what a seed says; the manager, its tiers, a run from its beginning to its end |
//! | `engine.rs`, `seldom.rs` | a request after another; what engines do seldom |
//! | `pace.rs`, `layers.rs` | the model's iterations; who waits for one; blocks that go down behind the layers of one |
//! | `classes.rs` | classes for eviction, and pins |
//! | `groups.rs` | two groups of layers |
//! | `directed.rs`, `purges.rs`, `restart.rs` | what seeds find rarely |
//! | `watchdog.rs` | a loop that does not end |
//! | `books.rs`, `check.rs` | what engines hold, and what must be true of it |
//! | `recorder.rs` | what the ports and pools are asked for |
//! | `content.rs`, `patience.rs` | bytes that say whose they are; futures that are given up |
//! | `drops.rs` | every await point, given up at every point |
//!
//! What is checked, by the invariants of `async/tiers/src/operations/mod.rs`
//! - I1: capacity = free + inactive + active + owned; owned = what engines and flights have; active = what is held; staging too.
//! - I2, I3: every block that is said to be there has its bytes, in the device, when it is said and until it is released; layer by
//!   layer where layers are said to be there. Nobody's blocks are written by somebody else, and no block has two owners.
//! - I4: whoever waits is answered by the deadline. What is urgent waits for no iteration of the model. At the end nothing is under way and nobody waits, whatever was given up or failed.
//! - I5: allocations are served in the order in which they came; what fits is had in the end.
//! - I6: no pool has a hash twice, but the device what was announced layer by layer and computed meanwhile; no two copies of a hash go the same way at once.
//! - What is pinned stays in the device; of what may be evicted, lower classes go first.
//! - I8: a disk that takes its time, one block at a time, keeps nobody from an answer, whatever requests may wait for its writes; what is dropped
//!   for that is counted by its cause and by its tier, and by nothing else where there is no such disk.
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
