//! The `kvstrata` command.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | success |
//! | 1 | a replay found a wrong byte |
//! | 2 | the request is impossible; the message names the option, line or path, its value and the remedy |
//! | 130, 143 | SIGINT or SIGTERM ended a replay early, in order |

mod choice;
mod config;
mod doctor;
mod here;
mod interrupt;
mod json;
mod layout;
mod log;
mod metrics;
mod outputs;
mod plot;
mod policies;
mod progress;
mod replay;
mod screen;
pub mod top;
mod trace;
mod tune;

use clap::{CommandFactory, Parser, Subcommand};
use kvstrata::shared::number;
use kvstrata_ffi::shown::{is_shown, shown_lines};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// The command succeeded.
pub const EXIT_OK: u8 = 0;
/// A byte that was read back differs from the byte that was written.
pub const EXIT_WRONG_BYTE: u8 = 1;
/// The request is impossible, in general or on this machine.
pub const EXIT_REFUSED: u8 = 2;

/// The widest line of help and of messages, on a terminal of any width. Tables of data may be wider.
const MOST_COLUMNS: usize = 110;

// Clap wraps each text of --help at the terminal's width. A paragraph is therefore one line here.
const EXAMPLES: &str = "\
Start here:
  kvstrata doctor
      Checks which kernel and hardware features kvstrata can use here, and gives remedies.
  kvstrata replay --requests 1000
      Replays requests of a chat service over three tiers on this machine and checks every byte.
  kvstrata policies --plot curves.svg
      Draws the hit ratio of each eviction policy by capacity.
  kvstrata layout --preset llama-3-8b
      Shows how many bytes a block of a model has, and where they lie.
  kvstrata config --toml
      Prints the settings of a manager that an engine embeds, as a file to edit.
  kvstrata top worker-3:9400
      Watches the manager that serves its metrics at this address.

The --help of each command has more examples.

Exit codes:
  0    success
  1    a replay found a wrong byte
  2    the request cannot be carried out; the message names the option, its value and the remedy
  130  SIGINT ended a replay early; its report covers the requests served
  143  the same for SIGTERM";

/// A tiered KV-cache block manager for LLM inference
///
/// It keeps KV blocks in device memory, in host memory and on NVMe. Inference engines embed the manager
/// (crate kvstrata). This command replays traces through it, prints its settings and watches it.
#[derive(Debug, Parser)]
#[command(
    name = "kvstrata",
    version,
    max_term_width = MOST_COLUMNS,
    after_long_help = EXAMPLES,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// Log level on standard error: off, error, warn, info, debug, trace, or by module
    /// [default: KVSTRATA_LOG, or warn]
    ///
    /// A level by module: info,kvstrata_backends::disk=debug. At debug, each allocation, onboard and
    /// explicit offload of a request logs a line. At info, no line is logged for a request or a block.
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Replay(Box<replay::ReplayArgs>),
    Policies(policies::PoliciesArgs),
    Doctor(doctor::DoctorArgs),
    Layout(Box<layout::LayoutArgs>),
    Tune(tune::TuneArgs),
    Config(config::ConfigArgs),
    Metrics(metrics::MetricsArgs),
    Top(top::TopArgs),
    /// Print a completion script for a shell
    #[command(after_long_help = COMPLETIONS)]
    Completions {
        /// The shell that will read the script
        shell: clap_complete::Shell,
    },
}

const COMPLETIONS: &str = "\
Examples:
  kvstrata completions bash >~/.local/share/bash-completion/completions/kvstrata
  kvstrata completions zsh >~/.zfunc/_kvstrata
  kvstrata completions fish >~/.config/fish/completions/kvstrata.fish";

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    ExitCode::from(run(std::env::args_os()))
}

/// Runs a command line. The first argument is the command's name. Returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let Cli { log, command } = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return refused(&error, &arguments),
    };
    // `_logging` lives until the command has ended.
    let has_manager = matches!(command, Command::Replay(_));
    let result = log::begin(log.as_deref(), has_manager).and_then(|_logging| carry_out(command));
    result.unwrap_or_else(|message| {
        complain(&message);
        EXIT_REFUSED
    })
}

/// Prints an error to standard error, wrapped at the width of a terminal. Line ends of the message stay.
/// Other control characters come from outside and are escaped.
fn complain(message: &str) {
    let text = screen::folded("kvstrata: ", &shown_lines(message).to_string());
    // If standard error cannot be written, the exit code is all that is left.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints a parse error of the command line, or the help that it asks for. The error repeats the arguments.
fn refused(error: &clap::Error, arguments: &[OsString]) -> u8 {
    let obeyed = |argument: &OsString| !argument.to_string_lossy().chars().all(is_shown);
    if error.use_stderr() && arguments.iter().any(obeyed) {
        // Colours of the message would be escaped together with the control characters of the arguments.
        let _ = write!(std::io::stderr(), "{}", shown_lines(error.render()));
        return EXIT_REFUSED;
    }
    let _ = error.print();
    u8::try_from(error.exit_code()).unwrap_or(EXIT_REFUSED)
}

fn carry_out(command: Command) -> Result<u8, String> {
    match command {
        Command::Replay(arguments) => replay::run(*arguments),
        Command::Policies(arguments) => policies::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Layout(arguments) => layout::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Metrics(arguments) => metrics::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Completions { shell } => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<u8, String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "kvstrata", &mut script);
    print(&script)?;
    Ok(EXIT_OK)
}

/// Writes text for people to standard output. Control characters are escaped, so a
/// terminal obeys none of them.
fn print_shown(text: &str) -> Result<(), String> {
    print(shown_lines(text).to_string().as_bytes())
}

/// Writes bytes to standard output unchanged. A closed pipe is not an error.
fn print(text: &[u8]) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
