//! What the engine drives: something that moves pieces between memory and one file.
//!
//! | ring | how | file |
//! |---|---|---|
//! | [`uring::UringRing`] | one `io_uring`, registered file, fixed buffers where allowed | `uring.rs` |
//! | [`blocking::BlockingRing`] | a few threads that call preadv/pwritev | `blocking.rs` |
//! | [`gds::GdsRing`] | another one for host memory, cuFile's threads for device memory | `gds.rs` |
//! | `faulty::FaultyRing` | any of these, with faults on purpose (tests) | `faulty.rs` |
//! | `sim::SimRing` | a disk in memory that fails as its seed says (tests, fuzzing) | `sim.rs` |
//!
//! `trial.rs` tries whether io_uring works at all.
//!
//! A ring knows pieces, not requests: splitting, merging, resuming, retrying, ordering and checksums are the
//! engine's, once for all rings.

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

/// What a piece does to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Read,
    Write,
    /// What was written is on the device for good when it completes. Moves no bytes.
    Sync,
    /// Gives a stretch of the file back to the file system. Moves no bytes.
    Punch,
    /// Sums device memory; [`Ring::take_sum`] has the outcome when it completes. Moves no bytes.
    Sum,
}

/// One stretch of memory; what the kernel takes.
pub(super) type Buffer = libc::iovec;

/// One piece: the bytes of `buffers`, one after the other, and the file from `file_offset` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Op<'b> {
    pub(super) action: Action,
    pub(super) file_offset: u64,
    /// The bytes of all buffers, or of the device's memory; of a punch, the length of the hole.
    pub(super) bytes: usize,
    pub(super) buffers: &'b [Buffer],
    /// Some: the bytes are the device's, there are no buffers, and the ring is one that takes it. Looked at in `push` alone.
    pub(super) device: Option<DevicePart<'b>>,
}

/// A part of device memory: what starts `offset` bytes behind a range's start, within it.
#[derive(Debug, Clone, Copy)]
pub(super) struct DevicePart<'b> {
    pub(super) range: &'b DeviceRange,
    pub(super) offset: usize,
}

/// How a piece ended: its token, and bytes moved (≥ 0) or a negated error number; of device memory also a negated code of cuFile's,
/// all of which are above the error numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) token: u32,
    pub(super) result: i32,
}

/// How long [`Ring::turn`] may wait for something to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Not at all, there is other work to do: what was pushed is started, and what has ended is taken if it costs
    /// nothing.
    No,
    /// Not at all, but what has ended is taken.
    Look,
    /// Until so many pieces have ended, for so long; then for one.
    Batch { pieces: usize, patience: Duration },
    /// For one, for so long.
    For(Duration),
    /// For one.
    Forever,
}

/// Wakes the ring thread out of its sleep, whatever it sleeps in.
pub(super) type Bell = Box<dyn Fn() + Send + Sync>;

/// One thread makes a ring, drives it and drops it.
pub(super) trait Ring {
    /// Pieces that it takes at most at a time.
    fn depth(&self) -> usize;

    /// Wakes [`turn`](Ring::turn) from another thread.
    fn bell(&self) -> Bell;

    /// The time, from some moment on.
    fn now(&self) -> Duration;

    /// Takes a piece; it starts at the next `turn` at the latest. The caller keeps at most `depth` in flight.
    ///
    /// # Safety
    /// From here until the completion with this token has come out of `turn`, or the process ends: `op.buffers`
    /// and the memory that they name stay mapped, nobody else writes either, and what a read fills nobody else
    /// reads either. Device memory the ring holds by itself; that nobody else uses it is promised for it too.
    unsafe fn push(&mut self, token: u32, op: &Op<'_>);

    /// Starts what was pushed, waits as told for completions or the bell, and appends what has ended.
    /// May come back early with nothing. Returns how many system calls it took.
    ///
    /// # Errors
    /// The error number that made the ring unusable. Pieces in flight are then never heard of.
    fn turn(&mut self, done: &mut Vec<Completion>, wait: Wait) -> Result<u32, i32>;

    /// The outcome of a completed [`Action::Sum`], once.
    fn take_sum(&mut self, _token: u32) -> Result<Sum, FailureCause> {
        Err(FailureCause::Device(DeviceRefusal::NotAsked))
    }
}
