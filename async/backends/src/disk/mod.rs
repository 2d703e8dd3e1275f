//! The disk tier (G3): a pool for the metadata and volumes for the bytes. A restart finds its blocks
//! again.
//!
//! ```text
//!   victims of the tier above ─► admission ─► budget ─► take a slot ─► write ─► registered
//!                                   │            │
//!                                   └────────────┴──► refused: dropped
//!
//!   open:  slot tables of the volumes ─► valid records ─► blocks of the pool, in their old age order
//! ```

// | file | contents |
// |---|---|
// | `tier.rs` | `DiskTier`: lookups, lost volumes |
// | `read.rs` | reads, and outcomes of failed ones |
// | `lengths.rs` | lengths of blocks, by slot |
// | `take.rs` | slots for writes; volumes that temporarily take no writes |
// | `erase.rs` | permanent erasure of slots, optionally with zeros, batched over all callers |
// | `unforgotten.rs` | slots that become free once their records are forgotten |
// | `errand.rs` | work that must wait for a volume, and its threads |
// | `write.rs` | writes, from a taken slot to a registered block |
// | `mover.rs`, `mover/request.rs` | `DiskMover`: the tier behind its port; requests in flight |
// | `recover.rs` | recovered blocks, put into the pool |
// | `said.rs` | log lines about a volume, each once |
// | `stats.rs` | counters: offered, written, refused, rejected |
// | `admission.rs` | `Admission`: which blocks are worth a write |
// | `budget.rs` | `Budget`: bytes a day |

mod admission;
mod budget;
mod erase;
mod errand;
mod lengths;
mod mover;
mod read;
mod recover;
mod said;
mod stats;
mod take;
mod tier;
mod unforgotten;
mod write;

pub use admission::{Admission, AdmissionPolicy, UnknownAdmission};
pub use budget::Budget;
pub use kvstrata_tiers::transfer::{
    FailedTransfers, Rejected, RejectedAtOpening, RejectedReads, TierStats, VolumeStates,
};
pub use mover::DiskMover;
pub use read::ReadOutcome;
pub use recover::RecoveryReport;
pub use tier::{DiskTier, TierError, TierOptions};
pub use write::{WriteOutcome, Writing};
