//! The façade: the cost of [`KvBlockManager`] over its parts, each in turns with its limit or its peer.
//!
//! ```text
//!   hits      the manager's calls          beside the core's handles
//!   host      blocks up from host memory   beside memcpy and HostCopy over the same bytes, cold
//!   disk      blocks up from a volume      beside reads of the same tier, slot by slot, as deep
//!   counts    allocations a block          (a program of its own: counting would slow down the others)
//!   load      1,000 requests at once       beside the same without a tier below, and with a disk
//!   beside    offload, and a busy thread   beside a bare memcpy of the same bytes at the same rate
//!   watching  replay, counted and logged   beside the same with neither
//!   layers    offload behind a pass        by its layers beside by its end: the time until all is below
//!   store     batches of the keyed store    beside the same disk tier without it, and beside memcpy
//! ```
//!
//! There is no GPU in any of them: the device is host memory that poses as one
//! ([`SimDevice`](kvstrata_ffi::device::SimDevice)), copied to by threads. The figures measure the manager,
//! and how well it keeps those threads busy; no figure is a GPU's, and headings say "simulated device".
//!
//! | file | contents |
//! |---|---|
//! | `ground.rs` | managers to measure, their prefixes and bytes |
//! | `bare.rs` | the same bytes copied without a manager |
//! | `hits.rs`, `host.rs`, `disk.rs`, `counts.rs` | the first four parts |
//! | `load.rs`, `beside.rs`, `layers.rs`, `watching.rs`, `store.rs` | the other parts |
//! | `report.rs` | tables, as Markdown and JSON |
//!
//! [`KvBlockManager`]: kvstrata::manager::KvBlockManager

pub mod bare;
pub mod beside;
pub mod counts;
pub mod disk;
pub mod ground;
pub mod hits;
pub mod host;
pub mod layers;
pub mod load;
pub mod report;
pub mod store;
pub mod watching;

/// The parts; each can be measured alone.
pub const PARTS: [&str; 9] =
    ["hits", "host", "disk", "counts", "load", "beside", "layers", "watching", "store"];
