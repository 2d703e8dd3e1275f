//! How fast a path is.

use crate::state::DownId;
use crate::transfer::Breaker;
use std::collections::VecDeque;
use std::time::Duration;

/// Busy seconds of a path that its rate is derived from.
const WINDOW: f64 = 0.125;

/// The total time for which something was on.
#[derive(Debug, Default)]
pub(crate) struct Spells {
    since: Option<Duration>,
    over: Duration,
}

impl Spells {
    pub(crate) fn is_on(&self) -> bool {
        self.since.is_some()
    }

    pub(crate) fn set(&mut self, on: bool, now: impl FnOnce() -> Duration) {
        match (on, self.since) {
            (true, None) => self.since = Some(now()),
            (false, Some(since)) => {
                self.over += now().saturating_sub(since);
                self.since = None;
            }
            _ => {}
        }
    }

    pub(crate) fn until(&self, now: Duration) -> Duration {
        self.over + self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }
}

/// The rate of a path while it is busy, over its last [`WINDOW`] or two.
#[derive(Debug, Default)]
struct Rate {
    bytes: f64,
    seconds: f64,
    /// The path's total busy time at the last look.
    seen: Duration,
}

impl Rate {
    fn add(&mut self, bytes: u64, busy: Duration) {
        self.bytes += bytes as f64;
        self.seconds += busy.saturating_sub(std::mem::replace(&mut self.seen, busy)).as_secs_f64();
        if self.seconds > 2.0 * WINDOW {
            (self.bytes, self.seconds) = (self.bytes / 2.0, self.seconds / 2.0);
        }
    }

    /// Whether a byte takes at most `times` as long as on another path, as far as is known: both have
    /// moved bytes, or this one has been at its first bytes for a [`WINDOW`]. `busy` is this path's total
    /// busy time by now, so that the current transfer counts.
    fn is_within(&self, times: u32, other: &Rate, busy: Duration) -> bool {
        let seconds = self.seconds + busy.saturating_sub(self.seen).as_secs_f64();
        let known = other.bytes > 0.0 && (self.bytes > 0.0 || seconds > WINDOW);
        !known || seconds * other.bytes <= f64::from(times) * other.seconds * self.bytes
    }
}

/// How fast a path is.
#[derive(Debug)]
pub(crate) struct Pace {
    /// When transfers of the path were in flight.
    busy: Spells,
    rate: Rate,
    breaker: Breaker,
    /// Started transfers: key, number and time, the oldest first. Some have ended.
    started: VecDeque<(DownId, u64, Duration)>,
    /// When a block was last dropped; none once the path has recovered.
    dropping: Option<Duration>,
}

impl Pace {
    pub(crate) fn new(breaker: Breaker) -> Pace {
        let (busy, rate) = Default::default();
        Pace { busy, rate, breaker, started: VecDeque::new(), dropping: None }
    }

    /// Sets whether transfers of the path are in flight.
    pub(crate) fn set_busy(&mut self, busy: bool, now: impl FnOnce() -> Duration) {
        self.busy.set(busy, now);
    }

    /// Returns its total busy time.
    pub(crate) fn busy_until(&self, now: Duration) -> Duration {
        self.busy.until(now)
    }

    /// Counts bytes that were moved.
    pub(crate) fn moved(&mut self, bytes: u64, now: Duration) {
        self.rate.add(bytes, self.busy.until(now));
    }

    /// Whether a byte takes at most `times` as long as on the path above it.
    pub(crate) fn keeps_up_with(&self, above: &Pace, times: u32, now: Duration) -> bool {
        self.rate.is_within(times, &above.rate, self.busy.until(now))
    }

    /// Notes that a transfer has started.
    pub(crate) fn started(&mut self, key: DownId, number: u64, now: Duration) {
        self.started.push_back((key, number, now));
    }

    /// Notes that a transfer has ended.
    pub(crate) fn ended(&mut self, key: DownId, number: u64, now: Duration) {
        // Mostly the first.
        let at = self.started.iter().position(|(of, other, _)| (*of, *other) == (key, number));
        if let Some((.., since)) = at.and_then(|at| self.started.remove(at)) {
            self.breaker.ended(now.saturating_sub(since));
        }
    }

    /// Forgets the oldest transfers that have ended. Returns when the oldest running one has started.
    pub(crate) fn oldest(&mut self, runs: impl Fn(DownId, u64) -> bool) -> Option<Duration> {
        while self.started.pop_front_if(|(key, number, _)| !runs(*key, *number)).is_some() {}
        self.started.front().map(|(.., since)| *since)
    }

    /// Whether one transfer at a time goes, if the oldest has taken so long by now.
    pub(crate) fn is_open_after(&mut self, taken: Duration) -> bool {
        self.breaker.look(taken)
    }

    /// Whether one transfer at a time goes, by the last look.
    pub(crate) fn is_open(&self) -> bool {
        self.breaker.is_open()
    }

    /// Whether the oldest transfer takes far longer than most.
    pub(crate) fn hangs(&self, now: Duration) -> bool {
        self.started.front().is_some_and(|(.., since)| self.breaker.hangs(now.saturating_sub(*since)))
    }

    /// Whether blocks are being dropped, or were until a moment ago.
    pub(crate) fn is_dropping(&self) -> bool {
        self.dropping.is_some()
    }

    /// Notes that a block was dropped. Returns whether it is the first since the path recovered.
    pub(crate) fn dropped(&mut self, now: Duration) -> bool {
        self.dropping.replace(now).is_none()
    }

    /// Returns when a block was last dropped; none: the path has recovered.
    pub(crate) fn last_dropped(&self) -> Option<Duration> {
        self.dropping
    }

    /// Notes that no block has been dropped for a while.
    pub(crate) fn recovered(&mut self) {
        self.dropping = None;
    }
}

/// When a request came: the total time of copying, and for how long the wait queue had waited for
/// writes below.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Came {
    pub(crate) copying: Duration,
    pub(crate) below: Duration,
}
