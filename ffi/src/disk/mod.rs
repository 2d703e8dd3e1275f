//! The disk tier's volume: one preallocated file of equal slots, served by one ring thread.
//!
//! ```text
//!   callers ─ read/write(slot, guard) ─► inbox ─► engine ─► ring ─► kernel ─► file
//!      ▲                               (bounded)  (one thread)                 │
//!      └────────────── Pending: the guard back ◄───────────────────────────────┘
//! ```
//!
//! A request owns its buffer until the kernel has answered: the guard moves into it, to the ring thread,
//! and comes back through [`Pending`]. Dropping the [`Pending`] drops the interest, not the buffer.
//!
//! | file | what |
//! |---|---|
//! | `volume.rs` | [`Volume`]: what callers use, and the choice of the ring |
//! | `options.rs` | [`VolumeOptions`], and where the slots lie in the file |
//! | `file.rs` | the file: created, allocated, O_DIRECT tried, removed |
//! | `inbox.rs`, `doorbell.rs` | the bounded way to the ring thread: back-pressure, sleeping and waking |
//! | `request.rs`, `pending.rs` | a request, which owns its buffer, and the caller's end of it |
//! | `engine.rs` | the ring thread: order, pieces, resuming, retrying |
//! | `ring/` | what moves the pieces: io_uring, or pread/pwrite threads |

mod doorbell;
mod engine;
mod error;
mod file;
mod inbox;
mod options;
mod pending;
mod request;
pub(crate) mod ring;
mod stats;
#[cfg(test)]
mod tests;
mod volume;

pub(crate) use file::available_at;

pub use error::{Direction, FailureCause, IoFailure, VolumeError};
pub use options::{Backend, Progress, VolumeOptions};
pub use pending::Pending;
pub use stats::VolumeStats;
pub use volume::{Description, Volume};
