//! `kvstrata policies`.

use super::choice::policies;
use super::outputs::Outputs;
use super::progress::{Bar, StepBar};
use super::trace::TraceArgs;
use super::{EXIT_OK, number, plot};
use crate::policies::{Prompts, PromptsError, Report};
use crate::replay::Progress;
use crate::trace::{BUNDLED_REQUESTS, TraceSource};
use clap::Args;
use kvstrata_core::Policy;
use kvstrata_core::pool::MAX_CAPACITY;
use std::cell::Cell;

const EXAMPLES: &str = "\
Examples:
  kvstrata policies
      The bundled trace, all policies, five capacities. Takes some seconds.
  kvstrata policies --trace chat.jsonl --capacities 4K,16K,64K --plot curves.svg
      Your own trace as a picture. The bend of a curve shows how large a tier should be.
  kvstrata policies --policies lru,arc --json - | jq '.policies[].hit_ratio'
      The hit ratios of two policies, for a script.

How to read the table:
  The row of N blocks has the hits of a device of N blocks alone.
  No row has the hits of a device together with lower tiers: a block may be in several tiers, and each tier sees other uses than a \
  single tier would. The row with the sum of all tiers' blocks is an estimate; `replay` counts the hits of several tiers.
  The gap between a policy and the optimum is the most that a better policy could gain.
  Where the rows stop rising, more blocks gain nothing.

Units:
  Capacities take K and M, powers of 1024: 64K is 65,536.

Exit codes:
  0  success
  2  the request cannot be carried out; the message names the option, its value and the remedy";

/// Compare the hits of eviction policies on a trace, by capacity
///
/// Each policy runs over one tier of the given capacity, one request at a time and without bytes.
/// Its hits are those of `replay` over the device alone. Beside them stands the offline optimum,
/// which knows the rest of the trace: it keeps the blocks that are needed again soonest, and no
/// block that is never needed again. So the table shows the worth of a tier's size and of a policy
/// before any memory is bought.
///
/// The trace has the format of `replay`. Its prompts must form a tree: an id stands for a block and all
/// blocks before it, so it follows the same block in every prompt.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct PoliciesArgs {
    #[command(flatten)]
    trace: TraceArgs,
    /// Stop after this many requests [default: the whole trace]
    #[arg(long, value_name = "N", value_parser = number::scaled)]
    requests: Option<u64>,
    /// Capacities of the tier in blocks, each at least 1, separated by commas
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',', value_parser = capacity, default_value = "1K,3K,10K,30K,100K")]
    capacities: Vec<u32>,
    /// Policies to compare, separated by commas [default: all]
    #[arg(long, value_name = "POLICY[,POLICY…]", value_delimiter = ',', value_parser = policies())]
    policies: Vec<Policy>,
    #[command(flatten)]
    outputs: Outputs,
}

fn capacity(text: &str) -> Result<u32, String> {
    match number::blocks(text)? {
        blocks if (1..=MAX_CAPACITY).contains(&blocks) => Ok(blocks),
        _ => Err(format!("must be from 1 to {MAX_CAPACITY} blocks")),
    }
}

pub(super) fn run(arguments: &PoliciesArgs) -> Result<u8, String> {
    arguments.outputs.check(arguments.trace.file().as_slice())?;
    let report = compare(arguments).map_err(|error| error.to_string())?;
    arguments.outputs.write(&report, || plot::curves(&report))?;
    Ok(EXIT_OK)
}

fn compare(arguments: &PoliciesArgs) -> Result<Report, PromptsError> {
    let trace = arguments.trace.open()?;
    let origin = trace.source().to_string();
    let bundled = (*trace.source() == TraceSource::Bundled).then_some(BUNDLED_REQUESTS);
    let requests = match (arguments.requests, bundled) {
        (Some(asked), Some(there)) => Some(asked.min(there)),
        (asked, there) => asked.or(there),
    };
    let (bar, read) = (Bar::new(requests, trace.input_bytes()), Cell::new(0));
    let prompts = Prompts::read(trace, arguments.requests, &|trace| {
        read.set(read.get() + 1);
        bar.show(Progress { requests: read.get(), input_bytes: trace.consumed_bytes() });
    });
    bar.finish();
    let prompts = prompts?;
    let mut policies = arguments.policies.clone();
    if policies.is_empty() {
        policies = Policy::ALL.to_vec();
    }
    let bar = StepBar::new("runs");
    let report =
        Report::new(origin, &prompts, &policies, &arguments.capacities, &|done, of| bar.show(done, of));
    bar.finish();
    Ok(report)
}
