//! Descriptors to poll.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

/// Another descriptor of an eventfd: rings it.
#[derive(Debug)]
pub(crate) struct Bell(File);

impl Bell {
    /// Makes one for an open descriptor.
    ///
    /// # Safety
    /// `descriptor` is open during this call.
    pub(crate) unsafe fn of(descriptor: RawFd) -> io::Result<Bell> {
        // SAFETY: as this function's; the copy has an owner of its own.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        Ok(Bell(borrowed.try_clone_to_owned()?.into()))
    }

    /// Makes the descriptor readable. The kernel refuses only if the counter is at its maximum, and then it
    /// is readable.
    pub(crate) fn ring(&self) {
        let _ = (&self.0).write(&1_u64.to_ne_bytes());
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The end of a time limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit(Option<Instant>);

impl Limit {
    /// A limit of milliseconds from now; a negative one: none.
    pub(crate) fn of(timeout_ms: i32) -> Limit {
        let within = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        Limit(within.map(|within| Instant::now() + within))
    }

    /// Returns the time left; `None`: without limit.
    pub(crate) fn left(self) -> Option<Duration> {
        self.0.map(|end| end.saturating_duration_since(Instant::now()))
    }
}

/// Waits until one of the descriptors is readable. Returns which are; none: the time limit passed.
pub(crate) fn poll<const N: usize>(descriptors: [RawFd; N], limit: Limit) -> io::Result<[bool; N]> {
    let mut polled = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    loop {
        // Rounded up, so that a wait does not end before its limit.
        let left =
            limit.left().map_or(-1, |left| left.as_micros().div_ceil(1000).try_into().unwrap_or(i32::MAX));
        // SAFETY: the array is ours, and has N items.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, left) };
        match ready {
            0.. => return Ok(polled.map(|one| one.revents != 0)),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}
