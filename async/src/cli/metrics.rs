//! `kvstrata metrics`: what there is to be watched.

use super::EXIT_OK;
use crate::metrics;
use clap::Args;
use std::net::{SocketAddr, ToSocketAddrs};

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

/// Where to serve them: an address and a port, or a name of this machine's, the first address that it has.
pub(super) fn place(text: &str) -> Result<SocketAddr, String> {
    const REMEDY: &str = "give an address of this machine and a port (0: a free one), as 127.0.0.1:9400, [::1]:9400 or localhost:9400";
    let found = text.to_socket_addrs().map_err(|error| format!("{error}; {REMEDY}"));
    found?.next().ok_or_else(|| format!("the name has no address; {REMEDY}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_or_a_name_and_a_port() {
        assert_eq!(place("127.0.0.1:9400"), Ok(SocketAddr::from(([127, 0, 0, 1], 9400))));
        assert_eq!(place("[::1]:0").map(|place| (place.is_ipv6(), place.port())), Ok((true, 0)));
        assert!(place("localhost:9400").is_ok_and(|place| place.ip().is_loopback()));
        for wrong in ["9400", "127.0.0.1", "127.0.0.1:66666", ""] {
            let error = place(wrong).expect_err("no place");
            assert!(error.contains("as 127.0.0.1:9400"), "{wrong:?}: {error}");
        }
    }
}
