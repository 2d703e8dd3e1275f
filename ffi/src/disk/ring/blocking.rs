//! The ring of last resort: a few threads that call pread and pwrite.
//!
//! It serves kernels and containers that forbid io_uring, and network file systems on which io_uring
//! works badly.
//!
//! ```text
//!   ring thread ──todo──► worker ─┐
//!               │         worker ─┤ pread / pwrite
//!               ◄──done── worker ─┘ + unpark
//! ```
//!
//! Invariants
//! - I1: the workers end before the ring does: `Drop` joins them, after the piece that each one
//!   is working on.

use super::{Action, Bell, Buffer, Completion, Op, Ring, Wait};
use crate::process::Uninherited;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

pub(in crate::disk) struct BlockingRing {
    depth: usize,
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    since: Instant,
}

/// An [`Op`] on its way to a worker.
struct Task {
    token: u32,
    action: Action,
    file_offset: u64,
    bytes: usize,
    buffers: *const [Buffer],
}

// SAFETY: addresses and numbers; the worker that turns them into an access upholds `Ring::push`'s contract.
unsafe impl Send for Task {}

struct Shared {
    file: Arc<Uninherited<File>>,
    /// The thread that drives the ring.
    driver: Thread,
    state: Mutex<State>,
    work: Condvar,
}

struct State {
    todo: VecDeque<Task>,
    done: Vec<Completion>,
    closing: bool,
}

impl BlockingRing {
    /// Call from the thread that will drive the ring.
    pub(in crate::disk) fn new(
        depth: u32,
        threads: usize,
        file: Arc<Uninherited<File>>,
    ) -> io::Result<BlockingRing> {
        let depth = depth as usize;
        let state =
            State { todo: VecDeque::with_capacity(depth), done: Vec::with_capacity(depth), closing: false };
        let shared = Arc::new(Shared {
            file,
            driver: thread::current(),
            state: Mutex::new(state),
            work: Condvar::new(),
        });
        let mut ring = BlockingRing { depth, shared, workers: Vec::new(), since: Instant::now() };
        for _ in 0..threads.max(1) {
            let shared = Arc::clone(&ring.shared);
            let worker = thread::Builder::new().name("kvstrata-io".into()).spawn(move || shared.work());
            match worker {
                Ok(worker) => ring.workers.push(worker),
                Err(error) if ring.workers.is_empty() => return Err(error),
                // Fewer threads will do.
                Err(_) => break,
            }
        }
        Ok(ring)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.todo.pop_front() {
                drop(state);
                // SAFETY: `task` came through `Ring::push`, and its completion has not been reported.
                let result = unsafe { carry_out(&self.file, &task) };
                state = self.lock();
                state.done.push(Completion { token: task.token, result });
                self.driver.unpark();
            } else if state.closing {
                return;
            } else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Makes one system call. Returns the bytes moved, or a negated error number.
///
/// # Safety
/// The buffers of `task` are as `Ring::push` demands.
unsafe fn carry_out(file: &File, task: &Task) -> i32 {
    let fd = file.as_raw_fd();
    let Ok(offset) = libc::off_t::try_from(task.file_offset) else { return -libc::EOVERFLOW };
    // A handful at most: the engine merges few.
    let count = task.buffers.len() as libc::c_int;
    let list = task.buffers.cast::<Buffer>();
    let moved = match task.action {
        // SAFETY: a list of stretches that we may write, ours until the completion (the caller's promise).
        Action::Read => unsafe { libc::preadv(fd, list, count, offset) },
        // SAFETY: a list of stretches that no one writes (the caller's promise).
        Action::Write => unsafe { libc::pwritev(fd, list, count, offset) },
        // SAFETY: the descriptor is open; no pointers.
        Action::Sync => (unsafe { libc::fdatasync(fd) }) as isize,
        Action::Punch => punch(fd, offset, task.bytes),
        // Device memory belongs to another ring.
        Action::Sum => 0,
    };
    if moved < 0 {
        return -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    }
    i32::try_from(moved).unwrap_or(i32::MAX)
}

#[cfg(target_os = "linux")]
fn punch(fd: libc::c_int, offset: libc::off_t, bytes: usize) -> isize {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the descriptor is open; no pointers.
    (unsafe { libc::fallocate(fd, mode, offset, bytes as libc::off_t) }) as isize
}

#[cfg(not(target_os = "linux"))]
fn punch(_fd: libc::c_int, _offset: libc::off_t, _bytes: usize) -> isize {
    0 // optional everywhere, and not available here
}

impl Ring for BlockingRing {
    fn depth(&self) -> usize {
        self.depth
    }

    fn bell(&self) -> Bell {
        let driver = self.shared.driver.clone();
        Box::new(move || driver.unpark())
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }

    unsafe fn push(&mut self, token: u32, op: &Op<'_>) {
        let Op { action, file_offset, bytes, buffers, .. } = *op;
        self.shared.lock().todo.push_back(Task { token, action, file_offset, bytes, buffers });
        self.shared.work.notify_one();
    }

    fn turn(&mut self, done: &mut Vec<Completion>, wait: Wait) -> Result<u32, i32> {
        let ended = |done: &mut Vec<Completion>| done.append(&mut self.shared.lock().done);
        ended(done);
        if !done.is_empty() {
            return Ok(0);
        }
        // The bell and the workers unpark. A token left over from before only makes this return early.
        match wait {
            Wait::No | Wait::Look => return Ok(0),
            Wait::For(time) => thread::park_timeout(time),
            // Each worker makes one system call at a time: waiting for more of them would save nothing.
            Wait::Batch { .. } | Wait::Forever => thread::park(),
        }
        ended(done);
        Ok(1)
    }
}

impl Drop for BlockingRing {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // A worker does nothing that panics. If one did, its piece was never reported, and its buffer
            // stays leaked.
            let _ = worker.join();
        }
    }
}
