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
//! | [`manager`] | [`KvBlockManager`](manager::KvBlockManager): what an engine embeds |
//! | [`scheduler`] | when transfers may touch blocks in use, and which blocks have been idle |
//! | [`tier`], [`transfer`] | the tiers; transfers between them, and the ports of who moves bytes |
#![forbid(unsafe_code)]

pub use kvstrata_core as core;
pub use kvstrata_ffi as ffi;

pub mod config;
pub mod costs;
pub mod disk;
pub mod manager;
pub mod metrics;
pub mod model;
pub mod movers;
#[cfg(feature = "otel")]
pub mod otel;
pub mod scheduler;
#[doc(hidden)]
pub mod shared;
pub mod tier;
pub mod transfer;

#[doc(hidden)]
pub mod address;
mod contained;
#[doc(hidden)]
pub mod figures;
#[doc(hidden)]
pub mod files;
#[doc(hidden)]
pub mod number;
mod places;
mod stripes;
