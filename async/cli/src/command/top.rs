//! `kvstrata top`: a manager watched from outside, by the metrics that it serves.
//!
//! ```text
//!   fetch.rs ──► parse.rs ──► exposition.rs, buckets.rs ──► reading.rs ──► watch.rs ──► view.rs ──► draw.rs ──► terminal.rs
//!   HTTP         text         samples                       a moment       over time    now, data   lines       keys, screen
//! ```
//!
//! From the text to the lines there is no clock, no socket and no terminal: tests run there ([`Watch`],
//! [`View`]).

mod buckets;
mod draw;
mod exposition;
mod fetch;
mod parse;
mod reading;
mod terminal;
mod view;
mod watch;

use super::json::Target as Json;
use super::{EXIT_OK, screen};
use clap::Args;
use fetch::Target;
use std::io::IsTerminal;
use std::thread;
use std::time::{Duration, Instant};

pub use buckets::{Buckets, Quantile};
pub use draw::{COLUMNS, Look, ROWS};
pub use exposition::Exposition;
pub use parse::{MOST_BYTES, MOST_SAMPLES, Refused};
pub use reading::{Requests, Tenant};
pub use view::{Gone, HitView, PathView, TierView, TroubleView, View};
pub use watch::Watch;

/// Where the examples of the settings serve metrics.
const USUAL: &str = "127.0.0.1:9400";
/// Rows that a text may have: as many as it takes.
const TEXT_ROWS: u16 = 200;

const EXAMPLES: &str = "\
Examples:
  kvstrata replay --metrics 127.0.0.1:9400 >replay.txt 2>&1 & kvstrata top
      Watch a replay, which must not write to the same terminal.
  kvstrata top worker-3:9400 --interval 5s
      A manager on another machine, asked every five seconds.
  kvstrata top --once
      One view as text, over two questions a second apart.
  kvstrata top --json - | jq '.hits[-1].now'
      The same as data: the part of the last second's look-ups that was found anywhere.

A manager serves its metrics where metrics.listen says (KVSTRATA_METRICS_LISTEN=127.0.0.1:9400), a replay where --metrics does.

What it shows:
  TIER     How full each tier is. In use: somebody has the block. Inactive:
           nobody has it, and it is kept to be found again; it is evicted when
           room is needed, so a tier without free blocks is as it should be.
  PATH     What moves between the tiers. p50 and p99: the ends of the buckets
           that half and 99 in 100 of the interval's transfers did not exceed;
           – where none ended, or with metrics.histograms = false. What comes
           from the disk is in two rows: it is read into host memory, and then
           copied up.
  HITS     Of the blocks that requests looked up, the part found in each tier:
           in the last interval, and since the process began. Of several groups
           of layers, the part of each group's that was found anywhere.
  waiting  Calls, not requests: one that brings blocks up and takes others
           may wait for both.
  TROUBLE  What was dropped, refused or failed, by cause; only what there is.

Where nobody answers it says so, for how long, and goes on asking. A manager that began anew has no rates for an interval.
NO_COLOR switches colours off; nothing is said by colour alone. q, Escape or Ctrl-C ends it.
Exit codes: 0 all well; 2 something asked for is impossible, and the message says what.";

/// Watch a manager that serves its metrics: tiers, flows, hits, trouble
#[derive(Debug, Args)]
#[command(
    long_about = "Watch a manager that serves its metrics: how full its tiers are, what moves between them, what is found where, and what goes \
                  wrong.\n\nIt takes a terminal of 80 columns and 24 rows.",
    after_long_help = EXAMPLES
)]
pub(super) struct TopArgs {
    /// Where the manager serves its metrics
    #[arg(value_name = "HOST:PORT", default_value = USUAL, value_parser = Target::parse)]
    target: Target,
    /// How often it is asked: 500ms, 1s, 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print one view as text, after an interval, and end
    #[arg(long)]
    once: bool,
    /// Write one view as JSON to this file, or to standard output (-), after an interval, and end
    #[arg(long, value_name = "FILE|-", value_parser = Json::parse, conflicts_with = "once")]
    json: Option<Json>,
    /// Draw with ASCII alone [default: where the locale is not UTF-8]
    #[arg(long)]
    ascii: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    kvstrata::shared::time(text, Duration::from_millis(100), Duration::from_secs(3600))
}

pub(super) fn run(arguments: &TopArgs) -> Result<u8, String> {
    let TopArgs { target, interval, once, json, ascii } = arguments;
    let ascii = screen::is_ascii(*ascii);
    if let Some(json) = json {
        json.check()?;
        json.write(&seen(target, *interval)?)?;
    } else if *once {
        super::print(seen(target, *interval)?.text(ascii, COLUMNS, TEXT_ROWS).as_bytes())?;
    } else if !std::io::stdout().is_terminal() {
        return Err("top: standard output is no terminal; --once prints one view as text, --json - as data"
            .to_owned());
    } else {
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        terminal::live(target, *interval, Look { colour, ascii, keys: true })?;
    }
    Ok(EXIT_OK)
}

/// One view, over two answers an interval apart.
fn seen(target: &Target, interval: Duration) -> Result<View, String> {
    let mut watch = Watch::new(target.place(), interval, Instant::now());
    let mut ask = || {
        let (at, text) = target.fetch();
        watch.take(&text?, at)
    };
    let answered = ask().and_then(|()| {
        thread::sleep(interval);
        ask()
    });
    match answered {
        Ok(()) => Ok(watch.view(Instant::now())),
        Err(why) => Err(format!(
            "{}: {why}; name where the manager serves its metrics (metrics.listen, replay --metrics)",
            target.place()
        )),
    }
}
