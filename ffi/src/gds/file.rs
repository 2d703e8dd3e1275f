//! A file registered with cuFile, and the threads that wait for its transfers.
//!
//! `cuFileRead` and `cuFileWrite` return when the bytes have arrived. So that no caller waits for them, a few threads
//! make the calls:
//!
//! ```text
//!   callers ─ read/write(range) ─► queue ─► thread ─┐
//!      ▲                        (bounded)   thread ─┤ cuFileRead / cuFileWrite
//!      └── Pending: the range back ◄────────thread ─┘
//! ```
//!
//! Invariants
//! - I1: a transfer owns its range, and so the device memory, until cuFile has answered for the last time. Dropping the
//!   [`Pending`] drops the interest, not the memory.
//! - I2: the file is deregistered after the last thread has ended, and closed after that.
//! - I3: every transfer that was taken in is answered, also when the file is dropped meanwhile.

use super::driver::{GdsDriver, GdsOptions, refused};
use super::error::{GdsError, TransferError};
use super::memory::DeviceRange;
use super::sys::{Descriptor, DescriptorHandle, HANDLE_TYPE_FD, Handle};
use crate::disk::{Cell, Pending};
use core::fmt;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// A transfer is given up after this many answers in a row that moved nothing.
const RETRIES: u32 = 1000;
/// A transfer that stopped short goes on from a multiple of this, as O_DIRECT wants it; bytes past it are moved again.
const RESUME_ALIGN_BYTES: usize = 4096;

/// A file that cuFile moves bytes of.
///
/// Transfers are not ordered among each other. Dropping it answers every transfer, then deregisters the file.
pub struct GdsFile {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    queue: usize,
}

struct Shared {
    registration: Registration,
    state: Mutex<State>,
    work: Condvar,
}

struct State {
    todo: VecDeque<Job>,
    closing: bool,
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Read,
    Write,
}

/// A transfer that waits for a thread.
struct Job {
    direction: Direction,
    range: DeviceRange,
    file_offset: u64,
    cell: Arc<Cell<DeviceRange, TransferError>>,
}

impl GdsFile {
    /// Registers a file that is open for reading and writing, with O_DIRECT, and starts its threads. It must still have the name
    /// that it was opened by: cuFile opens it once more, by name, for transfers that are not aligned. `options` are those
    /// that the driver was opened with, or others; their device does not matter here: buffers bring theirs.
    ///
    /// # Errors
    /// [`GdsError::FileSystemRefused`]: cuFile cannot serve this file. [`GdsError::Thread`], [`GdsError::Option`].
    pub fn register(
        driver: &Arc<GdsDriver>,
        file: Arc<File>,
        options: GdsOptions,
    ) -> Result<GdsFile, GdsError> {
        let GdsOptions { threads, queue, .. } = options;
        for (option, value) in [("threads", threads), ("queue", queue)] {
            if value == 0 {
                return Err(GdsError::Option { option, value });
            }
        }
        let registration = Registration::new(Arc::clone(driver), file)?;
        let state = State { todo: VecDeque::with_capacity(queue), closing: false };
        let shared = Arc::new(Shared { registration, state: Mutex::new(state), work: Condvar::new() });
        let mut file = GdsFile { shared, threads: Vec::with_capacity(threads), queue };
        for _ in 0..threads {
            let shared = Arc::clone(&file.shared);
            let thread = thread::Builder::new().name("kvstrata-gds".into()).spawn(move || shared.serve());
            match thread {
                Ok(thread) => file.threads.push(thread),
                Err(source) if file.threads.is_empty() => return Err(GdsError::Thread { source }),
                // Fewer do it too.
                Err(_) => break,
            }
        }
        Ok(file)
    }

    /// Reads from `file_offset` into the range, which comes back from [`Pending::wait`]. Never waits: where the queue is
    /// full, the transfer has failed already, with [`TransferError::Full`].
    ///
    /// The bytes are as the file has them; nothing here can check them (see the [module](super)).
    pub fn read(&self, range: DeviceRange, file_offset: u64) -> Pending<DeviceRange, TransferError> {
        self.submit(Direction::Read, range, file_offset)
    }

    /// Writes the range to `file_offset`. As [`read`](GdsFile::read) otherwise.
    ///
    /// The device's own work on these bytes must have ended: cuFile waits for no kernel and no stream.
    pub fn write(&self, range: DeviceRange, file_offset: u64) -> Pending<DeviceRange, TransferError> {
        self.submit(Direction::Write, range, file_offset)
    }

    fn submit(
        &self,
        direction: Direction,
        range: DeviceRange,
        file_offset: u64,
    ) -> Pending<DeviceRange, TransferError> {
        let bytes = range.size_bytes();
        let limit = i64::MAX as u64;
        if file_offset.checked_add(bytes as u64).is_none_or(|end| end > limit) {
            return Pending::failed(TransferError::OutOfRange { offset: file_offset, bytes, limit });
        }
        let mut state = self.shared.lock();
        if state.todo.len() >= self.queue {
            // Not under the lock: the owner's drop is a caller's code.
            let queued = state.todo.len();
            drop(state);
            return Pending::failed(TransferError::Full { queued });
        }
        let cell = Cell::new();
        state.todo.push_back(Job { direction, range, file_offset, cell: Arc::clone(&cell) });
        drop(state);
        self.shared.work.notify_one();
        Pending::new(cell)
    }
}

impl fmt::Debug for GdsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GdsFile")
            .field("driver", &self.shared.registration.driver)
            .field("threads", &self.threads.len())
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl Drop for GdsFile {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_all();
        let own = thread::current().id();
        for thread in self.threads.drain(..) {
            // Dropped by one of its own threads, in the waker of a task: that one goes on alone, and deregisters the file.
            if thread.thread().id() != own {
                // A thread catches what its jobs panic with; there is nobody to tell of more.
                let _ = thread.join();
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No caller's code runs under the lock, so that a poisoned state is a whole one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.todo.pop_front() {
                drop(state);
                // Owners and wakers are callers' code: their panic ends neither the thread nor the other transfers.
                let _ = catch_unwind(AssertUnwindSafe(|| self.registration.run(job)));
                state = self.lock();
            } else if state.closing {
                return;
            } else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// The file and cuFile's handle of it.
struct Registration {
    handle: Handle,
    driver: Arc<GdsDriver>,
    /// Open as long as it is registered (I2).
    _file: Arc<File>,
}

// SAFETY: cuFile takes a handle from any thread (its calls are thread-safe); the pointer is never followed here.
unsafe impl Send for Registration {}
// SAFETY: as above; only `drop`, which has it alone, ends the handle.
unsafe impl Sync for Registration {}

impl Registration {
    fn new(driver: Arc<GdsDriver>, file: Arc<File>) -> Result<Registration, GdsError> {
        let mut descriptor = Descriptor {
            kind: HANDLE_TYPE_FD,
            handle: DescriptorHandle { fd: file.as_raw_fd() },
            fs_ops: core::ptr::null(),
        };
        let mut handle = core::ptr::null_mut();
        // SAFETY: `handle` and `descriptor` are ours and laid out as in the header; the descriptor is open.
        let status = unsafe { (driver.api().handle_register)(&mut handle, &mut descriptor) };
        match refused(status) {
            None => Ok(Registration { handle, driver, _file: file }),
            Some(code) => Err(GdsError::FileSystemRefused { code }),
        }
    }

    /// Moves the bytes, and hands the outcome to the caller.
    fn run(&self, job: Job) {
        let Job { direction, range, file_offset, cell } = job;
        let outcome = self.transfer(direction, &range, file_offset);
        match outcome {
            Ok(()) => cell.complete(Ok(range)),
            Err(error) => {
                // First the memory, then the news: whoever hears of it finds the memory free.
                let dropped = catch_unwind(AssertUnwindSafe(|| drop(range)));
                cell.complete(Err(error));
                if let Err(panic) = dropped {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }

    fn transfer(
        &self,
        direction: Direction,
        range: &DeviceRange,
        file_offset: u64,
    ) -> Result<(), TransferError> {
        let _entered = range.driver().enter().map_err(|code| TransferError::Context { code })?;
        let asked = range.size_bytes();
        let (mut done, mut retries) = (0, 0);
        while done < asked {
            let left = asked - done;
            let answer = self.call(direction, range, file_offset, done);
            let moved = match answer {
                Err(TransferError::Os { errno: libc::EINTR | libc::EAGAIN }) if retries < RETRIES => 0,
                Err(error) => return Err(error),
                Ok(0) => return Err(TransferError::Short { done, asked }),
                Ok(moved) if moved < left => moved / RESUME_ALIGN_BYTES * RESUME_ALIGN_BYTES,
                Ok(moved) if moved == left => left,
                Ok(moved) => return Err(TransferError::Nonsense { answer: moved as i64, asked: left }),
            };
            retries = if moved == 0 { retries + 1 } else { 0 };
            if retries > RETRIES {
                return Err(TransferError::Short { done, asked });
            }
            done += moved;
        }
        Ok(())
    }

    /// One call, for what is left after `done` bytes: bytes moved.
    fn call(
        &self,
        direction: Direction,
        range: &DeviceRange,
        file_offset: u64,
        done: usize,
    ) -> Result<usize, TransferError> {
        let (base, bytes) = (range.base(), range.size_bytes() - done);
        // Neither exceeds what `off_t` holds: the one was checked by `submit`, the other lies in an allocation.
        let (file_offset, offset) =
            ((file_offset + done as u64) as libc::off_t, (range.offset() + done) as libc::off_t);
        let api = self.driver.api();
        let answer = match direction {
            // SAFETY: the handle is registered. The bytes lie in the buffer's allocation, which the range keeps alive until this
            // call has returned, and which no reference reaches (`DeviceMemory::new`); its context is current.
            Direction::Read => unsafe { (api.read)(self.handle, base, bytes, file_offset, offset) },
            // SAFETY: as above; cuFile only reads the memory.
            Direction::Write => unsafe { (api.write)(self.handle, base, bytes, file_offset, offset) },
        };
        // Asked at once, before anything else can change it.
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        usize::try_from(answer).map_err(|_| TransferError::of(answer, errno, bytes))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered once, deregistered once; the threads that used it have ended (I2).
        unsafe { (self.driver.api().handle_deregister)(self.handle) }
    }
}
