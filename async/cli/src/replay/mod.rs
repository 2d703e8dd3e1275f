//! `replay`: serves the requests of a trace over all tiers with real bytes, and checks every byte.
//!
//! ```text
//!   trace ─► request ─┬ match ──── longest leading run of ids over all tiers         ┐
//!    (N at a time)    ├ onboard ── copies hits up:       device ◄─ host ◄─ disk      │ by the manager,
//!                     ├ allocate ─ copies victims down:  device ─► host ─► disk ─► · │ as in an engine
//!                     ├ verify ─── every hit byte by byte, read back from the device
//!                     ├ fill ───── misses, with the bytes of their id and the seed
//!                     └ release ── tail first                                        ┘
//! ```
//!
//! The tiers are those of a [`KvBlockManager`](kvstrata::manager::KvBlockManager). Its
//! settings have these effects:
//!
//! - **Down**: a block moves down only when it is evicted. It is copied to the next tier. If that tier
//!   has the hash already, only its recency there is refreshed. So a tier never holds a hash twice, and
//!   never rewrites a block that it has.
//! - **The disk tier** is a [`DiskTier`](kvstrata::backend::disk::DiskTier): the next start finds its
//!   blocks, and an admission filter or a write budget may refuse blocks.
//! - **Up**: an onboard is a copy. The lower tier keeps the block until it evicts the block. Disk hits
//!   are copied through staging buffers and enter the host tier when the device evicts them.
//! - A tier of 0 blocks is left out. Without a host tier, victims of the device go to disk
//!   through the staging buffers.
//! - The run of a hit may change tiers from block to block. It ends at the first id that no tier has. A
//!   block on its way to the device for another request is a hit of the device.
//!
//! Invariants
//! - I1: a block is matched in at most one tier, the highest that has it.
//! - I2: with one request at a time, every count is a function of trace and settings, except for blocks
//!   dropped because `--patience` ended a request's wait for the disk.
//! - I3: a failed transfer is counted by cause. It is a miss, and so is the rest of its request's run.
//!
//! A request with more blocks than the device is served in its first `--device-blocks` blocks. A cache
//! ordered by last release, tail first, would keep the same blocks. The rest counts as `uncached_blocks`.

// | file | contents |
// |---|---|
// | `settings.rs` | `Settings`, and their limits |
// | `device.rs` | `Device`: the device's port and mover |
// | `tiers.rs`, `volume.rs`, `clock.rs` | the manager, the volumes, the disk tier in the trace's time |
// | `intake.rs` | reads requests ahead of need |
// | `run.rs` | order and times of requests, admission, the end |
// | `worker.rs` | one request, from match to release |
// | `pattern.rs` | the bytes of a block |
// | `tally.rs`, `histogram.rs` | counts |
// | `series.rs` | samples of the counts over time |
// | `report.rs`, `table.rs` | the result, for programs and for people |
// | `fault.rs` | a device that damages bytes, to show that damage is noticed |
// | `machine.rs` | cores and peak memory |

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
