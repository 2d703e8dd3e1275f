//! The engine of kvstrata: which block is where, which request waits for it, and which transfer is next.
//! It has no runtime, no clock and no thread: time and movers' answers come in, transfers and wake-ups go
//! out ([`Runtime`], [`transfer`]).
//!
//! ```text
//!                 calls, futures                    answers
//!   an LLM engine ─────────────► Tiers ◄─────────────────────── movers, disks
//!                                 │  │  transfers               ▲
//!                                 │  └──────────────────────────┘
//!                                 └─ now, wake_at, spawn ──► Runtime: tokio, or a test's virtual time
//! ```
//!
//! An engine embeds the crate `kvstrata`, which runs this one on tokio and gives out its types. This crate
//! alone is for another runtime, and for tiers and devices of your own. A runtime is four methods:
//!
//! ```
//! use kvstrata_tiers::{Runtime, Task, Work};
//! use std::time::{Duration, Instant};
//!
//! struct Threads(Instant);
//!
//! impl Runtime for Threads {
//!     fn now(&self) -> Duration {
//!         self.0.elapsed()
//!     }
//!     fn wake_at(&self, _at: Duration) {} // here a timer is set, which calls `Attendant::on_time`
//!     fn spawn(&self, _task: Task) {} // here a task is polled to its end
//!     fn run_blocking(&self, work: Work, wait: Duration) -> bool {
//!         let thread = std::thread::spawn(work);
//!         wait.is_zero() || thread.join().is_ok()
//!     }
//! }
//!
//! assert!(Threads(Instant::now()).run_blocking(Box::new(|| ()), Duration::ZERO));
//! ```
//!
//! - [`Tiers`], [`Group`]: the calls for all groups of layers, and for one
//! - [`Blocks`], [`BlocksMut`], [`Acquired`]: blocks that are held, blocks to fill, and both
//! - [`transfer::TierPort`], [`transfer::DeviceMover`]: the ports of tiers and of devices
//! - [`Runtime`], [`Attendant`]: the port of the runtime, and its counterpart
//! - [`TiersParts`], [`StackParts`]: the parts of an engine
//! - [`scheduler`]: the model's iterations; [`metrics`]: the figures, as plain data
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests have threads and clocks")
)]

// `calls`: handles and futures; `operations`: changes under the lock; `engine`: the parts that both share;
// `state`: the state under the lock, by owner.
mod calls;
mod engine;
pub mod metrics;
mod operations;
mod runtime;
pub mod scheduler;
mod signal;
mod state;
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

pub use calls::acquire::{Acquire, AcquireError, Acquired};
pub use calls::ahead::Ahead;
pub use calls::allocate_error::AllocateError;
pub use calls::allocate_groups::AllocateGroups;
pub use calls::allocation::{Allocate, Allocation};
pub use calls::answer::Answer;
pub use calls::attendant::{Attendant, Next};
pub use calls::blocks::{Blocks, BlocksMut, RegisterError, RegisterFault, TooManyReferences};
pub use calls::census::{Census, TierCensus};
pub use calls::group::Group;
pub use calls::groups::{GroupMatch, GroupsMatch, GroupsOnboarded, OnboardGroups};
pub use calls::iterations::Iteration;
pub use calls::matching::PrefixMatch;
pub use calls::offload::Offload;
pub use calls::onboard::{Onboard, OnboardError, Onboarded};
pub use calls::original_names::OriginalNames;
pub use calls::parts::{Hashing, PartsError, StackParts, TierParts, TiersParts};
pub use calls::preempt::{Preempted, Resumed};
pub use calls::prefetch::Prefetch;
pub use calls::purge::PurgeError;
pub use calls::tiers::Tiers;
pub use calls::watcher::Watcher;
pub use engine::names::TenantError;
pub use engine::needs::Needs;
pub use engine::rules::{Quotas, Rules, Watermarks, WriteMode};
pub use engine::tenants::TenantUse;
pub use kvstrata_core::TenantId;
pub use runtime::{Runtime, Task, Work};
pub use state::{OffloadOptions, Offloaded, OnboardOptions, Purge, Purged, PurgedTier};
pub use tier::Tier;

/// Shared by kvstrata's own crates. It may change with any version.
#[doc(hidden)]
pub mod shared {
    pub use crate::contained::contained;
    pub use crate::places::{Places, random_seed};
    pub use crate::sketch::{LINE, Sketch, line_of, remix, words};
    pub use crate::stripes::{Stripes, add, counting};
}
