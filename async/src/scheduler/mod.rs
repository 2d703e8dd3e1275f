//! When transfers may touch the blocks that the model uses, and which blocks are worth one.
//!
//! | file | what |
//! |---|---|
//! | `ages.rs` | how long blocks have been idle, and which have no copy below |
//! | `clock.rs` | the model's iterations and layers, as the engine tells of them; gates |
//! | `gated.rs` | what waits for a gate |

mod ages;
mod clock;
mod gated;

pub use ages::{Ages, Search};
pub use clock::{Call, Clock, Gate, Misuse, Reason};
pub use gated::{Gated, Key};
