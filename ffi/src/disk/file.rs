//! The volume's file: made, sized, opened the right way, and gone again.
//!
//! Steps, each of which can fail and leaves no file behind when it does: create (`O_EXCL`, 0600), lock,
//! drop the name unless the file is to stay, ask the alignment, look for room, allocate, switch O_DIRECT
//! on and try it, write through if asked.
//!
//! Invariants
//! - I1: the file has a name only while `named` holds the path, or if it is to stay.

use super::error::VolumeError;
use super::options::{Backend, Geometry, Progress, VolumeOptions};
use crate::arena::{BLOCK_ALIGN_BYTES, HostArena};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Slots are aligned to this where there is no O_DIRECT and hence no rule.
const BUFFERED_ALIGN_BYTES: usize = 512;
/// Written at a time when a file is written through.
const FILL_BYTES: usize = 4 << 20;

/// A file that is ready for slots.
#[derive(Debug)]
pub(super) struct VolumeFile {
    pub(super) file: File,
    pub(super) geometry: Geometry,
    pub(super) direct: bool,
    /// Of memory, file offsets and lengths, in bytes.
    pub(super) alignment: usize,
    /// What was not as asked or as good as it could be.
    pub(super) notes: Vec<String>,
}

/// Removes the name again unless told that all went well (I1).
struct Named(Option<PathBuf>);

impl Drop for Named {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // Nothing can be done about a refusal here; the error that led here is being reported.
            let _ = std::fs::remove_file(path);
        }
    }
}

pub(super) fn create(options: &mut VolumeOptions) -> Result<VolumeFile, VolumeError> {
    options.check()?;
    let path = options.path.clone();
    let os = |operation| {
        let path = path.clone();
        move |source| VolumeError::Os { path, operation, source }
    };
    let file = open(&path, options.overwrite)?;
    lock(&file, &path)?;
    let mut named = Named(Some(path.clone()));
    if options.overwrite {
        file.set_len(0).map_err(os("empty the file"))?;
    }
    if !options.keep {
        // Without a name the file goes when the last descriptor does, even if the process is killed.
        std::fs::remove_file(&path).map_err(os("take the name off the file"))?;
        named.0 = None;
    }

    let mut notes = Vec::new();
    let wants_direct = options.backend != Backend::UringBuffered;
    let alignment = if wants_direct { direct_alignment(&file) } else { Ok(BUFFERED_ALIGN_BYTES) };
    let (mut direct, mut refused, alignment) = match alignment {
        Ok(alignment) => (wants_direct, None, alignment),
        Err(why) => (false, Some(why), BUFFERED_ALIGN_BYTES),
    };
    let geometry = options.geometry(alignment)?;
    let allocated = allocate(&file, &path, geometry.file_bytes)?;
    if direct && let Err(error) = try_direct(&file, &path, geometry.origin, alignment)? {
        direct = false;
        refused = Some(error.to_string());
    }
    if let Some(why) = refused {
        if options.backend == Backend::UringDirect {
            return Err(VolumeError::NoDirect { path, why });
        }
        notes.push(format!("O_DIRECT refused ({why}): the page cache holds a second copy of what is moved"));
    }
    if !allocated {
        notes.push("the file system cannot preallocate: written through instead".to_owned());
    }
    if options.write_through || !allocated {
        fill(&file, &path, geometry.file_bytes, options.progress.as_mut())?;
    }
    named.0 = None;
    Ok(VolumeFile { file, geometry, direct, alignment, notes })
}

/// Opens without O_DIRECT: with it, a file system that refuses leaves an empty file behind.
fn open(path: &Path, overwrite: bool) -> Result<File, VolumeError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW);
    let opened = match overwrite {
        // Emptied later, under the lock.
        true => options.create(true).truncate(false).open(path),
        false => options.create_new(true).open(path),
    };
    let file = opened.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => VolumeError::Exists { path: path.to_owned() },
        _ => VolumeError::Os { path: path.to_owned(), operation: "create the file", source },
    })?;
    let regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
    if !regular {
        return Err(VolumeError::Option {
            path: path.to_owned(),
            option: "path",
            why: "is not a regular file; name a file that can be created".to_owned(),
        });
    }
    Ok(file)
}

/// One volume a file, across processes.
fn lock(file: &File, path: &Path) -> Result<(), VolumeError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(std::fs::TryLockError::WouldBlock) => Err(VolumeError::InUse { path: path.to_owned() }),
        // A file system without locks: the exclusive creation has to do.
        Err(std::fs::TryLockError::Error(_)) => Ok(()),
    }
}

/// The alignment that O_DIRECT asks of memory, offsets and lengths, or why there is none to be had.
#[cfg(target_os = "linux")]
fn direct_alignment(file: &File) -> Result<usize, String> {
    // SAFETY: all-zero bytes are a valid `statx`: it is made of integers.
    let mut facts: libc::statx = unsafe { core::mem::zeroed() };
    // SAFETY: an empty path with AT_EMPTY_PATH asks about the descriptor; `facts` is ours and large enough.
    let asked = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &mut facts)
    };
    // Kernels before 6.1, and some file systems, do not say. Then every device's page does.
    if asked != 0 || facts.stx_mask & libc::STATX_DIOALIGN == 0 {
        return Ok(BLOCK_ALIGN_BYTES);
    }
    let alignment = facts.stx_dio_mem_align.max(facts.stx_dio_offset_align) as usize;
    match alignment {
        0 => Err("the file system says that it has no O_DIRECT".to_owned()),
        1..=BLOCK_ALIGN_BYTES if alignment.is_power_of_two() => Ok(alignment.max(BUFFERED_ALIGN_BYTES)),
        _ => {
            Err(format!("it asks for an alignment of {alignment} bytes, and blocks have {BLOCK_ALIGN_BYTES}"))
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn direct_alignment(_file: &File) -> Result<usize, String> {
    Err("only Linux has it".to_owned())
}

/// Gives the file its blocks; false where the file system cannot do that.
fn allocate(file: &File, path: &Path, bytes: u64) -> Result<bool, VolumeError> {
    // Asked first, so that an absurd size does not fill the disk for a moment.
    let available = available_bytes(file);
    let no_space =
        || VolumeError::NoSpace { path: path.to_owned(), needed_bytes: bytes, available_bytes: available };
    if bytes > available {
        return Err(no_space());
    }
    // Going over this limit does not fail, it kills: SIGXFSZ.
    let limit = file_size_limit();
    let over_limit =
        || VolumeError::FileSizeLimit { path: path.to_owned(), needed_bytes: bytes, limit_bytes: limit };
    if bytes > limit {
        return Err(over_limit());
    }
    let os = |source| VolumeError::Os { path: path.to_owned(), operation: "allocate the file", source };
    loop {
        let Err(error) = fallocate(file, bytes) else { return Ok(true) };
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ENOSPC | libc::EDQUOT) => return Err(no_space()),
            Some(libc::EFBIG) => return Err(over_limit()),
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => {
                file.set_len(bytes).map_err(os)?;
                return Ok(false);
            }
            _ => return Err(os(error)),
        }
    }
}

#[cfg(target_os = "linux")]
fn fallocate(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = libc::off64_t::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: the call takes a descriptor, which is open, and numbers.
    match unsafe { libc::fallocate64(file.as_raw_fd(), 0, 0, bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(target_os = "linux"))]
fn fallocate(_file: &File, _bytes: u64) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// Bytes that an unprivileged user can still write; `u64::MAX` if the system does not say.
fn available_bytes(file: &File) -> u64 {
    // SAFETY: all-zero bytes are a valid `statvfs`: it is made of integers.
    let mut facts: libc::statvfs = unsafe { core::mem::zeroed() };
    // SAFETY: the descriptor is open and `facts` is ours.
    match unsafe { libc::fstatvfs(file.as_raw_fd(), &mut facts) } {
        #[allow(clippy::unnecessary_cast, reason = "the field types differ between systems")]
        0 if facts.f_blocks > 0 => (facts.f_bavail as u64).saturating_mul(facts.f_frsize as u64),
        _ => u64::MAX,
    }
}

/// The same of the file system that a folder lies in.
pub(crate) fn available_at(folder: &Path) -> io::Result<u64> {
    Ok(available_bytes(&File::open(folder)?))
}

fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is ours; on failure it keeps what it says now, no limit.
    let _ = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    match limit.rlim_cur {
        libc::RLIM_INFINITY => u64::MAX,
        bytes => bytes,
    }
}

/// Switches O_DIRECT on and moves one aligned unit each way, since some file systems grant the flag and
/// refuse the transfer. The inner error says that O_DIRECT does not work; then it is off again.
fn try_direct(
    file: &File,
    path: &Path,
    origin: u64,
    alignment: usize,
) -> Result<Result<(), io::Error>, VolumeError> {
    if let Err(error) = set_direct(file, true) {
        return Ok(Err(error));
    }
    let mut unit = scratch(alignment, path)?.write(0).map_err(|_| no_scratch(path))?;
    let tried = file.write_all_at(&unit, origin).and_then(|()| file.read_exact_at(&mut unit, origin));
    match tried {
        Ok(()) => Ok(Ok(())),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            set_direct(file, false).map_err(|source| VolumeError::Os {
                path: path.to_owned(),
                operation: "switch O_DIRECT off",
                source,
            })?;
            Ok(Err(error))
        }
        Err(source) => Err(VolumeError::Os {
            path: path.to_owned(),
            operation: "write to and read from the file",
            source,
        }),
    }
}

#[cfg(target_os = "linux")]
fn set_direct(file: &File, on: bool) -> io::Result<()> {
    // SAFETY: asks the flags of an open descriptor; no pointers.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    let flags = if on { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT };
    // SAFETY: sets the flags of an open descriptor; no pointers.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(target_os = "linux"))]
fn set_direct(_file: &File, _on: bool) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EINVAL))
}

/// Writes the whole file once.
fn fill(
    file: &File,
    path: &Path,
    bytes: u64,
    mut progress: Option<&mut Progress>,
) -> Result<(), VolumeError> {
    let zeros = scratch(FILL_BYTES, path)?.read(0).map_err(|_| no_scratch(path))?;
    let mut done = 0;
    while done < bytes {
        // The length of the file is a multiple of the alignment, so each write is too.
        let step = (bytes - done).min(zeros.len() as u64);
        file.write_all_at(&zeros[..step as usize], done).map_err(|source| match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => {
                VolumeError::NoSpace { path: path.to_owned(), needed_bytes: bytes, available_bytes: done }
            }
            _ => VolumeError::Os { path: path.to_owned(), operation: "write the file through", source },
        })?;
        done += step;
        if let Some(progress) = progress.as_mut() {
            progress(done, bytes);
        }
    }
    Ok(())
}

/// Aligned zeros, from an arena of one block.
fn scratch(bytes: usize, path: &Path) -> Result<std::sync::Arc<HostArena>, VolumeError> {
    HostArena::new(1, bytes).map_err(|_| no_scratch(path))
}

fn no_scratch(path: &Path) -> VolumeError {
    let source = io::Error::from_raw_os_error(libc::ENOMEM);
    VolumeError::Os { path: path.to_owned(), operation: "get memory to try the file with", source }
}
