//! The cost of being watched: replays with counters, with latencies, and with logs at info, beside the
//! same with nothing counted at all.
//!
//! ```text
//!   uncounted   the manager counts nothing (`kvstrata::metrics::bench`); metrics.histograms = false, no logs
//!   counted     the counts that are always kept, by path, tier and group
//!   timed       and histograms of transfers and calls
//!   watched     and spans and lines at info, formatted and written to a pipe that is read; one scrape a run
//! ```
//!
//! The pools' own counts are in all of them: allocation needs the numbers of free and evictable blocks.
//!
//! All in one process, in turns: the logged levels are switched between runs, and at `off` a span costs
//! the same as without any subscriber. Small blocks are the hard case, since each costs as much to count
//! as a large one; real blocks are larger than both.

use super::report::{Cell, Table};
use crate::clock::process_time;
use crate::disk::{Failure, size};
use crate::rounds::Spread;
use kvstrata::metrics::bench::COUNTING;
use kvstrata_cli::replay::{Device, Replay, Settings};
use kvstrata_cli::trace::{TraceReader, TraceSource};
use kvstrata_ffi::device::SimDevice;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::thread;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::prelude::*;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::{Registry, fmt};

/// Bytes of a block.
const BLOCKS: [usize; 2] = [4 << 10, 64 << 10];
const DEVICE: u32 = 2048;
const HOST: u32 = 8192;
/// The maximum share of uncounted's time.
const REACH: f64 = 1.02;

/// The way in which a replay is watched.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Watched {
    Not,
    Counted,
    Timed,
    Fully,
}

const ALL: [(Watched, &str); 4] = [
    (Watched::Not, "nothing counted"),
    (Watched::Counted, "counters"),
    (Watched::Timed, "counters, histograms"),
    (Watched::Fully, "counters, histograms, tracing at info, a scrape"),
];

/// Seconds of a replay: by the wall, and of all threads on a processor.
#[derive(Clone, Copy)]
struct Took {
    wall: f64,
    processor: f64,
}

/// The process's subscriber, which writes to a pipe that is read, and the switch of its level.
fn level() -> Result<&'static Handle<LevelFilter, Registry>, Failure> {
    static SWITCH: OnceLock<Handle<LevelFilter, Registry>> = OnceLock::new();
    if let Some(switch) = SWITCH.get() {
        return Ok(switch);
    }
    let (filter, switch) = reload::Layer::new(LevelFilter::OFF);
    let (mut reader, writer) = io::pipe()?;
    thread::Builder::new().spawn(move || io::copy(&mut reader, &mut io::sink()))?;
    let lines = fmt::layer().with_writer(Arc::new(writer)).with_ansi(false).with_span_events(FmtSpan::CLOSE);
    tracing_subscriber::registry().with(filter).with(lines).try_init()?;
    Ok(SWITCH.get_or_init(|| switch))
}

/// Serves the bundled trace's first requests.
fn replay(watched: Watched, block_bytes: usize, requests: u64) -> Result<Took, Failure> {
    let logged = if watched == Watched::Fully { LevelFilter::INFO } else { LevelFilter::OFF };
    level()?.modify(|level| *level = logged)?;
    COUNTING.store(watched != Watched::Not, Relaxed);
    let settings = Settings {
        requests: Some(requests),
        device_blocks: DEVICE,
        host_blocks: HOST,
        disk_blocks: 0,
        block_bytes,
        histograms: matches!(watched, Watched::Timed | Watched::Fully),
        metrics: (watched == Watched::Fully).then(|| ([127, 0, 0, 1], 0).into()),
        ..Settings::default()
    };
    let replay = Replay::new(settings, Device::simulated(SimDevice::new(DEVICE as usize, block_bytes)?))?;
    let (address, halfway) = (replay.metrics_address(), requests / 2);
    let scrape = |progress: kvstrata_cli::replay::Progress| {
        if progress.requests == halfway
            && let Some(address) = address
        {
            // The scraper is on this machine too, and takes its time from it.
            let _ = scraped(address);
        }
    };
    let trace = TraceReader::open(TraceSource::Bundled)?;
    let begun = process_time();
    let report = replay.run(trace, &scrape)?;
    let processor = (process_time() - begun).as_secs_f64();
    if report.wrong_bytes > 0 {
        return Err(format!("{} wrong bytes", report.wrong_bytes).into());
    }
    Ok(Took { wall: report.wall_seconds, processor })
}

fn scraped(address: std::net::SocketAddr) -> io::Result<u64> {
    let mut connection = std::net::TcpStream::connect(address)?;
    io::Write::write_all(&mut connection, b"GET /metrics HTTP/1.0\r\n\r\n")?;
    io::copy(&mut connection, &mut io::sink())
}

/// Measures this part: so many rounds of replays of so many requests.
///
/// # Errors
/// A replay that cannot be made, or a wrong byte.
pub fn measure(rounds: usize, requests: u64) -> Result<Vec<Table>, Failure> {
    let measured = measured(rounds, requests);
    // For the other measurements of this process.
    COUNTING.store(true, Relaxed);
    measured
}

fn measured(rounds: usize, requests: u64) -> Result<Vec<Table>, Failure> {
    let mut table = Table::new(
        format!("Replay of {requests} requests while it is watched, simulated device"),
        &["block", "replay", "requests/s", "time to the first's", "reach", "processor time to the first's"],
    );
    for block_bytes in BLOCKS {
        let mut took: [Vec<Took>; ALL.len()] = Default::default();
        // The first run warms up.
        replay(Watched::Fully, block_bytes, requests)?;
        for round in 0..rounds {
            for turn in 0..ALL.len() {
                let at = (turn + round) % ALL.len();
                took[at].push(replay(ALL[at].0, block_bytes, requests)?);
            }
        }
        for (at, (watched, who)) in ALL.into_iter().enumerate() {
            let ratio = |of: fn(&Took) -> f64| {
                Spread::of_median(took[at].iter().zip(&took[0]).map(|(one, first)| of(one) / of(first)))
            };
            let (wall, processor) = (ratio(|took| took.wall), ratio(|took| took.processor));
            let is_first = watched == Watched::Not;
            let unless_first = |cell| if is_first { Cell::none() } else { cell };
            table.rows.push(vec![
                Cell::word(size(block_bytes)),
                Cell::word(who),
                Cell::figure(Spread::of(took[at].iter().map(|took| took.wall)).rate(requests as f64), 0),
                unless_first(Cell::range(wall, 3)),
                unless_first(Cell::reach("≤ 1.02", wall.median <= REACH)),
                unless_first(Cell::range(processor, 3)),
            ]);
        }
    }
    table.notes.push(format!(
        "{DEVICE} blocks of the device and {HOST} of the host, no disk; one request at a time; {rounds} rounds in turns, one process; a \
         ratio is taken within a round: its median, and the interval that holds it with a chance of 95 %."
    ));
    Ok(vec![table])
}
