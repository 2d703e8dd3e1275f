//! The runtime behind the tiers: tokio's timer and tasks, and threads for work that may block.
//!
//! ```text
//!   the task sleeps until the next deadline, or until an earlier one is set ──► Attendant::on_time
//!   the runtime ends ──► the task is dropped ──► the tiers close; a thread attends to later deadlines
//! ```
//!
//! The runtime may be the LLM engine's, and end before the handles do. Transfers that have not begun are
//! then cancelled. A transfer that has begun is answered by its mover or disk, or by its deadline, which
//! the thread watches from then on. So a shutdown waits as long as with a runtime.
//!
//! Invariants
//! - I1: the task, or the thread, sleeps no longer than until the first deadline.
//! - I2: while it sleeps, it keeps neither the tiers nor the attendance alive ([`Attendant`] keeps
//!   none).
//! - I3: there is a task or a thread, unless the system gives no thread. Then all waiting calls are late
//!   at once, and each new deadline tries to start a thread again.

use super::own::{OwnRuntime, run_detached};
use crate::metrics::Endpoint;
use kvstrata_tiers::{Attendant, Next, Runtime, Task, Work};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tracing::error;

/// A manager's clock, timer, tasks and threads.
pub(super) struct Attendance {
    handle: Handle,
    began: Instant,
    /// Notified of a deadline that comes before all others.
    earlier: Arc<Notify>,
    /// There is neither a task nor a thread: the runtime has ended, and the system gave no thread.
    unattended: AtomicBool,
    attendant: OnceLock<Attendant>,
    /// The server of the figures, until the end of a shutdown.
    endpoint: Mutex<Option<Endpoint>>,
    /// The runtime, if it is the manager's own.
    _own: Option<OwnRuntime>,
    this: Weak<Attendance>,
}

impl Attendance {
    pub(super) fn new(handle: Handle, own: Option<OwnRuntime>) -> Arc<Attendance> {
        let began = {
            let _in = handle.enter();
            Instant::now()
        };
        Arc::new_cyclic(|this| Attendance {
            handle,
            began,
            earlier: Arc::default(),
            unattended: AtomicBool::new(false),
            attendant: OnceLock::new(),
            endpoint: Mutex::default(),
            _own: own,
            this: this.clone(),
        })
    }

    /// Returns the server of the figures, if it is running.
    pub(super) fn endpoint(&self) -> MutexGuard<'_, Option<Endpoint>> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a task that watches deadlines. It ends with the tiers.
    pub(super) fn attend(&self, attendant: Attendant) {
        let (began, earlier) = (self.began, Arc::clone(&self.earlier));
        let attending = Attending { attendant: attendant.clone(), of: self.this.clone() };
        let _ = self.attendant.set(attendant.clone());
        self.handle.spawn(async move {
            // Dropped with the task.
            let _attending = attending;
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

    /// Starts a thread that watches deadlines, since the runtime has ended. If the system gives none,
    /// all waiting calls are late (I3).
    fn attend_by_thread(&self) {
        let Some(attendant) = self.attendant.get().cloned() else { return };
        let (began, earlier) = (self.began, Arc::clone(&self.earlier));
        let look = {
            let attendant = attendant.clone();
            move || by_thread(&attendant, began, &earlier)
        };
        let started = thread::Builder::new().name("kvstrata-late".to_owned()).spawn(look);
        // Relaxed: a caller that reads an old value notifies an existing thread, or starts another,
        // which finds no work.
        self.unattended.store(started.is_err(), Relaxed);
        if started.is_err() {
            attendant.answer_all();
        }
    }
}

impl Runtime for Attendance {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn wake_at(&self, _: Duration) {
        self.earlier.notify_one();
        if self.unattended.load(Relaxed) {
            self.attend_by_thread();
        }
    }

    fn spawn(&self, task: Task) {
        self.handle.spawn(task);
    }

    fn run_blocking(&self, work: Work, wait: Duration) -> bool {
        run_detached(work, wait)
    }

    fn wake_later(&self, waker: &Waker) {
        // Its first poll defers the wake until the runtime has looked for events.
        let turn = pin!(tokio::task::yield_now());
        let _ = turn.poll(&mut Context::from_waker(waker));
    }

    fn closed(&self) {
        self.endpoint().take();
    }
}

/// The task that watches deadlines.
struct Attending {
    attendant: Attendant,
    of: Weak<Attendance>,
}

impl Drop for Attending {
    /// If the tiers still exist, their runtime has ended.
    fn drop(&mut self) {
        let of = self.of.upgrade();
        let Some(gave) = self.attendant.close_for_good() else { return };
        // If no call waits any more, there is nothing to log.
        if gave {
            error!(
                remedy = "keep the runtime alive as long as the manager, and shut the manager down first",
                "the manager's runtime ended first: the manager is closed"
            );
        }
        if let Some(of) = of {
            of.attend_by_thread();
        }
    }
}

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Unparks>) {
        self.0.unpark();
    }
}

/// The task's loop, on a thread.
fn by_thread(attendant: &Attendant, began: Instant, earlier: &Notify) {
    let waker = Waker::from(Arc::new(Unparks(thread::current())));
    loop {
        let next = match attendant.on_time() {
            Next::At(at) => Some(began + at),
            Next::WhenTold => None,
            Next::Never => return,
        };
        let mut told = pin!(earlier.notified());
        while told.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            match next.map(|next| next.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => break,
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn hanging_work_is_awaited_until_the_deadline() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let attendance = Attendance::new(runtime.handle().clone(), None);
        let ((go_on, hangs), (ended, closed)) = (mpsc::channel::<()>(), mpsc::channel());
        let stuck = move || {
            let _ = hangs.recv();
            let _ = ended.send(());
        };
        assert!(!attendance.run_blocking(Box::new(stuck), Duration::from_millis(5)));
        drop(go_on);
        closed.recv_timeout(Duration::from_secs(20)).expect("it ends, when it hangs no more");
        assert!(attendance.run_blocking(Box::new(|| {}), Duration::from_secs(20)));
    }
}
