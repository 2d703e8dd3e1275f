//! Counts of lookups, and latencies of calls and transfers. Each thread counts for itself ([`Stripes`]);
//! reading takes no lock.
//!
//! # Orderings
//! Relaxed throughout: a count publishes nothing.

use crate::metrics::{Call, Found, Latencies, LatencyHistogram, Lookups, Requests};
use crate::runtime::Runtime;
use crate::state::{GroupId, Since};
use crate::stripes::{Stripes, add};
use crate::transfer::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Lookups of a group's blocks.
#[derive(Debug)]
struct Asked {
    blocks: AtomicU64,
    /// Allocations that did not wait.
    at_once: AtomicU64,
    /// By [`Found::index`].
    found: Box<[AtomicU64]>,
}

/// A thread's counts.
#[derive(Debug)]
struct Stripe {
    /// By group.
    asked: Box<[Asked]>,
    calls: [Latencies; Call::ALL.len()],
    /// Transfers, by path.
    waits: Box<[Latencies]>,
    transfers: Box<[Latencies]>,
}

/// The last report of an engine on its requests. The engine writes it with each request, while other
/// threads read the fields beside it: so it is alone on its cache lines, as a stripe is.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Told {
    active_slots: AtomicU64,
    total_slots: AtomicU64,
    /// The number plus one, so that 0 means that there was no report.
    waiting: AtomicU64,
}

/// Counts and latencies of an engine.
pub(crate) struct Watch {
    stripes: Stripes<Stripe>,
    /// Whether latencies are counted (`metrics.histograms`).
    timed: bool,
    told: Told,
    runtime: Arc<dyn Runtime>,
}

impl Watch {
    /// Counts for so many groups, with so many tiers below host memory.
    pub(crate) fn new(groups: usize, below: usize, timed: bool, runtime: Arc<dyn Runtime>) -> Watch {
        let asked = move |_| Asked {
            blocks: AtomicU64::new(0),
            at_once: AtomicU64::new(0),
            found: Found::all(below).map(|_| AtomicU64::new(0)).collect(),
        };
        let stripe = move || Stripe {
            asked: (0..groups).map(asked).collect(),
            calls: Default::default(),
            waits: Path::all(below).map(|_| Latencies::default()).collect(),
            transfers: Path::all(below).map(|_| Latencies::default()).collect(),
        };
        Watch { stripes: Stripes::new(stripe), timed, told: Told::default(), runtime }
    }

    /// The time; empty unless latencies are counted.
    #[inline]
    pub(crate) fn now(&self) -> Since {
        Since(self.timed.then(|| self.runtime.now()))
    }

    /// Counts a call that was answered, by when it began.
    #[inline]
    pub(crate) fn answered(&self, call: Call, since: Since) {
        if let Some(since) = since.0 {
            let time = self.runtime.now().saturating_sub(since);
            self.stripes.count(|mine| mine.calls[call as usize].record(time));
        }
    }

    /// Counts the wait of a transfer that starts, by when it was wanted.
    pub(crate) fn started(&self, path: Path, wanted: Since, now: Since) {
        if let Some(time) = now.after(wanted) {
            self.stripes.count(|mine| mine.waits[path.index()].record(time));
        }
    }

    /// Counts the duration of a transfer that has ended, by when it started.
    pub(crate) fn ended(&self, path: Path, started: Since, now: Since) {
        if let Some(time) = now.after(started) {
            self.stripes.count(|mine| mine.transfers[path.index()].record(time));
        }
    }

    /// Counts a request's lookup of so many blocks of a group, and the blocks found, by place.
    pub(crate) fn looked_up(&self, group: GroupId, blocks: usize, found: &[u64]) {
        self.stripes.count(|mine| {
            let asked = &mine.asked[group.index()];
            add(&asked.blocks, blocks as u64);
            for (count, blocks) in asked.found.iter().zip(found).filter(|(_, blocks)| **blocks > 0) {
                add(count, *blocks);
            }
        });
    }

    /// Counts a lookup in the device alone.
    pub(crate) fn looked_up_in_device(&self, group: GroupId, blocks: usize, found: usize) {
        // The device is the first place.
        self.looked_up(group, blocks, &[found as u64]);
    }

    /// Counts an allocation of a group that did not wait.
    #[inline]
    pub(crate) fn allocated_at_once(&self, group: GroupId) {
        self.stripes.count(|mine| add(&mine.asked[group.index()].at_once, 1));
    }

    /// Number of such allocations.
    pub(crate) fn at_once(&self, group: GroupId) -> u64 {
        self.stripes.sum(|stripe| &stripe.asked[group.index()].at_once)
    }

    pub(crate) fn tell(&self, requests: Requests) {
        let Requests { active_slots, total_slots, waiting } = requests;
        self.told.active_slots.store(active_slots, Relaxed);
        self.told.total_slots.store(total_slots, Relaxed);
        self.told.waiting.store(waiting.saturating_add(1), Relaxed);
    }

    /// The last report of the engine, if any.
    pub(crate) fn told(&self) -> Option<Requests> {
        let waiting = self.told.waiting.load(Relaxed).checked_sub(1)?;
        let (active, total) = (&self.told.active_slots, &self.told.total_slots);
        Some(Requests { active_slots: active.load(Relaxed), total_slots: total.load(Relaxed), waiting })
    }

    /// Lookups of a group.
    pub(crate) fn lookups(&self, group: usize) -> Lookups {
        let asked = || self.stripes.all().map(|stripe| &stripe.asked[group]);
        // `found` is read before `blocks`, as they are counted the other way round. If a thread sees them
        // in another order, each block that was found was asked for all the same: no ratio is larger than
        // 1, and no count goes backwards.
        let found = |place: usize| asked().map(|of| of.found[place].load(Relaxed)).sum();
        let places = self.stripes.all().next().map_or(0, |stripe| stripe.asked[group].found.len());
        let found: Vec<u64> = (0..places).map(found).collect();
        let blocks: u64 = asked().map(|of| of.blocks.load(Relaxed)).sum();
        Lookups { blocks: blocks.max(found.iter().sum()), found }
    }

    pub(crate) fn call(&self, call: Call) -> Option<LatencyHistogram> {
        self.latencies(|stripe| &stripe.calls[call as usize])
    }

    /// How long transfers of a path have waited, and taken.
    pub(crate) fn path(&self, path: Path) -> [Option<LatencyHistogram>; 2] {
        [
            self.latencies(|stripe| &stripe.waits[path.index()]),
            self.latencies(|stripe| &stripe.transfers[path.index()]),
        ]
    }

    fn latencies(&self, of: impl Fn(&Stripe) -> &Latencies) -> Option<LatencyHistogram> {
        self.timed.then(|| LatencyHistogram::of(self.stripes.all().map(of)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::Tier;
    use crate::virtual_runtime::VirtualRuntime;
    use kvstrata_testing::virtual_time;

    /// As seen by a thread for which `found` arrives before `blocks`.
    #[test]
    fn lookups_find_no_more_than_asked_for() {
        let runtime = virtual_time::run(async { VirtualRuntime::new() });
        let watch = Watch::new(1, 1, false, runtime);
        watch.stripes.count(|mine| {
            add(&mine.asked[0].found[Found::Tier(Tier::Device).index()], 2);
            add(&mine.asked[0].found[Found::Tier(Tier::Below(0)).index()], 1);
        });
        assert_eq!((watch.lookups(0).blocks, watch.lookups(0).hit_ratio()), (3, 1.0));
        watch.stripes.count(|mine| add(&mine.asked[0].blocks, 6));
        assert_eq!((watch.lookups(0).blocks, watch.lookups(0).hit_ratio()), (6, 0.5));
    }
}
