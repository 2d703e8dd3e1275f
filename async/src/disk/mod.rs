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
//! | `tier.rs` | [`DiskTier`]: lookups, reads, writes, slots of lost volumes |
//! | `recover.rs` | what a restart finds, put into the pool |
//! | `stats.rs` | what was offered, written, refused, rejected |
//! | `admission.rs` | [`Admission`]: which blocks are worth a write |
//! | `budget.rs` | [`Budget`]: bytes a day |

mod admission;
mod budget;
mod recover;
mod stats;
mod tier;

pub use admission::{Admission, AdmissionPolicy, UnknownAdmission};
pub use budget::Budget;
pub use recover::RecoveryReport;
pub use stats::{Rejected, TierStats};
pub(crate) use tier::take_free;
pub use tier::{DiskTier, ReadOutcome, TierError, TierOptions, WriteOutcome, Writing};
