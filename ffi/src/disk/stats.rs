//! What a volume has done so far, counted.

use super::ring::Action;
use core::sync::atomic::{AtomicU64, Ordering};

/// A figure for people. Relaxed throughout: no other memory is read on the strength of it.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
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
    pub(super) rejected: Counter,
    pub(super) merged: Counter,
    pub(super) unfilled: Counter,
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
    /// Times that a caller found its queue full, or all of an encrypted volume's copies on their way, and had to wait.
    pub waits: u64,
    /// Callers that wait for room now.
    pub blocked: u64,
    /// Times that a caller had to wake the sleeping ring thread: one system call each.
    pub wakes: u64,
    /// System calls by which the ring thread submits, looks and waits; neither those that wake callers, nor those of cuFile's threads.
    pub turns: u64,
    /// Short transfers resumed.
    pub resumed: u64,
    /// Interrupted transfers (EINTR, EAGAIN) retried.
    pub retried: u64,
    /// Requests that the device failed, or that were impossible.
    pub failures: u64,
    /// Reads that the device answered, but not with the block that was asked for.
    pub rejected: u64,
    /// Requests that went to the kernel as part of another one's.
    pub merged: u64,
    /// Bytes of the file that have yet to be written through in the background.
    pub unfilled_bytes: u64,
}

impl Counters {
    pub(super) fn moved(&self, action: Action, bytes: usize) {
        match action {
            Action::Read => self.read_bytes.add(bytes as u64),
            Action::Write => self.written_bytes.add(bytes as u64),
            Action::Sync | Action::Punch | Action::Sum => {}
        }
    }

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
            rejected: self.rejected.get(),
            merged: self.merged.get(),
            unfilled_bytes: self.unfilled.get(),
        }
    }
}

impl core::ops::AddAssign for VolumeStats {
    /// Adds another volume's.
    fn add_assign(&mut self, other: VolumeStats) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.waits += other.waits;
        self.blocked += other.blocked;
        self.wakes += other.wakes;
        self.turns += other.turns;
        self.resumed += other.resumed;
        self.retried += other.retried;
        self.failures += other.failures;
        self.rejected += other.rejected;
        self.merged += other.merged;
        self.unfilled_bytes += other.unfilled_bytes;
    }
}
