//! The `kvstrata` command and its parts: request traces, their replay through all tiers, and the hits of each
//! eviction policy.
//!
//! ```
//! use kvstrata_cli::trace::{TraceReader, TraceSource};
//!
//! let mut trace = TraceReader::open(TraceSource::Bundled)?;
//! let first = trace.next_request()?.ok_or("the trace has requests")?;
//! println!("{} tokens, {} blocks", first.input_length, first.hash_ids.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`trace`]: traces, which are JSON lines, plain or compressed: [`trace::TraceReader`], [`trace::Request`]
//! - [`replay`]: a trace through all tiers, with every byte checked: [`replay::Replay`]
//! - [`policies`]: the hits of each eviction policy, by capacity, beside the optimum: [`policies::hits`]
//! - [`main`], [`run`]: the command itself; [`top`]: its view of a running manager
//!
//! An engine embeds the crate `kvstrata`, which does not depend on this one.
#![forbid(unsafe_code)]

// The subcommands: options, tables, pictures; `fold` breaks prose into lines.
mod command;
mod fold;
pub mod policies;
pub mod replay;
pub mod trace;

pub use command::{main, run, top};
