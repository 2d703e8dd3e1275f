//! When transfers may touch blocks that the model uses, and which blocks are worth a transfer.
//!
//! A [`Gate`] opens at a layer or an iteration of the model, as the engine tells of them. [`Ages`] and
//! [`Search`] are from the core: how long blocks have been idle, and which have no copy below.

// | file | contents |
// |---|---|
// | `clock.rs` | the model's iterations and layers; gates |
// | `gated.rs` | items that wait for a gate |

mod clock;
mod gated;

pub use clock::{Call, Clock, Gate, Misuse, Reason};
pub use gated::{Full, Gated, Key};
pub use kvstrata_core::ages::{Ages, Search};
