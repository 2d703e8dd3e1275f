//! The counters and states of a volume.

use super::error::FailureCause;
use super::ring::Action;
use core::sync::atomic::{AtomicU64, Ordering};
use std::io::{Error, ErrorKind};

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

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Written by the ring thread, except `waits` and `wakes`, which callers write on their slow paths.
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
    /// A [`ServiceState`].
    pub(super) service: Counter,
    /// 1: the path does not name the file any more.
    pub(super) removed: Counter,
    /// 1: the device has failed a few times in a row, or is away.
    pub(super) doubt: Counter,
    pub(super) probes: Counter,
    pub(super) pauses: Counter,
    pub(super) outages: Counter,
    pub(super) no_room: Counter,
    pub(super) paused: Counter,
    pub(super) drive: Counter,
    pub(super) away: Counter,
    pub(super) passing: Counter,
    pub(super) retired: Counter,
}

/// The service that a volume offers now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServiceState {
    /// Reads and writes.
    Serving = 0,
    /// The device has no room: no writes until it has; reads go on.
    WritesPaused = 1,
    /// The device does not answer, and is probed at growing intervals. When it answers, its blocks are
    /// served again.
    Away = 2,
    /// No service until it is opened again: it was retired, its ring is lost, or it could not be opened.
    Retired = 3,
}

impl ServiceState {
    /// All states.
    pub const ALL: [ServiceState; 4] =
        [ServiceState::Serving, ServiceState::WritesPaused, ServiceState::Away, ServiceState::Retired];

    /// The spelling in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ServiceState::Serving => "serving",
            ServiceState::WritesPaused => "writes_paused",
            ServiceState::Away => "away",
            ServiceState::Retired => "retired",
        }
    }

    /// Whether a write may succeed.
    #[must_use]
    pub const fn takes_writes(self) -> bool {
        matches!(self, ServiceState::Serving)
    }

    /// Whether a read may succeed.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, ServiceState::Serving | ServiceState::WritesPaused)
    }
}

/// Requests that failed, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedRequests {
    /// The file system, a quota, or a limit had no room for a write.
    pub no_room: u64,
    /// Writes refused without asking the device, since it had no room for earlier ones.
    pub paused: u64,
    /// The drive failed.
    pub drive: u64,
    /// Requests refused without asking the drive, since it does not answer.
    pub away: u64,
    /// The machine had a passing shortage, mostly of memory.
    pub passing: u64,
    /// The volume is out of service.
    pub retired: u64,
}

impl FailedRequests {
    /// Each cause's name and count.
    #[must_use]
    pub const fn causes(&self) -> [(&'static str, u64); 6] {
        let FailedRequests { no_room, paused, drive, away, passing, retired } = *self;
        [
            ("no_room", no_room),
            ("paused", paused),
            ("drive", drive),
            ("away", away),
            ("passing", passing),
            ("retired", retired),
        ]
    }
}

impl core::ops::AddAssign for FailedRequests {
    fn add_assign(&mut self, other: FailedRequests) {
        self.no_room += other.no_room;
        self.paused += other.paused;
        self.drive += other.drive;
        self.away += other.away;
        self.passing += other.passing;
        self.retired += other.retired;
    }
}

/// The activity of a volume so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumeStats {
    /// Requests that read a slot and succeeded.
    pub reads: u64,
    /// Requests that wrote a slot and succeeded.
    pub writes: u64,
    /// Bytes read from the file, padding included.
    pub read_bytes: u64,
    /// Bytes written to the file, padding included.
    pub written_bytes: u64,
    /// Times that a caller had to wait: its queue was full, or all copies of an encrypted
    /// volume were in use.
    pub waits: u64,
    /// Callers that wait for room now.
    pub blocked: u64,
    /// Times that a caller had to wake the sleeping ring thread: one system call each.
    pub wakes: u64,
    /// System calls by which the ring thread submits, looks and waits. Calls that wake callers and calls
    /// of cuFile's threads are not included.
    pub turns: u64,
    /// Short transfers resumed.
    pub resumed: u64,
    /// Interrupted transfers (EINTR, EAGAIN) retried.
    pub retried: u64,
    /// Requests that the device failed, or that were impossible.
    pub failures: u64,
    /// Reads that the device answered, but not with the requested block.
    pub rejected: u64,
    /// Requests that went to the kernel as part of another request's piece.
    pub merged: u64,
    /// Bytes of the file that have yet to be written through in the background.
    pub unfilled_bytes: u64,
    /// Probes of a device that had no room, or had failed: one for each step.
    pub probes: u64,
    /// Times that the device ran out of room, and writes were refused for a while.
    pub pauses: u64,
    /// Times that the device did not answer for a while.
    pub outages: u64,
    /// The failures among `failures` that the device caused, by cause.
    pub failed: FailedRequests,
}

impl Counters {
    pub(super) fn moved(&self, action: Action, bytes: usize) {
        match action {
            Action::Read => self.read_bytes.add(bytes as u64),
            Action::Write => self.written_bytes.add(bytes as u64),
            Action::Sync | Action::Punch | Action::Sum => {}
        }
    }

    /// Counts a failed request under its cause.
    pub(super) fn failed_by(&self, cause: FailureCause) {
        let counter = match cause {
            FailureCause::WritesPaused => &self.paused,
            FailureCause::Away => &self.away,
            FailureCause::OutOfService => &self.retired,
            FailureCause::NoProgress { .. } => &self.drive,
            FailureCause::Os { errno } => match Error::from_raw_os_error(errno).kind() {
                ErrorKind::StorageFull
                | ErrorKind::QuotaExceeded
                | ErrorKind::FileTooLarge
                | ErrorKind::ReadOnlyFilesystem => &self.no_room,
                _ if cause.passes() => &self.passing,
                _ => &self.drive,
            },
            _ => return,
        };
        counter.add(1);
    }

    /// Counts a change of state.
    pub(super) fn changed_to(&self, now: ServiceState) {
        match now {
            ServiceState::WritesPaused => self.pauses.add(1),
            ServiceState::Away => self.outages.add(1),
            ServiceState::Serving | ServiceState::Retired => {}
        }
    }

    pub(super) fn state(&self) -> ServiceState {
        let state = self.service.get();
        ServiceState::ALL.into_iter().find(|of| *of as u64 == state).unwrap_or(ServiceState::Retired)
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
            probes: self.probes.get(),
            pauses: self.pauses.get(),
            outages: self.outages.get(),
            failed: FailedRequests {
                no_room: self.no_room.get(),
                paused: self.paused.get(),
                drive: self.drive.get(),
                away: self.away.get(),
                passing: self.passing.get(),
                retired: self.retired.get(),
            },
        }
    }
}

impl core::ops::AddAssign for VolumeStats {
    /// Adds the counters of another volume.
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
        self.probes += other.probes;
        self.pauses += other.pauses;
        self.outages += other.outages;
        self.failed += other.failed;
    }
}
