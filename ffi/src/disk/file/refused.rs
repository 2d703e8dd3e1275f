//! Turns refusals of the system into the volume's error, with the path and the step.

use super::super::error::VolumeError;
use std::io;
use std::path::Path;

pub(super) fn os(path: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> VolumeError {
    let path = path.to_owned();
    move |source| VolumeError::Os { path, operation, source }
}

pub(super) fn no_memory(path: &Path) -> VolumeError {
    os(path, "allocate memory for the volume")(io::Error::from_raw_os_error(libc::ENOMEM))
}
