//! A replay over time: the fill of each tier, its hits, and the bandwidth of each path.
//!
//! Fill and hits are drawn over the time of the trace: they are a function of the trace, however fast a
//! run is. Bandwidth depends on the machine and is drawn over the time of the run. For a trace without
//! times, the number of requests served replaces the time.
//!
//! In a window of the trace in which no request ended there is no hit ratio. The line has a gap there,
//! and the title of the panel says so. A rate has no gaps: between the ends of two requests, bytes count
//! as if they had moved evenly. So a rate is low or 0 while no request came or the run stood still, and
//! the windows add up to all bytes moved.

use super::Drawing;
use super::panel::{Axis, Line, Look, Panel};
use crate::replay::{ByTier, Report, Sample};
use kvstrata::shared::figures::count;
use kvstrata::tier::Tier;

/// The most windows over which hits and bytes are added up.
const WINDOWS: usize = 60;
/// Samples that a window should have; with fewer there would be more gaps than line.
const SAMPLES: usize = 4;
/// Different times that a window should have. If the trace has a time stamp every few seconds only, a
/// shorter window may have none even though requests came.
const TIMES: usize = 2;

/// Time, or the number of requests in its place: the label of the axis, and the position of each sample.
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

    fn windows(&self) -> usize {
        let times = self.at.chunk_by(|one, next| one == next).count();
        (self.at.len() / SAMPLES).min(times / TIMES).clamp(1, WINDOWS)
    }

    /// The growth of a count in each window, at the middle of the window. Between two
    /// samples a count grows evenly.
    fn grown(&self, counted: impl Fn(usize) -> u64) -> Vec<(f64, f64)> {
        let (Some(last), windows) = (self.at.last(), self.windows()) else { return Vec::new() };
        let by = |time: f64| {
            let after = self.at.partition_point(|at| *at < time).min(self.at.len() - 1);
            let before = after.saturating_sub(1);
            let part = match self.at[after] - self.at[before] {
                apart if apart > 0.0 => ((time - self.at[before]) / apart).min(1.0),
                _ => 1.0,
            };
            counted(before) as f64 + part * (counted(after) - counted(before)) as f64
        };
        let width = last / windows as f64;
        let ends = (0..=windows).map(|nth| width * nth as f64);
        let ends: Vec<(f64, f64)> = ends.map(|end| (end, by(end))).collect();
        ends.windows(2).map(|pair| (pair[1].0 - width / 2.0, pair[1].1 - pair[0].1)).collect()
    }

    /// The value from the last sample before each window to the last one in it, at the middle of the
    /// window. Events between two samples count for the window of the later one. A window without a
    /// sample or a value ends a stretch.
    fn stretches(&self, value: impl Fn(usize, usize) -> Option<f64>) -> Vec<Vec<(f64, f64)>> {
        let last = self.at.last().copied().unwrap_or(0.0);
        let windows = self.windows();
        let (mut from, mut all) = (0, vec![Vec::new()]);
        for nth in 1..=windows {
            let end = last * nth as f64 / windows as f64;
            let to = self.at.partition_point(|at| *at <= end + 1e-9 * last).saturating_sub(1);
            let value = (to > from).then(|| value(from, to)).flatten();
            match (value, all.last_mut()) {
                (Some(value), Some(stretch)) => stretch.push((end - last / (2 * windows) as f64, value)),
                _ => all.push(Vec::new()),
            }
            from = from.max(to);
        }
        all.retain(|stretch| !stretch.is_empty());
        all
    }
}

pub(in crate::command) fn flow(report: &Report, samples: &[Sample]) -> Drawing {
    let (trace, run) = (Scale::of_trace(samples), Scale::of_run(samples));
    let asked = &report.settings;
    let title = format!(
        "{} requests{}, policy {}; device {}, host {}, disk {} blocks",
        count(report.requests),
        if report.interrupted { " (interrupted)" } else { "" },
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

/// The tiers of the replay, and their blocks.
fn tiers(report: &Report) -> impl Iterator<Item = (Tier, u32)> + use<> {
    let asked = &report.settings;
    let blocks = [asked.device_blocks, asked.host_blocks, asked.disk_blocks];
    Tier::OF_SETTINGS.into_iter().zip(blocks).filter(|(_, blocks)| *blocks > 0)
}

fn of(tier: Tier, numbers: &ByTier) -> u64 {
    match tier {
        Tier::Device => numbers.device,
        Tier::Host => numbers.host,
        Tier::Below(_) => numbers.disk,
    }
}

fn named(tier: Tier) -> &'static str {
    match tier {
        Tier::Device => "device (G1)",
        Tier::Host => "host (G2)",
        Tier::Below(_) => "disk (G3)",
    }
}

fn fill(report: &Report, samples: &[Sample], scale: &Scale) -> Panel {
    let lines = tiers(report).map(|(tier, blocks)| Line {
        name: named(tier).to_owned(),
        stretches: vec![
            samples
                .iter()
                .zip(&scale.at)
                .map(|(sample, at)| (*at, 100.0 * of(tier, &sample.filled_blocks) as f64 / f64::from(blocks)))
                .collect(),
        ],
        look: Look::nth(tier.index()),
    });
    Panel {
        height: 250,
        title: "Fill: blocks in each tier",
        x: scale.axis(),
        y: Axis::linear("% of its capacity", 100.0, 100.0, plain),
        lines: lines.collect(),
    }
}

fn hits(report: &Report, samples: &[Sample], scale: &Scale) -> Panel {
    let line = |name: &str, look, hits: &dyn Fn(&ByTier) -> u64| Line {
        name: name.to_owned(),
        stretches: scale.stretches(|from, to| {
            let blocks = samples[to].blocks - samples[from].blocks;
            let hits = hits(&samples[to].hits) - hits(&samples[from].hits);
            (blocks > 0).then(|| 100.0 * hits as f64 / blocks as f64)
        }),
        look,
    };
    let mut lines = vec![line("all tiers", Look::MEASURE, &|hits| hits.device + hits.host + hits.disk)];
    lines.extend(
        tiers(report).map(|(tier, _)| line(named(tier), Look::nth(tier.index()), &|hits| of(tier, hits))),
    );
    let most = highest(&lines);
    // All lines have the same gaps.
    let gaps = lines[0].stretches.len() > 1;
    Panel {
        height: 270,
        title: match gaps {
            true => "Hits: requested blocks that a tier had (a gap: no request ended)",
            false => "Hits: requested blocks that a tier had",
        },
        x: scale.axis(),
        y: Axis::linear("% of requested blocks", most, 1.0, plain),
        lines,
    }
}

fn bandwidth(report: &Report, samples: &[Sample], scale: &Scale) -> Panel {
    // Rates are per second, whatever the unit of the axis.
    let seconds = samples.last().map_or(0.0, |last| last.wall_time.as_secs_f64()) / scale.windows() as f64;
    let rate = |bytes: f64| if seconds > 0.0 { bytes / seconds } else { 0.0 };
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
            stretches: vec![
                scale
                    .grown(|nth| bytes(&samples[nth]))
                    .into_iter()
                    .map(|(at, bytes)| (at, rate(bytes)))
                    .collect(),
            ],
            look: Look::nth(nth),
        })
        .collect();
    let most = highest(&lines);
    let units = [("GiB/s", 1u64 << 30), ("MiB/s", 1 << 20), ("KiB/s", 1 << 10)];
    let (unit, divisor) =
        units.into_iter().find(|(_, bytes)| most >= *bytes as f64).unwrap_or(("bytes/s", 1));
    for point in lines.iter_mut().flat_map(|line| line.stretches.iter_mut().flatten()) {
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
    lines.iter().flat_map(|line| line.stretches.iter().flatten()).fold(0.0, |most: f64, (_, y)| most.max(*y))
}

/// The number at a tick, with at most six decimals.
fn plain(number: f64) -> String {
    format!("{}", (number * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_a_gap_while_no_request_ended() {
        // A sample a second, except for half a minute in the middle.
        let at: Vec<f64> = (0..=240).filter(|at| !(100..130).contains(at)).map(f64::from).collect();
        let scale = Scale { label: "s", at };
        let counted = scale.stretches(|from, to| Some((to - from) as f64));
        let ends: Vec<f64> =
            counted.iter().flat_map(|stretch| [stretch[0].0, stretch[stretch.len() - 1].0]).collect();
        assert_eq!(counted.len(), 2, "{counted:?}");
        assert!(ends[1] < 100.0 && ends[2] > 128.0, "{ends:?}");
        let all: f64 = counted.iter().flatten().map(|(_, samples)| samples).sum();
        assert_eq!(all, (scale.at.len() - 1) as f64, "each is in one window");
        assert!(scale.stretches(|_, _| None).is_empty());
    }

    /// A rate is known even while no request ended: 10 bytes were moved in that half
    /// minute, 1 in each other second.
    #[test]
    fn rate_has_no_gap_while_no_request_ended() {
        let at: Vec<f64> = (0..=240).filter(|at| !(100..130).contains(at)).map(f64::from).collect();
        let counted: Vec<u64> = at.iter().map(|at| *at as u64 - if *at < 100.0 { 0 } else { 21 }).collect();
        let scale = Scale { label: "s", at };
        let grown = scale.grown(|nth| counted[nth]);
        assert_eq!((grown.len(), scale.windows()), (52, 52), "a point each");
        let width = 240.0 / 52.0;
        for (at, grown) in &grown {
            let stalls = (102.0..127.0).contains(at);
            let rate = grown / width;
            match stalls {
                true => assert!((rate - 10.0 / 31.0).abs() < 0.1, "{at}: {rate}"),
                false if (96.0..133.0).contains(at) => {}
                false => assert!((rate - 1.0).abs() < 1e-9, "{at}: {rate}"),
            }
        }
        let all: f64 = grown.iter().map(|(_, grown)| grown).sum();
        assert!((all - 219.0).abs() < 1e-9, "{all}");
        // If no byte moved, the rate is 0 and not missing.
        assert!(scale.grown(|_| 7).iter().all(|(_, grown)| *grown == 0.0));
        assert_eq!(Scale { label: "s", at: vec![0.0, 0.0] }.grown(|nth| nth as u64), [(0.0, 0.0)]);
    }

    /// A time stamp every three seconds with nine requests, about as in the bundled trace.
    #[test]
    fn line_has_no_gap_between_two_time_stamps() {
        for stamps in [11, 55, 400] {
            let at = (0..9 * stamps).map(|nth| f64::from(nth / 9 * 3)).collect();
            let stretches = Scale { label: "s", at }.stretches(|_, _| Some(1.0));
            assert_eq!(stretches.len(), 1, "{stamps} stamps: {stretches:?}");
        }
    }

    #[test]
    fn single_point_and_covered_line_are_visible() {
        let line = |look| Line { name: "all".to_owned(), stretches: vec![vec![(1.0, 1.0)]], look };
        let panel = Panel {
            height: 200,
            title: "one",
            x: Axis::linear("x", 2.0, 1.0, plain),
            y: Axis::linear("y", 2.0, 1.0, plain),
            lines: vec![line(Look::MEASURE), line(Look::nth(0))],
        };
        let drawing = Drawing { trace: "t".to_owned(), title: "one".to_owned(), panels: vec![panel] };
        let svg = String::from_utf8(super::super::svg(&drawing).expect("drawn")).expect("UTF-8");
        let marks = svg.matches("<circle ").count() + svg.matches("<polygon ").count();
        assert_eq!(marks, 2, "{svg}");
        assert!(svg.contains("stroke-width=\"5\"") && svg.contains("stroke-width=\"2\""), "{svg}");
    }
}
