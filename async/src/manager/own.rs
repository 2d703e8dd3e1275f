//! The manager's own runtimes, if the caller has none.
//!
//! ```text
//!   thread 0:  deadlines, pauses, purges, checked writes
//!   thread 1…: the answers of disks, by group in turn       (with one thread: all)
//! ```
//!
//! Each thread drives its own runtime, and is started here. A multi-threaded tokio runtime starts its
//! threads itself; if the system gives fewer, it panics, or waits for ever for the missing ones.
//!
//! Invariants
//! - I1: after an error no thread is left: those that were started end.
//! - I2: no one waits for a thread to end, because the last owner of the runtimes may be one of them.

use kvstrata_tiers::Work;
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Threads that end, with their tasks, when this is dropped.
#[derive(Debug)]
pub struct OwnRuntime {
    handles: Vec<Handle>,
    /// Their drop tells the threads to end.
    _ends: Vec<oneshot::Sender<()>>,
}

impl OwnRuntime {
    /// Starts `threads` threads, at least one.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    ///
    /// # Errors
    /// The system's error, if it gives fewer threads.
    pub fn start(threads: u32) -> io::Result<OwnRuntime> {
        let (mut handles, mut ends) = (Vec::new(), Vec::new());
        for number in 0..threads.max(1) {
            let runtime = Builder::new_current_thread().enable_time().build()?;
            let (end, ended) = oneshot::channel::<()>();
            handles.push(runtime.handle().clone());
            ends.push(end);
            let drive = move || _ = runtime.block_on(ended);
            thread::Builder::new().name(format!("kvstrata-{number}")).spawn(drive)?;
        }
        Ok(OwnRuntime { handles, _ends: ends })
    }

    /// Returns the handle of the manager's runtime.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handles[0]
    }

    /// Returns the handle of the runtime for a group's disks.
    pub(crate) fn of_disks(&self, group: usize) -> &Handle {
        match &self.handles[..] {
            [_, others @ ..] if !others.is_empty() => &others[group % others.len()],
            _ => self.handle(),
        }
    }
}

/// Runs work on a detached thread, and waits this long for its end: whether it has ended, or, with no time
/// to wait, whether it has started. A runtime would wait for its own thread at its end, for as long as a
/// device hangs.
pub(crate) fn run_detached(work: Work, wait: Duration) -> bool {
    let (ended, end) = mpsc::channel();
    let work = move || {
        work();
        let _ = ended.send(());
    };
    let started = thread::Builder::new().name("kvstrata-close".to_owned()).spawn(work).is_ok();
    started && (wait.is_zero() || end.recv_timeout(wait).is_ok())
}
