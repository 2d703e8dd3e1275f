//! The façade beside its parts, part by part. `benches/run --facade` calls it.

use kvstrata_benches::disk::Failure;
use kvstrata_benches::facade::report::Table;
use kvstrata_benches::facade::{PARTS, beside, counts, disk, hits, host, layers, load, store, watching};
use kvstrata_benches::machine;
use kvstrata_benches::rounds::Effort;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs};

const USAGE: &str = "facade --part PART [--quick] [--json FILE] [--disk-dir DIR]";

struct Options {
    part: String,
    quick: bool,
    json: Option<String>,
    folder: PathBuf,
}

impl Options {
    fn parse() -> Result<Options, Failure> {
        let mut options = Options { part: String::new(), quick: false, json: None, folder: env::temp_dir() };
        let mut arguments = env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(USAGE);
            match argument.as_str() {
                "--part" => options.part = value()?,
                "--quick" => options.quick = true,
                "--json" => options.json = Some(value()?),
                "--disk-dir" => options.folder = PathBuf::from(value()?),
                _ => return Err(format!("{argument}: unknown; usage: {USAGE}").into()),
            }
        }
        if !PARTS.contains(&options.part.as_str()) {
            return Err(format!("--part {:?}: one of {}", options.part, PARTS.join(", ")).into());
        }
        Ok(options)
    }

    fn tables(&self) -> Result<Vec<Table>, Failure> {
        let seconds = |full: f64, quick: f64| Duration::from_secs_f64(if self.quick { quick } else { full });
        let rounds = |full: usize, quick: usize| if self.quick { quick } else { full };
        let effort =
            |full: usize, turn: f64| Effort { rounds: rounds(full, 5), turn: seconds(turn, turn / 4.0) };
        match self.part.as_str() {
            "hits" => {
                hits::measure(if self.quick { Effort::QUICK } else { Effort { rounds: 31, ..Effort::FULL } })
            }
            "host" => host::measure(effort(31, 0.05)),
            "disk" => {
                disk::measure(effort(15, 0.4), &self.folder, if self.quick { 256 << 20 } else { 1 << 30 })
            }
            "counts" => counts::measure(),
            "load" => {
                load::measure(load::Length { rounds: rounds(5, 1), turn: seconds(8.0, 2.0) }, &self.folder)
            }
            "layers" => layers::measure(rounds(31, 3)),
            "store" => {
                store::measure(effort(15, 0.4), &self.folder, if self.quick { 256 << 20 } else { 1 << 30 })
            }
            "watching" => watching::measure(rounds(151, 3), if self.quick { 100 } else { 1000 }),
            _ => beside::measure(beside::Length { rounds: rounds(15, 3), turn: seconds(0.5, 0.1) }),
        }
    }
}

fn main() -> Result<(), Failure> {
    let options = Options::parse()?;
    let command = format!(
        "benches/run --facade --part {}{}",
        options.part,
        if options.quick { " --quick" } else { "" }
    );
    let (machine, date) = (machine::describe(), machine::today());
    println!("{machine}, {date}, `{command}`\n");
    let tables = options.tables()?;
    for table in &tables {
        println!("{}", table.markdown());
    }
    if let Some(path) = &options.json {
        let tables: Vec<_> = tables.iter().map(Table::json).collect();
        let all = json!({ "machine": machine, "date": date, "command": command, "tables": tables });
        fs::write(path, format!("{all:#}\n")).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}
