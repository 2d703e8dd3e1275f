//! `replay`: a trace's requests through device, host and disk, with real bytes, each of which is checked.
//!
//! ```text
//!   trace ─► request ─┬ match ──── longest leading run of ids over all tiers      ┐
//!    (N at a time)    ├ onboard ── hits come up:      device ◄─ host ◄─ disk      │ by the manager,
//!                     ├ allocate ─ victims go down:   device ─► host ─► disk ─► · │ as an engine uses it
//!                     ├ verify ─── every hit, byte by byte, read back from the device
//!                     ├ fill ───── misses, with what their id and the seed determine
//!                     └ release ── tail first                                     ┘
//! ```
//!
//! The tiers are a [`KvBlockManager`](kvstrata::manager::KvBlockManager)'s. How it is set, and what follows:
//!
//! - **Going down** is a block's eviction, and nothing else is. It is copied to the next tier, unless that
//!   has it already: then its recency there is refreshed. So a tier never holds a hash twice, and never
//!   writes what it has.
//! - **The disk tier** is a [`DiskTier`](kvstrata::disk::DiskTier): what it holds is there at the next start,
//!   and an admission filter or a write budget may refuse blocks.
//! - **Coming up** is a copy: a block that was brought up stays below until it is evicted there. Disk hits
//!   come up through staging buffers and enter the host tier when the device evicts them.
//! - A tier of 0 blocks is left out. With no host tier, device victims go to disk through the staging
//!   buffers.
//! - The run of a hit may change tiers from block to block; it ends at the first id that no tier has. A block
//!   that is on its way to the device for another request is a hit of the device.
//!
//! Invariants
//! - I1: a block is matched in at most one tier, the highest that has it.
//! - I2: with one request at a time everything that is counted is a function of trace and settings; but for
//!   what is dropped where requests wait for the disk no longer than they are told (`--patience`).
//! - I3: a failed transfer is counted by cause and is a miss, and so is the rest of its request's run.
//!
//! A request with more blocks than the device has is served in its first `--device-blocks` blocks, which is
//! also what a cache ordered by last release, tail first, would keep of it; the rest is counted as
//! `uncached_blocks`.
//!
//! | file | what |
//! |---|---|
//! | `settings.rs` | [`Settings`], and what is possible |
//! | `device.rs` | [`Device`]: the device's port and mover |
//! | `tiers.rs`, `volume.rs`, `clock.rs` | the manager, the volumes, the disk tier in the trace's time |
//! | `intake.rs` | requests as they are read |
//! | `run.rs` | order and times of requests, admission, the end |
//! | `worker.rs` | one request, from match to release |
//! | `pattern.rs` | what a block's bytes must be |
//! | `tally.rs`, `histogram.rs` | counting |
//! | `series.rs` | samples of what is counted, over time |
//! | `report.rs`, `table.rs` | the result, for programs and for people |
//! | `fault.rs` | a device that damages bytes, to see that it is noticed |
//! | `machine.rs` | memory: how much is there, how much was used |

mod clock;
mod device;
mod error;
mod fault;
mod histogram;
mod intake;
mod machine;
mod pattern;
mod report;
mod run;
mod series;
mod settings;
mod table;
mod tally;
mod tiers;
mod volume;
mod worker;

pub use device::Device;
pub use error::ReplayError;
pub use fault::FlippingPort;
pub use histogram::Histogram;
pub use pattern::{Mismatch, Pattern};
pub use report::{Asked, ByPath, ByTier, Disk, Failures, Latencies, Latency, Report, Wrong};
pub use run::{Progress, Replay};
pub use series::Sample;
pub use settings::Settings;
pub(crate) use tiers::hash_of;
pub use volume::FillProgress;
pub(crate) use volume::file_in;
