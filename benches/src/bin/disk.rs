//! The disk tier beside fio and its peers, in turns. `benches/run --disk` calls it.

use kvstrata_benches::disk::fio::Fio;
use kvstrata_benches::disk::looked::Looked;
use kvstrata_benches::disk::ours::{BETWEEN, Cold, Ours, beside_writes, cold_prefix};
use kvstrata_benches::disk::report::{OURS_APART, Report, Row, Series, Urgent};
use kvstrata_benches::disk::worker::Worker;
use kvstrata_benches::disk::{Cell, Contender, Failure, Way, calls, checksum, files};
use kvstrata_benches::machine;
use kvstrata_benches::rounds::{Effort, Spread};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

const USAGE: &str = "disk [--quick] [--json FILE] [--disk-dir DIR] [--footprint MIB] [--rounds N] \
                     [--only WAY,KIB,DEPTH|latencies]... [--foyer PROGRAM] [--nixl PYTHON SCRIPT] [--skip WHAT_AND_WHY]";
const MIB: usize = 1 << 20;
/// The depth at which the peers take part.
const DEEP: usize = 32;

struct Options {
    quick: bool,
    json: Option<String>,
    folder: PathBuf,
    footprint: u64,
    rounds: usize,
    turn: Duration,
    blocks: Vec<usize>,
    depths: Vec<usize>,
    ways: Vec<Way>,
    foyer: Option<String>,
    nixl: Option<(String, String)>,
    skipped: Vec<String>,
    /// Measures only these cells, and the latencies if the other field says so.
    only: Vec<Cell>,
    latencies: Option<bool>,
    /// For strace: moves blocks of 1 MiB at depth 32 for so long, and prints how many.
    alone: Option<(Way, Duration)>,
}

/// `read,1024,32`.
fn cell_of(text: &str) -> Result<Cell, Failure> {
    let wrong = || format!("--only {text}: not WAY,KIB,DEPTH, for example read,1024,32");
    let [way, kib, depth]: [&str; 3] = text.split(',').collect::<Vec<_>>().try_into().map_err(|_| wrong())?;
    let way =
        [Way::Read, Way::Write, Way::Mix].into_iter().find(|one| one.word() == way).ok_or_else(wrong)?;
    let (kib, depth): (usize, usize) =
        (kib.parse().map_err(|_| wrong())?, depth.parse().map_err(|_| wrong())?);
    if ![128, 1024, 5120].contains(&kib) || !(1..=DEEP).contains(&depth) {
        return Err(format!("--only {text}: 128, 1024 or 5120 KiB, depth 1 to {DEEP}").into());
    }
    Ok(Cell { block_bytes: kib << 10, depth, way })
}

impl Options {
    fn parse() -> Result<Options, Failure> {
        let mut options = Options {
            quick: false,
            json: None,
            folder: env::temp_dir(),
            footprint: 1 << 30,
            rounds: 7,
            turn: Duration::from_millis(1000),
            blocks: vec![128 << 10, MIB, 5 * MIB],
            depths: vec![1, 8, DEEP],
            ways: vec![Way::Read, Way::Write, Way::Mix],
            foyer: None,
            nixl: None,
            skipped: Vec::new(),
            only: Vec::new(),
            latencies: None,
            alone: None,
        };
        let mut arguments = env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(USAGE);
            match argument.as_str() {
                "--quick" => {
                    options.quick = true;
                    options.footprint = 256 << 20;
                    (options.rounds, options.turn) = (3, Duration::from_millis(100));
                    (options.blocks, options.depths) = (vec![MIB], vec![1, DEEP]);
                    options.ways = vec![Way::Read, Way::Write];
                }
                "--json" => options.json = Some(value()?),
                "--disk-dir" => options.folder = PathBuf::from(value()?),
                "--footprint" => options.footprint = value()?.parse::<u64>()? << 20,
                "--rounds" => options.rounds = value()?.parse::<usize>()?.max(1),
                "--only" => match value()?.as_str() {
                    "latencies" => options.latencies = Some(true),
                    cell => {
                        options.only.push(cell_of(cell)?);
                        options.latencies.get_or_insert(false);
                    }
                },
                "--foyer" => options.foyer = Some(value()?),
                "--nixl" => options.nixl = Some((value()?, value()?)),
                "--skip" => options.skipped.push(value()?),
                "--alone" => {
                    let way = if value()? == "read" { Way::Read } else { Way::Write };
                    options.alone = Some((way, Duration::from_millis(value()?.parse()?)));
                }
                _ => return Err(format!("{argument}: unknown; usage: {USAGE}").into()),
            }
        }
        Ok(options)
    }

    fn cells(&self) -> Vec<Cell> {
        if self.latencies.is_some() {
            return self.only.clone();
        }
        let mut cells = Vec::new();
        for block_bytes in &self.blocks {
            for depth in &self.depths {
                for way in &self.ways {
                    cells.push(Cell { block_bytes: *block_bytes, depth: *depth, way: *way });
                }
            }
        }
        cells
    }

    /// The raw file, a volume and a peer's store for each size of blocks, and some for their tables.
    fn needs_bytes(&self) -> u64 {
        let sizes = self.blocks.len() as u64;
        let stores = if self.foyer.is_some() { 2 * sizes } else { sizes };
        (1 + stores) * self.footprint + (256 << 20)
    }
}

fn main() -> Result<(), Failure> {
    let options = Options::parse()?;
    if let Some((way, length)) = options.alone {
        return alone(&options, way, length);
    }
    let folder = files::Folder::new(&options.folder, options.needs_bytes())?;
    let raw = folder.file("raw");
    files::written(&raw, options.footprint)?;
    let command = if options.quick { "benches/run --disk --quick" } else { "benches/run --disk" };
    let mut report = Report {
        machine: machine::describe(),
        date: machine::today(),
        command: command.to_owned(),
        ..Report::default()
    };
    let mut skip = |what: &str, why: &dyn std::fmt::Display| {
        eprintln!("SKIP {what}: {why}");
        report.notes.push(format!("SKIP {what}: {why}"));
    };
    for skipped in &options.skipped {
        let (what, why) = skipped.split_once(": ").unwrap_or((skipped, "?"));
        skip(what, &why);
    }
    let fio = match Fio::new(raw.clone(), options.footprint) {
        Ok(fio) => Some(fio),
        Err(why) => {
            skip("fio", &why);
            None
        }
    };
    let looked = match Looked::new(&raw, options.footprint) {
        Ok(looked) => Some(looked),
        Err(why) => {
            skip("a look", &why);
            None
        }
    };
    let mut workers = Vec::new();
    if let Some((python, script)) = &options.nixl {
        let mut command = Command::new(python);
        command.arg(script).arg(&raw);
        match Worker::start(command, None) {
            Ok(worker) => workers.push(worker),
            Err(why) => skip("NIXL", &why),
        }
    }
    if let Some(program) = &options.foyer {
        for block_bytes in &options.blocks {
            let mut command = Command::new(program);
            command.arg(folder.file(&format!("foyer-{block_bytes}")));
            command.arg(block_bytes.to_string()).arg(options.footprint.to_string());
            match Worker::start(command, Some(*block_bytes)) {
                Ok(worker) => workers.push(worker),
                Err(why) => skip("foyer", &why),
            }
        }
    }
    let ours = Ours::new(folder.path(), &options.blocks, options.footprint, DEEP)?;
    if let Some(fio) = &fio {
        report
            .notes
            .push(format!("{}: io_uring, O_DIRECT, file and buffers registered, huge pages", fio.version()));
    }
    report.notes.push(format!("ours, 1 MiB: {}", ours.target(MIB)?.describe()));
    let footprint = options.footprint >> 20;
    report.notes.push(format!(
        "{footprint} MiB of file each; {} rounds of {} ms a turn; median and quartiles over rounds",
        options.rounds,
        options.turn.as_millis()
    ));
    if looked.is_some() {
        let what = "a look: one bare io_uring that loads each byte once and does nothing else: the cost of reading a payload, without summing it";
        report.notes.push(what.to_owned());
    }
    Run { options, fio, looked, ours, workers }.go(&mut report, &folder)
}

/// All contenders.
struct Run {
    options: Options,
    fio: Option<Fio>,
    looked: Option<Looked>,
    ours: Ours,
    workers: Vec<Worker>,
}

impl Run {
    fn go(mut self, report: &mut Report, folder: &files::Folder) -> Result<(), Failure> {
        let cells = self.options.cells();
        report.rows = cells.iter().map(|cell| Row { cell: *cell, series: Vec::new() }).collect();
        let names = ["fio, 10 ms apart", OURS_APART, "ours, urgent, back to back"];
        let mut urgent = names.map(|name| Urgent { name: name.to_owned(), ..Urgent::default() });
        let mut cold = Vec::new();
        for round in 0..self.options.rounds {
            eprintln!("round {} of {}", round + 1, self.options.rounds);
            for row in &mut report.rows {
                self.turns(row, round)?;
            }
            if self.options.latencies == Some(false) {
                continue;
            }
            self.beside_writes(&mut urgent, round)?;
            for i in 0..3 {
                cold.push(cold_prefix(self.ours.target(MIB)?, (round * 3 + i) as u64)?);
            }
        }
        report.urgent = urgent.into_iter().filter(|urgent| !urgent.p50_ms.is_empty()).collect();
        let spread = |of: fn(&Cold) -> f64| Spread::of(cold.iter().map(of));
        if !cold.is_empty() {
            report.cold = Some([
                spread(|cold| cold.first_ms / cold.alone_ms),
                spread(|cold| cold.all_ms / cold.alone_ms),
                spread(|cold| cold.alone_ms),
            ]);
            report.checksum = checksum::rates(if self.options.quick { Effort::QUICK } else { Effort::FULL });
        }
        let Run { options, .. } = self;
        if !options.quick && options.latencies.is_none() {
            match counted(folder) {
                Ok(counted) => report.strace = Some(counted),
                Err(why) => {
                    eprintln!("SKIP strace: {why}");
                    report.notes.push(format!("SKIP strace: {why}"));
                }
            }
        }
        print!("{}", report.markdown());
        if let Some(path) = options.json {
            fs::write(&path, format!("{:#}\n", report.json())).map_err(|error| format!("{path}: {error}"))?;
        }
        Ok(())
    }

    /// One turn each, in an order that rotates.
    fn turns(&mut self, row: &mut Row, round: usize) -> Result<(), Failure> {
        let cell = row.cell;
        let peers = cell.depth == DEEP && cell.way != Way::Mix;
        let mut contenders: Vec<&mut dyn Contender> = Vec::new();
        contenders.extend(self.fio.as_mut().map(|fio| fio as &mut dyn Contender));
        contenders.extend(self.looked.as_mut().map(|looked| looked as &mut dyn Contender));
        contenders.push(&mut self.ours);
        let workers = self.workers.iter_mut().filter(|worker| peers && worker.serves(cell.block_bytes));
        contenders.extend(workers.map(|worker| worker as &mut dyn Contender));
        if row.series.is_empty() {
            let series = |contender: &&mut dyn Contender| Series {
                name: contender.name().to_owned(),
                turns: Vec::new(),
            };
            row.series = contenders.iter().map(series).collect();
        }
        for turn in 0..contenders.len() {
            let who = (turn + round) % contenders.len();
            row.series[who].turns.push(contenders[who].turn(cell, self.options.turn)?);
        }
        Ok(())
    }

    fn beside_writes(&self, urgent: &mut [Urgent; 3], round: usize) -> Result<(), Failure> {
        // Enough reads for a percentile.
        let length = self.options.turn * 3;
        let [fio, apart, back_to_back] = urgent;
        for turn in 0..3 {
            match (turn + round) % 3 {
                0 => {
                    if let Some(program) = &self.fio {
                        let beside = program.beside_writes(MIB, DEEP, BETWEEN, length)?;
                        fio.p50_ms.push(beside.p50_ms);
                        fio.p99_ms.push(beside.p99_ms);
                        fio.write_gb_per_s.push(beside.written.gb_per_s());
                    }
                }
                which => {
                    let (between, into) =
                        if which == 1 { (Some(BETWEEN), &mut *apart) } else { (None, &mut *back_to_back) };
                    let mut beside = beside_writes(self.ours.target(MIB)?, DEEP, between, length)?;
                    beside.read_ms.sort_by(f64::total_cmp);
                    let at = |share: f64| {
                        let last = beside.read_ms.len().saturating_sub(1);
                        beside.read_ms.get((last as f64 * share) as usize).copied().ok_or("no read ended")
                    };
                    into.p50_ms.push(at(0.5)?);
                    into.p99_ms.push(at(0.99)?);
                    into.write_gb_per_s.push(beside.written.gb_per_s());
                }
            }
        }
        Ok(())
    }
}

/// Counts the calls of reads and writes of 1 MiB at depth 32, by strace: a run, less one that only makes
/// its volume.
fn counted(folder: &files::Folder) -> Result<[f64; 2], Failure> {
    let path = folder.path().display().to_string();
    let of = |way: &str| -> Result<f64, Failure> {
        let counted = |length: &str| {
            calls::counted(&["--quick", "--disk-dir", &path, "--alone", way, length], folder.path())
        };
        let (before, after) = (counted("0")?, counted("1000")?);
        Ok((after.calls - before.calls) / (after.blocks - before.blocks))
    };
    Ok([of("read")?, of("write")?])
}

fn alone(options: &Options, way: Way, length: Duration) -> Result<(), Failure> {
    let folder = files::Folder::new(&options.folder, options.needs_bytes())?;
    let mut ours = Ours::new(folder.path(), &[MIB], options.footprint, DEEP)?;
    let cell = Cell { block_bytes: MIB, depth: DEEP, way };
    println!("{}", ours.turn(cell, length)?.bytes / MIB as u64);
    Ok(())
}
