//! `kvstrata config`: the settings of a manager, what a file of them comes to, and whether this machine has
//! that.

use super::{EXIT_OK, doctor, here};
use clap::Args;
use kvstrata::config::{self, ManagerConfig};
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
      What that file and the environment come to; * marks what is not the default, with where it came from. Below, what each
      group of layers has in each tier.
  kvstrata config --check kvstrata.toml --here
      The same, and whether this machine has the memory, disk room, O_DIRECT, driver, port and memory lock for it.

Exit codes: 0 all well; 2 a setting is wrong, or this machine lacks what it asks for, and the message names it, its value, where it
came from and what is allowed.";

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
    /// With --check: also look whether this machine has what it takes, as a manager would that is made here and now
    #[arg(long, requires = "check")]
    here: bool,
}

pub(super) fn run(arguments: &ConfigArgs) -> Result<u8, String> {
    if let Some(path) = &arguments.check {
        let config = ManagerConfig::builder().file(path).environment().build();
        return check(&config.map_err(|error| error.to_string())?, arguments.here);
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

/// Prints what the settings come to, and, if asked for, what there is for it.
fn check(config: &ManagerConfig, is_here: bool) -> Result<u8, String> {
    let mut text = format!("{config}\n{}", config.tiers());
    let found = if is_here { here::look(config) } else { here::Here::default() };
    if is_here {
        text += "\n";
        text += &doctor::table(&found.facts);
    }
    super::print_shown(&text)?;
    if found.refusals.is_empty() { Ok(EXIT_OK) } else { Err(found.refusals.join("\n")) }
}
