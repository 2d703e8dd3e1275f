//! When transfers may touch blocks that the model uses, and which blocks are worth a transfer.
//!
//! | file | contents |
//! |---|---|
//! | `clock.rs` | the model's iterations and layers, as the engine tells of them; gates |
//! | `gated.rs` | items that wait for a gate |
//! | [`Ages`], [`Search`] | from the core: how long blocks have been idle, and which have no copy below |

mod clock;
mod gated;

pub use clock::{Call, Clock, Gate, Misuse, Reason};
pub use gated::{Full, Gated, Key};
pub use kvstrata_core::ages::{Ages, Search};
