//! What has to wait for a volume, done by a thread of the tier's own, which may.
//!
//! ```text
//!   a full queue ──► errands of its volume, in order ──► their thread, while there are any: each waits for room
//!                                    └── no thread to be had: each is told so, where it was asked for, and does not wait
//! ```
//!
//! A volume has two lines, each with a thread of its own: what waits for room in the volume's queue, and what
//! waits for the device (`erase.rs`), which takes longer. So there are two threads a volume at the most,
//! whoever asks for how much, and a volume that hangs holds up no other. A thread is started by the first
//! errand of its line and over with the last, so that there is none while all goes well. Nobody joins it: a
//! runtime, or whoever drops a mover, would wait as long as a device hangs. There is one errand at most for
//! each request that is under way, one for the list (`unforgotten.rs`), and one for all that is to be erased
//! next.
//!
//! Invariants
//! - I1: each errand is done, once, or told that there is no thread.
//! - I2: errands of a line are done in the order that they were asked for.

use kvstrata_tiers::shared::contained;
use std::collections::VecDeque;
use std::io;
#[cfg(test)]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Nobody could be found who may wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct NoThread;

/// Something to be done, by somebody who may wait or is told that he may not. It keeps what it needs, the tier included.
pub(super) type Errand = Box<dyn FnOnce(Result<(), NoThread>) + Send>;

/// A line of a volume.
#[derive(Default)]
pub(super) struct Errands {
    line: Arc<Mutex<Line>>,
    /// There is no thread to be had.
    #[cfg(test)]
    pub(super) without: AtomicBool,
    /// What is asked of the volume next panics.
    #[cfg(test)]
    pub(super) panics: AtomicBool,
    #[cfg(test)]
    pub(super) threads: AtomicUsize,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Errand>,
    /// Somebody takes what is there, until it finds nothing.
    served: bool,
}

impl Errands {
    /// Does it on the line's thread. Where there is none to be had: here, which must not wait.
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

    /// Those whose turn has not come.
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
        // It answers, which is a caller's code: one that panics has said so, and the others are not its affair.
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
