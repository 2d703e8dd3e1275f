//! How long requests for blocks may wait for writes to the tier below, so that their 99th percentile stays
//! within a small factor of what it is without that tier. It has no lock and no clock.
//!
//! ```text
//!   a request waits:   copies to host memory ▓▓▓▓          what it would wait for without the tier below
//!                      writes below               ░░░░░░   at most `limit`, but for a request in 200
//!
//!   limit = 2 × the 99th percentile of ▓ over the last requests
//! ```
//!
//! Requests wait for a drive that keeps up with the copies (`transfer.keeps_up`) as long as it takes, but for
//! its pauses: nothing is lost. One that takes no more than twice as long for a block makes requests no more than three times as
//! slow. A drive that does not keep up, or pauses, would make more of them late than the budget allows: then no request
//! waits for it, until as many have been served as pay for another try.
//!
//! Invariants
//! - I1: of n requests at most n/200 + 30 were let to wait for longer than the limit of their time for a drive
//!   that does not keep up or pauses, beside those of one moment.
//! - I2: none is let to wait for such a drive for longer than ten times the limit.

use std::time::Duration;

/// Waits below so many times what the copies take.
const TIMES: u32 = 2;
/// What a late request costs; each request that is served pays one.
const COST: i32 = 200;
/// The most that is saved up, which is there at first, and that is owed: in late requests. A drive that
/// hesitates for a while has them all at once.
const MOST: i32 = 30 * COST;
const LEAST: i32 = -4 * COST;
/// What must be there before requests wait again.
const ENOUGH: i32 = 4 * COST;
/// Below it nobody could tell a wait from the scheduling of threads.
const SHORTEST: Duration = Duration::from_millis(1);
/// So many limits, and a wait ends in any case.
const LONGEST: u32 = 10;
/// Requests that the percentile is taken of, and as many again, half as heavy.
const WINDOW: u32 = 2048;
/// Four for each doubling, from a microsecond on: the last is beyond an hour.
const BUCKETS: usize = 128;

/// The budget of a group of layers.
#[derive(Debug, Clone)]
pub struct Patience {
    /// Set by an operator: as long may any request wait, and no longer.
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
    /// With a limit that is fixed, or that follows from what is served.
    #[must_use]
    pub fn new(fixed: Option<Duration>) -> Patience {
        let limit = fixed.unwrap_or(SHORTEST);
        Patience { fixed, buckets: [0; BUCKETS], seen: 0, limit, budget: MOST, waits: true, paused: false }
    }

    /// How long a request may wait.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// How long a request has waited when it is to be looked at again: the budget must pay for all requests
    /// that have come so far, before they are late.
    #[must_use]
    pub fn next_look(&self) -> Duration {
        if self.fixed.is_some() { self.limit } else { self.limit / 2 }
    }

    /// So many requests were served without waiting for anything.
    pub fn served_at_once(&mut self, requests: u64) {
        let requests = u32::try_from(requests).unwrap_or(u32::MAX).min(WINDOW);
        self.see(0, requests);
        self.pay(requests as i32);
    }

    /// A request was served, while copies took so long, and after it had waited so long for writes below, of
    /// a drive that keeps up or does not.
    pub fn served(&mut self, copying: Duration, waited: Duration, keeps_up: bool) {
        if waited <= self.limit {
            self.paused = false;
        } else if !keeps_up || self.paused {
            self.pay(-COST);
        }
        self.see(bucket(copying), 1);
        self.pay(1);
    }

    /// Whether requests may wait (on), when so many have waited for [`next_look`](Patience::next_look), the
    /// first of them for so long, for a drive that keeps up or does not.
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
            // They go on at once, and pay as if all had been late.
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

    /// The 99th.
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

/// Where a time is counted; 0: none.
fn bucket(time: Duration) -> usize {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    if micros == 0 {
        return 0;
    }
    let octave = micros.ilog2();
    let quarter = if octave >= 2 { (micros >> (octave - 2)) & 3 } else { (micros << (2 - octave)) & 3 };
    (1 + 4 * octave as usize + quarter as usize).min(BUCKETS - 1)
}

/// The middle of a bucket.
fn value(bucket: usize) -> Duration {
    let Some(bucket) = bucket.checked_sub(1) else { return Duration::ZERO };
    Duration::from_micros(1 << (bucket / 4)).mul_f64(1.0 + (bucket % 4) as f64 / 4.0 + 0.125)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn value_of_a_bucket_is_within_an_eighth_of_what_was_counted() {
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
        // Most requests are served at once: the percentile is theirs.
        patience.served_at_once(1_000_000);
        assert_eq!(patience.limit(), SHORTEST);
        // Fewer than one in a hundred are.
        (0..6000).for_each(|turn| patience.served(if turn % 200 == 0 { 80 * MS } else { 2 * MS }, MS, false));
        let limit = patience.limit().as_secs_f64();
        assert!((0.0035..=0.0045).contains(&limit), "{limit}");
    }

    #[test]
    fn late_requests_end_the_waiting_and_others_pay_for_another_try() {
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
        // A whole run of a drive that is late each time.
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
    fn requests_that_would_all_be_late_are_let_go_before_they_are() {
        let mut patience = Patience::new(None);
        assert!(patience.may_wait(30, MS / 2, false));
        assert!(!patience.may_wait(64, MS / 2, false), "more than the budget pays for");
        (0..64).for_each(|_| patience.served(MS / 2, MS / 2, false));
        assert!(!patience.may_wait(0, Duration::ZERO, false), "not before others have paid");
        (0..1600).for_each(|_| patience.served(MS / 2, Duration::ZERO, false));
        assert!(patience.may_wait(0, Duration::ZERO, false));
    }

    #[test]
    fn no_wait_is_longer_than_ten_limits_nor_than_a_fixed_one() {
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
