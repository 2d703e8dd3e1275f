//! Threads that carry out lists of copies, each thread one copy at a time.
//!
//! ```text
//!   start ──► lists (a lock) ──► thread 0: copy 0 ──┐
//!                          └───► thread 1: copy 1 ──┴──► the last copy's thread answers the list, unlocked
//! ```
//!
//! The queue has no bound. The caller bounds the bytes in flight (the manager's queue of the path), and
//! a waiting list takes no memory besides its own.
//!
//! Invariants
//! - I1: a thread that panics over a copy returns it as abandoned; the list's other copies, and the
//!   thread, go on.
//! - I2: no lock is held while a copy is carried out or a landing is called, so a landing may start
//!   copies.
//! - I3: when `drop` returns, all lists have been answered and the threads have ended. Exception: a
//!   thread that itself drops the pool, from a landing, ends afterwards.

use super::lists::{Lists, Place};
use super::threads::ThreadsError;
use kvstrata_core::DevicePort;
use kvstrata_core::storage::DeviceError;
use kvstrata_ffi::process::Origin;
use kvstrata_tiers::transfer::{Cause, Copies, Copy, Failure};
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

#[cfg(test)]
mod tests;

/// Carries out a copy.
pub(super) type Work = Box<dyn Fn(&mut Copy) -> Result<(), Failure> + Send + Sync>;

/// Overwrites bytes of a block of the device with zeros.
pub(super) fn zero(port: &dyn DevicePort, block: u32, bytes: Range<usize>) -> Result<(), DeviceError> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    bytes.clone().step_by(ZEROS.len()).try_for_each(|start| {
        let some = ZEROS.len().min(bytes.end - start);
        port.copy_in(block, start, &ZEROS[..some])
    })
}

/// A pool of threads for copies.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    origin: Origin,
}

struct Shared {
    work: Work,
    lists: Mutex<Lists>,
    /// Notified when there are copies to take, and at the end.
    news: Condvar,
    /// Threads that wait on `news`. Relaxed: it is changed and read under the lock of `lists`, which
    /// orders it. Saves the system call of a wakeup when no thread waits.
    asleep: AtomicUsize,
}

impl Pool {
    /// Starts `threads` threads that run `work`.
    ///
    /// # Errors
    /// [`ThreadsError`], if `threads` is 0, or the system gives fewer.
    pub(super) fn new(threads: usize, work: Work) -> Result<Pool, ThreadsError> {
        if threads == 0 {
            return Err(ThreadsError::NoThreads);
        }
        let asleep = AtomicUsize::new(0);
        let shared = Shared { work, lists: Mutex::default(), news: Condvar::new(), asleep };
        let origin = Origin::here();
        let mut pool = Pool { shared: Arc::new(shared), threads: Vec::with_capacity(threads), origin };
        for number in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let named = std::thread::Builder::new().name(format!("kvstrata-copy-{number}"));
            let thread = named.spawn(move || shared.run());
            // If this fails, the pool's drop ends the threads started so far.
            pool.threads.push(thread.map_err(|source| ThreadsError::Spawn { number, source })?);
        }
        Ok(pool)
    }

    /// Returns the number of threads.
    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Starts a list.
    pub(super) fn start(&self, copies: Copies) {
        let several = copies.list().len() > 1;
        // A statement of its own: a returned list is dropped, and so answered, after the lock (I2).
        let (nothing_to_do, asleep) = {
            let mut lists = self.shared.lists();
            (lists.push(copies), self.shared.asleep.load(Relaxed))
        };
        drop(nothing_to_do);
        match asleep {
            0 => {}
            _ if several => self.shared.news.notify_all(),
            _ => self.shared.news.notify_one(),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A forked child has none of the threads, and one of them may have held the lock.
        if !self.origin.is_here() {
            return std::mem::forget(std::mem::take(&mut self.threads));
        }
        let ended = self.shared.lists().close();
        self.shared.news.notify_all();
        ended.into_iter().for_each(answer);
        let this = std::thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != this) {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} threads, {:?})", self.threads.len(), self.shared.lists())
    }
}

/// Answers a list. If its landing panics, the other lists must still be answered.
fn answer(copies: Copies) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(copies)));
}

impl Shared {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        // Nothing panics under the lock.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of a thread, until the pool is dropped.
    fn run(&self) {
        while let Some((place, mut copy)) = self.next() {
            copy.outcome = catch_unwind(AssertUnwindSafe(|| (self.work)(&mut copy)))
                .unwrap_or(Err(Failure::of(Cause::Abandoned)));
            let ended = self.lists().end(place, copy);
            ended.into_iter().for_each(answer);
        }
    }

    /// Waits for the next copy; `None` at the end.
    fn next(&self) -> Option<(Place, Copy)> {
        let mut lists = self.lists();
        loop {
            if let Some(taken) = lists.take() {
                return Some(taken);
            }
            if lists.closed() {
                return None;
            }
            self.asleep.fetch_add(1, Relaxed);
            lists = self.news.wait(lists).unwrap_or_else(PoisonError::into_inner);
            self.asleep.fetch_sub(1, Relaxed);
        }
    }
}
