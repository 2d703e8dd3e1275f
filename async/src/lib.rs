//! kvstrata: a tiered KV-cache block manager for LLM inference.
//!
//! Blocks live in strata: device memory (G1), host memory (G2), NVMe (G3); remote stores (G4) are not there yet. The bookkeeping is in [`core`], lock-free and
//! `no_std`; what touches memory, devices and files is in [`ffi`]; this crate puts them together.
//!
//! | module | what |
//! |---|---|
//! | [`config`] | the settings of a manager: files, variables, calls; the reference |
//! | [`costs`] | what copies cost on this machine's devices, as it was measured and stored |
//! | [`metrics`] | what a manager's operator watches: figures, Prometheus text, an endpoint |
//! | [`disk`] | the disk tier: found again after a restart, with admission and a write budget |
//! | [`movers`] | who moves bytes between the tiers |
//! | `otel` | spans for an OpenTelemetry collector: of the feature `otel` |
//! | [`policies`] | what each eviction policy would hit on a trace, by capacity, beside the optimum |
//! | [`replay`] | a request trace through all tiers, every byte checked |
//! | [`manager`] | [`KvBlockManager`](manager::KvBlockManager): what an engine embeds |
//! | [`scheduler`] | when transfers may touch blocks in use, and which blocks have been idle |
//! | [`tier`], [`transfer`] | the tiers; transfers between them, and the ports of who moves bytes |
//! | [`trace`] | traces: JSON lines, plain or compressed |
//! | `cli` | the `kvstrata` command: of the feature `command`, which an engine does without (`default-features = false`) |
#![forbid(unsafe_code)]
// What only the command uses is nobody's without it; with it, what is nobody's is seen.
#![cfg_attr(not(feature = "command"), allow(dead_code, unused_imports))]

pub use kvstrata_core as core;
pub use kvstrata_ffi as ffi;

#[cfg(feature = "command")]
pub mod cli;
pub mod config;
pub mod costs;
pub mod disk;
pub mod manager;
pub mod metrics;
pub mod model;
pub mod movers;
#[cfg(feature = "otel")]
pub mod otel;
pub mod policies;
pub mod replay;
pub mod scheduler;
pub mod tier;
pub mod trace;
pub mod transfer;

mod address;
mod contained;
mod figures;
mod files;
mod number;
mod places;
mod stripes;
