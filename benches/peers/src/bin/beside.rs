//! The table: the peers and ours, operation by operation, in turns in one process. `benches/run` calls it.

use kvstrata_bench_peers::report::{Reach, Report, Row, Unit};
use kvstrata_bench_peers::{malloc, table};
use kvstrata_benches::machine;
use kvstrata_benches::rounds::{Effort, Spread};
use serde_json::Value;
use std::error::Error;
use std::process::Command;
use std::{env, fs};

const USAGE: &str = "beside [--quick] [--json FILE]";

fn main() -> Result<(), Box<dyn Error>> {
    let (mut effort, mut json, mut command) = (Effort::FULL, None, "benches/run".to_owned());
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => (effort, command) = (Effort::QUICK, command + " --quick"),
            "--json" => json = Some(arguments.next().ok_or(USAGE)?),
            _ => return Err(format!("{argument}: unknown; usage: {USAGE}").into()),
        }
    }
    let report = Report {
        rows: rows(effort)?,
        limits: table::limits(effort),
        machine: machine::describe(),
        date: machine::today(),
        command,
    };
    print!("{}", report.markdown());
    if let Some(path) = json {
        fs::write(&path, format!("{:#}\n", report.json())).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

fn rows(effort: Effort) -> Result<Vec<Row>, Box<dyn Error>> {
    // First, while malloc is untuned: the larger the blocks that glibc has seen freed, the later it
    // gives memory back, so after the pools it would be half tuned.
    let plain = table::tokens_plain(effort);
    let mut rows = vec![
        table::allocate(effort, 1, 5.0),
        table::allocate(effort, 64, 15.0),
        table::two_threads(effort, 1, 1.8),
        table::two_threads(effort, 64, 1.8),
        table::life_cycle(effort, 10.0),
        table::match_prefix(effort, false, 10.0),
        table::match_prefix(effort, true, 4.0),
        plain,
    ];
    if malloc::tune() {
        rows.extend(table::tokens_tuned(effort, 1000.0));
    }
    rows.extend(memory()?);
    Ok(rows)
}

/// Runs the program beside this one.
fn memory() -> Result<[Row; 2], Box<dyn Error>> {
    let program = env::current_exe()?.with_file_name("memory");
    let output =
        Command::new(&program).output().map_err(|error| format!("{}: {error}", program.display()))?;
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let row = |name: &str, key: &str, reach| {
        let bytes = |who: &str| -> Result<Spread, String> {
            let bytes =
                found[who][key].as_f64().ok_or_else(|| format!("{}: no {who}.{key}", program.display()))?;
            Ok(Spread { low: bytes, median: bytes, high: bytes })
        };
        let (peer, leanest, ours) = (bytes("peer")?, bytes("peer_leanest")?, bytes("ours")?);
        let ratio = Spread::of([peer.median / ours.median]);
        let ratio_leanest = Some(Spread::of([leanest.median / ours.median]));
        let operation = format!("memory a block, {name}");
        Ok::<Row, String>(Row {
            operation,
            unit: Unit::Bytes,
            peer,
            leanest: Some(leanest),
            ours,
            ratio,
            ratio_leanest,
            reach,
        })
    };
    Ok([
        row("all registered, none held", "inactive", Reach::Bytes(112.0))?,
        row("all registered and held, handles included", "active", Reach::Nothing)?,
    ])
}
