//! The `kvstrata` command; all of it is in `kvstrata_cli`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    kvstrata_cli::main()
}
