//! Outputs of a result: a table for people, JSON for programs, a picture. `policies` and `replay` share them.

use super::json::Target;
use super::plot::{self, Drawing};
use clap::Args;
use kvstrata::shared::files;
use kvstrata_ffi::shown::shown_lines;
use serde::Serialize;
use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct Outputs {
    /// Write the result as JSON to this file, or to standard output (-)
    #[arg(long, value_name = "FILE|-", value_parser = Target::parse)]
    json: Option<Target>,
    /// Draw the result into this file; its name ends in .svg or .png
    #[arg(long, value_name = "FILE", value_parser = plot::Target::parse)]
    plot: Option<plot::Target>,
}

impl Outputs {
    /// Refuses outputs that will fail, before a minute's work is lost. Also refuses outputs that would
    /// replace each other, or one of the command's `others` files.
    pub(super) fn check(&self, others: &[(&str, PathBuf)]) -> Result<(), String> {
        self.json.as_ref().map_or(Ok(()), Target::check)?;
        self.plot.as_ref().map_or(Ok(()), plot::Target::check)?;
        let json = self.json.as_ref().and_then(Target::path).map(|path| ("--json", path));
        let plot = self.plot.as_ref().map(|target| ("--plot", target.path()));
        if let (Some(json), Some(plot)) = (json, plot) {
            files::check_apart(json, plot)?;
        }
        let mut pairs = json
            .into_iter()
            .chain(plot)
            .flat_map(|one| others.iter().map(move |(option, path)| (one, (*option, path.as_path()))));
        pairs.try_for_each(|(one, other)| files::check_apart(one, other))
    }

    /// Whether a picture is wanted.
    pub(super) fn draws(&self) -> bool {
        self.plot.is_some()
    }

    /// Writes all outputs. One that cannot be written does not keep the others from being written.
    pub(super) fn write(
        &self,
        report: &(impl Display + Serialize),
        drawing: impl FnOnce() -> Drawing,
    ) -> Result<(), String> {
        let table = match &self.json {
            Some(Target::Stdout) => {
                // JSON alone goes to standard output.
                let _ = writeln!(std::io::stderr(), "{}", shown_lines(report));
                Ok(())
            }
            _ => super::print_shown(&format!("{report}\n")),
        };
        let json = self.json.as_ref().map_or(Ok(()), |target| target.write(report));
        let plot = self.plot.as_ref().map_or(Ok(()), |target| target.write(&drawing()));
        let errors: Vec<String> = [table, json, plot].into_iter().filter_map(Result::err).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }
}
