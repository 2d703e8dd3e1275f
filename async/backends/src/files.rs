//! Files that are replaced atomically: the old contents or the new ones, never a part.

use kvstrata_ffi::shown::shown_path;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Returns the directory that a file is in, or would be.
pub fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Checks early that an output file can be written, so that a long run does not fail at its end.
/// `option` names the file in the error.
pub fn check(option: &str, path: &Path) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("{option} {}: {why}", shown_path(path)));
    if path.is_dir() {
        return refuse("is a directory; name a file in it");
    }
    if !folder(path).is_dir() {
        return refuse("its directory does not exist; create it, or name another one");
    }
    if is_special(path) {
        return Ok(());
    }
    let tried = begin(path).and_then(|(temporary, _)| std::fs::remove_file(temporary));
    tried.or_else(|error| refuse(&format!("cannot be written: {error}; name another file")))
}

/// Checks that two options do not name the same file, in which the first output would be lost.
pub fn check_apart(one: (&str, &Path), other: (&str, &Path)) -> Result<(), String> {
    let ((option, path), (another, other)) = (one, other);
    if entries(path).any(|entry| entries(other).any(|of_other| entry == of_other)) {
        return Err(format!(
            "{option} {} and {another} {} are the same file, and one output would be lost; name two files",
            shown_path(path),
            shown_path(other)
        ));
    }
    Ok(())
}

/// Returns the file's path by its real directory, and its link target if it is a link. Nothing if the
/// directory does not exist.
fn entries(path: &Path) -> impl Iterator<Item = PathBuf> {
    let here = path.file_name().and_then(|name| Some(folder(path).canonicalize().ok()?.join(name)));
    here.into_iter().chain(path.canonicalize())
}

/// Whether a path is not a regular file (a pipe, /dev/stderr): it cannot be replaced, and is written
/// directly.
fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.is_file())
}

/// Creates a temporary file beside the file that it will replace.
fn begin(path: &Path) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.tmp", std::process::id()));
    let temporary = folder(path).join(hidden);
    let create = || OpenOptions::new().write(true).create_new(true).open(&temporary);
    let file = create().or_else(|error| match error.kind() {
        // Left over from a killed process with the same id: in containers ids repeat.
        io::ErrorKind::AlreadyExists => std::fs::remove_file(&temporary).and_then(|()| create()),
        _ => Err(error),
    })?;
    Ok((temporary, file))
}

/// Replaces a file's contents.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    if is_special(path) {
        return OpenOptions::new().write(true).open(path)?.write_all(text);
    }
    let (temporary, mut file) = begin(path)?;
    let written =
        file.write_all(text).and_then(|()| file.sync_all()).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // Report the first error, not this one.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftover_of_a_process_with_our_number_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("report");
        let (left, _) = begin(&path).expect("a new one");
        replace(&path, b"all of it").expect("the left-over goes");
        assert_eq!((std::fs::read(&path).expect("written"), left.exists()), (b"all of it".to_vec(), false));
        drop(begin(&path).expect("a new one"));
        check("--json", &path).expect("it can be written");
    }

    #[test]
    fn file_is_the_same_by_any_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let apart = |one: &str, other: &str| check_apart(("--json", &path(one)), ("--plot", &path(other)));
        std::fs::create_dir(path("inner")).expect("a folder");
        for other in ["run.svg", "./run.svg", "inner/../run.svg"] {
            let message = apart("run.svg", other).expect_err("one file, which need not be there");
            assert!(message.starts_with("--json ") && message.contains("run.svg and --plot "), "{message}");
        }
        std::os::unix::fs::symlink(path("run.svg"), path("link.svg")).expect("a link");
        apart("run.svg", "link.svg").expect("a link to nothing is replaced");
        std::fs::write(path("run.svg"), "old").expect("written");
        assert!(apart("run.svg", "link.svg").is_err() && apart("link.svg", "run.svg").is_err());
        for other in ["run.json", "inner/run.svg", "none/run.svg"] {
            apart("run.svg", other).expect("two files");
        }
    }
}
