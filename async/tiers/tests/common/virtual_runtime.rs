//! A runtime of tiers in virtual time. To be used where `Attendant`, `Next`, `Runtime`, `Task` and
//! `Work` are at the root.

use crate::{Attendant, Next, Runtime, Task, Work};
use kvstrata_testing::virtual_time::{Handle, Sleep};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// Runs tiers in the virtual time of the thread that makes it.
pub struct VirtualRuntime {
    handle: Handle,
    attendant: OnceLock<Attendant>,
    /// The next look at deadlines.
    next: Mutex<Option<Duration>>,
    /// Work that may block runs on threads, in real time; otherwise it runs at once.
    pub has_threads: AtomicBool,
    this: Weak<VirtualRuntime>,
}

impl VirtualRuntime {
    pub fn new() -> Arc<VirtualRuntime> {
        Arc::new_cyclic(|this| VirtualRuntime {
            handle: Handle::current(),
            attendant: OnceLock::new(),
            next: Mutex::default(),
            has_threads: AtomicBool::new(false),
            this: this.clone(),
        })
    }

    /// Attends to deadlines from now on.
    pub fn attend(&self, attendant: Attendant) {
        assert!(self.attendant.set(attendant).is_ok(), "once");
        self.wake_at(self.now());
    }

    fn look(&self, at: Duration) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if *next != Some(at) {
            return;
        }
        *next = None;
        drop(next);
        if let Some(Next::At(at)) = self.attendant.get().map(Attendant::on_time) {
            self.wake_at(at);
        }
    }
}

impl Runtime for VirtualRuntime {
    fn now(&self) -> Duration {
        self.handle.now()
    }

    fn wake_at(&self, at: Duration) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if next.is_some_and(|next| next <= at) {
            return;
        }
        *next = Some(at);
        drop(next);
        let (of, handle) = (self.this.clone(), self.handle.clone());
        self.handle.spawn(async move {
            Sleep::of(&handle, at).await;
            if let Some(of) = of.upgrade() {
                of.look(at);
            }
        });
    }

    fn spawn(&self, task: Task) {
        self.handle.spawn(task);
    }

    fn run_blocking(&self, work: Work, _: Duration) -> bool {
        match self.has_threads.load(Relaxed) {
            true => _ = std::thread::spawn(work),
            false => work(),
        }
        true
    }
}
