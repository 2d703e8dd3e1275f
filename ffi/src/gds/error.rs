//! cuFile's errors: at start-up ([`GdsError`]), and in one call ([`CuFileCode`]).

use crate::shown::shown_path;
use core::fmt;
use std::io;
use std::path::PathBuf;

/// A code of cuFile, `CUfileOpError`, with CUDA's own code if cuFile says that CUDA failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CuFileCode {
    /// 5001 to 5050 in cuFile 1.19.
    pub code: i32,
    /// `CUresult`, meaningful when `code` is 5011.
    pub cuda: i32,
}

/// `CU_FILE_CUDA_DRIVER_ERROR`.
const CUDA_DRIVER_ERROR: i32 = 5011;

/// Names from `cufile.h` of 1.19, by code. The header of 1.14 has the same names up to 5038, and ends there.
const NAMES: [(i32, &str); 47] = [
    (5001, "DRIVER_NOT_INITIALIZED"),
    (5002, "DRIVER_INVALID_PROPS"),
    (5003, "DRIVER_UNSUPPORTED_LIMIT"),
    (5004, "DRIVER_VERSION_MISMATCH"),
    (5005, "DRIVER_VERSION_READ_ERROR"),
    (5006, "DRIVER_CLOSING"),
    (5007, "PLATFORM_NOT_SUPPORTED"),
    (5008, "IO_NOT_SUPPORTED"),
    (5009, "DEVICE_NOT_SUPPORTED"),
    (5010, "NVFS_DRIVER_ERROR"),
    (CUDA_DRIVER_ERROR, "CUDA_DRIVER_ERROR"),
    (5012, "CUDA_POINTER_INVALID"),
    (5013, "CUDA_MEMORY_TYPE_INVALID"),
    (5014, "CUDA_POINTER_RANGE_ERROR"),
    (5015, "CUDA_CONTEXT_MISMATCH"),
    (5016, "INVALID_MAPPING_SIZE"),
    (5017, "INVALID_MAPPING_RANGE"),
    (5018, "INVALID_FILE_TYPE"),
    (5019, "INVALID_FILE_OPEN_FLAG"),
    (5020, "DIO_NOT_SET"),
    (5022, "INVALID_VALUE"),
    (5023, "MEMORY_ALREADY_REGISTERED"),
    (5024, "MEMORY_NOT_REGISTERED"),
    (5025, "PERMISSION_DENIED"),
    (5026, "DRIVER_ALREADY_OPEN"),
    (5027, "HANDLE_NOT_REGISTERED"),
    (5028, "HANDLE_ALREADY_REGISTERED"),
    (5029, "DEVICE_NOT_FOUND"),
    (5030, "INTERNAL_ERROR"),
    (5031, "GETNEWFD_FAILED"),
    (5033, "NVFS_SETUP_ERROR"),
    (5034, "IO_DISABLED"),
    (5035, "BATCH_SUBMIT_FAILED"),
    (5036, "GPU_MEMORY_PINNING_FAILED"),
    (5037, "BATCH_FULL"),
    (5038, "ASYNC_NOT_SUPPORTED"),
    (5039, "INTERNAL_BATCH_SETUP_ERROR"),
    (5040, "INTERNAL_BATCH_SUBMIT_ERROR"),
    (5041, "INTERNAL_BATCH_GETSTATUS_ERROR"),
    (5042, "INTERNAL_BATCH_CANCEL_ERROR"),
    (5043, "NOMEM_ERROR"),
    (5044, "IO_ERROR"),
    (5045, "INTERNAL_BUF_REGISTER_ERROR"),
    (5046, "HASH_OPR_ERROR"),
    (5047, "INVALID_CONTEXT_ERROR"),
    (5048, "NVFS_INTERNAL_DRIVER_ERROR"),
    (5049, "BATCH_NOCOMPAT_ERROR"),
];

impl CuFileCode {
    /// Returns the code for a number that is above all error numbers.
    pub(crate) fn of_number(number: i32) -> Option<CuFileCode> {
        (5001..=5999).contains(&number).then_some(CuFileCode { code: number, cuda: 0 })
    }

    /// Returns the name in `cufile.h` without its prefix `CU_FILE_`; `None` for an unknown code.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(code, _)| *code == self.code).map(|(_, name)| *name)
    }
}

impl fmt::Display for CuFileCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CuFileCode { code, cuda } = self;
        match self.name() {
            Some(name) => write!(f, "{code} CU_FILE_{name}")?,
            None => write!(f, "{code}, not a code of cuFile 1.19")?,
        }
        if *code == CUDA_DRIVER_ERROR && *cuda != 0 { write!(f, ", CUDA {cuda}") } else { Ok(()) }
    }
}

/// The reason why cuFile cannot join device memory and a file. Each message has a remedy.
#[derive(Debug, thiserror::Error)]
pub enum GdsError {
    /// A library is not installed, or does not load.
    #[error(
        "{library} does not load ({why}); install GPUDirect \
         Storage and NVIDIA's driver, or set LD_LIBRARY_PATH"
    )]
    LibraryMissing {
        /// The requested file name.
        library: String,
        /// The dynamic linker's message.
        why: String,
    },
    /// A library lacks an entry.
    #[error("{library} lacks the entry {symbol}; install GPUDirect Storage 1.0 or later")]
    SymbolMissing {
        /// The library.
        library: String,
        /// The entry.
        symbol: String,
    },
    /// CUDA refused.
    #[error(
        "{operation} failed with CUDA's code {code} on device {device}; check `nvidia-smi` and CUDA_VISIBLE_DEVICES"
    )]
    Cuda {
        /// The call.
        operation: &'static str,
        /// The device's ordinal.
        device: u32,
        /// `CUresult`.
        code: i32,
    },
    /// cuFile's driver reads this file when it opens, and would wait for it without end.
    #[error(
        "cuFile would wait for ever: {} cannot be read ({source}); use a \
         kernel with modules, or a sandbox with this file",
        shown_path(path)
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// cuFile's driver does not open.
    #[error(
        "{operation} failed with {code}; load the nvidia-fs module, or allow compatibility mode (host memory)"
    )]
    DriverRefused {
        /// The call.
        operation: &'static str,
        /// cuFile's answer.
        code: CuFileCode,
    },
    /// cuFile would bounce through host memory, and that is not allowed.
    #[error(
        "cuFile would bounce transfers through host memory ({why}); load the nvidia-fs module, or allow \
         compatibility mode"
    )]
    Compat {
        /// The evidence.
        why: String,
    },
    /// cuFile does not serve the file's file system, or the way in which the file was opened.
    #[error(
        "cuFile refuses the file with {code}; it needs ext4 or xfs on local NVMe, O_DIRECT, a name, and in \
         a container /run/udev"
    )]
    FileSystemRefused {
        /// cuFile's answer.
        code: CuFileCode,
    },
    /// Device memory cannot be registered; it can be used unregistered.
    #[error(
        "cuFile refuses to register {bytes} bytes of device memory \
         ({code}); register less, or leave it unregistered"
    )]
    BufferRefused {
        /// Size of the memory.
        bytes: usize,
        /// cuFile's answer.
        code: CuFileCode,
    },
    /// An option is impossible.
    #[error("{option} is {value}; it must be at least 1")]
    Option {
        /// The option's name.
        option: &'static str,
        /// Its value.
        value: usize,
    },
    /// The threads that wait for cuFile cannot be started.
    #[error("cannot start a thread: {source}; raise the limit on threads (`ulimit -u`)")]
    Thread {
        /// The system's answer.
        source: io::Error,
    },
}

/// The requested bytes are not inside the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes at offset {offset} are outside of the buffer's {limit} bytes")]
pub struct OutOfRange {
    /// First requested byte.
    pub offset: usize,
    /// Requested bytes.
    pub bytes: usize,
    /// Bytes of the buffer.
    pub limit: usize,
}

/// Turns an answer of cuFileRead or cuFileWrite into one number: the bytes moved; or, negated, an error
/// number or a code of cuFile's. The calls return −1 with `errno`, or a negated code; a negated error
/// number is understood too. Undocumented answers become `EPROTO`, including a claim to have moved more
/// bytes than requested.
pub(super) fn answer_of(answer: isize, errno: i32, asked: usize) -> i32 {
    match answer {
        -1 => -errno,
        -4095..=-2 | -5999..=-5001 => answer as i32,
        // Pieces are at most 1 GiB.
        0.. if answer as usize <= asked => i32::try_from(answer).unwrap_or(-libc::EPROTO),
        _ => -libc::EPROTO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_headers_names() {
        let shown = |code| CuFileCode { code, cuda: 3 }.to_string();
        assert_eq!(shown(5001), "5001 CU_FILE_DRIVER_NOT_INITIALIZED");
        assert_eq!(shown(5011), "5011 CU_FILE_CUDA_DRIVER_ERROR, CUDA 3");
        assert_eq!(shown(5022), "5022 CU_FILE_INVALID_VALUE");
        assert_eq!(shown(5033), "5033 CU_FILE_NVFS_SETUP_ERROR");
        assert_eq!(shown(5049), "5049 CU_FILE_BATCH_NOCOMPAT_ERROR");
        for hole in [0, 5000, 5021, 5032, 5050] {
            assert_eq!(CuFileCode { code: hole, cuda: 0 }.name(), None, "{hole}");
        }
        assert!(NAMES.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn cufile_answers_are_told_apart() {
        let answers = [9, 0, -1, -22, -5008].map(|answer| answer_of(answer, libc::EIO, 9));
        assert_eq!(answers, [9, 0, -libc::EIO, -22, -5008]);
        for answer in [10, isize::MAX, -4096, -5000, -6000, isize::MIN] {
            assert_eq!(answer_of(answer, 0, 9), -libc::EPROTO, "{answer}");
        }
        assert_eq!(CuFileCode::of_number(5008), Some(CuFileCode { code: 5008, cuda: 0 }));
        assert_eq!([4095, 5000, 6000].map(CuFileCode::of_number), [None; 3]);
    }
}
