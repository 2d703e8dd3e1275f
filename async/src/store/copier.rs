//! Threads that copy in host memory.
//!
//! Invariants
//! - I1: each copy is answered: by a thread, or by its drop. A thread that panics over a copy answers it as
//!   abandoned, and goes on.
//! - I2: when the copier's drop returns, all copies have been answered and the threads have ended. A thread
//!   that itself drops the copier, from an answer, ends afterwards.

use kvstrata_ffi::copy::HostCopy;
use kvstrata_ffi::process::Origin;
use kvstrata_store::{Copier, Copying};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::{fmt, io, mem, thread};

/// Copies of at least this many bytes together go past the caches: the processor that reads a loaded block
/// next is often the device's, and a stored block is not read again soon.
const PAST_CACHES: usize = 256 << 10;

/// Copies by threads.
pub struct HostCopier {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    origin: Origin,
}

#[derive(Default)]
struct Queue {
    copies: VecDeque<Copying>,
    asleep: usize,
    is_over: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    news: Condvar,
    copy: HostCopy,
}

impl HostCopier {
    /// Starts threads that copy, at least one.
    ///
    /// # Errors
    /// The system's error, if it gives fewer.
    pub fn new(threads: usize) -> io::Result<HostCopier> {
        let shared = Shared { queue: Mutex::default(), news: Condvar::new(), copy: HostCopy::new() };
        let mut copier = HostCopier { shared: Arc::new(shared), threads: Vec::new(), origin: Origin::here() };
        for number in 0..threads.max(1) {
            let shared = Arc::clone(&copier.shared);
            let named = thread::Builder::new().name(format!("kvstrata-copy-{number}"));
            // If this fails, the drop ends the threads started so far.
            copier.threads.push(named.spawn(move || shared.run())?);
        }
        Ok(copier)
    }
}

impl Copier for HostCopier {
    fn start(&self, copies: Vec<Copying>) {
        let several = copies.len() > 1;
        let asleep = {
            let mut queue = self.shared.queue();
            queue.copies.extend(copies);
            queue.asleep
        };
        match asleep {
            0 => {}
            _ if several => self.shared.news.notify_all(),
            _ => self.shared.news.notify_one(),
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while let Some(mut copying) = self.next() {
            let _ = catch_unwind(AssertUnwindSafe(move || {
                let past_caches = copying.bytes() >= PAST_CACHES;
                // The lengths are equal, which is all that can fail.
                copying.carry_out(|from, to| {
                    self.copy.copy_bytes_sealed(from, to, past_caches).unwrap_or_default()
                });
            }));
        }
    }

    fn next(&self) -> Option<Copying> {
        let mut queue = self.queue();
        loop {
            if let Some(copying) = queue.copies.pop_front() {
                return Some(copying);
            }
            if queue.is_over {
                return None;
            }
            queue.asleep += 1;
            queue = self.news.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.asleep -= 1;
        }
    }
}

impl Drop for HostCopier {
    fn drop(&mut self) {
        // A forked child has none of the threads, and one of them may have held the lock.
        if !self.origin.is_here() {
            return mem::forget(mem::take(&mut self.threads));
        }
        self.shared.queue().is_over = true;
        self.shared.news.notify_all();
        let this = thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != this) {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for HostCopier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostCopier({} threads)", self.threads.len())
    }
}
