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
//! | module | contents |
//! |---|---|
//! | `calls` | [`Tiers`]: the calls, their handles and futures |
//! | `operations` | changes under the lock: transfers, admission, tenants |
//! | `engine` | the ground that both share: settings, tiers, counters, the lock |
//! | `state` | the state under the lock, by owner |
//! | [`transfer`] | transfers between tiers; the ports of movers and tiers |
//! | [`scheduler`] | the model's iterations, and the gates that they open |
//! | [`metrics`] | the figures, as plain data |
//! | [`Runtime`] | the port to the runtime |
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests have threads and clocks")
)]

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
