//! Runtimes of the manager's own, for who hands it none.
//!
//! ```text
//!   thread 0:  deadlines, pauses, purges, checked writes
//!   thread 1…: the answers of disks, a group's after another's       (of one thread: all)
//! ```
//!
//! Each thread drives a runtime of its own, and is started here. A runtime of several threads would start
//! them by itself: where the system gives fewer it panics, or waits for ever for those that it has not got.
//!
//! Invariants
//! - I1: an error leaves no thread behind: those that were started end.
//! - I2: nobody waits for a thread to end: who lets go of the runtimes may be one of them.

use std::io;
use std::thread;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Threads that end when this is dropped, with all tasks that they have.
#[derive(Debug)]
pub struct OwnRuntime {
    handles: Vec<Handle>,
    /// Dropped, they tell the threads.
    _ends: Vec<oneshot::Sender<()>>,
}

impl OwnRuntime {
    /// So many threads, at least one.
    ///
    /// # Errors
    /// The system's, where it gives fewer.
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

    /// The manager's.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handles[0]
    }

    /// That of a group's disks.
    pub(super) fn of_disks(&self, group: usize) -> &Handle {
        match &self.handles[..] {
            [_, others @ ..] if !others.is_empty() => &others[group % others.len()],
            _ => self.handle(),
        }
    }
}
