//! Tests whether io_uring works here, before a file is touched.

#[cfg(target_os = "linux")]
use super::uring;
use std::io;

/// Sets up a ring, uses it once, and releases it.
#[cfg(target_os = "linux")]
pub(in crate::disk) fn try_uring(depth: u32) -> io::Result<()> {
    uring::set_up(uring::entries(depth)).map(drop)
}

#[cfg(not(target_os = "linux"))]
pub(in crate::disk) fn try_uring(_depth: u32) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}
