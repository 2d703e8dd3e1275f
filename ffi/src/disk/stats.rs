//! What a volume has done so far, counted.

use core::sync::atomic::{AtomicU64, Ordering};

/// A figure for people. Relaxed throughout: no other memory is read on the strength of it.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Written by the ring thread, but for `waits` and `wakes`, which callers write on their slow paths.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) reads: Counter,
    pub(super) writes: Counter,
    pub(super) read_bytes: Counter,
    pub(super) written_bytes: Counter,
    pub(super) waits: Counter,
    pub(super) wakes: Counter,
    pub(super) turns: Counter,
    pub(super) resumed: Counter,
    pub(super) retried: Counter,
    pub(super) failures: Counter,
}

/// What a volume has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumeStats {
    /// Requests that read a slot, ended well.
    pub reads: u64,
    /// Requests that wrote a slot, ended well.
    pub writes: u64,
    /// Bytes read from the file, padding included.
    pub read_bytes: u64,
    /// Bytes written to the file, padding included.
    pub written_bytes: u64,
    /// Times that a caller found its queue full and had to wait.
    pub waits: u64,
    /// Callers that wait for room now.
    pub blocked: u64,
    /// Times that a caller had to wake the sleeping ring thread: one system call each.
    pub wakes: u64,
    /// Turns of the ring: at most one `io_uring_enter` each.
    pub turns: u64,
    /// Short transfers resumed.
    pub resumed: u64,
    /// Interrupted transfers (EINTR, EAGAIN) retried.
    pub retried: u64,
    /// Requests that failed.
    pub failures: u64,
}

impl Counters {
    pub(super) fn snapshot(&self, blocked: usize) -> VolumeStats {
        VolumeStats {
            reads: self.reads.get(),
            writes: self.writes.get(),
            read_bytes: self.read_bytes.get(),
            written_bytes: self.written_bytes.get(),
            waits: self.waits.get(),
            blocked: blocked as u64,
            wakes: self.wakes.get(),
            turns: self.turns.get(),
            resumed: self.resumed.get(),
            retried: self.retried.get(),
            failures: self.failures.get(),
        }
    }
}
