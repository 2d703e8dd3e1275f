//! A file registered with cuFile, and one call for a part of it.
//!
//! Invariants
//! - I1: the file is deregistered once, when no call uses it any more, and closed after that.

use super::driver::{GdsDriver, refused};
use super::error::{GdsError, answer_of};
use super::memory::DeviceRange;
use super::sys::{Descriptor, DescriptorHandle, HANDLE_TYPE_FD, Handle};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// The file and cuFile's handle for it.
pub(crate) struct GdsFile {
    handle: Handle,
    driver: Arc<GdsDriver>,
    /// Open as long as the file is registered (I1).
    _file: Arc<dyn AsRawFd + Send + Sync>,
}

// SAFETY: cuFile takes a handle from any thread (its calls are thread-safe); the pointer is never
// followed here.
unsafe impl Send for GdsFile {}
// SAFETY: as above; only `drop`, which has exclusive access, ends the handle.
unsafe impl Sync for GdsFile {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

impl GdsFile {
    /// Registers a file that is open for reading and writing, with O_DIRECT. The file must still have the
    /// name by which it was opened: for unaligned transfers, cuFile opens it again by name.
    ///
    /// # Errors
    /// [`GdsError::FileSystemRefused`]: cuFile cannot serve this file.
    pub(crate) fn register(
        driver: &Arc<GdsDriver>,
        file: Arc<impl AsRawFd + Send + Sync + 'static>,
    ) -> Result<GdsFile, GdsError> {
        let mut descriptor = Descriptor {
            kind: HANDLE_TYPE_FD,
            handle: DescriptorHandle { fd: file.as_raw_fd() },
            fs_ops: core::ptr::null(),
        };
        let mut handle = core::ptr::null_mut();
        // SAFETY: `handle` and `descriptor` are ours and laid out as in the header; the descriptor is open.
        let status = unsafe { (driver.api().handle_register)(&mut handle, &mut descriptor) };
        match refused(status) {
            None => Ok(GdsFile { handle, driver: Arc::clone(driver), _file: file }),
            Some(code) => Err(GdsError::FileSystemRefused { code }),
        }
    }

    /// Makes one call. Returns the bytes moved, or a negated number, as [`answer_of`] does. The context
    /// of the range's device is current.
    pub(super) fn call(&self, direction: Direction, range: &DeviceRange, file_offset: u64) -> i32 {
        let (base, bytes) = (range.base(), range.size_bytes());
        let Ok(file_offset) = libc::off_t::try_from(file_offset) else { return -libc::EOVERFLOW };
        // It lies in an allocation, hence fits `off_t`.
        let offset = range.offset() as libc::off_t;
        let api = self.driver.api();
        let answer = match direction {
            // SAFETY: the handle is registered. The bytes lie in the buffer's allocation, which the range
            // keeps alive until this call has returned, and which no reference reaches
            // (`DeviceMemory::new`); its context is current.
            Direction::Read => unsafe { (api.read)(self.handle, base, bytes, file_offset, offset) },
            // SAFETY: as above; cuFile only reads the memory.
            Direction::Write => unsafe { (api.write)(self.handle, base, bytes, file_offset, offset) },
        };
        // Read at once, before another call can change it.
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        answer_of(answer, errno, bytes)
    }
}

impl Drop for GdsFile {
    fn drop(&mut self) {
        // SAFETY: registered once, deregistered once; drop has exclusive access, so no call is under
        // way (I1).
        unsafe { (self.driver.api().handle_deregister)(self.handle) }
    }
}
