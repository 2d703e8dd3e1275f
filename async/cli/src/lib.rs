//! The `kvstrata` command and its parts: request traces, their replay through all tiers, and the hits of each
//! eviction policy.
//!
//! | module | contents |
//! |---|---|
//! | [`replay`] | replays a request trace through all tiers and checks every byte |
//! | [`policies`] | hits of each eviction policy on a trace, by capacity, beside the optimum |
//! | [`trace`] | reads traces: JSON lines, plain or compressed |
//! | `command` | the subcommands: options, tables, pictures |
//! | `fold` | breaks prose into lines |
//!
//! An engine embeds the crate `kvstrata`, which does not depend on this one.
#![forbid(unsafe_code)]

mod command;
mod fold;
pub mod policies;
pub mod replay;
pub mod trace;

pub use command::{main, top};
