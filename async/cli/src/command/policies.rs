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
      The bundled trace, all policies, five capacities, in some seconds.
  kvstrata policies --trace chat.jsonl.zst --capacities 2K,4K,8K,16K,32K,64K,128K --plot curves.svg
      One's own trace as a picture: where a curve bends is what a tier is worth.
  kvstrata policies --policies lru,arc --capacities 100K --json - | jq '.policies[].hit_ratio'
      Two of them at one capacity, for a script.

How to read it:
  A device of N blocks alone hits what stands in the row of N. What it hits together with tiers
  below it stands in no row: a block may be in several of them, and each tier sees other uses than
  a single one would. The row of their sum gives an idea of it, and `replay` counts it.
  Between a policy and the optimum lies what a better guess would gain; where the rows do not
  rise any more, more blocks gain nothing.

Units: capacities take K and M, powers of 1024 (64K = 65,536).
Exit codes: 0 all well; 2 something asked for is impossible, and the message says what.";

/// Compare what the eviction policies would hit on a trace, by capacity
#[derive(Debug, Args)]
#[command(
    long_about = "Compare what the eviction policies would hit on a trace, by capacity, beside the offline optimum.\n\n\
                  Each policy is run over one tier of so many blocks, one request at a time and without bytes: its hits are those of \
                  `replay` over the device alone. The optimum knows what comes: it keeps what is needed again soonest, and nothing that \
                  is not needed again. So this says what a tier of a size is worth, and what a policy is, before any memory is bought.\n\n\
                  The trace is that of `replay`; its prompts must be a tree: an id stands for a block and all before it, so it has the same \
                  block before it in every prompt.",
    after_long_help = EXAMPLES
)]
pub(super) struct PoliciesArgs {
    #[command(flatten)]
    trace: TraceArgs,
    /// Stop after this many requests [default: the whole trace]
    #[arg(long, value_name = "N", value_parser = number::scaled)]
    requests: Option<u64>,
    /// Blocks of the tier, each at least 1; several are separated by commas
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',', value_parser = capacity, default_value = "1K,3K,10K,30K,100K")]
    capacities: Vec<u32>,
    /// The policies, separated by commas [default: all]
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
