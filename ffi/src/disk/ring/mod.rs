//! What the engine drives: something that moves pieces between memory and one file.
//!
//! | ring | how | file |
//! |---|---|---|
//! | [`uring::UringRing`] | one `io_uring`, registered file, fixed buffers where allowed | `uring.rs` |
//! | [`blocking::BlockingRing`] | a few threads that call pread/pwrite | `blocking.rs` |
//! | `faulty::FaultyRing` | any of these, with faults on purpose (tests) | `faulty.rs` |
//!
//! A ring knows pieces, not requests: splitting, resuming, retrying and ordering are the engine's, once
//! for all rings.

pub(super) mod blocking;
#[cfg(test)]
pub(super) mod faulty;
#[cfg(target_os = "linux")]
pub(crate) mod uring;

use super::error::Direction;
use super::inbox::Bell;

/// One piece: `bytes` bytes between `address` and the file at `file_offset`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Op {
    pub(super) direction: Direction,
    pub(super) address: *mut u8,
    pub(super) bytes: u32,
    pub(super) file_offset: u64,
}

// SAFETY: `Op` is an address and numbers; who turns it into an access upholds `Ring::push`'s contract.
unsafe impl Send for Op {}

/// How a piece ended: its token, and bytes moved (≥ 0) or a negated error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) token: u32,
    pub(super) result: i32,
}

/// One thread makes a ring, drives it and drops it.
pub(super) trait Ring {
    /// Pieces that it takes at most at a time.
    fn depth(&self) -> usize;

    /// Wakes [`turn`](Ring::turn) from another thread.
    fn bell(&self) -> Bell;

    /// Takes a piece; it starts at the next `turn` at the latest. The caller keeps at most `depth` in flight.
    ///
    /// # Safety
    /// From here until the completion with this token has come out of `turn`, or the process ends: the
    /// memory of `op` stays mapped, nobody else writes it, and for a read nobody else reads it either.
    unsafe fn push(&mut self, token: u32, op: &Op);

    /// Starts what was pushed, waits for at least one completion or the bell, and appends what has ended.
    /// May come back early with nothing.
    ///
    /// # Errors
    /// The error number that made the ring unusable. Pieces in flight are then never heard of.
    fn turn(&mut self, done: &mut Vec<Completion>) -> Result<(), i32>;
}
