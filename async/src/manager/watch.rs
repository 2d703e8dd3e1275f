//! What is counted outside the lock, and how long things take: each thread counts for itself ([`Stripes`]).
//!
//! # Orderings
//! Relaxed throughout: a count publishes nothing.

use super::matching::PrefixMatch;
use crate::metrics::{Buckets, Call, Found, LatencyHistogram, Lookups, Requests, Stripes};
use crate::tier::Tier;
use crate::transfer::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// When something began; nothing where nobody asks how long it takes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Since(Option<Instant>);

impl Since {
    fn after(self, earlier: Since) -> Option<Duration> {
        Some(self.0?.saturating_duration_since(earlier.0?))
    }
}

/// A thread's counts.
#[derive(Debug, Default)]
struct Stripe {
    looked_up: AtomicU64,
    found: [AtomicU64; Found::ALL.len()],
    calls: [Buckets; Call::ALL.len()],
    waits: [Buckets; Path::ALL.len()],
    transfers: [Buckets; Path::ALL.len()],
}

/// What an engine has told of its requests.
#[derive(Debug, Default)]
struct Told {
    active_slots: AtomicU64,
    total_slots: AtomicU64,
    /// One more, so that 0 is: it has not told.
    waiting: AtomicU64,
}

/// Counts and latencies of a manager.
#[derive(Debug)]
pub(super) struct Watch {
    stripes: Stripes<Stripe>,
    /// Whether latencies are counted (`metrics.histograms`).
    timed: bool,
    told: Told,
}

impl Watch {
    pub(super) fn new(timed: bool) -> Watch {
        Watch { stripes: Stripes::new(), timed, told: Told::default() }
    }

    /// Something begins, or ends.
    #[inline]
    pub(super) fn now(&self) -> Since {
        Since(self.timed.then(Instant::now))
    }

    /// A call that has begun is answered.
    #[inline]
    pub(super) fn answered(&self, call: Call, since: Since) {
        if let Some(since) = since.0 {
            self.stripes.mine().calls[call as usize].record(since.elapsed());
        }
    }

    /// A transfer that was queued then starts.
    pub(super) fn started(&self, path: Path, queued: Since, now: Since) {
        if let Some(time) = now.after(queued) {
            self.stripes.mine().waits[path as usize].record(time);
        }
    }

    /// One that has started then has ended.
    pub(super) fn landed(&self, path: Path, started: Since, now: Since) {
        if let Some(time) = now.after(started) {
            self.stripes.mine().transfers[path as usize].record(time);
        }
    }

    /// A request has looked so many blocks up, and found these.
    pub(super) fn looked_up(&self, blocks: usize, found: &PrefixMatch) {
        let stripe = self.stripes.mine();
        stripe.looked_up.fetch_add(blocks as u64, Relaxed);
        // Most are in the device, all of them.
        if found.is_ready() {
            stripe.found[Found::Device as usize].fetch_add(found.len() as u64, Relaxed);
            return;
        }
        let [device, host, disk] = Tier::ALL.map(|tier| found.in_tier(tier));
        for (count, blocks) in stripe.found.iter().zip([device, host, disk, found.pending()]) {
            count.fetch_add(blocks as u64, Relaxed);
        }
    }

    /// The same of a look-up in the device alone.
    pub(super) fn looked_up_in_device(&self, blocks: usize, found: usize) {
        let stripe = self.stripes.mine();
        stripe.looked_up.fetch_add(blocks as u64, Relaxed);
        stripe.found[Found::Device as usize].fetch_add(found as u64, Relaxed);
    }

    pub(super) fn tell(&self, requests: Requests) {
        let Requests { active_slots, total_slots, waiting } = requests;
        self.told.active_slots.store(active_slots, Relaxed);
        self.told.total_slots.store(total_slots, Relaxed);
        self.told.waiting.store(waiting.saturating_add(1), Relaxed);
    }

    /// What the engine has told last; nothing if it has not.
    pub(super) fn told(&self) -> Option<Requests> {
        let waiting = self.told.waiting.load(Relaxed).checked_sub(1)?;
        let (active, total) = (&self.told.active_slots, &self.told.total_slots);
        Some(Requests { active_slots: active.load(Relaxed), total_slots: total.load(Relaxed), waiting })
    }

    pub(super) fn lookups(&self) -> Lookups {
        let blocks = self.stripes.all().map(|stripe| stripe.looked_up.load(Relaxed)).sum();
        let found = |place: usize| self.stripes.all().map(|stripe| stripe.found[place].load(Relaxed)).sum();
        Lookups { blocks, found: std::array::from_fn(found) }
    }

    fn latencies(&self, of: impl Fn(&Stripe) -> &Buckets) -> Option<LatencyHistogram> {
        self.timed.then(|| LatencyHistogram::of(self.stripes.all().map(of)))
    }

    pub(super) fn call(&self, call: Call) -> Option<LatencyHistogram> {
        self.latencies(|stripe| &stripe.calls[call as usize])
    }

    /// Waits in a path's queue, and transfers on it.
    pub(super) fn path(&self, path: Path) -> [Option<LatencyHistogram>; 2] {
        let path = path as usize;
        [self.latencies(|stripe| &stripe.waits[path]), self.latencies(|stripe| &stripe.transfers[path])]
    }
}
