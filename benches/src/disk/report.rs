//! The tables as Markdown for people and as JSON for tools.

use super::checksum::Rate;
use super::ours::PREFIX;
use super::{Cell, Turn, size};
use crate::rounds::Spread;
use serde_json::{Value, json};
use std::fmt::Write;

/// The maximum of system calls a block at depth 32.
const CALLS_REACH: f64 = 0.2;
/// For urgent reads that are apart: the maximum share of fio's 99th percentile, and the minimum share of
/// its write rate.
const URGENT_REACH: (f64, f64) = (0.2, 0.8);

/// One contender's turns at a cell, one for each round.
#[derive(Clone, Debug)]
pub struct Series {
    /// The contender's name.
    pub name: String,
    /// In the order of the rounds.
    pub turns: Vec<Turn>,
}

/// A cell and all contenders that took turns at it; in each round all of them did. fio, if present, is
/// the first.
#[derive(Clone, Debug)]
pub struct Row {
    /// The cell.
    pub cell: Cell,
    /// The contenders.
    pub series: Vec<Series>,
}

/// The name of the limit of a verifying reader.
pub const LOOKED: &str = "a look";

/// Contenders that are not peers.
const NOT_PEERS: [&str; 3] = ["fio", LOOKED, "ours"];

/// The urgent reads that have a reach.
pub const OURS_APART: &str = "ours, urgent, 10 ms apart";

/// Urgent reads beside writes, a sample a round.
#[derive(Clone, Debug, Default)]
pub struct Urgent {
    /// The contender, and the kind of its reads.
    pub name: String,
    /// Median of a read, milliseconds.
    pub p50_ms: Vec<f64>,
    /// 99th percentile of a read, milliseconds.
    pub p99_ms: Vec<f64>,
    /// The writes meanwhile, GB/s.
    pub write_gb_per_s: Vec<f64>,
}

/// All results of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The machine.
    pub machine: String,
    /// The day.
    pub date: String,
    /// The command that repeats it.
    pub command: String,
    /// A description of each contender, and those that are missing, with the reason.
    pub notes: Vec<String>,
    /// Throughput.
    pub rows: Vec<Row>,
    /// Urgent reads: fio's, if present, are the first.
    pub urgent: Vec<Urgent>,
    /// Cold prefix: first block over one alone, all over one alone, one alone in ms.
    pub cold: Option<[Spread; 3]>,
    /// The checksum and memcpy.
    pub checksum: Vec<Rate>,
    /// System calls a block at 1 MiB, depth 32, by strace: reads, writes.
    pub strace: Option<[f64; 2]>,
}

impl Row {
    /// Returns the series of that name.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }

    /// Returns a series' throughput over another's, round by round.
    #[must_use]
    pub fn share(&self, name: &str, of: &str) -> Option<Spread> {
        let (ours, theirs) = (self.of(name)?, self.of(of)?);
        let rounds = ours.turns.iter().zip(&theirs.turns);
        Some(Spread::of(rounds.map(|(ours, theirs)| ours.gb_per_s() / theirs.gb_per_s())))
    }

    /// Returns the share of fio that ours is to reach.
    fn reach(&self) -> Option<f64> {
        match (self.cell.depth, self.cell.block_bytes) {
            (1, _) => Some(0.9),
            (_, bytes) if bytes >= 1 << 20 => Some(0.97),
            _ => Some(0.92),
        }
    }
}

impl Series {
    fn gb_per_s(&self) -> Spread {
        Spread::of(self.turns.iter().map(Turn::gb_per_s))
    }

    fn cpu(&self) -> Spread {
        Spread::of(self.turns.iter().map(Turn::cpu_a_gib))
    }

    fn calls_a_block(&self, block_bytes: usize) -> Option<Spread> {
        let calls = self.turns.iter().map(|turn| {
            turn.calls.map(|calls| calls as f64 / (turn.bytes as f64 / block_bytes as f64).max(1.0))
        });
        Some(Spread::of(calls.collect::<Option<Vec<_>>>()?))
    }
}

/// Formats `1.23 ±4 %`: half the distance of the quartiles.
fn off(Spread { low, median, high }: Spread) -> String {
    format!("{median:.2} ±{:.0} %", (high - low) / 2.0 / median * 100.0)
}

fn times(Spread { low, median, high }: Spread) -> String {
    format!("**{median:.2}** ({low:.2}–{high:.2})")
}

fn judged(value: f64, met: bool, sign: &str) -> String {
    format!("{sign} {value} {}", if met { "yes" } else { "no" })
}

fn cell(Cell { block_bytes, depth, way }: Cell) -> String {
    format!("{} {}, depth {depth}", way.word(), size(block_bytes))
}

impl Report {
    /// Formats the tables.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "{}, {}, `{}`\n", self.machine, self.date, self.command);
        for note in &self.notes {
            let _ = writeln!(out, "- {note}");
        }
        self.throughput(&mut out);
        self.peers(&mut out);
        self.latencies(&mut out);
        if !self.checksum.is_empty() {
            out += "\n| a core's own speed | GB/s |\n|---|---:|\n";
            for Rate { name, gb_per_s } in &self.checksum {
                let _ = writeln!(out, "| {name} | {} |", off(*gb_per_s));
            }
        }
        out
    }

    fn throughput(&self, out: &mut String) {
        *out += "\n| random slots | fio, GB/s | ours, GB/s | ours / fio | reach | a look / fio | CPU s a GiB: fio | ours | reach | calls a block |\n";
        *out += "|---|---:|---:|---|---|---|---:|---:|---|---:|\n";
        for row in &self.rows {
            let Some(ours) = row.of("ours") else { continue };
            let fio = row.of("fio");
            let share = row.share("ours", "fio");
            let reach = share.and_then(|share| Some((row.reach()?, share)));
            let cpu = fio.map(|fio| (fio.cpu().median + 0.05, ours.cpu().median));
            let calls = ours.calls_a_block(row.cell.block_bytes);
            let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
            let _ =
                writeln!(
                    out,
                    "| {} | {} | {} | {} | {} | {} | {} | {:.3} | {} | {} |",
                    cell(row.cell),
                    or_none(fio.map(|fio| off(fio.gb_per_s()))),
                    off(ours.gb_per_s()),
                    or_none(share.map(times)),
                    or_none(reach.map(|(reach, share)| judged(reach, share.median >= reach, "≥"))),
                    or_none(row.share(LOOKED, "fio").map(|Spread { low, median, high }| {
                        format!("{median:.2} ({low:.2}–{high:.2})")
                    })),
                    or_none(fio.map(|fio| format!("{:.3}", fio.cpu().median))),
                    ours.cpu().median,
                    or_none(cpu.map(|(reach, ours)| judged((reach * 1e3).round() / 1e3, ours <= reach, "≤"))),
                    or_none(calls.map(|calls| {
                        let judged = judged(CALLS_REACH, calls.median <= CALLS_REACH, "≤");
                        if row.cell.depth == 32 {
                            format!("{:.2} ({judged})", calls.median)
                        } else {
                            format!("{:.2}", calls.median)
                        }
                    })),
                );
        }
        if let Some([reads, writes]) = self.strace {
            let _ = writeln!(
                out,
                "\nAll calls of all threads at 1 MiB and depth 32, the caller's waits and wake-ups included, under strace: {reads:.2} a read, {writes:.2} a write."
            );
        }
    }

    /// Appends the contenders beside fio and ours, as shares of fio.
    fn peers(&self, out: &mut String) {
        let with_peers: Vec<&Row> = {
            let peer = |series: &Series| !NOT_PEERS.contains(&series.name.as_str());
            self.rows.iter().filter(|row| row.series.iter().any(peer)).collect()
        };
        if with_peers.is_empty() {
            return;
        }
        *out += "\n| beside peers | contender | GB/s | of fio | CPU s a GiB | ours is ahead | at ≤ half the CPU |\n|---|---|---:|---|---:|---|---|\n";
        for row in with_peers {
            let Some(ours) = row.of("ours") else { continue };
            for peer in &row.series {
                let share = row.share(&peer.name, "fio").map_or("–".to_owned(), times);
                let (mut ahead, mut cheaper) = (String::new(), String::new());
                if !NOT_PEERS.contains(&peer.name.as_str())
                    && let Some(by) = row.share("ours", &peer.name)
                {
                    ahead = format!("{:.2}× {}", by.median, if by.median > 1.0 { "yes" } else { "no" });
                    let cost = ours.cpu().median / peer.cpu().median;
                    cheaper = format!("{cost:.2}× {}", if cost <= 0.5 { "yes" } else { "no" });
                }
                let (rate, cpu) = (off(peer.gb_per_s()), peer.cpu().median);
                let what = cell(row.cell);
                let _ = writeln!(
                    out,
                    "| {what} | {} | {rate} | {share} | {cpu:.3} | {ahead} | {cheaper} |",
                    peer.name
                );
            }
        }
    }

    fn latencies(&self, out: &mut String) {
        if !self.urgent.is_empty() {
            *out += "\n| 1 MiB reads beside writes of 1 MiB at depth 32 | p50, ms | p99, ms | of fio's p99 | write, GB/s | of fio's |\n";
            *out += "|---|---:|---:|---|---:|---|\n";
        }
        let fio = self.urgent.first().filter(|first| first.name.starts_with("fio"));
        for Urgent { name, p50_ms, p99_ms, write_gb_per_s } in &self.urgent {
            let of = |mine: &[f64], theirs: fn(&Urgent) -> &[f64]| {
                fio.map(|fio| Spread::of(mine.iter().zip(theirs(fio)).map(|(mine, fio)| mine / fio)))
            };
            let (latency, rate) =
                (of(p99_ms, |fio| &fio.p99_ms), of(write_gb_per_s, |fio| &fio.write_gb_per_s));
            let judge = |share: Option<Spread>, met: fn(f64) -> bool, reach: f64, sign: &str| {
                let Some(share) = share else { return "–".to_owned() };
                match name == OURS_APART {
                    true => format!("{}, {}", times(share), judged(reach, met(share.median), sign)),
                    false => times(share),
                }
            };
            let spread = |samples: &[f64]| off(Spread::of(samples.iter().copied()));
            let _ = writeln!(
                out,
                "| {name} | {} | {} | {} | {} | {} |",
                spread(p50_ms),
                spread(p99_ms),
                judge(latency, |share| share <= URGENT_REACH.0, URGENT_REACH.0, "≤"),
                spread(write_gb_per_s),
                judge(rate, |share| share >= URGENT_REACH.1, URGENT_REACH.1, "≥"),
            );
        }
        if let Some([first, all, alone]) = self.cold {
            let met = if first.median <= 2.0 { "yes" } else { "no" };
            let _ = writeln!(
                out,
                "\nA cold prefix of {PREFIX} blocks of 1 MiB, asked for at once: the first is usable after {}× one block's read alone \
                 ({} ms; reach ≤ 2: {met}), the last after {}×.",
                times(first),
                off(alone),
                times(all),
            );
        }
    }

    /// Formats the tables for tools.
    #[must_use]
    pub fn json(&self) -> Value {
        let spread = |samples: &[f64]| Spread::of(samples.iter().copied()).json();
        let series = |row: &Row, series: &Series| {
            json!({
                "who": series.name, "gb_per_s": series.gb_per_s().json(), "cpu_s_per_gib": series.cpu().json(),
                "of_fio": row.share(&series.name, "fio").map(|share| share.json()),
                "calls_per_block": series.calls_a_block(row.cell.block_bytes).map(|calls| calls.json()),
            })
        };
        let rows = self.rows.iter().map(|row| {
            let Cell { block_bytes, depth, way } = row.cell;
            let series: Vec<Value> = row.series.iter().map(|one| series(row, one)).collect();
            json!({ "way": way.word(), "block_bytes": block_bytes, "depth": depth, "reach_of_fio": row.reach(), "series": series })
        });
        let urgent = self.urgent.iter().map(|urgent| {
            json!({
                "who": urgent.name, "p50_ms": spread(&urgent.p50_ms), "p99_ms": spread(&urgent.p99_ms),
                "write_gb_per_s": spread(&urgent.write_gb_per_s),
            })
        });
        let cold = self.cold.map(|[first, all, alone]| {
            json!({
                "blocks": PREFIX, "first_over_alone": first.json(), "all_over_alone": all.json(), "alone_ms": alone.json(),
            })
        });
        let checksum =
            self.checksum.iter().map(|rate| json!({ "what": rate.name, "gb_per_s": rate.gb_per_s.json() }));
        json!({
            "machine": self.machine, "date": self.date, "command": self.command, "notes": self.notes,
            "throughput": rows.collect::<Vec<_>>(), "urgent": urgent.collect::<Vec<_>>(), "cold_prefix": cold,
            "checksum": checksum.collect::<Vec<_>>(), "strace_calls_per_block": self.strace,
        })
    }
}
