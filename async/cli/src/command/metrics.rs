//! `kvstrata metrics`: what there is to be watched.

use super::EXIT_OK;
use clap::Args;
use kvstrata::metrics;

const EXAMPLES: &str = "\
Examples:
  kvstrata metrics
      All metrics: name, labels, type, unit, and what each is.
  kvstrata metrics --json | jq -r '.[] | select(.type == \"histogram\") | .name'
      Those that are histograms.
  kvstrata replay --metrics 127.0.0.1:9400 & curl -s http://127.0.0.1:9400/metrics
      Their values, while a replay runs.";

/// Print the metrics of a manager: names, labels, types, units, what they are
#[derive(Debug, Args)]
#[command(
    long_about = "Print the metrics of a manager, as it serves them for Prometheus where `metrics.listen` says, and as a replay does \
                  with --metrics.",
    after_long_help = EXAMPLES
)]
pub(super) struct MetricsArgs {
    /// Print JSON: a list of {name, type, unit, labels, help}
    #[arg(long, group = "form")]
    json: bool,
    /// Print Markdown, as docs/metrics.md has it
    #[arg(long, group = "form")]
    markdown: bool,
}

pub(super) fn run(arguments: &MetricsArgs) -> Result<u8, String> {
    let text = if arguments.markdown {
        metrics::markdown()
    } else if arguments.json {
        serde_json::to_string_pretty(&metrics::reference())
            .map_err(|error| format!("--json: cannot be encoded: {error}"))?
            + "\n"
    } else {
        metrics::text()
    };
    super::print(text.as_bytes())?;
    Ok(EXIT_OK)
}
