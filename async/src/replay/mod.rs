//! `replay`: a trace's requests through device, host and disk, with real bytes, each of which is checked.
//!
//! ```text
//!   trace ─► worker ─┬ match ──── longest leading run of ids over all tiers
//!    (N threads)     ├ allocate ─ device blocks; victims go down:   device ─► host ─► disk ─► forgotten
//!                    ├ onboard ── hits come up:                     device ◄─ host
//!                    │                                              device ◄─ staging ◄─ disk
//!                    ├ verify ─── every hit, byte by byte, read back from the device
//!                    ├ fill ───── misses, with what their id and the seed determine
//!                    └ release ── tail first
//! ```
//!
//! Each tier is a [`BlockPool`](kvstrata_core::BlockPool) and a storage. What a tier means:
//!
//! - **Going down** is a block's eviction. It is copied to the next tier, unless that has it already: then its recency
//!   there is refreshed. So a tier never holds a hash twice, and never writes what it has.
//! - **The disk tier** is a [`DiskTier`](crate::disk::DiskTier): what it holds is there at the next start, and an admission filter or a
//!   write budget may refuse blocks.
//! - **Coming up** is a copy: a block that was brought up stays below until it is evicted there. Disk hits come up
//!   through staging buffers and enter the host tier when the device evicts them.
//! - A tier of 0 blocks is left out. With no host tier, device victims go to disk through the staging buffers.
//! - The run of a hit may change tiers from block to block; it ends at the first id that no tier has.
//!
//! Invariants
//! - I1: a block is matched in at most one tier, the highest that has it.
//! - I2: bytes are written to a block only while it is owned (`MutableBlock`), and read only while it is owned,
//!   referenced or freshly evicted, so that no transfer meets another one's bytes. The arena, the device port and the
//!   volume check this again, each for itself.
//! - I3: a block is registered only after its bytes have arrived. A failed transfer registers nothing, is counted by
//!   cause and is a miss.
//! - I4: with one worker everything that is counted is a function of trace and settings. With more, a block on its way
//!   between tiers is in none of them, and is a miss to the others for that moment.
//!
//! A request with more blocks than the device has is served in its first `--device-blocks` blocks, which is also what a
//! cache ordered by last release, tail first, would keep of it; the rest is counted as `uncached_blocks`.
//!
//! | file | what |
//! |---|---|
//! | `settings.rs` | [`Settings`], and what is possible |
//! | `tiers.rs`, `volume.rs`, `parents.rs` | the tiers and what they are made of |
//! | `run.rs` | threads, order of requests, the end |
//! | `worker.rs` | one request, from match to release |
//! | `onboard.rs`, `offload.rs` | up, and down |
//! | `gate.rs` | admission: why nobody waits for ever |
//! | `pattern.rs` | what a block's bytes must be |
//! | `tally.rs`, `histogram.rs` | counting |
//! | `report.rs`, `table.rs` | the result, for programs and for people |
//! | `fault.rs` | a device that damages bytes, to see that it is noticed |
//! | `machine.rs` | memory: how much is there, how much was used |

mod error;
mod fault;
mod gate;
mod histogram;
mod machine;
mod offload;
mod onboard;
mod parents;
mod pattern;
mod report;
mod run;
mod settings;
mod table;
mod tally;
mod tiers;
mod volume;
mod worker;

pub use error::ReplayError;
pub use fault::FlippingPort;
pub use histogram::Histogram;
pub use pattern::{Mismatch, Pattern};
pub use report::{Asked, ByPath, ByTier, Disk, Failures, Latencies, Latency, Report, Wrong};
pub use run::{Progress, Replay};
pub use settings::{DiskFill, Settings};
pub use tally::Tier;
pub use volume::FillProgress;
