//! Log lines about a volume, each kind once: a failed transfer, wrong data, no room, no answer, service
//! again, out of service, a removed file; and the findings of the opening.
//!
//! The thread that finds a condition logs it, without any lock, and after the metadata are updated: a
//! subscriber is caller code. The figures count how often it happens.
//!
//! # Orderings
//! Relaxed: only one of the threads that find a condition logs it.

use super::tier::DiskTier;
use kvstrata_ffi::disk::{Concern, FailureCause, IoFailure, Rejection, ServiceState};
use kvstrata_ffi::shown::shown_path;
use kvstrata_tiers::shared::contained;
use kvstrata_tiers::transfer::RejectedAtOpening;
use std::fmt::Display;
use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use tracing::{error, info, warn};

/// The kinds that were logged for a volume: a bit for each [`Kind`].
#[derive(Debug, Default)]
pub(super) struct Said(AtomicU16);

/// The kinds of log lines. Causes with the same remedy are one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    NoRoom,
    Drive,
    Cut,
    Spent,
    Device,
    Request,
    Empty,
    OtherHash,
    Buffer,
    Payload,
    AfterCrash,
    Lost,
    Machine,
    Away,
    Back,
    Removed,
}

impl Kind {
    /// Returns the kind of a failure; `None` if the failure is logged where it is found.
    fn of_failure(cause: &FailureCause) -> Option<Kind> {
        Some(match cause {
            FailureCause::Os { errno } => match Error::from_raw_os_error(*errno).kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Kind::NoRoom,
                ErrorKind::OutOfMemory | ErrorKind::WouldBlock | ErrorKind::ResourceBusy => Kind::Machine,
                _ => Kind::Drive,
            },
            FailureCause::NoProgress { .. } => Kind::Cut,
            FailureCause::SequencesSpent => Kind::Spent,
            FailureCause::Device(_) | FailureCause::CuFile(_) | FailureCause::DeviceSum { .. } => {
                Kind::Device
            }
            FailureCause::SlotOutOfRange { .. } => Kind::Request,
            FailureCause::BufferLength { .. }
            | FailureCause::PayloadLength { .. }
            | FailureCause::Unaligned { .. } => Kind::Buffer,
            FailureCause::Rejected(_)
            | FailureCause::OutOfService
            | FailureCause::Away
            | FailureCause::WritesPaused => return None,
        })
    }

    fn of_rejection(why: Rejection, after_crash: bool) -> Kind {
        match why {
            Rejection::Payload if after_crash => Kind::AfterCrash,
            Rejection::Empty => Kind::Empty,
            Rejection::OtherHash => Kind::OtherHash,
            Rejection::Payload => Kind::Payload,
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Kind::NoRoom => {
                "make room on its file system, or configure fewer blocks (disk.blocks); unwritten blocks must be recomputed"
            }
            Kind::Drive => {
                "see the kernel's log (dmesg) and the drive's log (smartctl, nvme smart-log); its blocks are misses meanwhile"
            }
            Kind::Cut => {
                "find the program that truncated the file, then start again: the file gets its length back"
            }
            Kind::Spent => "start again: the volume then accepts writes",
            Kind::Device => "check GPUDirect Storage (kvstrata doctor, cufile.log), or do without it",
            Kind::Request => "report a bug: pool metadata should prevent this",
            Kind::Buffer => {
                "report a bug: a transfer must be as long as its block, and aligned for O_DIRECT; the block stays"
            }
            Kind::Empty | Kind::OtherHash | Kind::Payload => {
                "if no other program writes to the file, suspect the drive (smartctl, nvme smart-log); the block must be recomputed"
            }
            Kind::AfterCrash => {
                "none needed: a crash or a kill leaves some half-written blocks, a shutdown none; a bad drive shows in blocks written later"
            }
            Kind::Machine => {
                "check the memory left to the machine and to the process's cgroup (free, memory.events); the block must be recomputed"
            }
            Kind::Away => {
                "see the kernel's log (dmesg), the drive and its cabling or network; the volume is retried and serves its blocks once it answers"
            }
            Kind::Back => "nothing",
            Kind::Removed => {
                "start the process again when convenient: it makes a new, empty file; to retire a volume, stop the process before removing its file"
            }
            Kind::Lost => {
                "see the kernel's log (dmesg); start again with a working drive, or without this path (disk.paths)"
            }
        }
    }
}

impl Said {
    /// Whether this kind is logged for the first time.
    fn first(&self, what: Kind) -> bool {
        let bit = 1 << what as u16;
        self.0.load(Relaxed) & bit == 0 && self.0.fetch_or(bit, Relaxed) & bit == 0
    }

    fn any(&self, of: &[Kind]) -> bool {
        let said = self.0.load(Relaxed);
        of.iter().any(|kind| said >> *kind as u16 & 1 == 1)
    }
}

impl DiskTier {
    /// Logs a kind, unless it was logged for this volume before.
    fn say_once(&self, volume: usize, kind: Kind, say: impl FnOnce(&dyn Display, &str)) {
        if self.said[volume].first(kind) {
            let path = &self.volumes.volumes()[volume].describe().path;
            contained(|| say(&shown_path(path), kind.remedy()));
        }
    }

    /// Logs that a transfer failed for good, while the volume is still in service.
    pub(super) fn say_failed(&self, volume: usize, failure: &IoFailure) {
        let cause = &failure.cause;
        let Some(kind) = Kind::of_failure(cause) else { return };
        self.say_once(volume, kind, |path, remedy| {
            let cause = cause.to_string();
            match kind {
                Kind::NoRoom => {
                    warn!(tier = "disk", file = %path, cause, remedy, "the volume has no room: writes pause until it has, reads continue");
                }
                _ => warn!(tier = "disk", file = %path, cause, remedy, "a transfer to or from the volume failed"),
            }
        });
    }

    /// Logs a change of a volume's state.
    pub(super) fn say_state(&self, volume: usize) {
        let of = &self.volumes.volumes()[volume];
        if self.closed() {
            return;
        }
        match of.state() {
            ServiceState::Away => self.say_once(volume, Kind::Away, |path, remedy| {
                let what = "the volume does not answer: its blocks are misses until it does";
                error!(tier = "disk", file = %path, remedy, "{what}");
            }),
            ServiceState::Serving if self.said[volume].any(&[Kind::Away, Kind::NoRoom]) => {
                self.say_once(volume, Kind::Back, |path, _| {
                    info!(tier = "disk", file = %path, "the volume serves again");
                });
            }
            _ => {}
        }
        if of.is_removed() {
            self.say_once(volume, Kind::Removed, |path, remedy| {
                let what = "the volume's file was removed or replaced while in use: it still serves, but its blocks are gone at the next start";
                warn!(tier = "disk", file = %path, remedy, "{what}");
            });
        }
    }

    /// Logs that a slot's contents are not those that were written. `after_crash`: written by a process
    /// that ended without a shutdown.
    pub(super) fn say_rejected(&self, volume: usize, why: Rejection, after_crash: bool) {
        let kind = Kind::of_rejection(why, after_crash);
        self.say_once(volume, kind, |path, remedy| match kind {
            Kind::AfterCrash => {
                info!(tier = "disk", file = %path, remedy, "a block from before the crash is damaged: such blocks are misses");
            }
            _ => {
                let cause = why.to_string();
                error!(tier = "disk", file = %path, cause, remedy, "the volume returned wrong data for a block");
            }
        });
    }

    /// Logs that a volume is out of service.
    pub(super) fn say_lost(&self, volume: usize) {
        self.say_once(volume, Kind::Lost, |path, remedy| {
            let what = "the volume is out of service: its blocks are misses, and the tier is smaller";
            error!(tier = "disk", file = %path, remedy, "{what}");
        });
    }

    /// Logs the concerns of each volume, and the results of the opening.
    pub(super) fn say_opened(
        &self,
        at_opening: &RejectedAtOpening,
        recovered: u64,
        clean: bool,
        created: bool,
    ) {
        contained(|| {
            for volume in self.volumes.volumes() {
                let found = volume.describe();
                let file = shown_path(&found.path);
                if found.concerns.contains(&Concern::NotOpened) {
                    let cause = found.notes.join("; ");
                    let remedy = "fix the cause and start again; until then only this volume's blocks are missing, and its contents are kept";
                    warn!(tier = "disk", %file, cause, remedy, "the volume cannot be opened: the others serve without it");
                    continue;
                }
                for concern in &found.concerns {
                    let (cause, remedy) = of_concern(*concern);
                    warn!(tier = "disk", %file, cause, remedy, "{}", what_of(*concern));
                }
                for note in &found.notes {
                    info!(tier = "disk", %file, "{note}");
                }
                if found.rejected.total() > 0 {
                    let rejected = listed(&RejectedAtOpening::of(&found.rejected));
                    info!(tier = "disk", %file, rejected, "the opening rejected parts of the volume, counted by cause");
                }
            }
            let rejected = listed(at_opening);
            let files: Vec<String> =
                self.volumes.volumes().iter().map(|of| shown_path(&of.describe().path).to_string()).collect();
            let after = match (created, clean) {
                (true, _) => "creation",
                (_, true) => "a clean shutdown",
                (_, false) => "a crash or a kill",
            };
            info!(
                tier = "disk",
                files = files.join(","),
                after,
                blocks = recovered,
                rejected,
                "a disk tier is open"
            );
        });
    }
}

/// Lists the causes that occurred, with their counts.
fn listed(rejected: &RejectedAtOpening) -> String {
    let causes = rejected.causes().into_iter().filter(|(_, count)| *count > 0);
    causes.map(|(cause, count)| format!("{cause} {count}")).collect::<Vec<_>>().join(", ")
}

fn what_of(concern: Concern) -> &'static str {
    match concern {
        Concern::InMemory | Concern::Buffered => "the volume's file system does not suit a disk tier",
        Concern::NoUring => "the volume is served without io_uring",
        _ => "the volume was damaged or changed since its last use",
    }
}

/// Returns the cause and the remedy.
fn of_concern(concern: Concern) -> (&'static str, &'static str) {
    match concern {
        Concern::MadeAnew => (
            "the file was missing or empty: it was made anew, and its blocks are lost",
            "if the file was not removed on purpose, check that the intended file system is mounted (disk.paths); its blocks must be recomputed",
        ),
        Concern::StartedOver => (
            "neither superblock is intact: the volume was started over, and its blocks are lost",
            "check for other programs that write to the file, and the drive's log (smartctl, nvme smart-log); its blocks must be recomputed",
        ),
        Concern::Superblock => (
            "one superblock was damaged; the other one is intact",
            "usual after a crash; otherwise check for other programs that write to the file, and the drive's log (smartctl, nvme smart-log)",
        ),
        Concern::Truncated => (
            "the file was truncated: the blocks beyond its end are lost",
            "find the program that truncates the file; its length is restored, and the lost blocks must be recomputed",
        ),
        Concern::Unread => (
            "part of the slot table cannot be read: the blocks of its slots are lost",
            "see the kernel's log (dmesg) and the drive's log (smartctl, nvme smart-log); the lost blocks must be recomputed",
        ),
        Concern::InMemory => (
            "the file system is in memory: its blocks are lost at a reboot, and use memory needed elsewhere",
            "use a path on a drive (disk.paths), or give the host tier more blocks instead",
        ),
        Concern::Buffered => (
            "O_DIRECT is refused: the page cache keeps a second copy of each block, which costs memory and CPU time",
            "use a file system with O_DIRECT, such as ext4 or xfs (disk.paths), or ask for buffered transfers (disk.backend)",
        ),
        Concern::NoUring => (
            "io_uring is refused: a few threads call pread and pwrite instead, at more CPU time per block",
            "allow io_uring (kernel.io_uring_disabled, seccomp profile, `ulimit -l`; notes at info name the cause), or set disk.backend = threads",
        ),
        _ => ("the opening repaired the volume", "see the volume's notes at info"),
    }
}
