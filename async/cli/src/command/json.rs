//! JSON output: to standard output, or into a file that is replaced as a whole.

use kvstrata::shared::files;
use kvstrata_ffi::shown::shown_path;
use std::path::{Path, PathBuf};

/// The target of `--json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Stdout,
    File(PathBuf),
}

impl Target {
    pub(super) fn parse(text: &str) -> Result<Target, String> {
        match text {
            "" => Err("name a file, or - for standard output".to_owned()),
            "-" => Ok(Target::Stdout),
            path => Ok(Target::File(PathBuf::from(path))),
        }
    }

    /// Refuses a file that cannot be written, before a minute's work is lost.
    pub(super) fn check(&self) -> Result<(), String> {
        self.path().map_or(Ok(()), |path| files::check("--json", path))
    }

    /// The file; `None` for standard output.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Target::Stdout => None,
            Target::File(path) => Some(path),
        }
    }

    /// Writes `value`. After an error, a file is as it was before; it is never half-written.
    pub(super) fn write(&self, value: &impl serde::Serialize) -> Result<(), String> {
        let mut text = serde_json::to_vec_pretty(value)
            .map_err(|error| format!("--json: the result cannot be encoded: {error}; please report this"))?;
        text.push(b'\n');
        match self {
            Target::Stdout => super::print(&text),
            Target::File(path) => files::replace(path, &text).map_err(|error| {
                format!("--json {}: cannot be written: {error}; name another file", shown_path(path))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_replaced_whole_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("report.json");
        std::fs::write(&path, "old").expect("written");
        let target = Target::parse(path.to_str().expect("UTF-8")).expect("a file");
        target.check().expect("possible");
        target.write(&[1, 2]).expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "[\n  1,\n  2\n]\n");
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 1);
    }

    #[test]
    fn target_that_cannot_be_written_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a directory");
        let check = |path: &Path| Target::File(path.to_owned()).check().expect_err("impossible");
        assert!(check(folder.path()).contains("is a directory"));
        assert!(check(&folder.path().join("no/report.json")).contains("its directory does not exist"));
        assert_eq!(Target::parse("-"), Ok(Target::Stdout));
        assert!(Target::parse("").is_err());
    }
}
