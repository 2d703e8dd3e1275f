//! The `kvstrata` command. All of its code is in `kvstrata_cli`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    kvstrata_cli::main()
}
