//! A replay over time: how full each tier was, what it hit, and what moved.
//!
//! Fill and hits are over the trace's time: they are a function of the trace, and the same however fast a run is. Bandwidth is the
//! machine's, and over the run's own time. A trace without times has its requests' numbers instead.

use super::Drawing;
use super::panel::{Axis, Line, Look, Panel};
use crate::figures::count;
use crate::replay::{ByTier, Report, Sample};
use crate::tier::Tier;

/// Windows over which hits and bytes are added up.
const WINDOWS: usize = 60;

/// Time, or what stands for it: the axis's label, and where each sample is.
struct Scale {
    label: &'static str,
    at: Vec<f64>,
}

impl Scale {
    fn of_trace(samples: &[Sample]) -> Scale {
        let seconds: Vec<f64> = samples.iter().map(|sample| sample.trace_time.as_secs_f64()).collect();
        match seconds.last() {
            Some(last) if *last > 0.0 => Scale::of_seconds(
                seconds,
                ["time in the trace, s", "time in the trace, min", "time in the trace, h"],
            ),
            _ => Scale {
                label: "requests served",
                at: samples.iter().map(|sample| sample.requests as f64).collect(),
            },
        }
    }

    fn of_run(samples: &[Sample]) -> Scale {
        let seconds = samples.iter().map(|sample| sample.wall_time.as_secs_f64()).collect();
        Scale::of_seconds(seconds, ["time of this run, s", "time of this run, min", "time of this run, h"])
    }

    fn of_seconds(seconds: Vec<f64>, labels: [&'static str; 3]) -> Scale {
        let (unit, divisor) = match seconds.last().copied().unwrap_or(0.0) {
            ..=180.0 => (0, 1.0),
            ..=10_800.0 => (1, 60.0),
            _ => (2, 3600.0),
        };
        Scale { label: labels[unit], at: seconds.into_iter().map(|at| at / divisor).collect() }
    }

    fn axis(&self) -> Axis {
        let last = self.at.last().copied().unwrap_or(0.0);
        let mut axis = Axis::linear(self.label, last, 1e-3, plain);
        axis.ticks.retain(|(at, _)| *at <= last);
        axis.to = last.max(1e-3);
        axis
    }

    /// The first and the last sample of each window, and its middle: what is between two samples is in the window of the later one.
    fn windows(&self) -> impl Iterator<Item = (usize, usize, f64)> {
        let last = self.at.last().copied().unwrap_or(0.0);
        let mut from = 0;
        (1..=WINDOWS).filter_map(move |nth| {
            let end = last * nth as f64 / WINDOWS as f64;
            let to = self.at.partition_point(|at| *at <= end + 1e-9 * last).saturating_sub(1);
            let window = (to > from).then_some((from, to, end - last / (2 * WINDOWS) as f64));
            from = from.max(to);
            window
        })
    }
}

pub(in crate::cli) fn flow(report: &Report, samples: &[Sample]) -> Drawing {
    let (trace, run) = (Scale::of_trace(samples), Scale::of_run(samples));
    let asked = &report.settings;
    let title = format!(
        "{} requests, policy {}; device {}, host {}, disk {} blocks",
        count(report.requests),
        asked.policy,
        count(u64::from(asked.device_blocks)),
        count(u64::from(asked.host_blocks)),
        count(u64::from(asked.disk_blocks))
    );
    Drawing {
        trace: report.trace.clone(),
        title,
        panels: vec![
            fill(report, samples, &trace),
            hits(report, samples, &trace),
            bandwidth(report, samples, &run),
        ],
    }
}

/// The tiers that there are, and their blocks.
fn tiers(report: &Report) -> impl Iterator<Item = (Tier, u32)> + use<> {
    let asked = &report.settings;
    let blocks = [asked.device_blocks, asked.host_blocks, asked.disk_blocks];
    Tier::ALL.into_iter().zip(blocks).filter(|(_, blocks)| *blocks > 0)
}

fn of(tier: Tier, numbers: &ByTier) -> u64 {
    match tier {
        Tier::Device => numbers.device,
        Tier::Host => numbers.host,
        Tier::Disk => numbers.disk,
    }
}

fn named(tier: Tier) -> &'static str {
    match tier {
        Tier::Device => "device (G1)",
        Tier::Host => "host (G2)",
        Tier::Disk => "disk (G3)",
    }
}

fn fill(report: &Report, samples: &[Sample], scale: &Scale) -> Panel {
    let lines = tiers(report).map(|(tier, blocks)| Line {
        name: named(tier).to_owned(),
        points: samples
            .iter()
            .zip(&scale.at)
            .map(|(sample, at)| (*at, 100.0 * of(tier, &sample.filled_blocks) as f64 / f64::from(blocks)))
            .collect(),
        look: Look::nth(tier as usize),
    });
    Panel {
        height: 250,
        title: "Fill: blocks that a tier has",
        x: scale.axis(),
        y: Axis::linear("% of its capacity", 100.0, 100.0, plain),
        lines: lines.collect(),
    }
}

fn hits(report: &Report, samples: &[Sample], scale: &Scale) -> Panel {
    let line = |name: &str, look, hits: &dyn Fn(&ByTier) -> u64| Line {
        name: name.to_owned(),
        points: scale
            .windows()
            .filter_map(|(from, to, at)| {
                let blocks = samples[to].blocks - samples[from].blocks;
                let hits = hits(&samples[to].hits) - hits(&samples[from].hits);
                (blocks > 0).then(|| (at, 100.0 * hits as f64 / blocks as f64))
            })
            .collect(),
        look,
    };
    let mut lines = vec![line("all tiers", Look::MEASURE, &|hits| hits.device + hits.host + hits.disk)];
    lines.extend(
        tiers(report).map(|(tier, _)| line(named(tier), Look::nth(tier as usize), &|hits| of(tier, hits))),
    );
    let most = highest(&lines);
    Panel {
        height: 270,
        title: "Hits: blocks of requests that a tier had",
        x: scale.axis(),
        y: Axis::linear("% of requested blocks", most, 1.0, plain),
        lines,
    }
}

fn bandwidth(report: &Report, samples: &[Sample], scale: &Scale) -> Panel {
    // Whatever the axis's unit, a rate is by the second.
    let rate = |from: usize, to: usize, bytes: u64| {
        let seconds = (samples[to].wall_time - samples[from].wall_time).as_secs_f64();
        if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 }
    };
    type Bytes = fn(&Sample) -> u64;
    let paths: [(&str, u64, Bytes); 5] = [
        ("device → host", report.bytes.device_to_host, |sample| sample.bytes.device_to_host),
        ("host → disk", report.bytes.host_to_disk, |sample| sample.bytes.host_to_disk),
        ("disk → host", report.bytes.disk_to_host, |sample| sample.bytes.disk_to_host),
        ("host → device", report.bytes.host_to_device, |sample| sample.bytes.host_to_device),
        ("filled: computed", report.bytes.filled, |sample| sample.bytes.filled),
    ];
    let paths = paths.into_iter().enumerate().filter(|(_, (_, moved, _))| *moved > 0);
    let mut lines: Vec<Line> = paths
        .map(|(nth, (name, _, bytes))| Line {
            name: name.to_owned(),
            points: scale
                .windows()
                .map(|(from, to, at)| (at, rate(from, to, bytes(&samples[to]) - bytes(&samples[from]))))
                .collect(),
            look: Look::nth(nth),
        })
        .collect();
    let most = highest(&lines);
    let units = [("GiB/s", 1u64 << 30), ("MiB/s", 1 << 20), ("KiB/s", 1 << 10)];
    let (unit, divisor) =
        units.into_iter().find(|(_, bytes)| most >= *bytes as f64).unwrap_or(("bytes/s", 1));
    for point in lines.iter_mut().flat_map(|line| &mut line.points) {
        point.1 /= divisor as f64;
    }
    Panel {
        height: 290,
        title: "Bandwidth: bytes moved, by path",
        x: scale.axis(),
        y: Axis::linear(unit, most / divisor as f64, 1e-3, plain),
        lines,
    }
}

fn highest(lines: &[Line]) -> f64 {
    lines.iter().flat_map(|line| &line.points).fold(0.0, |most: f64, (_, y)| most.max(*y))
}

/// A tick's number: no more digits than its step has.
fn plain(number: f64) -> String {
    format!("{}", (number * 1e6).round() / 1e6)
}
