//! What the system says of a volume's file, and what it is asked to do with it.

use super::super::error::VolumeError;
use super::BUFFERED_ALIGN_BYTES;
use crate::arena::BLOCK_ALIGN_BYTES;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// A kernel lets go of what a ring had registered a moment after the ring has gone, or its process has been killed.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// One volume a file, across processes.
pub(super) fn lock(file: &File, path: &Path) -> Result<(), VolumeError> {
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if since.elapsed() < LOCK_PATIENCE => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock) => return Err(VolumeError::InUse { path: path.to_owned() }),
            // A file system without locks: the exclusive creation has to do.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(()),
        }
    }
}

/// The alignment that O_DIRECT asks of memory, offsets and lengths, or why there is none to be had.
#[cfg(target_os = "linux")]
pub(super) fn direct_alignment(file: &File) -> Result<usize, String> {
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
pub(super) fn direct_alignment(_file: &File) -> Result<usize, String> {
    Err("only Linux has it".to_owned())
}

/// Gives a file of `bytes` the blocks that it has not, `missing` bytes; false where the file system cannot do that.
pub(super) fn allocate(file: &File, path: &Path, bytes: u64, missing: u64) -> Result<bool, VolumeError> {
    // Asked first, so that an absurd size does not fill the disk for a moment.
    let available = available_bytes(file);
    let no_space =
        || VolumeError::NoSpace { path: path.to_owned(), needed_bytes: missing, available_bytes: available };
    if missing > available {
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

#[cfg(target_os = "linux")]
pub(super) fn set_direct(file: &File, on: bool) -> io::Result<()> {
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
pub(super) fn set_direct(_file: &File, _on: bool) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EINVAL))
}
