//! How fast a path is.

use crate::state::DownId;
use crate::transfer::Breaker;
use std::collections::VecDeque;
use std::time::Duration;

/// Seconds that a path was busy, by which its rate is known.
const WINDOW: f64 = 0.125;

/// How long something has been so, in all.
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

/// What a path moves while it is busy, in its last [`WINDOW`] or two.
#[derive(Debug, Default)]
struct Rate {
    bytes: f64,
    seconds: f64,
    /// Until when it was busy, in all, at the last look.
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

    /// Whether a byte takes no more than so many times as long as on another path, as far as is known: both
    /// have moved some, or this one has been at its first bytes for a [`WINDOW`]. `busy` is this path's by
    /// now: what it is at counts.
    fn is_within(&self, times: u32, other: &Rate, busy: Duration) -> bool {
        let seconds = self.seconds + busy.saturating_sub(self.seen).as_secs_f64();
        let known = other.bytes > 0.0 && (self.bytes > 0.0 || seconds > WINDOW);
        !known || seconds * other.bytes <= f64::from(times) * other.seconds * self.bytes
    }
}

/// How fast a path is.
#[derive(Debug)]
pub(crate) struct Pace {
    /// When something of it was under way.
    busy: Spells,
    rate: Rate,
    breaker: Breaker,
    /// What has been started: key, number and when, the oldest first. Some have ended.
    started: VecDeque<(DownId, u64, Duration)>,
    /// When a block was dropped last, while that is a condition that was said.
    dropping: Option<Duration>,
}

impl Pace {
    pub(crate) fn new(breaker: Breaker) -> Pace {
        let (busy, rate) = Default::default();
        Pace { busy, rate, breaker, started: VecDeque::new(), dropping: None }
    }

    /// Something of it is under way from now on, or nothing is.
    pub(crate) fn set_busy(&mut self, busy: bool, now: impl FnOnce() -> Duration) {
        self.busy.set(busy, now);
    }

    /// How long it was busy, in all.
    pub(crate) fn busy_until(&self, now: Duration) -> Duration {
        self.busy.until(now)
    }

    /// So many bytes have been moved.
    pub(crate) fn moved(&mut self, bytes: u64, now: Duration) {
        self.rate.add(bytes, self.busy.until(now));
    }

    /// Whether a byte takes no more than so many times as long as on the path above it.
    pub(crate) fn keeps_up_with(&self, above: &Pace, times: u32, now: Duration) -> bool {
        self.rate.is_within(times, &above.rate, self.busy.until(now))
    }

    /// A transfer has started.
    pub(crate) fn started(&mut self, key: DownId, number: u64, now: Duration) {
        self.started.push_back((key, number, now));
    }

    /// A transfer has ended.
    pub(crate) fn ended(&mut self, key: DownId, number: u64, now: Duration) {
        // Mostly the first.
        let at = self.started.iter().position(|(of, other, _)| (*of, *other) == (key, number));
        if let Some((.., since)) = at.and_then(|at| self.started.remove(at)) {
            self.breaker.ended(now.saturating_sub(since));
        }
    }

    /// Forgets the oldest transfers that run no more. Since when the oldest one runs that is left.
    pub(crate) fn oldest(&mut self, runs: impl Fn(DownId, u64) -> bool) -> Option<Duration> {
        while self.started.pop_front_if(|(key, number, _)| !runs(*key, *number)).is_some() {}
        self.started.front().map(|(.., since)| *since)
    }

    /// Whether one transfer at a time goes, the oldest having taken so long until now.
    pub(crate) fn is_open_after(&mut self, taken: Duration) -> bool {
        self.breaker.look(taken)
    }

    /// Whether one transfer at a time goes, as was found last.
    pub(crate) fn is_open(&self) -> bool {
        self.breaker.is_open()
    }

    /// Whether the oldest transfer takes far longer than most.
    pub(crate) fn hangs(&self, now: Duration) -> bool {
        self.started.front().is_some_and(|(.., since)| self.breaker.hangs(now.saturating_sub(*since)))
    }

    /// Whether blocks are being dropped, or were a moment ago.
    pub(crate) fn is_dropping(&self) -> bool {
        self.dropping.is_some()
    }

    /// A block was dropped. Whether that is the first since the path has recovered.
    pub(crate) fn dropped(&mut self, now: Duration) -> bool {
        self.dropping.replace(now).is_none()
    }

    /// When a block was dropped last; none: the path has recovered.
    pub(crate) fn last_dropped(&self) -> Option<Duration> {
        self.dropping
    }

    /// None was dropped for a while.
    pub(crate) fn recovered(&mut self) {
        self.dropping = None;
    }
}

/// When a request came: how much had been copied, and how long the wait queue had waited below.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Came {
    pub(crate) copying: Duration,
    pub(crate) below: Duration,
}
