//! The `kvstrata` command, and what it is made of: traces, their replay through all tiers, and what each policy would hit.
//!
//! | module | what |
//! |---|---|
//! | [`replay`] | a request trace through all tiers, every byte checked |
//! | [`policies`] | what each eviction policy would hit on a trace, by capacity, beside the optimum |
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
