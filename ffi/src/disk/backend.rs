//! The backends of a volume: io_uring, or threads that call pread and pwrite.

/// How a volume moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// The first of the others that works. On a file system that another machine or process serves (NFS,
    /// Lustre, GPFS and their like), the last.
    #[default]
    Auto,
    /// io_uring and O_DIRECT; an error where either is refused.
    UringDirect,
    /// io_uring through the page cache; an error where io_uring is refused.
    UringBuffered,
    /// pread and pwrite by a few threads; O_DIRECT if the file system accepts it.
    Blocking,
}

impl core::fmt::Display for Backend {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Backend::Auto => "auto",
            Backend::UringDirect => "io_uring with O_DIRECT",
            Backend::UringBuffered => "io_uring, buffered",
            Backend::Blocking => "pread/pwrite threads",
        })
    }
}
