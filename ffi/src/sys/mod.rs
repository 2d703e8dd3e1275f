//! Small safe wrappers of system interfaces that more than one module uses.

#[cfg(target_os = "linux")]
pub(crate) mod eventfd;
#[cfg(unix)]
pub(crate) mod library;
