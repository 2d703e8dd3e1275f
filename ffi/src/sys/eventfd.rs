//! An eventfd: a bell that wakes a thread asleep in the kernel.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// A non-blocking, close-on-exec eventfd.
#[derive(Debug)]
pub struct EventFd {
    file: File,
}

impl EventFd {
    /// Makes one that is not readable yet.
    ///
    /// # Errors
    /// The kernel's error, if the process has no descriptor left.
    pub fn new() -> io::Result<EventFd> {
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us this descriptor; it has no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        Ok(EventFd { file })
    }

    /// Returns the descriptor, to poll it. It stays open as long as this value.
    #[must_use]
    pub fn raw(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Makes the descriptor readable. The kernel refuses only if the counter is at its maximum, and then
    /// it is readable.
    pub fn ring(&self) {
        let _ = (&self.file).write(&1_u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable again. The kernel refuses only if it was not readable, which
    /// is as good.
    pub fn silence(&self) {
        let _ = (&self.file).read(&mut [0; 8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eventfd_rings_until_it_is_cleared() {
        let bell = EventFd::new().expect("eventfd");
        bell.silence();
        bell.ring();
        bell.ring();
        let mut word = [0; 8];
        assert_eq!((&bell.file).read(&mut word).expect("readable"), 8);
        assert_eq!(u64::from_ne_bytes(word), 2);
        assert_eq!((&bell.file).read(&mut word).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
