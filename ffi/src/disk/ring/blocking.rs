//! The ring of last resort: a few threads that call pread and pwrite.
//!
//! For kernels and containers that forbid io_uring, and for network file systems that serve it badly.
//!
//! ```text
//!   ring thread ──todo──► worker ─┐
//!               │         worker ─┤ pread / pwrite
//!               ◄──done── worker ─┘ + unpark
//! ```
//!
//! Invariants
//! - I1: the workers end before the ring does: `Drop` joins them, after the piece that each is in.

use super::super::error::Direction;
use super::super::inbox::Bell;
use super::{Completion, Op, Ring};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};

pub(in crate::disk) struct BlockingRing {
    depth: usize,
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    file: Arc<File>,
    /// The thread that drives the ring.
    driver: Thread,
    state: Mutex<State>,
    work: Condvar,
}

struct State {
    todo: VecDeque<(u32, Op)>,
    done: Vec<Completion>,
    closing: bool,
}

impl BlockingRing {
    /// Made by the thread that will drive it.
    pub(in crate::disk) fn new(depth: u32, threads: usize, file: Arc<File>) -> io::Result<BlockingRing> {
        let depth = depth as usize;
        let state =
            State { todo: VecDeque::with_capacity(depth), done: Vec::with_capacity(depth), closing: false };
        let shared = Arc::new(Shared {
            file,
            driver: thread::current(),
            state: Mutex::new(state),
            work: Condvar::new(),
        });
        let mut ring = BlockingRing { depth, shared, workers: Vec::new() };
        for _ in 0..threads.max(1) {
            let shared = Arc::clone(&ring.shared);
            let worker = thread::Builder::new().name("kvstrata-io".into()).spawn(move || shared.work());
            match worker {
                Ok(worker) => ring.workers.push(worker),
                Err(error) if ring.workers.is_empty() => return Err(error),
                // Fewer do it too.
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
            if let Some((token, op)) = state.todo.pop_front() {
                drop(state);
                // SAFETY: `op` came through `Ring::push`, and its completion has not been reported.
                let result = unsafe { transfer(&self.file, &op) };
                state = self.lock();
                state.done.push(Completion { token, result });
                self.driver.unpark();
            } else if state.closing {
                return;
            } else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// One pread or pwrite: bytes moved, or a negated error number.
///
/// # Safety
/// The memory of `op` is as `Ring::push` demands.
unsafe fn transfer(file: &File, op: &Op) -> i32 {
    let fd = file.as_raw_fd();
    let bytes = op.bytes as usize;
    let Ok(offset) = libc::off_t::try_from(op.file_offset) else { return -libc::EOVERFLOW };
    let moved = match op.direction {
        // SAFETY: `bytes` writable bytes at `address`, ours until the completion (the caller's promise).
        Direction::Read => unsafe { libc::pread(fd, op.address.cast(), bytes, offset) },
        // SAFETY: `bytes` readable bytes at `address` that nobody writes (the caller's promise).
        Direction::Write => unsafe { libc::pwrite(fd, op.address.cast_const().cast(), bytes, offset) },
    };
    if moved < 0 {
        return -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    }
    i32::try_from(moved).unwrap_or(i32::MAX)
}

impl Ring for BlockingRing {
    fn depth(&self) -> usize {
        self.depth
    }

    fn bell(&self) -> Bell {
        let driver = self.shared.driver.clone();
        Box::new(move || driver.unpark())
    }

    unsafe fn push(&mut self, token: u32, op: &Op) {
        self.shared.lock().todo.push_back((token, *op));
        self.shared.work.notify_one();
    }

    fn turn(&mut self, done: &mut Vec<Completion>) -> Result<(), i32> {
        let ended = |done: &mut Vec<Completion>| done.append(&mut self.shared.lock().done);
        ended(done);
        if done.is_empty() {
            // The bell and the workers unpark; a token left over from before only makes this come back early.
            thread::park();
            ended(done);
        }
        Ok(())
    }
}

impl Drop for BlockingRing {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // A worker does nothing that panics; if one did, its piece was never reported and stays leaked.
            let _ = worker.join();
        }
    }
}
