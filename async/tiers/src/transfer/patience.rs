//! How long requests for blocks may wait for writes to the tier below. The 99th percentile of their
//! waits stays within a small factor of the one without that tier. It has no lock and no clock.
//!
//! ```text
//!   a request waits:   copies to host memory ▓▓▓▓          its wait without the tier below
//!                      writes below               ░░░░░░   at most `limit`, except for 1 request in 200
//!
//!   limit = 2 × the 99th percentile of ▓ over the last requests
//! ```
//!
//! If a drive keeps up with the copies (`transfer.keeps_up`), requests wait for it as long as it takes,
//! except for its pauses: no block is lost. A drive that takes at most twice as long for a block makes
//! requests at most three times as slow. A drive that does not keep up, or pauses, would make more
//! requests late than the budget allows. Then no request waits for it, until enough requests have been
//! served to pay for another try.
//!
//! Invariants
//! - I1: of n requests at most n/200 + 30 may wait longer than the limit of their time for a drive that
//!   does not keep up or pauses, besides those of one moment.
//! - I2: no request waits for such a drive longer than ten times the limit.

use std::time::Duration;

/// The limit is so many times the percentile of the copies' times.
const TIMES: u32 = 2;
/// The cost of a late request. Each request that is served pays one.
const COST: i32 = 200;
/// Bounds of the budget, in costs of late requests: the most that is saved, which is also there at first, and
/// the most that is owed (`LEAST`). A drive that hesitates for a while may spend all of it at once.
const MOST: i32 = 30 * COST;
const LEAST: i32 = -4 * COST;
/// The budget at which requests wait again.
const ENOUGH: i32 = 4 * COST;
/// The least limit: shorter waits cannot be told from the scheduling of threads.
const SHORTEST: Duration = Duration::from_millis(1);
/// A wait ends after so many limits in any case.
const LONGEST: u32 = 10;
/// The percentile is taken of so many requests, and of as many earlier ones at half weight.
const WINDOW: u32 = 2048;
/// Four buckets for each doubling, from a microsecond on. The last one begins at 54 minutes.
const BUCKETS: usize = 128;

/// The budget of a group of layers.
#[derive(Debug, Clone)]
pub struct Patience {
    /// Set by an operator: any request may wait so long, and no longer.
    fixed: Option<Duration>,
    buckets: [u32; BUCKETS],
    seen: u32,
    limit: Duration,
    budget: i32,
    waits: bool,
    /// At the last look at the waiting requests, the drive did not keep up, or paused.
    paused: bool,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience::new(None)
    }
}

impl Patience {
    /// Returns a budget with a fixed limit, or with one that follows from the requests served.
    #[must_use]
    pub fn new(fixed: Option<Duration>) -> Patience {
        let limit = fixed.unwrap_or(SHORTEST);
        Patience { fixed, buckets: [0; BUCKETS], seen: 0, limit, budget: MOST, waits: true, paused: false }
    }

    /// Returns how long a request may wait.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns the wait after which a request is looked at again. The budget must pay for all requests
    /// that have come so far, before they are late.
    #[must_use]
    pub fn next_look(&self) -> Duration {
        if self.fixed.is_some() { self.limit } else { self.limit / 2 }
    }

    /// Counts requests that were served without any wait.
    pub fn served_at_once(&mut self, requests: u64) {
        let requests = u32::try_from(requests).unwrap_or(u32::MAX).min(WINDOW);
        self.see(0, requests);
        self.pay(requests as i32);
    }

    /// Counts a request that was served: `copying` is the time of its copies, `waited` its wait for
    /// writes to a drive that keeps up or does not.
    pub fn served(&mut self, copying: Duration, waited: Duration, keeps_up: bool) {
        if waited <= self.limit {
            self.paused = false;
        } else if !keeps_up || self.paused {
            self.pay(-COST);
        }
        self.see(bucket(copying), 1);
        self.pay(1);
    }

    /// Returns whether requests may wait or go on waiting: `waiting` requests have waited for
    /// [`next_look`](Patience::next_look), the first of them for `longest`, for a drive that keeps up or
    /// does not.
    pub fn may_wait(&mut self, waiting: usize, longest: Duration, keeps_up: bool) -> bool {
        if let Some(fixed) = self.fixed {
            return longest < fixed;
        }
        if keeps_up {
            return true;
        }
        self.paused = true;
        let cost = i32::try_from(waiting).unwrap_or(i32::MAX).saturating_mul(COST);
        if self.waits && cost > self.budget {
            // The requests go on at once, and pay as if all had been late.
            self.waits = false;
            self.pay(-cost);
        }
        self.waits && longest < self.limit * LONGEST
    }

    fn pay(&mut self, paid: i32) {
        self.budget = self.budget.saturating_add(paid).clamp(LEAST, MOST);
        match self.waits {
            true => self.waits = self.budget > 0,
            false => self.waits = self.budget >= ENOUGH,
        }
    }

    fn see(&mut self, bucket: usize, requests: u32) {
        self.buckets[bucket] += requests;
        self.seen += requests;
        if self.seen >= 2 * WINDOW {
            self.buckets.iter_mut().for_each(|of| *of /= 2);
            self.seen = self.buckets.iter().sum();
        }
        if self.fixed.is_none() {
            self.limit = (self.percentile() * TIMES).max(SHORTEST);
        }
    }

    /// Returns the 99th percentile.
    fn percentile(&self) -> Duration {
        let (mut above, most) = (0, self.seen / 100);
        for (bucket, of) in self.buckets.iter().enumerate().rev() {
            above += of;
            if above > most {
                return value(bucket);
            }
        }
        Duration::ZERO
    }
}

/// Returns the bucket of a time; 0: no time.
fn bucket(time: Duration) -> usize {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    if micros == 0 {
        return 0;
    }
    let octave = micros.ilog2();
    let quarter = if octave >= 2 { (micros >> (octave - 2)) & 3 } else { (micros << (2 - octave)) & 3 };
    (1 + 4 * octave as usize + quarter as usize).min(BUCKETS - 1)
}

/// Returns the middle of a bucket.
fn value(bucket: usize) -> Duration {
    let Some(bucket) = bucket.checked_sub(1) else { return Duration::ZERO };
    Duration::from_micros(1 << (bucket / 4)).mul_f64(1.0 + (bucket % 4) as f64 / 4.0 + 0.125)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn bucket_value_is_within_an_eighth_of_the_counted_one() {
        for micros in (1..5000).chain((5000..100_000_000).step_by(97_001)) {
            let time = Duration::from_micros(micros);
            let ratio = value(bucket(time)).as_secs_f64() / time.as_secs_f64();
            assert!((0.87..=1.13).contains(&ratio), "{time:?}: {ratio}");
        }
        assert_eq!((value(bucket(Duration::ZERO)), bucket(Duration::MAX)), (Duration::ZERO, BUCKETS - 1));
    }

    #[test]
    fn limit_follows_the_99th_percentile_of_the_copies() {
        let mut patience = Patience::new(None);
        (0..1000)
            .for_each(|turn| patience.served(if turn % 50 == 0 { 8 * MS } else { MS / 4 }, MS / 10, false));
        let limit = patience.limit().as_secs_f64();
        assert!((0.014..=0.018).contains(&limit), "two in a hundred took 8 ms: {limit}");
        // Most requests are served at once, and make the percentile.
        patience.served_at_once(1_000_000);
        assert_eq!(patience.limit(), SHORTEST);
        // Fewer than one in a hundred are slow.
        (0..6000).for_each(|turn| patience.served(if turn % 200 == 0 { 80 * MS } else { 2 * MS }, MS, false));
        let limit = patience.limit().as_secs_f64();
        assert!((0.0035..=0.0045).contains(&limit), "{limit}");
    }

    #[test]
    fn late_requests_end_the_waiting_and_others_earn_a_retry() {
        let mut patience = Patience::new(None);
        let mut late = 0;
        while patience.may_wait(1, 9 * MS, false) {
            patience.served(MS / 2, 9 * MS, false);
            late += 1;
        }
        assert_eq!(late, 30, "what is there at first");
        let mut served = 0;
        while !patience.may_wait(0, Duration::ZERO, false) {
            patience.served(MS / 2, Duration::ZERO, false);
            served += 1;
        }
        assert!((800..=1200).contains(&served), "{served}");
        // A long run with a drive that is late each time.
        let (mut late, all) = (0, 100_000);
        for _ in 0..all {
            let waits = patience.may_wait(0, Duration::ZERO, false) && patience.may_wait(1, MS / 2, false);
            late += u32::from(waits);
            patience.served(MS / 2, if waits { 9 * MS } else { Duration::ZERO }, false);
        }
        assert!((all / 300..=all / 200 + 30).contains(&late), "{late}");
    }

    #[test]
    fn drive_that_keeps_up_is_waited_for_and_costs_nothing() {
        let mut patience = Patience::new(None);
        for _ in 0..10_000 {
            assert!(patience.may_wait(64, 90 * MS, true));
            patience.served(MS / 2, 90 * MS, true);
        }
        assert!(patience.may_wait(30, MS / 2, false), "all of the budget is there still");
    }

    #[test]
    fn requests_bound_to_be_late_are_released_before() {
        let mut patience = Patience::new(None);
        assert!(patience.may_wait(30, MS / 2, false));
        assert!(!patience.may_wait(64, MS / 2, false), "more than the budget pays for");
        (0..64).for_each(|_| patience.served(MS / 2, MS / 2, false));
        assert!(!patience.may_wait(0, Duration::ZERO, false), "not before others have paid");
        (0..1600).for_each(|_| patience.served(MS / 2, Duration::ZERO, false));
        assert!(patience.may_wait(0, Duration::ZERO, false));
    }

    #[test]
    fn wait_is_bounded_by_ten_limits_or_a_fixed_one() {
        let mut patience = Patience::new(None);
        assert!(patience.may_wait(1, patience.limit() * 9, false));
        assert!(!patience.may_wait(1, patience.limit() * 10, false));
        assert!(patience.may_wait(1, MS, false), "that was of one request");
        let mut fixed = Patience::new(Some(50 * MS));
        (0..1000).for_each(|_| fixed.served(MS, 49 * MS, false));
        assert_eq!((fixed.limit(), fixed.next_look()), (50 * MS, 50 * MS));
        assert!(fixed.may_wait(64, 49 * MS, false) && !fixed.may_wait(1, 50 * MS, false));
        assert!(!Patience::new(Some(Duration::ZERO)).may_wait(0, Duration::ZERO, false));
    }
}
