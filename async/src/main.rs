//! The `kvstrata` command; all of it is in `kvstrata::cli`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    kvstrata::cli::main()
}
