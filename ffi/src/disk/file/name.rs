//! A file and its name: opened or created, locked, and still named by the path.
//!
//! ```text
//!   open or create ─ lock ─ does the path name it? ─► ours
//!         ▲                        │ no: it was removed or replaced meanwhile
//!         └────────────────────────┘ a few times
//! ```
//!
//! Between our opening and locking, the holder of the lock may have failed and removed the file, and
//! another process may have created a new one. A lock on a file without a name keeps no one off the
//! volume, and everything written there is gone with the process.
//!
//! Invariants
//! - I1: a name is removed only while the file that it names is locked, and only if that file
//!   was created here.

use super::super::error::VolumeError;
use super::super::options::VolumeOptions;
use super::refused::os;
use super::system::lock;
use crate::process::{Holder, Uninherited};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Files opened at most until one still has its name when it is locked.
const ATTEMPTS: u32 = 8;

/// Removes the name again unless told that all went well (I1).
#[derive(Debug)]
pub(in crate::disk) struct Named(Option<(PathBuf, Uninherited<File>)>);

impl Named {
    pub(in crate::disk) fn nothing() -> Named {
        Named(None)
    }

    /// The lock is the open file's: it lasts until all copies of the descriptor are closed, including a
    /// forked child's.
    fn new(path: &Path, file: &File) -> Result<Named, VolumeError> {
        let locked = Uninherited::open(|| file.try_clone()).map_err(os(path, "keep the file locked"))?;
        Ok(Named(Some((path.to_owned(), locked))))
    }

    pub(in crate::disk) fn stays(&mut self) {
        self.0 = None;
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Some((path, file)) = self.0.take()
            && names(&path, &file)
        {
            // A refusal here cannot be handled; the error that led here is being reported.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A locked file that the path names, or named until the name was dropped since the file is not kept.
pub(super) struct Opened {
    pub(super) file: Uninherited<File>,
    /// Whether it was created just now.
    pub(super) made: bool,
    pub(super) named: Named,
}

pub(super) fn open(options: &VolumeOptions, notes: &mut Vec<String>) -> Result<Opened, VolumeError> {
    let path = &options.path;
    for _ in 0..ATTEMPTS {
        let Some((file, made)) = open_or_create(path, options.keep)? else { continue };
        // Lock first: a file that another process has just created is not ours to remove.
        let note = lock(&*options.system, &file, path)?;
        if !names(path, &file) {
            continue;
        }
        notes.extend(note);
        let mut named = if made { Named::new(path, &file)? } else { Named::nothing() };
        if !options.keep {
            // Without a name the file vanishes with its last descriptor, even if the process is killed.
            std::fs::remove_file(path).map_err(os(path, "remove the file's name"))?;
            named.stays();
        }
        return Ok(Opened { file, made, named });
    }
    Err(VolumeError::InUse { path: path.clone(), holder: Holder::Unknown })
}

/// Whether the path names this file.
pub(in crate::disk) fn names(path: &Path, file: &File) -> bool {
    // While the file is open, no other file gets its number.
    let number = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let named = std::fs::symlink_metadata(path).map(number);
    named.is_ok_and(|named| file.metadata().is_ok_and(|metadata| number(metadata) == named))
}

/// Opens or creates a file, and returns whether it was created. None if it existed, and then did not.
/// Without O_DIRECT: with it, a file system that refuses leaves an empty file behind.
fn open_or_create(path: &Path, keep: bool) -> Result<Option<(Uninherited<File>, bool)>, VolumeError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW);
    match Uninherited::open(|| options.clone().create_new(true).open(path)) {
        Ok(file) => return Ok(Some((file, true))),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(os(path, "create the file")(error)),
    }
    // Checked before opening, since opening a device can change it.
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        there => regular(path, &there.map_err(os(path, "examine the path"))?)?,
    }
    if !keep {
        return Err(VolumeError::Exists { path: path.to_owned() });
    }
    let file = match Uninherited::open(|| options.open(path)) {
        // Removed meanwhile, or replaced by a link: the caller tries again.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ELOOP)) => return Ok(None),
        opened => opened.map_err(os(path, "open the file"))?,
    };
    regular(path, &file.metadata().map_err(os(path, "examine the path"))?)?;
    Ok(Some((file, false)))
}

/// Refuses everything except regular files.
fn regular(path: &Path, metadata: &Metadata) -> Result<(), VolumeError> {
    let kind = metadata.file_type();
    let refuse =
        |why: &str| Err(VolumeError::Option { path: path.to_owned(), option: "path", why: why.to_owned() });
    match kind {
        _ if kind.is_file() => Ok(()),
        _ if kind.is_block_device() => Err(VolumeError::BlockDevice { path: path.to_owned() }),
        _ if kind.is_symlink() => refuse(
            "is a symbolic link, which is not followed because it could \
             redirect writes; name the file itself",
        ),
        _ => refuse("is not a regular file; name a regular file, or a new one"),
    }
}

/// Takes group's and others' rights away; a note if that is refused. A found file may be a copy,
/// or made by hand.
pub(super) fn close_to_others(file: &File, options: &VolumeOptions) -> Option<String> {
    let mode = file.metadata().ok()?.mode() & 0o7777;
    if mode & 0o077 == 0 {
        return None;
    }
    let refused = options.system.set_mode(file, mode & !0o077).err()?;
    Some(format!(
        "its mode {mode:04o} admits other users, and changing it failed ({refused}); let its owner set 0600"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::file::Kernel;

    /// A process that opens the file before its name is gone waits for the lock, and then finds that the
    /// name is gone.
    #[test]
    fn name_is_locked_until_it_is_gone() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let options = VolumeOptions::new(dir.path().join("volume"), 1, 1).keep(true);
        let Opened { file, made, named } = open(&options, &mut Vec::new()).expect("made");
        let other = File::open(&options.path).expect("it has a name");
        drop(file);
        assert!(made && other.try_lock().is_err() && names(&options.path, &other));
        drop(named);
        let locked = lock(&Kernel, &other, &options.path);
        assert!(matches!(locked, Ok(None)) && !names(&options.path, &other));
    }
}
