//! JSON output: to standard output, or whole into a file.

use kvstrata::shared::files;
use kvstrata_ffi::shown::shown_path;
use std::path::{Path, PathBuf};

/// Where `--json` writes.
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

    /// Refuses what can be seen to fail, before a minute's work is done for nothing.
    pub(super) fn check(&self) -> Result<(), String> {
        self.path().map_or(Ok(()), |path| files::check("--json", path))
    }

    /// The file, if it is one.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Target::Stdout => None,
            Target::File(path) => Some(path),
        }
    }

    /// Writes `value`; a file is either as it was or complete, never half-written.
    pub(super) fn write(&self, value: &impl serde::Serialize) -> Result<(), String> {
        let mut text = serde_json::to_vec_pretty(value)
            .map_err(|error| format!("--json: cannot be encoded: {error}"))?;
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
    fn a_file_is_replaced_whole_and_nothing_else_is_left() {
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
    fn what_will_fail_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a directory");
        let check = |path: &Path| Target::File(path.to_owned()).check().expect_err("impossible");
        assert!(check(folder.path()).contains("is a directory"));
        assert!(check(&folder.path().join("no/report.json")).contains("its directory does not exist"));
        assert_eq!(Target::parse("-"), Ok(Target::Stdout));
        assert!(Target::parse("").is_err());
    }
}
