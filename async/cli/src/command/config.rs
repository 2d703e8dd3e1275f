//! `kvstrata config`: the settings of a manager, the result of a settings file, and whether this machine
//! has the resources for it.

use super::{EXIT_OK, doctor, here};
use clap::Args;
use kvstrata::config::{self, ManagerConfig};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  kvstrata config
      Prints all settings.
  kvstrata config watermark device.blocks
      Prints the settings of a section, and one more setting.
  kvstrata config --toml > kvstrata.toml
      Writes a file with all defaults, to edit.
  KVSTRATA_DEVICE_BYTES=1G kvstrata config --check kvstrata.toml
      Prints the settings that the file and the environment result in. A * marks a setting that differs from its default, with \
      its origin. A table below has the blocks of each group of layers in each tier.
  kvstrata config --check kvstrata.toml --here
      Also checks that this machine has the memory, disk space, O_DIRECT, driver, port and memory lock.

Exit codes:
  0  success
  2  a wrong setting or a missing resource; the message has origin and remedy";

/// Print the settings of a manager: keys, variables, defaults, allowed values
///
/// For each setting: its key in files, its environment variable, its default, the
/// allowed values, and its meaning.
///
/// A manager reads a TOML file, which KVSTRATA_CONFIG or the engine names. Environment variables override
/// the file, and calls of the engine override both. Bytes and numbers take K, M, G and T, powers of 1024;
/// "none" stands for no value.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct ConfigArgs {
    /// Keys of settings (device.blocks) or of whole sections (device) [default: all]
    #[arg(value_name = "KEY", value_parser = clap::builder::PossibleValuesParser::new(config::keys()), hide_possible_values = true)]
    keys: Vec<String>,
    /// Print JSON: a list of {key, variable, type, unit, default, allowed, words}
    #[arg(long, group = "form")]
    json: bool,
    /// Print a TOML file with all defaults and a comment for each
    #[arg(long, group = "form", conflicts_with = "keys")]
    toml: bool,
    /// Print Markdown, as in docs/settings.md
    #[arg(long, group = "form", conflicts_with = "keys")]
    markdown: bool,
    /// Read this file and the environment, and print the resulting settings
    #[arg(long, value_name = "FILE", group = "form", conflicts_with = "keys")]
    check: Option<PathBuf>,
    /// With --check: also check the resources of this machine, as a manager started now would
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
            .map_err(|error| format!("--json: the result cannot be encoded: {error}; please report this"))?
            + "\n"
    } else {
        config::text(&arguments.keys)
    };
    super::print(text.as_bytes())?;
    Ok(EXIT_OK)
}

/// Prints the settings of a file, and with `--here` the resources of this machine.
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
