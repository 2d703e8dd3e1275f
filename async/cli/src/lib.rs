//! The `kvstrata` command and its parts: traces, their replay through all tiers, and the hits of each
//! eviction policy.
//!
//! | module | what |
//! |---|---|
//! | [`replay`] | a request trace through all tiers, every byte checked |
//! | [`policies`] | hits of each eviction policy on a trace, by capacity, beside the optimum |
//! | [`trace`] | traces: JSON lines, plain or compressed |
//! | `command` | the subcommands: their options, tables, pictures |
//!
//! An engine embeds the crate `kvstrata`, which knows nothing of this one.
#![forbid(unsafe_code)]

mod command;
pub mod policies;
pub mod replay;
pub mod trace;

pub use command::{main, top};
