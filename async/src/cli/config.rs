//! `kvstrata config`: the settings of a manager, and what a file of them comes to.

use super::EXIT_OK;
use crate::config::{self, ManagerConfig};
use clap::Args;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  kvstrata config
      All settings.
  kvstrata config watermark device.blocks
      Those of a section, and another one.
  kvstrata config --toml > kvstrata.toml
      A file with all defaults, to be changed.
  KVSTRATA_DEVICE_BYTES=1G kvstrata config --check kvstrata.toml
      What that file and the environment come to; * marks what is not the default, with where it came from.

Exit codes: 0 all well; 2 a setting is wrong, and the message names it, its value, where it came from and what is allowed.";

/// Print the settings of a manager: keys, variables, defaults, what is allowed
#[derive(Debug, Args)]
#[command(
    long_about = "Print the settings of a manager: the key in files, the environment variable, the default, what is allowed, \
                  and what it is.\n\n\
                  A manager reads a TOML file (the one that KVSTRATA_CONFIG names, or that the engine does), then the \
                  environment, then what the engine sets by calls: each is stronger than the one before it. Bytes and \
                  numbers take K, M, G and T, powers of 1024; \"none\" is no value.",
    after_long_help = EXAMPLES
)]
pub(super) struct ConfigArgs {
    /// Settings by key (device.blocks), or whole sections (device) [default: all]
    #[arg(value_name = "KEY", value_parser = clap::builder::PossibleValuesParser::new(config::keys()), hide_possible_values = true)]
    keys: Vec<String>,
    /// Print JSON: a list of {key, variable, type, unit, default, allowed, words}
    #[arg(long, group = "form")]
    json: bool,
    /// Print a TOML file with all defaults, and a comment for each
    #[arg(long, group = "form", conflicts_with = "keys")]
    toml: bool,
    /// Print Markdown, as docs/settings.md has it
    #[arg(long, group = "form", conflicts_with = "keys")]
    markdown: bool,
    /// Read this file and the environment, and print what a manager would be made of
    #[arg(long, value_name = "FILE", group = "form", conflicts_with = "keys")]
    check: Option<PathBuf>,
}

pub(super) fn run(arguments: &ConfigArgs) -> Result<u8, String> {
    if let Some(path) = &arguments.check {
        let config = ManagerConfig::builder().file(path).environment().build();
        super::print_shown(&config.map_err(|error| error.to_string())?.to_string())?;
        return Ok(EXIT_OK);
    }
    let text = if arguments.toml {
        ManagerConfig::builder().build().map_err(|error| error.to_string())?.to_toml()
    } else if arguments.markdown {
        config::markdown()
    } else if arguments.json {
        let entries = config::reference(&arguments.keys);
        serde_json::to_string_pretty(&entries)
            .map_err(|error| format!("--json: cannot be encoded: {error}"))?
            + "\n"
    } else {
        config::text(&arguments.keys)
    };
    super::print(text.as_bytes())?;
    Ok(EXIT_OK)
}
