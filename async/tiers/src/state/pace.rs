//! How fast a path is.

use crate::transfer::Breaker;
use std::collections::VecDeque;
use std::time::Duration;

/// Seconds that a path was busy, by which its rate is known.
pub(crate) const WINDOW: f64 = 0.125;

/// How long something has been so, in all.
#[derive(Debug, Default)]
pub(crate) struct Spells {
    pub(crate) since: Option<Duration>,
    pub(crate) over: Duration,
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
pub(crate) struct Rate {
    pub(crate) bytes: f64,
    pub(crate) seconds: f64,
    /// Until when it was busy, in all, at the last look.
    pub(crate) seen: Duration,
}

impl Rate {
    pub(crate) fn add(&mut self, bytes: u64, busy: Duration) {
        self.bytes += bytes as f64;
        self.seconds += busy.saturating_sub(std::mem::replace(&mut self.seen, busy)).as_secs_f64();
        if self.seconds > 2.0 * WINDOW {
            (self.bytes, self.seconds) = (self.bytes / 2.0, self.seconds / 2.0);
        }
    }

    /// Whether a byte takes no more than so many times as long as on another path, as far as is known: both have moved some, or
    /// this one has been at its first bytes for a [`WINDOW`]. `busy` is this path's by now: what it is at counts.
    pub(crate) fn is_within(&self, times: u32, other: &Rate, busy: Duration) -> bool {
        let seconds = self.seconds + busy.saturating_sub(self.seen).as_secs_f64();
        let known = other.bytes > 0.0 && (self.bytes > 0.0 || seconds > WINDOW);
        !known || seconds * other.bytes <= f64::from(times) * other.seconds * self.bytes
    }
}

/// How a path is.
#[derive(Debug)]
pub(crate) struct Pace {
    /// When something of it was under way.
    pub(crate) busy: Spells,
    pub(crate) rate: Rate,
    pub(crate) breaker: Breaker,
    /// What has been started: key, number and when, the oldest first. Some have ended.
    pub(crate) started: VecDeque<(u32, u64, Duration)>,
    /// When a block was dropped last, while that is a condition that was said.
    pub(crate) dropping: Option<Duration>,
}

impl Pace {
    pub(crate) fn new(breaker: Breaker) -> Pace {
        let (busy, rate) = Default::default();
        Pace { busy, rate, breaker, started: VecDeque::new(), dropping: None }
    }

    /// Whether blocks are being dropped, or were a moment ago.
    pub(crate) fn is_dropping(&self) -> bool {
        self.dropping.is_some()
    }
}

/// When a request came: how much had been copied, and how long the line had waited below.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Came {
    pub(crate) copying: Duration,
    pub(crate) below: Duration,
}
