//! Operations: what happens to the state under the lock. Each file is one concern, as methods of
//! [`Traffic`](crate::state::Traffic); they call each other as methods, and import the state and the engine's
//! ground only.
//!
//! | file | what |
//! |---|---|
//! | `advance.rs`, `landing.rs` | all that follows from a change; answers of movers |
//! | `effects.rs` | effects carried out after the lock is given back |
//! | `up.rs`, `down.rs`, `ended.rs`, `turn_back.rs` | transfers up and down, and their ends |
//! | `room.rs` | room below: blocks of host memory, slots of a lower tier |
//! | `waiting_for_host.rs`, `waiting_for_queue.rs` | transfers that wait for host memory, or for a queue |
//! | `gather.rs`, `wait_queue.rs`, `deadlines.rs` | blocks for a caller; the queue for blocks; what is late |
//! | `quota.rs`, `waiting_for_quota.rs` | a tenant at its quota; requests that wait for its credits |
//! | `unused.rs` | tenants that have nothing left |
//! | `onboard.rs`, `onboarding.rs` | a run begins to come up; what a request waits for |
//! | `offload.rs`, `gates.rs`, `steps.rs` | copies down on request; behind gates; by layers |
//! | `unwritten.rs` | blocks that are registered before they are written |
//! | `ahead.rs`, `ready.rs` | copies ahead of need; victims that leave first |
//! | `prefetch.rs` | blocks brought up before they are asked for |
//! | `slow.rs` | a tier below that takes its time |
//! | `purge.rs`, `sweep.rs` | all of a tenant's blocks leave |
//! | `forget.rs`, `quarantine.rs` | names that leave; blocks that are never used again |
//! | `close.rs` | the end |
//!
//! Invariants, each shown by the simulation (`async/tiers/tests/simulation/`)
//! - I1: conservation: of each pool, free + inactive + held by handles + in transfers + gathered by the wait
//!   queues + quarantined = capacity.
//! - I2: what is in flight is held by its transfer, both ends, until the mover has answered.
//! - I3: nothing is registered before its bytes have arrived, and been verified where they can be; a failed
//!   transfer fails exactly the requests that wait for it.
//! - I4: whoever waits is answered: by the end of a transfer, by a deadline, by shutdown, or by the end of
//!   the manager's runtime, which closes it.
//! - I5: who allocates is served in order of arrival, wholly, of all groups that it asks for; but for who
//!   waits at its tenant's quota, who holds up its own tenant only (`waiting_for_quota.rs`). What can never
//!   be served is refused at once.
//! - I6: a hash is on its way up once, and on its way down once; in host and disk it is once. In the device
//!   it may be twice: where an engine has registered a copy when one is registered that somebody reads,
//!   turned back from its way down, or announced layer by layer (`register_beside`). Both have the hash's
//!   bytes, a look-up finds one of them, and each leaves by itself; the one that leaves last finds the other
//!   below, or on its way there.
//! - I7: room is made without waiting for whoever waits for it: a victim that finds no place below is
//!   dropped.
//! - I8: who allocates waits for writes to a slower tier for as long as the group's patience lets it, and no
//!   longer; what would make it wait for longer is dropped, and counted by its cause (`slow.rs`).

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
