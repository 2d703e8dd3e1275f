//! `kvstrata metrics`: the reference of a manager's metrics.

use super::EXIT_OK;
use clap::Args;
use kvstrata::metrics;
use kvstrata::store::metrics_markdown;

const EXAMPLES: &str = "\
Examples:
  kvstrata metrics
      Prints all metrics: name, labels, type, unit and meaning.
  kvstrata metrics --json | jq -r '.[] | select(.type == \"histogram\") | .name'
      Prints the names of the histograms.
  kvstrata replay --metrics 127.0.0.1:9400 & curl -s 127.0.0.1:9400/metrics
      Prints the values while a replay runs.

Exit codes:
  0  success
  2  the request cannot be carried out; the message names the option, its value and the remedy";

/// Print the metrics of a manager: names, labels, types, units, meanings
///
/// A manager serves these metrics for Prometheus at the address of the setting `metrics.listen`, and a
/// replay at the address of --metrics.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct MetricsArgs {
    /// Print JSON: a list of {name, type, unit, labels, help}
    #[arg(long, group = "form")]
    json: bool,
    /// Print Markdown, as in docs/metrics.md
    #[arg(long, group = "form")]
    markdown: bool,
}

pub(super) fn run(arguments: &MetricsArgs) -> Result<u8, String> {
    let text = if arguments.markdown {
        metrics::markdown() + &metrics_markdown()
    } else if arguments.json {
        serde_json::to_string_pretty(&metrics::reference())
            .map_err(|error| format!("--json: the result cannot be encoded: {error}; please report this"))?
            + "\n"
    } else {
        metrics::text()
    };
    super::print(text.as_bytes())?;
    Ok(EXIT_OK)
}
