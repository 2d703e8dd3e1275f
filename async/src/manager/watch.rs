//! What is counted outside the lock, each thread for itself ([`Stripes`]): look-ups, and how long calls take. And under it, in plain words: how long
//! transfers do ([`Times`]).
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

    /// It begins now, unless it has begun.
    pub(super) fn begin(&mut self, now: Since) {
        self.0 = self.0.or(now.0);
    }
}

/// How long transfers wait and take. Under the manager's lock, which whoever reads them has too.
#[derive(Debug, Default)]
pub(super) struct Times {
    waits: [LatencyHistogram; Path::ALL.len()],
    transfers: [LatencyHistogram; Path::ALL.len()],
}

impl Times {
    /// A transfer that was wanted then starts.
    pub(super) fn started(&mut self, path: Path, wanted: Since, now: Since) {
        if let Some(time) = now.after(wanted) {
            self.waits[path as usize].record(time);
        }
    }

    /// One that has started then has ended.
    pub(super) fn ended(&mut self, path: Path, started: Since, now: Since) {
        if let Some(time) = now.after(started) {
            self.transfers[path as usize].record(time);
        }
    }

    /// Waits of a path, and its transfers.
    pub(super) fn of(&self, path: Path) -> [LatencyHistogram; 2] {
        [self.waits[path as usize], self.transfers[path as usize]]
    }
}

/// Look-ups of a group's blocks.
#[derive(Debug, Default)]
struct Asked {
    blocks: AtomicU64,
    found: [AtomicU64; Found::ALL.len()],
}

/// A thread's counts.
#[derive(Debug)]
struct Stripe {
    /// By group.
    asked: Box<[Asked]>,
    calls: [Buckets; Call::ALL.len()],
}

/// What an engine has told of its requests: with each, while others read what is beside it. So alone on its cache lines, as a stripe is.
#[derive(Debug, Default)]
#[repr(align(128))]
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
    pub(super) fn new(groups: usize, timed: bool) -> Watch {
        let stripe =
            || Stripe { asked: (0..groups).map(|_| Asked::default()).collect(), calls: Default::default() };
        Watch { stripes: Stripes::new(stripe), timed, told: Told::default() }
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

    /// A request has looked so many blocks of a group up, and found these, but for as many at the front as it would not have needed for all.
    pub(super) fn looked_up(&self, blocks: usize, found: &PrefixMatch, spare: usize) {
        let asked = &self.stripes.mine().asked[usize::from(found.device.stack())];
        asked.blocks.fetch_add(blocks as u64, Relaxed);
        // Most are in the device, all of them.
        if found.is_ready() {
            let found = found.len().saturating_sub(spare);
            asked.found[Found::Device as usize].fetch_add(found as u64, Relaxed);
            return;
        }
        let mut counts = [0; Found::ALL.len()];
        for index in spare..found.len() {
            let place = match found.tier_of(index) {
                Some(Tier::Device) => Found::Device,
                Some(Tier::Host) => Found::Host,
                Some(Tier::Disk) => Found::Disk,
                None => Found::Pending,
            };
            counts[place as usize] += 1;
        }
        for (count, blocks) in asked.found.iter().zip(counts) {
            count.fetch_add(blocks, Relaxed);
        }
    }

    /// The same of a look-up in the device alone.
    pub(super) fn looked_up_in_device(&self, stack: u16, blocks: usize, found: usize) {
        let asked = &self.stripes.mine().asked[usize::from(stack)];
        asked.blocks.fetch_add(blocks as u64, Relaxed);
        asked.found[Found::Device as usize].fetch_add(found as u64, Relaxed);
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

    /// Of a group.
    pub(super) fn lookups(&self, stack: usize) -> Lookups {
        let asked = || self.stripes.all().map(|stripe| &stripe.asked[stack]);
        // Found before asked for, as they are counted the other way round. Where that order is not seen, what was found was asked for all the same:
        // no ratio is larger than 1, and none of the counts goes backwards.
        let found = |place: usize| asked().map(|of| of.found[place].load(Relaxed)).sum();
        let found: [u64; Found::ALL.len()] = std::array::from_fn(found);
        let blocks: u64 = asked().map(|of| of.blocks.load(Relaxed)).sum();
        Lookups { found, blocks: blocks.max(found.iter().sum()) }
    }

    /// What is given, where latencies are counted.
    pub(super) fn if_timed<T>(&self, counted: T) -> Option<T> {
        self.timed.then_some(counted)
    }

    pub(super) fn call(&self, call: Call) -> Option<LatencyHistogram> {
        self.timed
            .then(|| LatencyHistogram::of(self.stripes.all().map(|stripe| &stripe.calls[call as usize])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a thread sees it that sees what was found before what was asked for.
    #[test]
    fn no_more_is_found_than_asked_for() {
        let watch = Watch::new(1, false);
        let asked = &watch.stripes.mine().asked[0];
        asked.found[Found::Device as usize].store(2, Relaxed);
        asked.found[Found::Disk as usize].store(1, Relaxed);
        assert_eq!((watch.lookups(0).blocks, watch.lookups(0).hit_ratio()), (3, 1.0));
        asked.blocks.store(6, Relaxed);
        assert_eq!((watch.lookups(0).blocks, watch.lookups(0).hit_ratio()), (6, 0.5));
    }
}
