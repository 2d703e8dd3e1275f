//! Calls: the handles and futures of an engine. They work on the state ([`crate::state`]) through its
//! operations ([`crate::operations`]).
//!
//! ```text
//!   engine ─ match_prefix ─► PrefixMatch ─ onboard ─► Blocks           (held: neither changed nor evicted)
//!          ─ allocate ─────► BlocksMut ─ fill, register ─► Blocks ─ drop ─► inactive, tail first
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `handle.rs` | fields that all handles of an engine share |
//! | `tiers.rs`, `group.rs` | calls over all groups; calls of one group |
//! | `groups.rs`, `acquire.rs` | a prefix over all groups; all blocks of a sequence |
//! | `blocks.rs`, `ahead.rs` | owned lists of blocks; lists that are registered before they are written |
//! | `matching.rs`, `onboard.rs` | look up, onboard |
//! | `offload.rs`, `persist.rs` | offload by one tier; offload to the tiers below host memory |
//! | `allocate.rs`, `allocation.rs`, `in_queue.rs` | allocate at once; as a request; places in wait queues |
//! | `allocate_groups.rs` | allocate from all groups |
//! | `allocate_error.rs`, `answer.rs` | why an allocation fails; the answer of a call that has begun |
//! | `preempt.rs`, `prefetch.rs` | a request gives up its blocks and gets them back; hints |
//! | `iterations.rs` | how far the model is |
//! | `options.rs`, `original_names.rs` | options of calls; other names of some calls |
//! | `tenants.rs`, `purge.rs`, `erase.rs` | tenants; the task of a purge; overwriting of blocks |
//! | `parts.rs`, `shutdown.rs` | construction, shutdown |
//! | `attendant.rs`, `moment.rs` | expired deadlines are answered; a future that waits for a moment |
//! | `metrics.rs`, `watcher.rs` | figures |
//! | `census.rs`, `describe.rs` | where every block is; descriptions for people |

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
