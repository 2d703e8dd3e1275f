//! Counters of events. Each thread counts for itself ([`Stripes`]); a reader adds them up without
//! the lock.
//!
//! # Orderings
//! Relaxed throughout: a count publishes nothing. How long paths were busy is in [`Busy`].

use crate::engine::busy::Busy;
use crate::engine::notices::{About, Notice, Notices};
use crate::metrics::{ManagerStats, PathStats, Refusal, SizeHistogram, Sizes};
use crate::state::Have;
use crate::stripes::{Stripes, add, counting};
use crate::tier::Tier;
use crate::transfer::{Cause, Failure, Path};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

#[derive(Debug, Default)]
struct OfPath {
    transfers: AtomicU64,
    /// Of transfers that succeeded.
    sizes: Sizes,
    failed: [AtomicU64; Cause::ALL.len()],
}

/// A thread's counters.
#[derive(Debug)]
struct Stripe {
    /// By [`Path::index`].
    paths: Box<[OfPath]>,
    /// From the device, from the host.
    dropped: [AtomicU64; 2],
    /// From the host, from each tier below it.
    onboarded: Box<[AtomicU64]>,
    offloaded: [AtomicU64; 2],
    quarantined: AtomicU64,
    missed: [AtomicU64; Cause::ALL.len()],
    late: AtomicU64,
    unwritten: AtomicU64,
    hints_cut: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
}

/// The counters of a manager.
#[derive(Debug)]
pub(crate) struct Counts {
    stripes: Stripes<Stripe>,
    busy: Box<[Busy]>,
    pub(crate) notices: Notices,
}

impl Counts {
    /// Makes counters for so many tiers below host memory.
    pub(crate) fn new(notices: Notices, below: usize) -> Counts {
        let stripe = move || Stripe {
            paths: Path::all(below).map(|_| OfPath::default()).collect(),
            dropped: Default::default(),
            onboarded: (0..1 + below.max(1)).map(|_| AtomicU64::new(0)).collect(),
            offloaded: Default::default(),
            quarantined: AtomicU64::new(0),
            missed: Default::default(),
            late: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
            hints_cut: AtomicU64::new(0),
            refused: Default::default(),
        };
        let busy = Path::all(below).map(|_| Busy::default()).collect();
        Counts { stripes: Stripes::new(stripe), busy, notices }
    }

    pub(crate) fn moved(&self, path: Path, bytes: u64, outcome: Result<(), Failure>) {
        self.stripes.count(|mine| {
            let of = &mine.paths[path.index()];
            add(&of.transfers, 1);
            if outcome.is_ok() {
                of.sizes.record(bytes);
            }
        });
    }

    /// Sets whether transfers of a path are under way. Must be called under the manager's lock
    /// (`busy.rs` I1).
    pub(crate) fn busy(&self, path: Path, busy: bool, now: impl FnOnce() -> Duration) {
        if counting() {
            self.busy[path.index()].set(busy, now);
        }
    }

    pub(crate) fn failed(&self, path: Path, cause: Cause, whose: About) {
        self.stripes.add(|mine| &mine.paths[path.index()].failed[cause as usize], 1);
        self.notices.raise(Notice::Failed(path, cause), whose);
    }

    pub(crate) fn quarantined(&self, path: Path, whose: About) {
        self.stripes.add(|mine| &mine.quarantined, 1);
        self.notices.raise(Notice::Quarantined(path), whose);
    }

    pub(crate) fn missed(&self, cause: Cause) {
        self.stripes.add(|mine| &mine.missed[cause as usize], 1);
    }

    pub(crate) fn late(&self, whose: About) {
        self.stripes.add(|mine| &mine.late, 1);
        self.notices.raise(Notice::Late, whose);
    }

    pub(crate) fn unwritten(&self) {
        self.stripes.add(|mine| &mine.unwritten, 1);
    }

    pub(crate) fn hint_cut(&self, blocks: usize) {
        self.stripes.add(|mine| &mine.hints_cut, blocks as u64);
    }

    pub(crate) fn refused(&self, why: Refusal, blocks: usize) {
        self.stripes.add(|mine| &mine.refused[why as usize], blocks as u64);
        match why {
            Refusal::Queue => self.notices.raise(Notice::QueueFull, About::default()),
            Refusal::Gates => self.notices.raise(Notice::GatesFull, About::default()),
            Refusal::Tier | Refusal::Room | Refusal::Closed => {}
        }
    }

    pub(crate) fn dropped(&self, from: Tier) {
        self.stripes.add(|mine| &mine.dropped[from.index()], 1);
    }

    /// Counts a block that goes no further: a victim is lost, any other block stays where it is.
    pub(crate) fn goes_no_further(&self, source: Have, from: Tier) {
        if matches!(source, Have::Owned(_)) {
            self.dropped(from);
        }
    }

    /// Raises the notice that blocks are dropped since the tier below has no room.
    pub(crate) fn no_room(&self, from: Tier, whose: About) {
        self.notices.raise(Notice::Dropped(from), whose);
    }

    /// Counts a block that has come up from a tier.
    pub(crate) fn onboarded(&self, from: Tier) {
        self.stripes.add(|mine| &mine.onboarded[from.index() - Tier::Host.index()], 1);
    }

    pub(crate) fn offloaded(&self, from: Tier, outcome: Result<(), Cause>) {
        if outcome.is_ok() {
            self.stripes.add(|mine| &mine.offloaded[from.index()], 1);
        }
    }

    /// Returns all counters; `now` is by the clock of [`busy`](Counts::busy).
    pub(crate) fn snapshot(&self, now: Duration) -> ManagerStats {
        ManagerStats {
            paths: (0..self.busy.len())
                .map(|path| {
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
                })
                .collect(),
            dropped: std::array::from_fn(|tier| self.stripes.sum(|stripe| &stripe.dropped[tier])),
            onboarded: (0..self.busy.len() / 2)
                .map(|place| self.stripes.sum(|stripe| &stripe.onboarded[place]))
                .collect(),
            offloaded: std::array::from_fn(|tier| self.stripes.sum(|stripe| &stripe.offloaded[tier])),
            quarantined: self.stripes.sum(|stripe| &stripe.quarantined),
            missed: std::array::from_fn(|cause| self.stripes.sum(|stripe| &stripe.missed[cause])),
            late: self.stripes.sum(|stripe| &stripe.late),
            unwritten: self.stripes.sum(|stripe| &stripe.unwritten),
            hints_cut: self.stripes.sum(|stripe| &stripe.hints_cut),
            refused: std::array::from_fn(|why| self.stripes.sum(|stripe| &stripe.refused[why])),
        }
    }
}
