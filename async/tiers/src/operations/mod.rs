//! Operations: changes of the state, made under the lock. Each file is one concern, as methods of
//! [`Traffic`](crate::state::Traffic). They call each other as methods, and import only `state/`
//! and `engine/`.
//!
//! | file | contents |
//! |---|---|
//! | `advance.rs`, `landing.rs` | the consequences of a change; answers of movers |
//! | `effects.rs` | effects, carried out after the lock is released |
//! | `up.rs`, `down.rs`, `ended.rs`, `turn_back.rs` | transfers up and down, and their ends |
//! | `room.rs` | room below: host blocks, slots of a lower tier |
//! | `waiting_for_host.rs`, `waiting_for_queue.rs` | transfers that wait for host memory, or for a queue |
//! | `gather.rs`, `wait_queue.rs`, `deadlines.rs` | blocks for a caller; the queue for blocks; deadlines |
//! | `quota.rs`, `waiting_for_quota.rs` | a tenant at its quota; requests that wait for its credits |
//! | `unused.rs` | tenants that have nothing left |
//! | `onboard.rs`, `onboarding.rs` | start of a run's onboarding; the blocks that a request waits for |
//! | `offload.rs`, `gates.rs`, `steps.rs` | copies down on request; behind gates; by layers |
//! | `unwritten.rs` | blocks that are registered before they are written |
//! | `ahead.rs`, `ready.rs` | copies ahead of need; victims that leave first |
//! | `prefetch.rs` | blocks brought up before a request asks for them |
//! | `slow.rs` | a slow tier below |
//! | `purge.rs`, `sweep.rs` | removal of all of a tenant's blocks |
//! | `forget.rs`, `quarantine.rs` | names that are forgotten; blocks that are never used again |
//! | `close.rs` | the end |
//!
//! Invariants, each shown by the simulation (`async/tiers/tests/simulation/`)
//! - I1: conservation: of each pool, free + inactive + held by handles + in transfers + gathered by the
//!   wait queues + quarantined = capacity.
//! - I2: a transfer in flight holds both of its ends until the mover has answered.
//! - I3: no block is registered before its bytes have arrived, and been verified where they can be. A
//!   failed transfer fails exactly the requests that wait for it.
//! - I4: each waiter is answered: by the end of a transfer, by a deadline, by shutdown, or by the end of
//!   the manager's runtime, which closes it.
//! - I5: allocations are served in order of arrival, each one whole, of all groups that it asks for.
//!   Exception: a request that waits at its tenant's quota holds up its own tenant only
//!   (`waiting_for_quota.rs`). A request that can never be served is refused at once.
//! - I6: a hash has at most one transfer up and one down; host and disk have it at most once. The device
//!   may have it twice: one copy that an engine has registered, and one that is being read, turned back
//!   from its way down or announced layer by layer (`register_beside`). Both have the hash's bytes, a
//!   look-up finds one of them, and each leaves by itself. The one that leaves last finds the other
//!   below, or on its way there.
//! - I7: making room never waits for a waiter that needs the room: a victim that finds no place below
//!   is dropped.
//! - I8: an allocation waits for writes to a slower tier for as long as the group's patience lets it, and no
//!   longer. A block that would make it wait for longer is dropped, and counted by its cause (`slow.rs`).

mod advance;
mod ahead;
mod close;
mod deadlines;
mod down;
mod effects;
mod ended;
mod forget;
mod gates;
mod gather;
mod landing;
mod offload;
mod onboard;
mod onboarding;
mod prefetch;
mod purge;
mod quarantine;
mod quota;
mod ready;
mod room;
mod slow;
mod steps;
mod sweep;
mod turn_back;
mod unused;
mod unwritten;
mod up;
pub(crate) mod wait_queue;
mod waiting_for_host;
mod waiting_for_queue;
mod waiting_for_quota;
