//! `kvstrata top`: watches a manager from outside, by the metrics that it serves.
//!
//! ```text
//!   fetch.rs ─► parse.rs ─► exposition.rs ─► reading.rs ─► watch.rs ─► view.rs ─► draw.rs ─► terminal.rs
//!   HTTP        text        samples          one moment    over time   data       lines      keys, screen
//!                           buckets.rs: histograms
//! ```
//!
//! The steps from `parse.rs` to `draw.rs` use no clock, socket or terminal. The tests run
//! them ([`Watch`], [`View`]).

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

/// The address in the examples of the settings.
const USUAL: &str = "127.0.0.1:9400";
/// Rows of a text view: enough for all sections.
const TEXT_ROWS: u16 = 200;

const EXAMPLES: &str = "\
Examples:
  kvstrata replay --metrics 127.0.0.1:9400 >replay.txt 2>&1 & kvstrata top
      Watches a replay. The replay must not write to the same terminal.
  kvstrata top worker-3:9400 --interval 5s
      Watches a manager on another machine, and reads its metrics every five seconds.
  kvstrata top --once
      Prints one view as text, from two readings one second apart.
  kvstrata top --json - | jq '.hits[-1].now'
      Prints the share of the last second's look-ups that some tier had.

Address:
  A manager serves its metrics at the setting metrics.listen (KVSTRATA_METRICS_LISTEN=127.0.0.1:9400), a replay at --metrics.

Sections of the view:
  TIER
      The fill of each tier. A request or a transfer holds a block in use. An inactive block is held by none, and stays until its room is needed; a tier \
      without free blocks is therefore normal.
  PATH
      The transfers between tiers. p50 and p99 are the upper ends of the histogram buckets with the median and the 99th percentile \
      of the interval's transfers; a dash if no transfer ended, or with metrics.histograms = false. A block from disk appears in two \
      rows: the read into host memory, and the copy to the device.
  HITS
      The share of the looked-up blocks that each tier had: in the last interval, and since the process started. With several groups \
      of layers: the share that any tier had, for each group.
  waiting
      Waiting calls and transfers. For blocks: allocations and onboards. For queue room: transfers to the device. For host memory and \
      at gates: offloads. A request that onboards some blocks and allocates others counts twice.
  TROUBLE
      Dropped blocks, refusals and failures by cause, if there are any.

Behaviour:
  If the manager does not answer, top shows that, with the time since the last answer, and tries again.
  After a restart of the manager, one interval has no rates.
  NO_COLOR turns colours off. No information is in a colour alone.
  q, Escape or Ctrl-C ends top.

Exit codes:
  0  success
  2  the request cannot be carried out; the message names the option, its value and the remedy";

/// Watch a manager that serves its metrics: tiers, transfers, hits, trouble
///
/// The view shows the fill of each tier, the transfers between tiers, the hits of each tier, and
/// failures. It needs a terminal of at least 80 columns and 24 rows.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct TopArgs {
    /// Address at which the manager serves its metrics
    #[arg(value_name = "HOST:PORT", default_value = USUAL, value_parser = Target::parse)]
    target: Target,
    /// Time between two readings of the metrics: 500ms, 1s, 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print one view as text after one interval, and end
    #[arg(long)]
    once: bool,
    /// Write one view as JSON to this file or to standard output (-) after one interval, and end
    #[arg(long, value_name = "FILE|-", value_parser = Json::parse, conflicts_with = "once")]
    json: Option<Json>,
    /// Draw with ASCII characters only [default: if the locale is not UTF-8]
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
        return Err(
            "top: standard output is not a terminal; use --once for one view as text, or --json - for JSON"
                .to_owned(),
        );
    } else {
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        terminal::live(target, *interval, Look { colour, ascii, keys: true })?;
    }
    Ok(EXIT_OK)
}

/// One view, from two readings an interval apart.
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
            "{}: {why}; give the address at which the manager serves its metrics (metrics.listen, replay --metrics)",
            target.place()
        )),
    }
}
