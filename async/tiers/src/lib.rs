//! The engine of kvstrata: which block is where, who waits for it, and what moves next. It has no runtime, no clock and no thread: time and
//! the answers of movers come in, transfers and wake-ups go out ([`Runtime`], [`transfer`]).
//!
//! ```text
//!                 calls, futures                    answers
//!   an LLM engine ─────────────► Tiers ◄─────────────────────── movers, disks
//!                                 │  │  transfers               ▲
//!                                 │  └──────────────────────────┘
//!                                 └─ now, wake_at, spawn ──► Runtime: `kvstrata` on tokio, or a test in virtual time
//! ```
//!
//! | module | what |
//! |---|---|
//! | `engine` | [`Tiers`]: the calls; transfers, admission, tenants |
//! | [`transfer`] | transfers between tiers, and the ports of whatever moves bytes |
//! | [`scheduler`] | the model's iterations, and what waits for them |
//! | [`metrics`] | what is counted |
//! | [`Runtime`] | the port to whatever runs it |
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests have threads and clocks")
)]

mod engine;
pub mod metrics;
mod runtime;
pub mod scheduler;
mod signal;
pub mod tier;
pub mod transfer;

#[cfg(test)]
extern crate self as kvstrata_tiers;
#[cfg(test)]
#[path = "../../tests/common/mod.rs"]
mod common;
#[cfg(test)]
mod ground;
#[cfg(test)]
#[path = "../../tests/common/sim/mod.rs"]
mod sim;
#[cfg(test)]
#[path = "../tests/common/virtual_runtime.rs"]
mod virtual_runtime;
/// The clock of simulated hardware.
#[cfg(test)]
mod time {
    pub(crate) use kvstrata_testing::virtual_time::{Handle, Instant, sleep_until};
}

mod contained;
#[doc(hidden)]
pub mod figures;
mod places;
mod sketch;
mod stripes;

pub use engine::*;
pub use runtime::{Runtime, Task, Work};
pub use tier::Tier;

/// What kvstrata's own crates share. It may change with any version.
#[doc(hidden)]
pub mod shared {
    pub use crate::contained::contained;
    pub use crate::places::{Places, random_seed};
    pub use crate::sketch::{LINE, Sketch, line_of, remix, words};
    pub use crate::stripes::{Stripes, add, counting};
}
