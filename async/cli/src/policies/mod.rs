//! `policies`: the hits of each eviction policy on a trace, by the number of blocks,
//! beside the most possible hits.
//!
//! ```text
//!   trace ─► prompts ─┬─► a pool for each policy and capacity     one tier, one request at a time, no bytes
//!                     └─► the offline optimum                     knows the rest of the trace
//! ```
//!
//! A prompt is served as by [`replay`](crate::replay) over its device alone: the leading run in the pool
//! is its hit, the rest is allocated and registered after the run, and all blocks are released tail
//! first. So the hits of a policy are those of `replay --host-blocks 0 --disk-blocks 0`.
//!
//! I1. The same trace, policy and capacity give the same count.

// | file | contents |
// |---|---|
// | `prompts.rs` | the blocks of a trace, renumbered and checked to form a tree |
// | `pool.rs` | the hits of a policy |
// | `optimum.rs` | the most possible hits |
// | `report.rs` | the result, for programs and for people |

mod optimum;
mod pool;
mod prompts;
mod report;

#[cfg(test)]
mod tests;

pub use optimum::optimum;
pub use pool::hits;
pub use prompts::{PromptFault, Prompts, PromptsError};
pub use report::{Curve, Report};
