//! Each operation at 1 Ki, 64 Ki, 1 Mi and 16 Mi blocks: which costs grow with the pool, and which do
//! not. `benches/run --curve` calls it.

use kvstrata_benches::floor::Touch;
use kvstrata_benches::rounds::{Effort, Spread, alone};
use kvstrata_benches::{CYCLE, PREFIX, machine, ours};
use serde_json::json;
use std::error::Error;
use std::{env, fs};

const USAGE: &str = "curve [--quick] [--json FILE]";
/// The last one takes 2 GiB, and a quick run leaves it out.
const CAPACITIES: [u32; 4] = [1 << 10, 1 << 16, 1 << 20, 1 << 24];
const COLUMNS: [(&str, usize); 6] = [
    ("allocate + free 1", 1),
    ("allocate + free 64", 64),
    ("life cycle × 16", CYCLE),
    ("match 128, inactive, release", PREFIX),
    ("match 128, active, release", PREFIX),
    ("limit: 128 buckets and slots touched", PREFIX),
];

fn main() -> Result<(), Box<dyn Error>> {
    let (mut effort, mut capacities, mut json) =
        (Effort { rounds: 21, ..Effort::FULL }, CAPACITIES.as_slice(), None);
    let mut command = "benches/run --curve".to_owned();
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => {
                (effort, capacities, command) = (Effort::QUICK, &CAPACITIES[..3], command + " --quick")
            }
            "--json" => json = Some(arguments.next().ok_or(USAGE)?),
            _ => return Err(format!("{argument}: unknown; usage: {USAGE}").into()),
        }
    }
    let (machine, date) = (machine::describe(), machine::today());
    println!("{machine}, {date}, `{command}`; nanoseconds a block\n");
    println!("| blocks | {} |", COLUMNS.map(|(name, _)| name).join(" | "));
    println!("|---:|{}", "---:|".repeat(COLUMNS.len()));
    let mut rows = Vec::new();
    for capacity in capacities {
        let times = point(effort, *capacity);
        let cells = times.map(|time| {
            format!("{:.2} ±{:.0} %", time.median, (time.high - time.low) / 2.0 / time.median * 100.0)
        });
        println!("| {capacity} | {} |", cells.join(" | "));
        let named = COLUMNS.iter().zip(times).map(|((name, _), time)| ((*name).to_owned(), time.json()));
        rows.push(json!({ "blocks": capacity, "ns_a_block": named.collect::<serde_json::Map<_, _>>() }));
    }
    if let Some(path) = json {
        let curve = json!({ "machine": machine, "date": date, "command": command, "rows": rows });
        fs::write(&path, format!("{curve:#}\n")).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

/// All columns at one capacity, nanoseconds a block.
fn point(effort: Effort, capacity: u32) -> [Spread; COLUMNS.len()] {
    let pool = ours::pool(capacity);
    let one = alone(effort, &mut ours::AllocateFree::new(&pool, 1));
    let many = alone(effort, &mut ours::AllocateFree::new(&pool, 64));
    let prefixes = ours::fill(&pool);
    let inactive = alone(effort, &mut ours::MatchPrefix::inactive(&pool, &prefixes));
    let active = alone(effort, &mut ours::MatchPrefix::active(&pool, &prefixes));
    // Last: it replaces the prefixes.
    let cycle = alone(effort, &mut ours::LifeCycle::new(&pool));
    let touch = alone(effort, &mut Touch::new(capacity));
    let times = [one, many, cycle, inactive, active, touch];
    std::array::from_fn(|i| {
        let blocks = COLUMNS[i].1 as f64;
        let Spread { low, median, high } = times[i];
        Spread { low: low / blocks, median: median / blocks, high: high / blocks }
    })
}
