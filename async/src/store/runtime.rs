//! The runtime of a store: the clock, the timer and the threads. They are the store's own, so they live as
//! long as it does.

use crate::manager::{OwnRuntime, run_detached};
use kvstrata_store::StoreAttendant;
use kvstrata_tiers::{Next, Runtime, Task, Work};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Runs a store on threads of its own.
pub struct StoreRuntime {
    own: OwnRuntime,
    began: Instant,
    /// Notified of a deadline that comes before all others.
    earlier: Arc<Notify>,
}

impl StoreRuntime {
    /// Starts threads, at least one.
    ///
    /// # Errors
    /// The system's error, if it gives fewer.
    pub fn start(threads: u32) -> io::Result<Arc<StoreRuntime>> {
        let own = OwnRuntime::start(threads)?;
        Ok(Arc::new(StoreRuntime { own, began: Instant::now(), earlier: Arc::default() }))
    }

    /// Returns the runtime for the answers of a size class's volumes.
    #[must_use]
    pub fn of_disks(&self, class: usize) -> &Handle {
        self.own.of_disks(class)
    }

    /// Starts a task that watches the store's deadlines. It keeps neither the store nor this alive.
    pub fn attend(&self, attendant: StoreAttendant) {
        let (began, earlier) = (self.began, Arc::clone(&self.earlier));
        self.own.handle().spawn(async move {
            loop {
                let next = attendant.on_time();
                let told = earlier.notified();
                match next {
                    Next::At(at) => _ = timeout_at(began + at, told).await,
                    Next::WhenTold => told.await,
                    Next::Never => return,
                }
            }
        });
    }
}

impl Runtime for StoreRuntime {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn wake_at(&self, _: Duration) {
        self.earlier.notify_one();
    }

    fn spawn(&self, task: Task) {
        self.own.handle().spawn(task);
    }

    fn run_blocking(&self, work: Work, wait: Duration) -> bool {
        run_detached(work, wait)
    }
}
