//! Errands: work that must wait for a volume, done on threads of the disk tier, which may block.
//!
//! ```text
//!   a full queue ──► errands of its volume, in order ──► their thread: each waits for room
//!                                    └── no thread: the caller runs each with `Err(NoThread)`; none waits
//! ```
//!
//! A volume has two queues of errands, each with its own thread: errands that wait for room in the
//! volume's queue, and errands that wait for the device (`erase.rs`), which take longer. So each volume
//! has at most two threads, however many callers there are, and a volume that hangs delays no other. The
//! first errand of a queue starts its thread, and the thread ends with the last errand: without
//! congestion there is no thread. No one joins the threads, because a runtime or the dropper of a mover
//! would then wait as long as a device hangs. There is at most one errand for each request in flight,
//! one for the list (`unforgotten.rs`), and one for all slots that are to be erased next.
//!
//! Invariants
//! - I1: each errand runs once, with permission to wait or with `Err(NoThread)`.
//! - I2: the errands of a queue run in the order in which they were queued.

use kvstrata_tiers::shared::contained;
use std::collections::VecDeque;
use std::io;
#[cfg(test)]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The system gave no thread that may wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct NoThread;

/// A task that may wait, or is told that it may not. It owns all that it needs, the tier included.
pub(super) type Errand = Box<dyn FnOnce(Result<(), NoThread>) + Send>;

/// A queue of errands of a volume.
#[derive(Default)]
pub(super) struct Errands {
    line: Arc<Mutex<Line>>,
    /// Pretends that the system gives no thread.
    #[cfg(test)]
    pub(super) without: AtomicBool,
    /// The next request to the volume panics.
    #[cfg(test)]
    pub(super) panics: AtomicBool,
    #[cfg(test)]
    pub(super) threads: AtomicUsize,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Errand>,
    /// A thread is emptying the queue.
    served: bool,
}

impl Errands {
    /// Runs an errand on the queue's thread; if the system gives none, in this call, which must not
    /// wait.
    pub(super) fn run(&self, errand: Errand) {
        {
            let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
            line.waiting.push_back(errand);
            if std::mem::replace(&mut line.served, true) {
                return;
            }
        }
        let line = Arc::clone(&self.line);
        if self.start(move || serve(&line, Ok(()))).is_err() {
            serve(&self.line, Err(NoThread));
        }
    }

    /// Returns the number of errands that have not started.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.line.lock().expect("no panic").waiting.len()
    }

    fn start(&self, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        #[cfg(test)]
        if self.without.load(Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        #[cfg(test)]
        self.threads.fetch_add(1, Relaxed);
        thread::Builder::new().name("kvstrata-disk".to_owned()).spawn(body).map(drop)
    }
}

fn serve(line: &Mutex<Line>, may_wait: Result<(), NoThread>) {
    loop {
        let errand = {
            let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(errand) = line.waiting.pop_front() else {
                line.served = false;
                return;
            };
            errand
        };
        // An errand answers, which runs caller code. A panic there is reported by its hook; the others
        // must run.
        contained(|| errand(may_wait));
    }
}

impl std::fmt::Debug for Errands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Errands")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn errands_run_in_order_past_one_that_panics() {
        let errands = Errands::default();
        let ((go_on, waits), (done, is_done)) = (channel::<()>(), channel());
        errands.run(Box::new(move |_| _ = waits.recv()));
        for number in 0..4 {
            let done = done.clone();
            errands.run(Box::new(move |may_wait| {
                done.send((number, may_wait.is_ok(), thread::current().id())).expect("the test listens");
                assert!(number != 1, "a panic, as it should be");
            }));
        }
        assert!(is_done.try_recv().is_err(), "nobody waits here");
        drop(go_on);
        let all: Vec<_> = (0..4).map(|_| is_done.recv_timeout(SOON).expect("done")).collect();
        let (first, here) = (all[0].2, thread::current().id());
        assert_eq!(all, [0, 1, 2, 3].map(|number| (number, true, first)));
        assert_ne!(first, here);
        drop(done);
        // The thread has nothing more to do, and ends. The next errand has another one.
        while Arc::strong_count(&errands.line) > 1 {
            thread::yield_now();
        }
        let (done, is_done) = channel();
        errands.run(Box::new(move |may_wait| _ = done.send(may_wait.is_ok())));
        assert_eq!(is_done.recv_timeout(SOON), Ok(true));
    }

    #[test]
    fn errands_without_a_thread_are_told_and_the_next_retries() {
        let errands = Arc::new(Errands::default());
        errands.without.store(true, Relaxed);
        let (done, is_done) = channel();
        let (of, more) = (Arc::clone(&errands), done.clone());
        errands.run(Box::new(move |may_wait| {
            let of_the_first = more.clone();
            of.run(Box::new(move |may_wait| _ = of_the_first.send((2, may_wait.is_ok()))));
            let _ = more.send((1, may_wait.is_ok()));
        }));
        assert_eq!(is_done.try_iter().collect::<Vec<_>>(), [(1, false), (2, false)]);
        errands.without.store(false, Relaxed);
        errands.run(Box::new(move |may_wait| _ = done.send((3, may_wait.is_ok()))));
        assert_eq!(is_done.recv_timeout(SOON), Ok((3, true)));
    }
}
