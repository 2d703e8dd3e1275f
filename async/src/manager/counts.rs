//! What has happened, counted; each thread for itself ([`Stripes`]), and who reads adds up, without the lock.
//!
//! # Orderings
//! Relaxed throughout: a count publishes nothing. How long paths were busy is in [`Busy`].

use super::busy::Busy;
use super::notices::{About, Notice, Notices};
use crate::metrics::{SizeHistogram, Sizes, Stripes, add, counting};
use crate::tier::Tier;
use crate::transfer::{Cause, Failure, Path};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

#[derive(Debug, Default)]
struct OfPath {
    transfers: AtomicU64,
    /// Of those that have ended well.
    sizes: Sizes,
    failed: [AtomicU64; Cause::ALL.len()],
}

/// A thread's counters.
#[derive(Debug, Default)]
struct Stripe {
    paths: [OfPath; Path::ALL.len()],
    dropped: [AtomicU64; 3],
    onboarded: [AtomicU64; 2],
    offloaded: [AtomicU64; 2],
    parked: AtomicU64,
    missed: [AtomicU64; Cause::ALL.len()],
    late: AtomicU64,
    unwritten: AtomicU64,
    hints_cut: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
}

/// The counters of a manager.
#[derive(Debug)]
pub(super) struct Counts {
    stripes: Stripes<Stripe>,
    busy: [Busy; Path::ALL.len()],
    pub(super) notices: Notices,
}

/// Why a copy down that a caller has asked for was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The manager has no tier below.
    Tier,
    /// As many transfers wait as may (`transfer.queue`), for their turn or for host memory.
    Queue,
    /// As many copies wait for a layer or an iteration as may.
    Gates,
    /// The tier below has no room for the block, or does not want it; or the block is gone.
    Room,
    /// The manager was shut down.
    Closed,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Refusal; 5] =
        [Refusal::Tier, Refusal::Queue, Refusal::Gates, Refusal::Room, Refusal::Closed];

    /// As metrics spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::Tier => "tier",
            Refusal::Queue => "queue",
            Refusal::Gates => "gates",
            Refusal::Room => "room",
            Refusal::Closed => "closed",
        }
    }
}

/// What a path has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct PathStats {
    /// Transfers that have ended, well or not.
    pub transfers: u64,
    /// Bytes of those that have ended well.
    pub bytes: u64,
    /// How large each of these was.
    pub sizes: SizeHistogram,
    /// How long something of it was under way, what is so now included.
    pub busy: Duration,
    /// Failures by cause, in the order of [`Cause::ALL`]: of transfers; of those that were called off before they moved; by
    /// [`Cause::Deadline`] alone, of blocks that were not there in time for somebody who waited.
    pub failed: [u64; Cause::ALL.len()],
}

impl PathStats {
    /// Failures of a cause.
    #[must_use]
    pub fn failed_by(&self, cause: Cause) -> u64 {
        self.failed[cause as usize]
    }
}

/// What a manager has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct ManagerStats {
    /// By path, in the order of [`Path::ALL`].
    pub paths: [PathStats; 4],
    /// Blocks that left a tier for good, since the tier below had no room or its write failed: of the device, of the host.
    pub dropped: [u64; 2],
    /// Blocks that came up: from the host, from the disk.
    pub onboarded: [u64; 2],
    /// Blocks that went down: from the device, from the host.
    pub offloaded: [u64; 2],
    /// Flights whose blocks a failed device keeps.
    pub parked: u64,
    /// Onboardings that ended short of the run that was found, by the cause of the first block that is missing, in the order of
    /// [`Cause::ALL`]. One that is dropped before it has ended is [`Cause::Cancelled`].
    pub missed: [u64; Cause::ALL.len()],
    /// Allocations that were not served in time.
    pub late: u64,
    /// Blocks that were registered ahead of a pass and withdrawn: it did not write them, or somebody had computed them before.
    pub unwritten: u64,
    /// Blocks of hints that were forgotten at once, being more than the device has.
    pub hints_cut: u64,
    /// Blocks that a caller wanted copied down, and that were refused, by why, in the order of [`Refusal::ALL`].
    pub refused: [u64; Refusal::ALL.len()],
}

impl ManagerStats {
    /// Onboardings that ended short for a cause.
    #[must_use]
    pub fn missed_by(&self, cause: Cause) -> u64 {
        self.missed[cause as usize]
    }

    /// Copies on request that were refused for a reason.
    #[must_use]
    pub fn refused_by(&self, why: Refusal) -> u64 {
        self.refused[why as usize]
    }

    /// What a path has moved.
    #[must_use]
    pub fn path(&self, path: Path) -> &PathStats {
        &self.paths[path as usize]
    }
}

impl Counts {
    pub(super) fn new(notices: Notices) -> Counts {
        Counts { stripes: Stripes::new(Stripe::default), busy: Default::default(), notices }
    }

    pub(super) fn moved(&self, path: Path, bytes: u64, outcome: Result<(), Failure>) {
        self.stripes.count(|mine| {
            let of = &mine.paths[path as usize];
            add(&of.transfers, 1);
            if outcome.is_ok() {
                of.sizes.record(bytes);
            }
        });
    }

    /// Something of a path is under way now, or nothing is. Under the manager's lock (`busy.rs` I1).
    pub(super) fn busy(&self, path: Path, busy: bool, now: impl FnOnce() -> Duration) {
        if counting() {
            self.busy[path as usize].set(busy, now);
        }
    }

    pub(super) fn failed(&self, path: Path, cause: Cause, whose: About) {
        self.stripes.add(|mine| &mine.paths[path as usize].failed[cause as usize], 1);
        self.notices.raise(Notice::Failed(path, cause), whose);
    }

    pub(super) fn parked(&self, path: Path, whose: About) {
        self.stripes.add(|mine| &mine.parked, 1);
        self.notices.raise(Notice::Parked(path), whose);
    }

    pub(super) fn missed(&self, cause: Cause) {
        self.stripes.add(|mine| &mine.missed[cause as usize], 1);
    }

    pub(super) fn late(&self, whose: About) {
        self.stripes.add(|mine| &mine.late, 1);
        self.notices.raise(Notice::Late, whose);
    }

    pub(super) fn unwritten(&self) {
        self.stripes.add(|mine| &mine.unwritten, 1);
    }

    pub(super) fn hint_cut(&self, blocks: usize) {
        self.stripes.add(|mine| &mine.hints_cut, blocks as u64);
    }

    pub(super) fn refused(&self, why: Refusal, blocks: usize) {
        self.stripes.add(|mine| &mine.refused[why as usize], blocks as u64);
        match why {
            Refusal::Queue => self.notices.raise(Notice::QueueFull, About::default()),
            Refusal::Gates => self.notices.raise(Notice::GatesFull, About::default()),
            Refusal::Tier | Refusal::Room | Refusal::Closed => {}
        }
    }

    pub(super) fn dropped(&self, from: Tier) {
        self.stripes.add(|mine| &mine.dropped[from as usize], 1);
    }

    /// Those are dropped since the tier below has no room.
    pub(super) fn no_room(&self, from: Tier, whose: About) {
        self.notices.raise(Notice::Dropped(from), whose);
    }

    pub(super) fn onboarded(&self, from_disk: bool) {
        self.stripes.add(|mine| &mine.onboarded[usize::from(from_disk)], 1);
    }

    pub(super) fn offloaded(&self, from: Tier, outcome: Result<(), Cause>) {
        if outcome.is_ok() && from != Tier::Disk {
            self.stripes.add(|mine| &mine.offloaded[from as usize], 1);
        }
    }

    /// All of them, now by the clock of [`busy`](Counts::busy).
    pub(super) fn snapshot(&self, now: Duration) -> ManagerStats {
        ManagerStats {
            paths: std::array::from_fn(|path| {
                let sizes = SizeHistogram::of(self.stripes.all().map(|stripe| &stripe.paths[path].sizes));
                PathStats {
                    transfers: self.stripes.sum(|stripe| &stripe.paths[path].transfers),
                    bytes: sizes.sum,
                    sizes,
                    busy: self.busy[path].until(now),
                    failed: std::array::from_fn(|cause| {
                        self.stripes.sum(|stripe| &stripe.paths[path].failed[cause])
                    }),
                }
            }),
            dropped: std::array::from_fn(|tier| self.stripes.sum(|stripe| &stripe.dropped[tier])),
            onboarded: std::array::from_fn(|tier| self.stripes.sum(|stripe| &stripe.onboarded[tier])),
            offloaded: std::array::from_fn(|tier| self.stripes.sum(|stripe| &stripe.offloaded[tier])),
            parked: self.stripes.sum(|stripe| &stripe.parked),
            missed: std::array::from_fn(|cause| self.stripes.sum(|stripe| &stripe.missed[cause])),
            late: self.stripes.sum(|stripe| &stripe.late),
            unwritten: self.stripes.sum(|stripe| &stripe.unwritten),
            hints_cut: self.stripes.sum(|stripe| &stripe.hints_cut),
            refused: std::array::from_fn(|why| self.stripes.sum(|stripe| &stripe.refused[why])),
        }
    }
}
