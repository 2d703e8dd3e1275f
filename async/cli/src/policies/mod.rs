//! `policies`: what each eviction policy would hit on a trace, by the number of blocks, beside what could be
//! hit at most.
//!
//! ```text
//!   trace ─► prompts ─┬─► a pool of the core for each policy and capacity     one tier, one request at a time, no bytes
//!                     └─► the offline optimum                                 which knows what comes
//! ```
//!
//! A prompt is served as by [`replay`](crate::replay) over its device alone: the leading run that is there is
//! its hit; the rest is made room for, registered behind it, and all is released tail first. So the hits of a
//! policy are those of `replay --host-blocks 0 --disk-blocks 0`.
//!
//! | file | what |
//! |---|---|
//! | `prompts.rs` | a trace's blocks, renumbered, and checked to be a tree |
//! | `pool.rs` | a policy's hits |
//! | `optimum.rs` | the most that can be hit |
//! | `report.rs` | all of it, for programs and for people |
//!
//! I1. The same trace, policy and capacity give the same count.

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
