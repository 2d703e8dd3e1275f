//! The system calls for a volume's file, and the facts that they give. Tests replace [`System`], the part
//! that differs between systems.

use super::super::error::VolumeError;
use super::super::ring::trial::try_uring;
use super::extents;
use super::refused::os;
use crate::arena::BLOCK_ALIGN_BYTES;
use crate::process::Holder;
use std::fs::{File, Metadata, Permissions, TryLockError};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Alignment of slots without O_DIRECT, which would have a rule of its own.
pub(super) const BUFFERED_ALIGN_BYTES: usize = 512;

/// A kernel releases the registrations of a ring a moment after the ring has gone, or its
/// process was killed.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Calls that systems, and file systems, answer differently or not at all.
pub(in crate::disk) trait System: Send {
    /// Tests whether io_uring works, for this many pieces in flight.
    fn try_uring(&self, depth: u32) -> io::Result<()> {
        try_uring(depth)
    }

    /// Takes an exclusive lock, at once or not at all.
    fn try_lock(&self, file: &File) -> Result<(), TryLockError> {
        file.try_lock()
    }

    /// Changes the file's mode.
    fn set_mode(&self, file: &File, mode: u32) -> io::Result<()> {
        file.set_permissions(Permissions::from_mode(mode))
    }

    /// The alignment that O_DIRECT needs for memory, offsets and lengths, or why O_DIRECT is
    /// not available.
    fn direct_alignment(&self, file: &File) -> Result<usize, String> {
        direct_alignment(file)
    }

    /// The magic number of the file's file system; None if the system does not tell.
    fn file_system(&self, file: &File) -> Option<u32> {
        file_system(file)
    }

    /// The never-written parts of the file, or why the file system does not tell.
    fn unwritten(&self, file: &File) -> io::Result<Vec<Range<u64>>> {
        extents::unwritten(file)
    }
}

/// The system that runs this process.
pub(in crate::disk) struct Kernel;

impl System for Kernel {}

/// Locks the file, so that it has one volume across processes. Returns a note if the file
/// system has no locks.
pub(super) fn lock(system: &dyn System, file: &File, path: &Path) -> Result<Option<String>, VolumeError> {
    let since = Instant::now();
    loop {
        match system.try_lock(file) {
            Ok(()) => return Ok(None),
            Err(TryLockError::WouldBlock) if since.elapsed() < LOCK_PATIENCE => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock) => {
                let number = |metadata: Metadata| Holder::of(metadata.dev(), metadata.ino());
                let holder = file.metadata().map_or(Holder::Unknown, number);
                return Err(VolumeError::InUse { path: path.to_owned(), holder });
            }
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => {
                return unlocked(error).map(Some).map_err(os(path, "lock the file"));
            }
        }
    }
}

/// Goes on with a note if the file system has no locks: exclusive creation must do. Returns any
/// other refusal.
fn unlocked(error: io::Error) -> Result<String, io::Error> {
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::ENOLCK) => Ok(format!(
            "the file cannot be locked ({error}): two processes on this \
             volume would destroy each other's blocks"
        )),
        _ => Err(error),
    }
}

/// The name of a file system that another machine or process serves, by its magic number. It gains
/// nothing from io_uring, whose requests it hands to kernel threads.
pub(super) fn served_elsewhere(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0xFF53_4D42 | 0xFE53_4D42 => "CIFS",
        0x0BD0_0BD0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x00C3_6400 => "Ceph",
        0x0102_1997 => "9p",
        0x6573_5546 => "FUSE",
        _ => return None,
    })
}

/// The name of a file system in memory.
pub(super) fn in_memory(magic: u32) -> Option<&'static str> {
    match magic {
        0x0102_1994 => Some("tmpfs"),
        0x8584_58F6 => Some("ramfs"),
        _ => None,
    }
}

#[cfg(target_os = "linux")]
fn file_system(file: &File) -> Option<u32> {
    // SAFETY: all-zero bytes are a valid `statfs`: it is made of integers.
    let mut facts: libc::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: the descriptor is open and `facts` is ours.
    let asked = unsafe { libc::fstatfs(file.as_raw_fd(), &mut facts) };
    // Magic numbers have 32 bits; the field's type, and its sign, differ between systems.
    (asked == 0).then_some(facts.f_type as u32)
}

#[cfg(not(target_os = "linux"))]
fn file_system(_file: &File) -> Option<u32> {
    None
}

#[cfg(target_os = "linux")]
fn direct_alignment(file: &File) -> Result<usize, String> {
    // SAFETY: all-zero bytes are a valid `statx`: it is made of integers.
    let mut facts: libc::statx = unsafe { core::mem::zeroed() };
    // SAFETY: an empty path with AT_EMPTY_PATH asks about the descriptor; `facts` is ours and large enough.
    let asked = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &mut facts)
    };
    // Kernels before 6.1, and some file systems, do not say. Then a page is enough for every device.
    if asked != 0 || facts.stx_mask & libc::STATX_DIOALIGN == 0 {
        return Ok(BLOCK_ALIGN_BYTES);
    }
    let alignment = facts.stx_dio_mem_align.max(facts.stx_dio_offset_align) as usize;
    match alignment {
        0 => Err("the file system reports no O_DIRECT".to_owned()),
        1..=BLOCK_ALIGN_BYTES if alignment.is_power_of_two() => Ok(alignment.max(BUFFERED_ALIGN_BYTES)),
        _ => Err(format!("it needs an alignment of {alignment} bytes, but blocks have {BLOCK_ALIGN_BYTES}")),
    }
}

#[cfg(not(target_os = "linux"))]
fn direct_alignment(_file: &File) -> Result<usize, String> {
    Err("only Linux has it".to_owned())
}

/// Gives a file of `bytes` its missing blocks, `missing` bytes. Returns false if the file system
/// cannot do that.
pub(super) fn allocate(file: &File, path: &Path, bytes: u64, missing: u64) -> Result<bool, VolumeError> {
    // Checked first, so that an absurd size does not fill the disk for a moment.
    let available = available_bytes(file);
    if missing > available {
        return Err(VolumeError::NoSpace {
            path: path.to_owned(),
            needed_bytes: missing,
            available_bytes: available,
        });
    }
    // Exceeding this limit does not fail, it kills: SIGXFSZ.
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
            Some(libc::EFBIG) => return Err(over_limit()),
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => {
                file.set_len(bytes).map_err(os)?;
                return Ok(false);
            }
            _ => {
                let no_room = VolumeError::no_room(&error, path, missing, available);
                return Err(no_room.unwrap_or_else(|| os(error)));
            }
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
pub(super) fn available_bytes(file: &File) -> u64 {
    // SAFETY: all-zero bytes are a valid `statvfs`: it is made of integers.
    let mut facts: libc::statvfs = unsafe { core::mem::zeroed() };
    // SAFETY: the descriptor is open and `facts` is ours.
    match unsafe { libc::fstatvfs(file.as_raw_fd(), &mut facts) } {
        #[allow(clippy::unnecessary_cast, reason = "the field types differ between systems")]
        0 if facts.f_blocks > 0 => (facts.f_bavail as u64).saturating_mul(facts.f_frsize as u64),
        _ => u64::MAX,
    }
}

/// Bytes that an unprivileged user can still write to the file system of a folder.
pub(crate) fn available_at(folder: &Path) -> io::Result<u64> {
    Ok(available_bytes(&File::open(folder)?))
}

fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is ours; on failure it keeps its present value, no limit.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_failure_is_tolerated_only_without_locks() {
        for errno in [libc::ENOSYS, libc::EOPNOTSUPP, libc::ENOLCK] {
            let note = unlocked(io::Error::from_raw_os_error(errno)).expect("gone on with");
            assert!(note.contains("destroy each other's blocks"), "{note}");
        }
        for errno in [libc::EIO, libc::EACCES, libc::EBADF, libc::EINVAL] {
            let error = unlocked(io::Error::from_raw_os_error(errno)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn magic_number_of_procfs_is_read() {
        let file = File::open("/proc/self/stat").expect("procfs");
        assert_eq!(Kernel.file_system(&file), Some(0x9FA0));
    }

    #[test]
    fn remote_file_systems_are_known_by_magic_number() {
        let numbers = [
            0x6969,
            0xFF53_4D42,
            0xFE53_4D42,
            0x0BD0_0BD0,
            0x4750_4653,
            0x00C3_6400,
            0x0102_1997,
            0x6573_5546,
        ];
        let names = ["NFS", "CIFS", "CIFS", "Lustre", "GPFS", "Ceph", "9p", "FUSE"];
        assert_eq!(numbers.map(served_elsewhere), names.map(Some));
        // ext4, xfs, btrfs, tmpfs, overlayfs, and none.
        for local in [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630, 0] {
            assert_eq!(served_elsewhere(local), None);
        }
    }
}
