//! The `kvstrata` command.
//!
//! Exit codes: 0 all well; 1 a wrong byte was found; 2 what was asked for is impossible, with a message that
//! names the option, the line or the path, its value and what to do; 130 and 143 a replay that SIGINT or
//! SIGTERM has ended early, in order.

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
use std::io::Write;
use std::process::ExitCode;

/// All went well.
pub const EXIT_OK: u8 = 0;
/// A byte was not what had been written.
pub const EXIT_WRONG_BYTE: u8 = 1;
/// What was asked for is not possible, or not here.
pub const EXIT_REFUSED: u8 = 2;

const EXAMPLES: &str = "\
Begin with:
  kvstrata doctor
      What this machine has for it, and what to do about what it lacks.
  kvstrata replay --requests 1000
      Requests of a chat service over three tiers on this machine, every byte checked.
  kvstrata policies --plot curves.svg
      How many blocks are worth having, and by which eviction policy.
  kvstrata layout --preset llama-3-8b
      How many bytes a block of a model has, and where they lie.
  kvstrata config --toml
      The settings of a manager that an engine embeds.
  kvstrata top worker-3:9400
      Watch a manager that serves its metrics.

Each command's --help has examples of its own.

Exit codes: 0 all well; 1 a wrong byte was found; 2 something asked for is impossible, and the message says what and why;
130, 143 SIGINT or SIGTERM has ended a replay early, with a report of what was served.";

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "kvstrata",
    version,
    about = "A tiered KV-cache block manager for LLM inference",
    long_about = "A tiered KV-cache block manager for LLM inference: blocks in device memory, host memory and on NVMe.\n\n\
                  Engines embed the manager (crate kvstrata); this command shows what it does, and sets it up.",
    after_long_help = EXAMPLES,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to log to standard error: off, error, warn, info, debug, trace, or by module [default: KVSTRATA_LOG, or warn]
    ///
    /// By module: info,kvstrata_backends::disk=debug. At debug there is a line for each allocation, onboarding and copy down that a request asks for; at info there is none for a request or a block.
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
    #[command(long_about = "Print a completion script for a shell.\n\n  kvstrata completions bash > \
                            ~/.local/share/bash-completion/completions/kvstrata\n  kvstrata completions zsh > \
                            ~/.zfunc/_kvstrata\n  kvstrata completions fish > ~/.config/fish/completions/kvstrata.fish")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let Cli { log, command } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    // What is logged ends behind what is done.
    let has_manager = matches!(command, Command::Replay(_));
    let result = log::begin(log.as_deref(), has_manager).and_then(|_logging| run(command));
    match result {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            complain(&message);
            ExitCode::from(EXIT_REFUSED)
        }
    }
}

/// Says what went wrong. Its own ends of lines stay; whatever else a terminal obeys comes from outside, and is shown.
fn complain(message: &str) {
    // Nothing is left to be done where even this cannot be written.
    let _ = writeln!(std::io::stderr(), "kvstrata: {}", shown_lines(message));
}

/// A command line that is none, or that asks for help. The message repeats what was typed.
fn refused(error: &clap::Error) -> ExitCode {
    let typed = |argument: std::ffi::OsString| !argument.to_string_lossy().chars().all(is_shown);
    if error.use_stderr() && std::env::args_os().any(typed) {
        // Without the message's own colours, which could not be told from what was typed.
        let _ = write!(std::io::stderr(), "{}", shown_lines(error.render()));
        return ExitCode::from(EXIT_REFUSED);
    }
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_REFUSED))
}

fn run(command: Command) -> Result<u8, String> {
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

/// Writes a text for people to standard output: nothing in it is obeyed by a terminal.
fn print_shown(text: &str) -> Result<(), String> {
    print(shown_lines(text).to_string().as_bytes())
}

/// Writes to standard output, as it is. A reader that has seen enough and closes the pipe is no error.
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
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
