//! Errors of a volume: when it is opened ([`VolumeError`]), and for one request ([`IoFailure`]).

use super::recovery::Rejection;
use crate::gds::{CuFileCode, PANICKED};
use crate::process::Holder;
use crate::shown::{shown, shown_path};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a volume cannot be opened. Each message names the path and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// An option is impossible.
    #[error("volume {}: {option} {why}", shown_path(path))]
    Option {
        /// The volume's path.
        path: PathBuf,
        /// The option's name.
        option: &'static str,
        /// The fault, and the remedy.
        why: String,
    },
    /// A file of that name exists already.
    #[error(
        "volume {}: the file exists already; remove it, choose another path, or open it with `keep`",
        shown_path(path)
    )]
    Exists {
        /// The volume's path.
        path: PathBuf,
    },
    /// Another volume, of this process or another, uses the file.
    #[error("volume {}: {holder}", shown_path(path))]
    InUse {
        /// The volume's path.
        path: PathBuf,
        /// The user of the file.
        holder: Holder,
    },
    /// The file is a volume, but with other contents than the options ask for.
    #[error(
        "volume {}: its {field} is {}, but {} is wanted; choose another \
         path, or reinitialize it (losing its blocks)",
        shown_path(path),
        shown(found),
        shown(wanted)
    )]
    Foreign {
        /// The volume's path.
        path: PathBuf,
        /// The field that differs, as `docs/disk-format.md` has it; "key" for the wrong key.
        field: &'static str,
        /// The volume's value.
        found: String,
        /// The value that the options ask for.
        wanted: String,
    },
    /// The file was a volume, but too little is left of it to tell which.
    #[error(
        "volume {}: both superblocks are damaged, and its length is not as wanted; choose another path, or \
         reinitialize it (losing its blocks)",
        shown_path(path)
    )]
    Damaged {
        /// The path.
        path: PathBuf,
    },
    /// The file is something else, or nothing shows that it was a volume. It stays as it is.
    #[error(
        "volume {}: the file shows no sign of a volume, so no option overwrites it; choose another path, or \
         remove it if unneeded",
        shown_path(path)
    )]
    NotAVolume {
        /// The path.
        path: PathBuf,
    },
    /// The path names a block device.
    #[error(
        "volume {}: the path is a block device; make a file system on it \
         (ext4, xfs), mount it, and name a file there",
        shown_path(path)
    )]
    BlockDevice {
        /// The path.
        path: PathBuf,
    },
    /// The file system has too little room. No file is left behind.
    #[error(
        "volume {}: needs {needed_bytes} bytes, {}; use fewer or smaller slots, or free space",
        shown_path(path), left(*.needed_bytes, *.available_bytes)
    )]
    NoSpace {
        /// The volume's path.
        path: PathBuf,
        /// Bytes that the volume needs.
        needed_bytes: u64,
        /// Bytes that the file system had left when asked.
        available_bytes: u64,
    },
    /// The disk quota of the file's owner, group or project is too small. No file is left behind.
    #[error(
        "volume {}: needs {needed_bytes} bytes, but its owner, group or project lacks quota \
         ({available_bytes} left on disk); raise it, or use fewer or smaller slots",
        shown_path(path)
    )]
    Quota {
        /// The volume's path.
        path: PathBuf,
        /// Bytes that the volume needs.
        needed_bytes: u64,
        /// Bytes that the file system had left when asked, regardless of quotas.
        available_bytes: u64,
    },
    /// The process's limit on file sizes is lower. No file is left behind.
    #[error(
        "volume {}: needs {needed_bytes} bytes, but the file size limit is {limit_bytes}; raise `ulimit -f`",
        shown_path(path)
    )]
    FileSizeLimit {
        /// The volume's path.
        path: PathBuf,
        /// Bytes that the volume needs.
        needed_bytes: u64,
        /// `RLIMIT_FSIZE`, in bytes.
        limit_bytes: u64,
    },
    /// O_DIRECT was required, and the file system refuses it.
    #[error(
        "volume {}: the file system refuses O_DIRECT ({why}); put the \
         volume on ext4 or xfs, or allow buffered I/O",
        shown_path(path)
    )]
    NoDirect {
        /// The volume's path.
        path: PathBuf,
        /// How the file system refused it.
        why: String,
    },
    /// io_uring was required, and the kernel refuses it.
    #[error(
        "volume {}: the kernel refuses io_uring ({source}); {}, or allow the blocking backend",
        shown_path(path),
        uring_remedy(.source)
    )]
    NoUring {
        /// The volume's path.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The system refused an operation on the file.
    #[error("volume {}: cannot {operation}: {source}", shown_path(path))]
    Os {
        /// The volume's path.
        path: PathBuf,
        /// The operation that failed.
        operation: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

/// Says how much room a full file system reported. Some keep a reserve, and others may write meanwhile.
fn left(needed_bytes: u64, available_bytes: u64) -> String {
    match available_bytes < needed_bytes {
        true => format!("but its file system has {available_bytes} left"),
        false => format!(
            "but its file system, with {available_bytes} left, refused them (a reserve, or other writers)"
        ),
    }
}

/// The remedy if the kernel refuses an io_uring.
pub(crate) fn uring_remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        // A ring's memory counts as locked.
        Some(libc::ENOMEM) => "raise the memory-lock limit (`ulimit -l`)",
        _ => "check the kernel's `io_uring_disabled` and the container's seccomp profile",
    }
}

impl VolumeError {
    /// The error for a lack of room, by the system's answer to an allocation or a write. None if the
    /// answer is another one.
    pub(super) fn no_room(
        source: &io::Error,
        path: &Path,
        needed_bytes: u64,
        available_bytes: u64,
    ) -> Option<VolumeError> {
        let path = path.to_owned();
        match source.raw_os_error()? {
            libc::ENOSPC => Some(VolumeError::NoSpace { path, needed_bytes, available_bytes }),
            libc::EDQUOT => Some(VolumeError::Quota { path, needed_bytes, available_bytes }),
            _ => None,
        }
    }
}

/// The direction of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Volume to memory.
    Read,
    /// Memory to volume.
    Write,
    /// The slot table to the device.
    Flush,
}

impl core::fmt::Display for Direction {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Direction::Read => "read",
            Direction::Write => "write",
            Direction::Flush => "flush",
        })
    }
}

/// A request that did not move all its bytes. Its buffer has been given back to the arena.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("volume {}: {direction}{}: {cause}", shown_path(path), of_slot(*direction, *slot))]
pub struct IoFailure {
    /// The volume's path.
    pub path: Arc<Path>,
    /// The requested slot; meaningless for a flush.
    pub slot: u32,
    /// The kind of request.
    pub direction: Direction,
    /// Why it failed.
    pub cause: FailureCause,
}

impl IoFailure {
    /// Whether the same request may succeed later. Interrupted and refused-for-now transfers were retried
    /// many times before they were reported, so of those only a shortage that can pass counts.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.cause {
            FailureCause::Os { errno: libc::ETIMEDOUT } => true,
            FailureCause::WritesPaused | FailureCause::Away => true,
            cause => cause.passes(),
        }
    }
}

fn of_slot(direction: Direction, slot: u32) -> String {
    match direction {
        Direction::Flush => String::new(),
        Direction::Read | Direction::Write => format!(" of slot {slot}"),
    }
}

/// Why a volume does not accept device memory as a buffer. It still accepts host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeviceRefusal {
    /// The volume was opened without GPUDirect Storage.
    #[error("the volume was opened without VolumeOptions::gds; set it, or use host memory")]
    NotAsked,
    /// cuFile is missing, or refuses: the notes of the volume's
    /// [`Description`](super::Description) say why.
    #[error("cuFile does not serve this volume (see the volume's description); use host memory")]
    Unavailable,
    /// The volume is encrypted. Encryption needs host memory.
    #[error("the volume is encrypted, which needs host memory; use host memory, or a volume without a key")]
    Encrypted,
    /// Slots of this length cannot be moved past host memory.
    #[error("the slot length is {slot_bytes} bytes; make it a multiple of 4096, or use host memory")]
    SlotBytes {
        /// The slots' length.
        slot_bytes: usize,
    },
    /// No implementation sums payloads on the device, so they can be neither sealed nor verified there.
    #[error(
        "payloads in device memory cannot be sealed or verified; set \
         VolumeOptions::device_sums, or use host memory"
    )]
    NoSums,
}

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FailureCause {
    /// There is no such slot.
    #[error("out of range: the volume has {slots} slots")]
    SlotOutOfRange {
        /// The number of slots.
        slots: u32,
    },
    /// The buffer is longer than a slot; or it is device memory, and shorter.
    #[error(
        "the buffer has {buffer_bytes} bytes, and a slot {slot_bytes}; use at most as many, or, in device \
         memory, exactly as many"
    )]
    BufferLength {
        /// The buffer's length.
        buffer_bytes: usize,
        /// The slots' length.
        slot_bytes: usize,
    },
    /// The buffer of a read is not as long as the slot's block. The block stays.
    #[error(
        "the buffer has {buffer_bytes} bytes, and the block in the slot {payload_bytes}; read it into as many"
    )]
    PayloadLength {
        /// The buffer's length.
        buffer_bytes: usize,
        /// The block's length.
        payload_bytes: usize,
    },
    /// O_DIRECT cannot move the buffer ([`BlockRead::is_aligned`](crate::arena::BlockRead::is_aligned)).
    /// Nothing was moved, and the slot is as it was.
    #[error(
        "O_DIRECT moves multiples of {alignment} bytes, and the buffer starts or ends elsewhere; copy it \
         through an arena that `HostArena::new` has made"
    )]
    Unaligned {
        /// The alignment of the volume's transfers, in bytes.
        alignment: usize,
    },
    /// The system's answer, after retries where those make sense.
    #[error("{}", std::io::Error::from_raw_os_error(*errno))]
    Os {
        /// The error number.
        errno: i32,
    },
    /// The file ended early, or accepted no more bytes: it was truncated.
    #[error("no bytes moved past byte {done_bytes} of the slot; was the file truncated?")]
    NoProgress {
        /// Bytes of the failed piece's slot that were moved before.
        done_bytes: usize,
    },
    /// The device answered, but not with the requested block: a miss.
    #[error("{0}")]
    Rejected(Rejection),
    /// A volume encrypts no more than 2⁴⁰ payloads between its opening and its end.
    #[error("the volume has taken 2^40 writes since it was opened; open it again")]
    SequencesSpent,
    /// The buffer is device memory, which the volume does not accept.
    #[error("the volume refuses device memory: {0}")]
    Device(DeviceRefusal),
    /// cuFile refused the transfer, for a reason of its own.
    #[error("cuFile answered {0}")]
    CuFile(CuFileCode),
    /// The payload was moved, but not summed in device memory.
    #[error("the device did not sum the payload: {}", sum_code(*code))]
    DeviceSum {
        /// The code of [`DeviceSums`](crate::gds::DeviceSums); [`i32::MIN`] if it panicked.
        code: i32,
    },
    /// The device had no room for an earlier write, and is not asked for this one: a probe checks when it
    /// has room again.
    #[error("the volume is out of space; it takes writes again when some is free")]
    WritesPaused,
    /// The device has failed, or is gone, and is probed at growing intervals. When it answers, its blocks
    /// are served again.
    #[error("the volume's device does not answer; the volume probes it again at growing intervals")]
    Away,
    /// The ring thread has ended, after the error that the earlier requests reported.
    #[error("the volume is out of service")]
    OutOfService,
}

impl FailureCause {
    /// Whether the request's buffer did not fit: nothing was moved, and the slot is as it was.
    #[must_use]
    pub fn is_of_the_buffer(&self) -> bool {
        matches!(
            self,
            FailureCause::BufferLength { .. }
                | FailureCause::PayloadLength { .. }
                | FailureCause::Unaligned { .. }
        )
    }

    /// Whether the cause is a shortage of the machine, which says nothing about the device and
    /// may soon pass.
    pub(super) fn passes(&self) -> bool {
        let FailureCause::Os { errno } = self else { return false };
        matches!(*errno, libc::EAGAIN | libc::EINTR | libc::EBUSY | libc::ENOMEM | libc::ENOBUFS)
    }

    /// The cause of a ring's completion: an error number, or a code of cuFile's.
    pub(super) fn of_number(number: i32) -> FailureCause {
        CuFileCode::of_number(number).map_or(FailureCause::Os { errno: number }, FailureCause::CuFile)
    }
}

fn sum_code(code: i32) -> String {
    match code {
        PANICKED => "DeviceSums panicked".to_owned(),
        code => format!("DeviceSums returned {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_room_error_names_space_or_quota() {
        let said = |errno, needed, left| {
            let source = io::Error::from_raw_os_error(errno);
            VolumeError::no_room(&source, Path::new("/a\u{1b}b"), needed, left).map(|error| error.to_string())
        };
        let volume = "volume /a\\u{1b}b: needs 8192 bytes, ";
        assert_eq!(
            said(libc::ENOSPC, 8192, 100),
            Some(format!(
                "{volume}but its file system has 100 left; use fewer or smaller slots, or free space"
            ))
        );
        let refused = said(libc::ENOSPC, 8192, 8192).expect("no room");
        assert!(
            refused.starts_with(&format!("{volume}but its file system, with 8192 left, refused them")),
            "{refused}"
        );
        let quota = said(libc::EDQUOT, 8192, 1 << 40).expect("no room");
        assert!(
            quota.starts_with(&format!("{volume}but its owner, group or project lacks quota ")),
            "{quota}"
        );
        assert!(quota.contains("(1099511627776 left on disk); raise it, or use fewer"), "{quota}");
        assert_eq!(said(libc::EIO, 8192, 100), None);
    }
}
