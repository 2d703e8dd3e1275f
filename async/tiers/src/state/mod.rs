//! The state under the lock, by owner. These types know neither the lock nor each other's operations.
//!
//! | file | contents |
//! |---|---|
//! | `traffic.rs`, `scratch.rs` | the whole state; memory that is reused |
//! | `ids.rs`, `transfers.rs` | keys; transfers by key and by block |
//! | `up.rs`, `down.rs`, `steps.rs` | a transfer to the device; to a lower tier; by layers |
//! | `queues.rs`, `pace.rs` | the queues of the paths, and an iteration's bytes; how fast paths are |
//! | `groups.rs`, `wait_queue.rs` | the state of each group; its queue for blocks |
//! | `granted.rs` | blocks on their way to a caller |
//! | `on_their_way.rs`, `staging.rs` | of a group: blocks that transfers will free; staging |
//! | `waits_below.rs`, `room.rs` | of a group: waits for writes below; outcomes of a search for room |
//! | `waiting_for_host.rs`, `waiting_for_queue.rs` | transfers that wait for host memory, or for a queue |
//! | `waiting_for_parent.rs` | transfers that wait for their parents' |
//! | `waiting_for_quota.rs` | requests that wait for credits |
//! | `onboarding.rs`, `offloading.rs`, `shares.rs` | requests for blocks up and down |
//! | `guesses.rs` | hints and hot blocks |
//! | `ahead.rs`, `ready.rs` | deferred copies, and copies ahead of need; victims that leave first |
//! | `iterations.rs`, `gates.rs` | how far the model is; copies that wait for it |
//! | `unwritten.rs` | blocks that are registered before they are written |
//! | `deadlines.rs`, `since.rs`, `phase.rs` | deadlines; times; whether calls are refused |
//! | `purges.rs`, `purged.rs` | purges, and their answers |
//! | `quarantine.rs`, `own_looks.rs` | blocks that are never used again; looks for a tenant's victims |
//! | `effects.rs` | effects of a change, carried out when the lock is released |
//!
//! Few files use a field outside its own file: `testing/tests/house.rs` counts them.

mod ahead;
mod deadlines;
mod down;
mod effects;
mod gates;
mod granted;
mod groups;
mod guesses;
mod ids;
mod iterations;
mod offloading;
mod on_their_way;
mod onboarding;
mod own_looks;
mod pace;
mod phase;
mod purged;
mod purges;
mod quarantine;
mod queues;
mod ready;
mod room;
mod scratch;
mod shares;
mod since;
mod staging;
mod steps;
mod traffic;
mod transfers;
mod unwritten;
mod up;
mod wait_queue;
mod waiting_for_host;
mod waiting_for_parent;
mod waiting_for_queue;
mod waiting_for_quota;
mod waits_below;

pub(crate) use ahead::{DeferredCopies, LOOK, Looks, PART};
pub(crate) use deadlines::{Deadlines, Waits};
pub(crate) use down::{Cargo, Down, Have};
pub(crate) use effects::Effects;
pub(crate) use gates::{GatedCopy, GatedTransfer, Waiter};
pub(crate) use granted::{Grant, Granted, Home, Late};
pub(crate) use groups::{GroupState, Groups};
pub(crate) use guesses::{Guess, Guesses};
pub(crate) use ids::{
    At, DownId, GroupId, HostSlot, Key, Link, OffloadingId, OnboardingId, TransferId, UpId,
};
pub(crate) use iterations::Iterations;
pub(crate) use offloading::Offloadings;
pub use offloading::{OffloadOptions, Offloaded};
pub(crate) use on_their_way::OnTheirWay;
pub use onboarding::OnboardOptions;
pub(crate) use onboarding::{Ended, Onboarding, Onboardings, Progress, Remains};
pub(crate) use own_looks::{OwnLooks, State};
pub(crate) use pace::{Came, Pace, Spells};
pub(crate) use phase::Phase;
pub use purged::{Purge, Purged, PurgedTier};
pub(crate) use purges::{Erased, FEW, Piece, Place, Purges, Work};
pub(crate) use quarantine::Quarantine;
pub(crate) use queues::Queues;
pub(crate) use ready::{Ready, ReadyBlock};
pub(crate) use room::{Left, Slot};
pub(crate) use scratch::Scratch;
pub(crate) use shares::Shares;
pub(crate) use since::Since;
pub(crate) use staging::Staging;
pub(crate) use steps::Steps;
pub(crate) use traffic::Traffic;
pub(crate) use transfers::{BlockName, ForBlock, Transfers};
pub(crate) use unwritten::{Marked, MarkedBlock, Unwritten, written_after};
pub(crate) use up::{Source, Up};
pub(crate) use wait_queue::{Entry, WaitQueue, Want, Wants, Whose};
pub(crate) use waiting_for_host::WaitingForHost;
pub(crate) use waiting_for_parent::{Children, WaitingForParent};
pub(crate) use waiting_for_queue::WaitingForQueue;
pub(crate) use waiting_for_quota::WaitingForQuota;
pub(crate) use waits_below::WaitsBelow;
