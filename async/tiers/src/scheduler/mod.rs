//! When transfers may touch the blocks that the model uses, and which blocks are worth one.
//!
//! | file | what |
//! |---|---|
//! | `clock.rs` | the model's iterations and layers, as the engine tells of them; gates |
//! | `gated.rs` | what waits for a gate |
//! | [`Ages`], [`Search`] | how long blocks have been idle, and which have no copy below: of the core |

mod clock;
mod gated;

pub use clock::{Call, Clock, Gate, Misuse, Reason};
pub use gated::{Full, Gated, Key};
pub use kvstrata_core::ages::{Ages, Search};
