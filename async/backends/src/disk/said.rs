//! What is said of a volume, each kind of thing once: that a transfer has failed, that what it holds is not
//! what was written, that it has no room, does not answer, serves again, is out of service, or that its
//! file was removed; and what its opening has found.
//!
//! By whatever thread finds it out, none of which has a lock, and after the books are right: a subscriber is
//! a caller's code. How often is in the figures.
//!
//! # Orderings
//! Relaxed: only that one of those who find it out says it.

use super::tier::DiskTier;
use kvstrata_ffi::disk::{Concern, FailureCause, IoFailure, Rejection, ServiceState};
use kvstrata_ffi::shown::shown_path;
use kvstrata_tiers::shared::contained;
use kvstrata_tiers::transfer::RejectedAtOpening;
use std::fmt::Display;
use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use tracing::{error, info, warn};

/// What has been said of a volume: a bit for each [`Kind`].
#[derive(Debug, Default)]
pub(super) struct Said(AtomicU16);

/// What there is to say: causes that have one remedy are one.
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
    Length,
    Payload,
    AfterCrash,
    Lost,
    Machine,
    Away,
    Back,
    Removed,
}

impl Kind {
    /// None: it is no failure of a transfer, and said where it is found.
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
            FailureCause::SlotOutOfRange { .. } | FailureCause::BufferLength { .. } => Kind::Request,
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
            Rejection::Length => Kind::Length,
            Rejection::Payload => Kind::Payload,
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Kind::NoRoom => {
                "make room on its file system, or give the volume fewer blocks (disk.blocks); what is not written is computed anew"
            }
            Kind::Drive => {
                "see the kernel's log (dmesg) and the drive's (smartctl, nvme smart-log); its blocks are misses meanwhile"
            }
            Kind::Cut => "see who truncated the file; start again, and it is made whole",
            Kind::Spent => "start again: the volume takes writes anew",
            Kind::Device => {
                "see kvstrata doctor for what GPUDirect Storage needs, and cufile.log; or leave it out"
            }
            Kind::Request => "report it: the books should prevent this",
            Kind::Empty | Kind::OtherHash | Kind::Length | Kind::Payload => {
                "if nobody else writes to the file, mistrust the drive: see smartctl, nvme smart-log; the block is computed anew"
            }
            Kind::AfterCrash => {
                "nothing: of what a crash, or a kill, has interrupted some records have another payload; a shutdown leaves none, and a drive that goes bad shows in what is written since"
            }
            Kind::Machine => {
                "see how much memory the machine and the process' cgroup have left (free, memory.events); such a block is computed anew"
            }
            Kind::Away => {
                "see the kernel's log (dmesg), the drive and its cabling or network; it is asked again by itself, and what it holds serves again when it answers"
            }
            Kind::Back => "nothing",
            Kind::Removed => {
                "start the process again when it suits: a new file is made then, cold; to stop using a volume, stop the process before the file is removed"
            }
            Kind::Lost => {
                "see the kernel's log (dmesg); start again with a drive that works, or without this path"
            }
        }
    }
}

impl Said {
    /// Whether it was not said before.
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
    /// Says it, if it was not said before of this volume.
    fn say_once(&self, volume: usize, kind: Kind, say: impl FnOnce(&dyn Display, &str)) {
        if self.said[volume].first(kind) {
            let path = &self.volumes.volumes()[volume].describe().path;
            contained(|| say(&shown_path(path), kind.remedy()));
        }
    }

    /// A transfer has failed for good, and the volume is still in service.
    pub(super) fn say_failed(&self, volume: usize, failure: &IoFailure) {
        let cause = &failure.cause;
        let Some(kind) = Kind::of_failure(cause) else { return };
        self.say_once(volume, kind, |path, remedy| {
            let cause = cause.to_string();
            match kind {
                Kind::NoRoom => {
                    warn!(tier = "disk", file = %path, cause, remedy, "a volume has no room: it takes no writes until it has, and is read");
                }
                _ => warn!(tier = "disk", file = %path, cause, remedy, "a transfer of a volume failed"),
            }
        });
    }

    /// What a volume does now, if that is news.
    pub(super) fn say_state(&self, volume: usize) {
        let of = &self.volumes.volumes()[volume];
        if self.closed() {
            return;
        }
        match of.state() {
            ServiceState::Away => self.say_once(volume, Kind::Away, |path, remedy| {
                let what = "a volume's device does not answer: its blocks are misses until it does";
                error!(tier = "disk", file = %path, remedy, "{what}");
            }),
            ServiceState::Serving if self.said[volume].any(&[Kind::Away, Kind::NoRoom]) => {
                self.say_once(volume, Kind::Back, |path, _| {
                    info!(tier = "disk", file = %path, "a volume serves again, as before");
                });
            }
            _ => {}
        }
        if of.is_removed() {
            self.say_once(volume, Kind::Removed, |path, remedy| {
                let what = "a volume's file was removed, or replaced, while it is used: it is served on, and its blocks are gone at the next start";
                warn!(tier = "disk", file = %path, remedy, "{what}");
            });
        }
    }

    /// What a slot holds is not what was written to it; `after_crash`: by a process that ended without a shutdown.
    pub(super) fn say_rejected(&self, volume: usize, why: Rejection, after_crash: bool) {
        let kind = Kind::of_rejection(why, after_crash);
        self.say_once(volume, kind, |path, remedy| match kind {
            Kind::AfterCrash => {
                info!(tier = "disk", file = %path, remedy, "a block of before the crash is not what was written: such ones are misses");
            }
            _ => {
                let cause = why.to_string();
                error!(tier = "disk", file = %path, cause, remedy, "a volume gave something else than what was written");
            }
        });
    }

    /// A volume is out of service.
    pub(super) fn say_lost(&self, volume: usize) {
        self.say_once(volume, Kind::Lost, |path, remedy| {
            let what = "a volume is out of service: its blocks are misses, and the tier is smaller";
            error!(tier = "disk", file = %path, remedy, "{what}");
        });
    }

    /// What could be better with volumes, and what the opening has found.
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
                    let remedy = "see to what the cause says, and start again; until then it costs its own blocks alone, and what it holds is kept";
                    warn!(tier = "disk", %file, cause, remedy, "a volume cannot be opened: the others serve without it");
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
                    info!(tier = "disk", %file, rejected, "a volume has something that its opening did not take, by cause");
                }
            }
            let rejected = listed(at_opening);
            let files: Vec<String> =
                self.volumes.volumes().iter().map(|of| shown_path(&of.describe().path).to_string()).collect();
            let after = match (created, clean) {
                (true, _) => "nothing: it is new",
                (_, true) => "a clean end",
                (_, false) => "a crash, or a kill",
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

/// The causes that there are, with their counts.
fn listed(rejected: &RejectedAtOpening) -> String {
    let causes = rejected.causes().into_iter().filter(|(_, count)| *count > 0);
    causes.map(|(cause, count)| format!("{cause} {count}")).collect::<Vec<_>>().join(", ")
}

fn what_of(concern: Concern) -> &'static str {
    match concern {
        Concern::InMemory | Concern::Buffered => "a volume is not on what a disk tier wants",
        Concern::NoUring => "a volume is served the slow way",
        _ => "a volume is not what it was when it was last used",
    }
}

/// What it is, and what to do.
fn of_concern(concern: Concern) -> (&'static str, &'static str) {
    match concern {
        Concern::MadeAnew => (
            "its file was gone, or empty: it was made anew, and the blocks that it held are lost",
            "if nobody removed the file, see whether its file system is the one that was meant (mount, disk.paths); its blocks are computed anew",
        ),
        Concern::StartedOver => (
            "neither superblock is whole: it was started over, and the blocks that it held are lost",
            "see who else writes to the file, and the drive's log (smartctl, nvme smart-log); its blocks are computed anew",
        ),
        Concern::Superblock => (
            "one superblock was damaged; the other one is whole",
            "after a crash that is usual; else see who else writes to the file, and the drive's log (smartctl, nvme smart-log)",
        ),
        Concern::Truncated => (
            "its file has become shorter: the blocks behind its end are lost",
            "see who cuts the file; it has its length again, and its blocks are computed anew",
        ),
        Concern::Unread => (
            "some of its slot table cannot be read: the blocks of these slots are lost",
            "see the kernel's log (dmesg) and the drive's (smartctl, nvme smart-log); its blocks are computed anew",
        ),
        Concern::InMemory => (
            "its file system is memory: blocks do not outlive the machine, and take memory that others need",
            "give it a path on a drive (disk.paths), or give the host tier more blocks instead",
        ),
        Concern::Buffered => (
            "O_DIRECT is refused: the page cache has a second copy of what is moved, and takes the host's time for it",
            "give it a path on a file system that has O_DIRECT (disk.paths; ext4 and xfs have it), or ask for buffered transfers (disk.backend)",
        ),
        Concern::NoUring => (
            "io_uring is refused: a few threads call pread and pwrite instead, with more of the host's time for each block",
            "allow it (its notes, at info, say what refuses it: the kernel's io_uring_disabled, the container's seccomp profile, or `ulimit -l`), or ask for threads (disk.backend)",
        ),
        _ => ("something was wrong with it, and set right", "see its notes, at info"),
    }
}
