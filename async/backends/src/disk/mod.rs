//! The disk tier (G3): a pool for the books and volumes for the bytes, found again after a restart.
//!
//! ```text
//!   victims of the tier above ─► admission ─► budget ─► take a slot ─► write ─► registered
//!                                   │            │
//!                                   └────────────┴──► refused: forgotten
//!
//!   open:  slot tables of the volumes ─► records that hold ─► blocks of the pool, as old as they were
//! ```
//!
//! | file | what |
//! |---|---|
//! | `tier.rs` | [`DiskTier`]: lookups, reads, lost volumes |
//! | `take.rs` | slots to write to; volumes that take no writes just now |
//! | `erase.rs` | slots forgotten for good, overwritten if asked for, for all who ask at once |
//! | `unforgotten.rs` | slots that are free once what they held is forgotten |
//! | `errand.rs` | what has to wait for a volume, and the threads that do |
//! | `write.rs` | its writes, from a slot to a block that is found |
//! | `mover.rs`, `mover/request.rs` | [`DiskMover`]: the tier behind the port of transfers; what it has in hand |
//! | `recover.rs` | what a restart finds, put into the pool |
//! | `said.rs` | what is logged of a volume, once |
//! | `stats.rs` | what was offered, written, refused, rejected |
//! | `admission.rs` | [`Admission`]: which blocks are worth a write |
//! | `budget.rs` | [`Budget`]: bytes a day |

mod admission;
mod budget;
mod erase;
mod errand;
mod mover;
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
pub use recover::RecoveryReport;
pub use tier::{DiskTier, ReadOutcome, TierError, TierOptions};
pub use write::{WriteOutcome, Writing};
