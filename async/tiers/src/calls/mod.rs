//! Calls: the handles and futures of an engine, over the state ([`crate::state`]) by its operations
//! ([`crate::operations`]).
//!
//! ```text
//!   engine ─ match_prefix ─► what is there ─ onboard ─► Blocks          (held: neither changed nor evicted)
//!          ─ allocate ─────► BlocksMut ─ fill, register ─► Blocks ─ drop ─► inactive, tail first
//! ```
//!
//! | file | what |
//! |---|---|
//! | `handle.rs` | what each handle of an engine has |
//! | `tiers.rs`, `group.rs` | the calls of all groups, and of one |
//! | `groups.rs`, `acquire.rs` | a prefix over all groups; all blocks of a sequence |
//! | `blocks.rs`, `ahead.rs` | owned lists of blocks; lists that are registered before they are written |
//! | `matching.rs`, `onboard.rs`, `offload.rs`, `persist.rs` | look up, bring up, copy down, and down to the disk |
//! | `allocate.rs`, `allocation.rs`, `in_queue.rs`, `allocate_groups.rs` | allocate: at once, as a request, in the queue; of all groups |
//! | `allocate_error.rs`, `answer.rs` | why there are no blocks; the answer of a call that has begun |
//! | `preempt.rs`, `prefetch.rs` | a request gives its blocks up and has them again; hints |
//! | `iterations.rs` | how far the model is |
//! | `options.rs`, `original_names.rs` | how calls are made; other names of some |
//! | `tenants.rs`, `purge.rs`, `erase.rs` | tenants; the task of a purge; blocks overwritten |
//! | `parts.rs`, `shutdown.rs` | the beginning, the end |
//! | `attendant.rs`, `moment.rs` | deadlines answered; a moment awaited |
//! | `metrics.rs`, `watcher.rs` | figures |
//! | `census.rs`, `describe.rs` | where every block is; text for people |

pub(crate) mod acquire;
pub(crate) mod ahead;
pub(crate) mod allocate;
pub(crate) mod allocate_error;
pub(crate) mod allocate_groups;
pub(crate) mod allocation;
pub(crate) mod answer;
pub(crate) mod attendant;
pub(crate) mod blocks;
pub(crate) mod census;
pub(crate) mod describe;
pub(crate) mod erase;
pub(crate) mod group;
pub(crate) mod groups;
pub(crate) mod handle;
pub(crate) mod in_queue;
pub(crate) mod iterations;
pub(crate) mod matching;
pub(crate) mod metrics;
pub(crate) mod moment;
pub(crate) mod offload;
pub(crate) mod onboard;
mod options;
pub(crate) mod original_names;
pub(crate) mod parts;
pub(crate) mod persist;
pub(crate) mod preempt;
pub(crate) mod prefetch;
pub(crate) mod purge;
pub(crate) mod shutdown;
pub(crate) mod tenants;
pub(crate) mod tiers;
pub(crate) mod watcher;
