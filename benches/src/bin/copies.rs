//! The CPU executor beside memcpy and the machine's limit, in turns; and the costs of plans.
//! `benches/run --copies` calls it.

use kvstrata_benches::copies::{Blocks, Copy, How, Memory, Way};
use kvstrata_benches::machine;
use kvstrata_benches::plans::{Iterate, Plan, Visit};
use kvstrata_benches::rounds::{Effort, Samples, Spread};
use kvstrata_benches::work::Timed;
use kvstrata_core::layout::HeadOrder::{Hnd, Nhd};
use kvstrata_ffi::copy::HostCopy;
use serde_json::json;
use std::error::Error;
use std::{env, fs};

const USAGE: &str = "copies [--quick] [--json FILE]";

struct Row {
    name: String,
    /// GB/s, or nanoseconds.
    value: Spread,
    /// Ratios to memcpy over the same pieces and to the limit, or to the plain copy.
    ratios: Vec<(&'static str, Spread)>,
    reach: &'static str,
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut effort, mut json, mut command) =
        (Effort { rounds: 31, ..Effort::FULL }, None, "benches/run --copies".to_owned());
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => (effort, command) = (Effort { rounds: 7, ..Effort::QUICK }, command + " --quick"),
            "--json" => json = Some(arguments.next().ok_or(USAGE)?),
            _ => return Err(format!("{argument}: unknown; usage: {USAGE}").into()),
        }
    }
    let (machine, date) = (machine::describe(), machine::today());
    println!("{machine}, {date}, `{command}`; {} stores\n", HostCopy::new().path());
    let copies = copies(effort);
    println!("| copy of 640 MiB | GB/s | compared with | reach |\n|---|---:|---|---|");
    print(&copies);
    let plans = plans(effort);
    println!("\n| plan of 1,024 blocks × 80 layers | | | reach |\n|---|---:|---|---|");
    print(&plans);
    if let Some(path) = json {
        let row = |row: &Row| {
            let ratios = row.ratios.iter().map(|(to, ratio)| ((*to).to_owned(), ratio.json()));
            let ratios: serde_json::Map<_, _> = ratios.collect();
            json!({ "what": row.name, "value": row.value.json(), "ratios": ratios, "reach": row.reach })
        };
        let rows = |rows: &[Row]| rows.iter().map(row).collect::<Vec<_>>();
        let all = json!({
            "machine": machine, "date": date, "command": command,
            "copies_gb_per_s": rows(&copies), "plans_ns": rows(&plans),
        });
        fs::write(&path, format!("{all:#}\n")).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

fn print(rows: &[Row]) {
    for Row { name, value, ratios, reach } in rows {
        let off = (value.high - value.low) / 2.0 / value.median * 100.0;
        let ratio = |(to, ratio): &(&str, Spread)| {
            format!("**{:.2}×** {to} ({:.2}–{:.2})", ratio.median, ratio.low, ratio.high)
        };
        let ratios: Vec<String> = ratios.iter().map(ratio).collect();
        println!("| {name} | {:.2} ±{off:.0} % | {} | {reach} |", value.median, ratios.join(", "));
    }
}

/// One table, all contenders in turns.
fn copies(effort: Effort) -> Vec<Row> {
    let memory = Memory::default();
    let ours = HostCopy::new();
    let scattered = memory.plan(Way::Out, Blocks::Scattered, Nhd);
    let ascending = memory.plan(Way::Out, Blocks::Ascending, Nhd);
    let back = memory.plan(Way::In, Blocks::Scattered, Nhd);
    let to_hnd = memory.plan(Way::Out, Blocks::Scattered, Hnd);
    let from_hnd = memory.plan(Way::In, Blocks::Scattered, Hnd);
    let copy = |plan, how| Copy { plan, how, memory: &memory };
    let (vs_memcpy, vs_limit, vs_plain) = ("memcpy", "the limit", "the same, not permuted");
    // Name, contender, and which contenders it is compared with.
    type Entry<'a> = (&'a str, Box<dyn Timed + 'a>, Vec<(&'static str, usize)>, &'static str);
    let mut entries: Vec<Entry<'_>> = vec![
        ("the limit: non-temporal, one stretch to another", Box::new(memory.limit()), vec![], ""),
        ("memcpy, scattered blocks", Box::new(copy(&scattered, How::Memcpy)), vec![], ""),
        (
            "plain non-temporal loop, scattered blocks",
            Box::new(copy(&scattered, How::PlainStream)),
            vec![],
            "",
        ),
        (
            "layers to contiguous, scattered blocks",
            Box::new(copy(&scattered, How::Ours(ours))),
            vec![
                (vs_memcpy, 1),
                (vs_limit, 0),
                ("a plain non-temporal loop", 2),
                ("reading them alone, one after another", 13),
            ],
            "≥ 1.3×, ≥ 0.9×",
        ),
        ("memcpy, ascending blocks", Box::new(copy(&ascending, How::Memcpy)), vec![], ""),
        (
            "layers to contiguous, ascending blocks",
            Box::new(copy(&ascending, How::Ours(ours))),
            vec![(vs_memcpy, 4), (vs_limit, 0)],
            "≥ 1.3×, ≥ 0.9×",
        ),
        ("memcpy, back", Box::new(copy(&back, How::Memcpy)), vec![], ""),
        (
            "contiguous to layers, scattered blocks",
            Box::new(copy(&back, How::Ours(ours))),
            vec![(vs_memcpy, 6), (vs_limit, 0)],
            "",
        ),
        ("NHD to HND", Box::new(copy(&to_hnd, How::Ours(ours))), vec![(vs_plain, 3)], "≥ 0.5×"),
        ("HND to NHD", Box::new(copy(&from_hnd, How::Ours(ours))), vec![(vs_plain, 7)], "≥ 0.5×"),
        (
            "with its checksum",
            Box::new(copy(&scattered, How::Checked(ours))),
            vec![("without", 3), (vs_memcpy, 1)],
            "",
        ),
        ("1 thread, by the wall", Box::new(copy(&scattered, How::Threads(ours, 1))), vec![], ""),
        (
            "2 threads, by the wall",
            Box::new(copy(&scattered, How::Threads(ours, 2))),
            vec![("1 thread", 11)],
            "",
        ),
        (
            "reading alone: the same pieces one after another, nothing written",
            Box::new(copy(&scattered, How::ReadAlone)),
            vec![],
            "",
        ),
        ("reading alone: one stretch", Box::new(memory.reads(u64::MAX)), vec![], ""),
        (
            "reading alone: 256 KiB each, in no order",
            Box::new(memory.reads(256 << 10)),
            vec![("one stretch", 14)],
            "",
        ),
        (
            "reading alone: 32 KiB each, in no order",
            Box::new(memory.reads(32 << 10)),
            vec![("one stretch", 14)],
            "",
        ),
        (
            "reading alone: 8 KiB each, in no order",
            Box::new(memory.reads(8 << 10)),
            vec![("one stretch", 14)],
            "",
        ),
    ];
    let samples = {
        let mut contenders: Vec<&mut dyn Timed> = Vec::new();
        for entry in &mut entries {
            contenders.push(&mut *entry.1);
        }
        Samples::take(effort, &mut contenders)
    };
    let rows = entries.iter().enumerate().map(|(who, (name, contender, to, reach))| {
        let Spread { low, median, high } = samples.time(who);
        let rate = |ns: f64| contender.items() as f64 / ns;
        Row {
            name: (*name).to_owned(),
            value: Spread { low: rate(high), median: rate(median), high: rate(low) },
            ratios: to.iter().map(|(name, other)| (*name, samples.times(*other, who))).collect(),
            reach,
        }
    });
    rows.collect()
}

fn plans(effort: Effort) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, mut plan) in Plan::all() {
        let took = kvstrata_benches::rounds::alone(effort, &mut plan);
        rows.push(Row {
            name: format!("replan, {name}, ns"),
            value: took,
            ratios: vec![],
            reach: "≤ 20,000",
        });
    }
    for even in [true, false] {
        for visit in [Visit::Next, Visit::ForEach] {
            let mut walk = Iterate::new(even, visit);
            let took = kvstrata_benches::rounds::alone(effort, &mut walk);
            let pieces = Timed::items(&walk) as f64;
            let Spread { low, median, high } = took;
            let value = Spread { low: low / pieces, median: median / pieces, high: high / pieces };
            let layers = if even { "evenly spaced" } else { "anywhere" };
            rows.push(Row {
                name: format!("a piece, {visit:?}, layers {layers}, ns"),
                value,
                ratios: vec![],
                reach: "≤ 2",
            });
        }
    }
    rows
}
