//! The figures of a manager over time: readings come in, a [`View`] comes out. It uses no
//! clock, socket or terminal.
//!
//! Invariants
//! - I1: a rate is over two readings of the same process. After a restart of the manager there is no rate
//!   until the next reading, because its counters started from 0 at an unknown moment.
//! - I2: no figure shown is negative or infinite.
//! - I3: the length of an interval is the difference of the manager's uptimes, within bounds: no shorter
//!   than from one answer to the next question, and no longer than from the earlier question to the later
//!   answer. A late answer may have been made at any time in between.

use super::buckets::Buckets;
use super::exposition::Exposition;
use super::reading::{LookupReading, MOST, PathReading, Reading, TierReading};
use super::view::{ALL, Gone, HitView, PathView, TierView, TroubleView, View};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Intervals whose hit ratios are kept; a terminal has no more columns.
const KEPT: usize = 240;
/// The manager has restarted if its uptime has grown by this much less than the time that passed, plus 1
/// %: the clocks of two machines drift apart.
const SLACK: Duration = Duration::from_secs(1);

/// The figures of one manager over time.
#[derive(Debug)]
pub struct Watch {
    target: String,
    interval: Duration,
    began: Instant,
    /// The last reading, with the times of question and answer.
    last: Option<(Range<Instant>, Reading)>,
    /// The reading before it, if both are of the same process.
    before: Option<(Range<Instant>, Reading)>,
    /// The time since which no answer came, and the last error.
    missing: Option<(Instant, String)>,
    /// Hit ratios of intervals, each in the order of [`places`]; the latest at the end.
    ratios: VecDeque<Vec<Option<f64>>>,
    restarts: u64,
}

impl Watch {
    /// Watches a manager at `target`, read every `interval`; without readings so far.
    #[must_use]
    pub fn new(target: &str, interval: Duration, now: Instant) -> Watch {
        Watch {
            target: target.to_owned(),
            interval,
            began: now,
            last: None,
            before: None,
            missing: None,
            ratios: VecDeque::new(),
            restarts: 0,
        }
    }

    /// Takes an answer of the manager, an exposition text; `at` has the times of question and answer.
    ///
    /// # Errors
    /// If the text cannot be read, or has no figures of a manager. It then counts as
    /// [`missed`](Watch::missed).
    pub fn take(&mut self, text: &str, at: Range<Instant>) -> Result<(), String> {
        let read = Exposition::parse(text).map_err(|refused| format!("its answer cannot be read: {refused}"));
        let reading = read.and_then(|text| {
            Reading::of(&text).ok_or_else(|| "it serves no metrics of a kvstrata manager".to_owned())
        });
        match reading {
            Ok(reading) => self.add(reading, at),
            Err(why) => {
                self.missed(why.clone());
                return Err(why);
            }
        }
        Ok(())
    }

    /// Records that no answer came.
    pub fn missed(&mut self, why: String) {
        let since = match (&self.missing, &self.last) {
            (Some((since, _)), _) => *since,
            (None, Some((heard, _))) => heard.end,
            (None, None) => self.began,
        };
        self.missing = Some((since, why));
        // However long the silence lasts, the history has one gap for it.
        if self.ratios.back().is_some_and(|ratios| !ratios.is_empty()) {
            self.push(Vec::new());
        }
    }

    fn add(&mut self, reading: Reading, at: Range<Instant>) {
        self.missing = None;
        self.before = self.last.take();
        if self.before.as_ref().is_some_and(|before| anew(before, (&at, &reading))) {
            self.restarts += 1;
            self.before = None;
        }
        if let Some((_, before)) = &self.before {
            let ratios = places(&reading).map(|(of, place)| part_found(of, before, place)).collect();
            self.push(ratios);
        }
        self.last = Some((at, reading));
    }

    fn push(&mut self, ratios: Vec<Option<f64>>) {
        if self.ratios.len() == KEPT {
            self.ratios.pop_front();
        }
        self.ratios.push_back(ratios);
    }

    /// The view at a moment.
    #[must_use]
    pub fn view(&self, now: Instant) -> View {
        let mut view = View {
            target: self.target.clone(),
            every_seconds: self.interval.as_secs_f64(),
            gone: self
                .missing
                .as_ref()
                .map(|(since, why)| Gone { seconds: seconds(*since, now), why: why.clone() }),
            restarts: self.restarts,
            ..View::default()
        };
        let Some((at, last)) = &self.last else { return view };
        let before = self.before.as_ref().map(|before| (between(before, (at, last)), &before.1));
        view.version.clone_from(&last.version);
        view.uptime_seconds = last.uptime;
        view.interval_seconds = before.map(|(seconds, _)| seconds);
        let before = Before(before);
        view.requests = Some(last.requests);
        view.tenant.clone_from(&last.tenant);
        view.tiers = last.tiers.iter().map(|tier| before.tier(tier)).collect();
        view.paths = last.paths.iter().map(|path| before.path(path)).collect();
        view.troubles = last.troubles.iter().map(|(what, count)| before.trouble(what, *count)).collect();
        view.hits = self.hits(last, before);
        view
    }

    /// Hits by place. A place without a tier is left out unless it had hits.
    fn hits(&self, last: &Reading, before: Before<'_>) -> Vec<HitView> {
        let there = |place: &str| last.tiers.iter().any(|tier| tier.name.split(' ').next() == Some(place));
        let shown = |of: &LookupReading, place: Option<&str>| {
            place.is_none_or(|place| there(place) || found(of, Some(place)) > 0.0)
        };
        let view = |(index, (of, place)): (usize, (&LookupReading, Option<&str>))| HitView {
            group: of.group.clone(),
            place: place.unwrap_or(ALL).to_owned(),
            now: before.0.and_then(|(_, before)| part_found(of, before, place)),
            overall: part_found(of, &Reading::default(), place),
            history: self.ratios.iter().map(|ratios| ratios.get(index).copied().flatten()).collect(),
        };
        places(last).enumerate().filter(|(_, (of, place))| shown(of, *place)).map(view).collect()
    }
}

/// The reading before the last, and the seconds between them.
#[derive(Clone, Copy)]
struct Before<'r>(Option<(f64, &'r Reading)>);

impl Before<'_> {
    /// The growth of a count in a second; `had` gives its earlier value, 0 if it is new.
    fn rate(self, count: f64, had: impl Fn(&Reading) -> Option<f64>) -> Option<f64> {
        let (seconds, before) = self.0?;
        (seconds > 0.0).then(|| (count - had(before).unwrap_or_default()).max(0.0) / seconds)
    }

    fn tier(self, tier: &TierReading) -> TierView {
        let had = |before: &Reading| Some(before.tiers.iter().find(|other| other.name == tier.name)?.evicted);
        TierView {
            tier: tier.name.clone(),
            blocks: tier.blocks as u64,
            in_use: tier.in_use as u64,
            inactive: tier.inactive as u64,
            free: tier.free as u64,
            evicted: tier.evicted as u64,
            evicted_per_second: self.rate(tier.evicted, had),
        }
    }

    fn path(self, path: &PathReading) -> PathView {
        fn same<'b>(before: &'b Reading, path: &PathReading) -> Option<&'b PathReading> {
            before.paths.iter().find(|other| other.name == path.name)
        }
        let latency = || {
            let (now, (_, before)) = (path.latency.as_ref()?, self.0?);
            let nothing = Buckets::default();
            Some(now.since(same(before, path).and_then(|path| path.latency.as_ref()).unwrap_or(&nothing)))
        };
        let latency = latency();
        let quantile = |part| latency.as_ref().and_then(|latency: &Buckets| latency.quantile(part));
        PathView {
            path: path.name.clone(),
            bytes_per_second: self.rate(path.bytes, |before| Some(same(before, path)?.bytes)),
            transfers_per_second: self.rate(path.transfers, |before| Some(same(before, path)?.transfers)),
            p50: quantile(0.5),
            p99: quantile(0.99),
            queued: path.queued as u64,
            inflight: path.inflight as u64,
        }
    }

    fn trouble(self, what: &str, count: f64) -> TroubleView {
        let had = |before: &Reading| {
            before.troubles.iter().find(|(other, _)| other == what).map(|(_, count)| *count)
        };
        let new = self.0.map(|(_, before)| (count - had(before).unwrap_or_default()).max(0.0) as u64);
        TroubleView { what: what.to_owned(), count: count as u64, new }
    }
}

/// The seconds between two readings of a process (I3).
fn between((then, before): &(Range<Instant>, Reading), (at, reading): (&Range<Instant>, &Reading)) -> f64 {
    let told = before.uptime.zip(reading.uptime).map(|(was, is)| is - was);
    told.unwrap_or_else(|| seconds(then.end, at.end))
        .min(seconds(then.start, at.end))
        .max(seconds(then.end, at.start))
}

/// Whether a reading is of another process than the reading before it.
fn anew((then, before): &(Range<Instant>, Reading), (at, reading): (&Range<Instant>, &Reading)) -> bool {
    let younger = match (before.uptime, reading.uptime) {
        (Some(was), Some(is)) => {
            let passed = seconds(then.end, at.start);
            is < was || is + SLACK.as_secs_f64() + passed / 100.0 < was + passed
        }
        _ => false,
    };
    // A version may not report its uptime. Then only a counter that has become smaller shows a restart.
    let transfers = |reading: &Reading| reading.paths.iter().map(|path| path.transfers).sum::<f64>();
    let evicted = |reading: &Reading| reading.tiers.iter().map(|tier| tier.evicted).sum::<f64>();
    let looked_up = |reading: &Reading| reading.lookups.iter().map(|of| of.asked).sum::<f64>();
    younger || [transfers, evicted, looked_up].iter().any(|count| count(reading) < count(before))
}

/// The places of each group, followed by `None` for all of them together; at most [`MOST`].
fn places(reading: &Reading) -> impl Iterator<Item = (&LookupReading, Option<&str>)> {
    let all = reading.lookups.iter().flat_map(|of| {
        let places = of.found.iter().map(|(place, _)| Some(place.as_str()));
        places.chain([None]).map(move |place| (of, place))
    });
    all.take(MOST)
}

/// Blocks found in a place; with `None`, in any.
fn found(of: &LookupReading, place: Option<&str>) -> f64 {
    let found = of.found.iter().filter(|(other, _)| place.is_none_or(|place| other == place));
    found.map(|(_, blocks)| blocks).sum()
}

/// The share of a group's look-ups since `before` that a place had, from 0 to 1; `None` without look-ups.
fn part_found(now: &LookupReading, before: &Reading, place: Option<&str>) -> Option<f64> {
    let (nothing, same) = (LookupReading::default(), |of: &&LookupReading| of.group == now.group);
    let before = before.lookups.iter().find(same).unwrap_or(&nothing);
    let asked = now.asked - before.asked;
    // The two counters are not read at the same instant, so the ratio is clamped.
    (asked > 0.0).then(|| ((found(now, place) - found(before, place)) / asked).clamp(0.0, 1.0))
}

fn seconds(since: Instant, now: Instant) -> f64 {
    now.saturating_duration_since(since).as_secs_f64()
}
