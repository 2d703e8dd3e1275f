//! Rings: they move the engine's pieces between memory and one file.
//!
//! | ring | how | file |
//! |---|---|---|
//! | [`uring::UringRing`] | one `io_uring`, registered file, fixed buffers where allowed | `uring.rs` |
//! | [`blocking::BlockingRing`] | a few threads that call preadv/pwritev | `blocking.rs` |
//! | [`gds::GdsRing`] | another ring for host memory, cuFile's threads for device memory | `gds.rs` |
//! | `faulty::FaultyRing` | any of these, with faults on purpose (tests) | `faulty.rs` |
//! | `sim::SimRing` | a disk in memory that fails as its seed says (tests, fuzzing) | `sim.rs` |
//!
//! `trial.rs` tests whether io_uring works at all.
//!
//! A ring knows pieces, not requests. The engine does the splitting, merging, resuming, retrying,
//! ordering and checksums, once for all rings.

pub(super) mod blocking;
#[cfg(test)]
pub(super) mod faulty;
pub(super) mod gds;
#[cfg(any(test, feature = "simulation"))]
pub(super) mod sim;
pub(super) mod trial;
#[cfg(target_os = "linux")]
pub(crate) mod uring;

use super::error::{DeviceRefusal, FailureCause};
use super::format::Sum;
use crate::gds::DeviceRange;
use std::time::Duration;

/// The effect of a piece on the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Read,
    Write,
    /// When it completes, earlier writes are on the device for good. Moves no bytes.
    Sync,
    /// Gives a stretch of the file back to the file system. Moves no bytes.
    Punch,
    /// Sums device memory; [`Ring::take_sum`] has the result when it completes. Moves no bytes.
    Sum,
}

/// One stretch of memory, as the kernel takes it.
pub(super) type Buffer = libc::iovec;

/// One piece: the bytes of `buffers`, one after the other, and the file from `file_offset` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Op<'b> {
    pub(super) action: Action,
    pub(super) file_offset: u64,
    /// Bytes of all buffers, or of the device memory; for a punch, the length of the hole.
    pub(super) bytes: usize,
    pub(super) buffers: &'b [Buffer],
    /// Some: the bytes are in device memory, there are no buffers, and the ring supports it. Used in
    /// `push` alone.
    pub(super) device: Option<DevicePart<'b>>,
}

/// A part of device memory: it starts `offset` bytes after the start of a range, and lies within it.
#[derive(Debug, Clone, Copy)]
pub(super) struct DevicePart<'b> {
    pub(super) range: &'b DeviceRange,
    pub(super) offset: usize,
}

/// The end of a piece: its token, and the bytes moved (≥ 0) or a negated error number. For device memory
/// the number may also be a negated code of cuFile's; all of these are above the error numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) token: u32,
    pub(super) result: i32,
}

/// How long [`Ring::turn`] may wait for something to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Not at all, there is other work to do: pushed pieces are started, and completions are taken if
    /// that costs nothing.
    No,
    /// Not at all, but completions are taken.
    Look,
    /// Until this many pieces have ended, or for this long; then for one piece.
    Batch { pieces: usize, patience: Duration },
    /// For one piece, for this long at most.
    For(Duration),
    /// For one piece.
    Forever,
}

/// Wakes the ring thread, whichever call it sleeps in.
pub(super) type Bell = Box<dyn Fn() + Send + Sync>;

/// One thread makes a ring, drives it and drops it.
pub(super) trait Ring {
    /// Maximum pieces in flight.
    fn depth(&self) -> usize;

    /// Wakes [`turn`](Ring::turn) from another thread.
    fn bell(&self) -> Bell;

    /// The time since a fixed moment.
    fn now(&self) -> Duration;

    /// Takes a piece; it starts at the next `turn` at the latest. The caller keeps at most `depth` in flight.
    ///
    /// # Safety
    /// From here until the completion with this token has come out of `turn`, or the process ends:
    /// `op.buffers` and the memory that they name stay mapped, and no one else writes either. The memory
    /// that a read fills is not read by anyone else either. The ring itself holds device memory; the
    /// caller promises that no one else uses it either.
    unsafe fn push(&mut self, token: u32, op: &Op<'_>);

    /// Starts the pushed pieces, waits as told for completions or the bell, and appends completions to
    /// `done`. May return early without any. Returns the number of system calls.
    ///
    /// # Errors
    /// The error number that made the ring unusable. Pieces in flight then never complete.
    fn turn(&mut self, done: &mut Vec<Completion>, wait: Wait) -> Result<u32, i32>;

    /// The result of a completed [`Action::Sum`], once.
    fn take_sum(&mut self, _token: u32) -> Result<Sum, FailureCause> {
        Err(FailureCause::Device(DeviceRefusal::NotAsked))
    }
}
