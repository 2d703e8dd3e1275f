//! The device's health: whether it takes writes, whether it answers at all, and when it is probed.
//!
//! ```text
//!                      no room                       probe written
//!   Serving ────────────────────────► Full ──────────────────────────► Trial ─ a write succeeds ─► Serving
//!      │                               ▲                                │ ▲
//!      │                               └──────────── no room ───────────┘ │
//!      │                                                                  │
//!      └─ gone, or keeps failing ────► Away ── superblock read, synced ───┘
//!           (from any state)
//! ```
//!
//! - No room (ENOSPC, EDQUOT, EFBIG, a file system that has become read-only) says nothing about the
//!   drive. Writes are refused without asking the device, and reads go on. A probe writes a superblock
//!   again, at growing intervals. When that succeeds, one write of a caller's goes out alone: room for 4
//!   KiB is not yet room for a slot.
//! - Errors that pass (ENOMEM, EBUSY, …) do not count: they are the machine's, not the drive's.
//! - A device that is gone (ENODEV, ENXIO, EBADF) is away at once. One that fails otherwise is asked for
//!   its superblock after [`SUSPECT`] failures in a row: one bad sector, or thirty, say nothing about the
//!   rest. It is away if that read fails too. It is also away if [`FAILURES`] requests in a row have
//!   failed over at least [`FAILING`]: one batch at depth 64 fails in a moment.
//! - A device that is away is probed at growing intervals. It serves again when its superblock reads back
//!   as it was written at the opening, and a sync succeeds. The sync is for volumes whose reads the page
//!   cache may answer.
//!
//! Invariants
//! - I1: one probe is in flight at a time.
//! - I2: an interval grows until a slot has been transferred successfully: a device that comes back only
//!   for moments is probed less and less.

use super::super::error::FailureCause;
use super::super::ring::Action;
use super::super::stats::ServiceState;
use std::time::Duration;

/// Failures in a row after which the device is asked for its superblock; again at each power of two.
const SUSPECT: u32 = 4;
/// After this many failures in a row, over at least [`FAILING`], the device is away, whatever
/// its superblock.
const FAILURES: u32 = 32;
const FAILING: Duration = Duration::from_secs(1);
/// The first and the longest interval between probes: while the device has no room, and while it is away.
const FULL_WAITS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];
const AWAY_WAITS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(300)];

/// A step of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::disk) enum Probe {
    /// Reads the superblock at the file's start.
    First,
    /// Reads the superblock at the file's end, if the first is not as it was written.
    Last,
    /// Syncs, so that the answer does not come from the page cache alone.
    Sync,
    /// Writes the superblock at the file's end again: the same bytes.
    Write,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probed {
    Well,
    /// The device answered, but not with the superblock that was written.
    Other,
    Failed(FailureCause),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Serving,
    /// The device has failed a few times: its superblock is read now.
    Suspect,
    /// Writes are refused until a probe succeeds; the next one is due at this time.
    Full(Duration),
    /// One write goes out alone.
    Trial,
    /// All requests are refused until a probe succeeds; the next one is due at this time.
    Away(Duration),
}

/// The meaning of a failure for the device's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    NoRoom,
    Passing,
    Gone,
    Drive,
    /// No meaning: the failure is a caller's, another device's, or of this engine's own making.
    Other,
}

impl Kind {
    pub(super) fn of(cause: FailureCause) -> Kind {
        match cause {
            FailureCause::Os { errno } => match errno {
                libc::ENOSPC | libc::EDQUOT | libc::EFBIG | libc::EROFS => Kind::NoRoom,
                _ if cause.passes() => Kind::Passing,
                libc::ENODEV | libc::ENXIO | libc::EBADF => Kind::Gone,
                _ => Kind::Drive,
            },
            FailureCause::NoProgress { .. } => Kind::Drive,
            _ => Kind::Other,
        }
    }
}

#[derive(Debug)]
pub(super) struct Health {
    state: State,
    /// Failures of the drive since a transfer succeeded, and the time of the first.
    failures: u32,
    since: Duration,
    /// The next intervals (I2).
    full_wait: Duration,
    away_wait: Duration,
    probing: bool,
    /// A caller's write is on trial.
    on_trial: bool,
}

impl Health {
    pub(super) fn new() -> Health {
        Health {
            state: State::Serving,
            failures: 0,
            since: Duration::ZERO,
            full_wait: FULL_WAITS[0],
            away_wait: AWAY_WAITS[0],
            probing: false,
            on_trial: false,
        }
    }

    /// The state as others see it.
    pub(super) fn service(&self) -> ServiceState {
        match self.state {
            State::Serving | State::Suspect | State::Trial => ServiceState::Serving,
            State::Full(_) => ServiceState::WritesPaused,
            State::Away(_) => ServiceState::Away,
        }
    }

    /// Whether failures concern the device as a whole, rather than a place in it.
    pub(super) fn is_in_doubt(&self) -> bool {
        matches!(self.state, State::Suspect | State::Away(_))
    }

    pub(super) fn is_away(&self) -> bool {
        matches!(self.state, State::Away(_))
    }

    /// Why a write is refused, if it is.
    pub(super) fn refuses_writes(&self) -> Option<FailureCause> {
        match self.state {
            State::Full(_) => Some(FailureCause::WritesPaused),
            State::Away(_) => Some(FailureCause::Away),
            State::Serving | State::Suspect | State::Trial => None,
        }
    }

    /// Whether a write may go out now; otherwise it waits for the write on trial.
    pub(super) fn lets_write(&mut self) -> bool {
        if self.state != State::Trial {
            return true;
        }
        !std::mem::replace(&mut self.on_trial, true)
    }

    /// Notes the end of a caller's write. Returns whether other writes may have waited for it.
    pub(super) fn write_ended(&mut self) -> bool {
        std::mem::replace(&mut self.on_trial, false)
    }

    /// When the next probe is due.
    pub(super) fn due(&self) -> Option<Duration> {
        match self.state {
            _ if self.probing => None,
            State::Serving | State::Trial => None,
            State::Suspect => Some(Duration::ZERO),
            State::Full(at) | State::Away(at) => Some(at),
        }
    }

    /// Begins a probe if it is due. Returns its first step.
    pub(super) fn probe(&mut self, now: Duration) -> Option<Probe> {
        if self.due().is_none_or(|due| due > now) {
            return None;
        }
        self.probing = true;
        Some(if matches!(self.state, State::Full(_)) { Probe::Write } else { Probe::First })
    }

    /// Takes the result of a step. Returns the next step, if there is one (I1).
    pub(super) fn probed(&mut self, probe: Probe, how: Probed, now: Duration) -> Option<Probe> {
        let next = match (probe, how) {
            (Probe::First, Probed::Other) => Some(Probe::Last),
            (Probe::First | Probe::Last, Probed::Well) if self.is_away() => Some(Probe::Sync),
            _ => None,
        };
        if next.is_some() {
            return next;
        }
        self.probing = false;
        let kind = match how {
            Probed::Well => None,
            Probed::Other => Some(Kind::Gone),
            Probed::Failed(cause) => Some(Kind::of(cause)),
        };
        match (self.state, probe) {
            (State::Full(_), Probe::Write) if kind.is_none() => self.state = State::Trial,
            (State::Full(_), Probe::Write) if kind == Some(Kind::Gone) => self.leave(now),
            (State::Full(_), _) => self.fill(now),
            // A sync that finds no room has reached a device that answers.
            (State::Away(_), Probe::First | Probe::Last | Probe::Sync)
                if matches!(kind, None | Some(Kind::NoRoom)) =>
            {
                // Writes go on trial: the device may have come back read-only.
                (self.state, self.failures) = (State::Trial, 0);
            }
            (State::Suspect, _) if matches!(kind, None | Some(Kind::Passing)) => self.state = State::Serving,
            (State::Suspect | State::Away(_), _) => self.leave(now),
            (State::Serving | State::Trial, _) => {}
        }
        None
    }

    /// Notes that the device has completed something successfully.
    pub(super) fn went_well(&mut self) {
        self.failures = 0;
        if self.state == State::Suspect && !self.probing {
            self.state = State::Serving;
        }
    }

    /// Notes that a whole slot was read or written. Requests in flight from before the device left, or
    /// filled up, say nothing about its state now.
    pub(super) fn moved(&mut self, write: bool) {
        match self.state {
            State::Full(_) | State::Away(_) => return,
            State::Trial if write => self.state = State::Serving,
            State::Serving | State::Suspect | State::Trial => {}
        }
        self.away_wait = AWAY_WAITS[0];
        if write {
            self.full_wait = FULL_WAITS[0];
        }
    }

    /// Notes that a transfer of a slot, or of the volume's own, has failed.
    pub(super) fn failed(&mut self, cause: FailureCause, action: Action, slot: bool, now: Duration) {
        match Kind::of(cause) {
            Kind::Passing | Kind::Other => {}
            // The table's write-back retries by itself after no room, and need not keep slots from being
            // written. A hole that is not made is no loss.
            Kind::NoRoom if action != Action::Read => {
                let takes = matches!(self.state, State::Serving | State::Suspect | State::Trial);
                if takes && (slot || action == Action::Sync) {
                    self.fill(now);
                }
            }
            Kind::Gone => self.leave(now),
            Kind::NoRoom | Kind::Drive => {
                if self.failures == 0 {
                    self.since = now;
                }
                self.failures = self.failures.saturating_add(1);
                let goes_on = self.failures >= FAILURES && now.saturating_sub(self.since) >= FAILING;
                if goes_on {
                    self.leave(now);
                } else if self.failures >= SUSPECT
                    && self.failures.is_power_of_two()
                    && self.state == State::Serving
                {
                    self.state = State::Suspect;
                }
            }
        }
    }

    fn fill(&mut self, now: Duration) {
        self.state = State::Full(now + self.full_wait);
        self.full_wait = (self.full_wait * 2).min(FULL_WAITS[1]);
    }

    fn leave(&mut self, now: Duration) {
        if !self.is_away() || !self.probing && self.due().is_some_and(|due| due <= now) {
            self.state = State::Away(now + self.away_wait);
            self.away_wait = (self.away_wait * 2).min(AWAY_WAITS[1]);
        }
    }
}
