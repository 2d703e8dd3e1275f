//! Tasks of one thread in virtual time: the clock stands still while a task can go on, and jumps to the next
//! timer when none can.
//!
//! ```text
//!   ready ──► poll in the order of waking ──► none is ready ──► the clock jumps to the next timer
//!     ▲                                                                        │
//!     └────────────────────────────────────────────── its tasks are ready ◄────┘
//! ```
//!
//! So a run with a seed does the same each time, and takes no longer than its work. The names are tokio's, so
//! that tests of both may share simulated hardware.
//!
//! Invariants
//! - I1: tasks are polled in the order in which they were woken; one that is woken twice before its turn is
//!   polled once.
//! - I2: timers of one moment wake in the order in which they were set.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Add;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

type Local = Pin<Box<dyn Future<Output = ()>>>;
type Sent = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    static CURRENT: RefCell<Option<Handle>> = const { RefCell::new(None) };
    static LOCAL: RefCell<BTreeMap<u64, Local>> = const { RefCell::new(BTreeMap::new()) };
}

/// A running world of tasks, for code that spawns into it.
#[derive(Clone)]
pub struct Handle(Arc<World>);

#[derive(Default)]
struct World {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: Duration,
    last: u64,
    ready: VecDeque<u64>,
    timers: BTreeMap<(Duration, u64), Waker>,
    sent: BTreeMap<u64, Sent>,
}

/// A task's waker.
struct Ready {
    task: u64,
    /// Whether the task is in the ready queue.
    is_queued: AtomicBool,
    world: Arc<World>,
}

impl Wake for Ready {
    fn wake(self: Arc<Ready>) {
        // Relaxed: one thread at a time has the lock that follows.
        if !self.is_queued.swap(true, Relaxed) {
            self.world.lock().ready.push_back(self.task);
        }
    }
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:?})", self.now())
    }
}

impl Handle {
    /// Returns the world that this thread runs.
    ///
    /// # Panics
    /// If this thread runs no world.
    #[must_use]
    pub fn current() -> Handle {
        CURRENT.with_borrow(Clone::clone).expect("within virtual_time::run")
    }

    /// Returns the world's time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.0.lock().now
    }

    /// Adds a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut state = self.0.lock();
        let number = state.number();
        state.sent.insert(number, Box::pin(task));
        state.ready.push_back(number);
    }

    fn take_sent(&self, number: u64) -> Option<Local> {
        self.0.lock().sent.remove(&number).map(|task| task as Local)
    }

    fn waker(&self, task: u64) -> Arc<Ready> {
        Arc::new(Ready { task, is_queued: AtomicBool::new(true), world: Arc::clone(&self.0) })
    }

    /// Jumps to the next timer. Returns whether there was one.
    fn jump(&self) -> bool {
        let mut state = self.0.lock();
        let Some((at, _)) = state.timers.keys().next().copied() else { return false };
        state.now = state.now.max(at);
        let later = state.timers.split_off(&(at, u64::MAX));
        let due = std::mem::replace(&mut state.timers, later);
        drop(state);
        due.into_values().for_each(Waker::wake);
        true
    }
}

/// Runs a future, and all tasks that it spawns, until the future ends. Remaining tasks are dropped
/// in the order of their numbers.
///
/// # Panics
/// If no task can go on and no timer is set: the future would never end.
pub fn run<F: Future>(body: F) -> F::Output {
    let handle = Handle(Arc::default());
    let before = CURRENT.replace(Some(handle.clone()));
    assert!(before.is_none(), "one world a thread");
    let _end = End;
    let mut body = pin!(body);
    let first = handle.waker(0);
    handle.0.lock().ready.push_back(0);
    let mut tasks: BTreeMap<u64, (Local, Arc<Ready>)> = BTreeMap::new();
    loop {
        let next = handle.0.lock().ready.pop_front();
        let Some(number) = next else {
            assert!(handle.jump(), "every task waits, and no timer is set");
            continue;
        };
        if number == 0 {
            first.is_queued.store(false, Relaxed);
            let waker = Waker::from(Arc::clone(&first));
            if let Poll::Ready(output) = body.as_mut().poll(&mut Context::from_waker(&waker)) {
                drop(tasks);
                return output;
            }
            continue;
        }
        let new = LOCAL.with_borrow_mut(|local| local.remove(&number)).or_else(|| handle.take_sent(number));
        if let Some(task) = new {
            tasks.insert(number, (task, handle.waker(number)));
        }
        // The task was woken after its end.
        let Some((task, ready)) = tasks.get_mut(&number) else { continue };
        ready.is_queued.store(false, Relaxed);
        let waker = Waker::from(Arc::clone(ready));
        let mut context = Context::from_waker(&waker);
        // The panic hook has reported the panic; the task has ended.
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut context)));
        if !matches!(polled, Ok(Poll::Pending)) {
            tasks.remove(&number);
        }
    }
}

/// The end of a world: tasks that were spawned and never polled are dropped, too.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        loop {
            let local = LOCAL.with_borrow_mut(std::mem::take);
            let sent = CURRENT.with_borrow(|current| {
                current.as_ref().map(|handle| std::mem::take(&mut handle.0.lock().sent)).unwrap_or_default()
            });
            if local.is_empty() && sent.is_empty() {
                break;
            }
            drop((local, sent));
        }
        CURRENT.take();
    }
}

/// The error of a task that panicked, with the panic's text.
#[derive(Debug)]
pub struct JoinError(String);

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a task panicked: {}", self.0)
    }
}

impl std::error::Error for JoinError {}

/// A handle that waits for a task's end.
pub struct JoinHandle<T>(Rc<RefCell<Joined<T>>>);

struct Joined<T> {
    outcome: Option<Result<T, JoinError>>,
    waker: Option<Waker>,
}

fn said(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
}

/// Adds a task of this thread.
pub fn spawn_local<F: Future + 'static>(future: F) -> JoinHandle<F::Output> {
    let joined = Rc::new(RefCell::new(Joined { outcome: None, waker: None }));
    let tell = Rc::clone(&joined);
    let task = async move {
        let mut future = Box::pin(future);
        let outcome = poll_fn(|context| {
            let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
            match polled {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
                Err(payload) => Poll::Ready(Err(JoinError(said(&*payload)))),
            }
        })
        .await;
        drop(future);
        let mut joined = tell.borrow_mut();
        joined.outcome = Some(outcome);
        if let Some(waker) = joined.waker.take() {
            waker.wake();
        }
    };
    let handle = Handle::current();
    let mut state = handle.0.lock();
    let number = state.number();
    state.ready.push_back(number);
    drop(state);
    LOCAL.with_borrow_mut(|local| local.insert(number, Box::pin(task)));
    JoinHandle(joined)
}

impl<T> JoinHandle<T> {
    /// Whether the task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.borrow().outcome.is_some()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut joined = self.0.borrow_mut();
        if let Some(outcome) = joined.outcome.take() {
            return Poll::Ready(outcome);
        }
        joined.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// A moment of virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// Returns the current moment.
    #[must_use]
    pub fn now() -> Instant {
        Instant(Handle::current().now())
    }

    /// Returns the time since this moment.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Instant::now().0.saturating_sub(self.0)
    }

    /// Returns the time since an earlier moment; zero if that one is later.
    #[must_use]
    pub fn saturating_duration_since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, time: Duration) -> Instant {
        Instant(self.0 + time)
    }
}

/// A future that ends at a moment.
#[must_use = "it waits when it is polled"]
pub struct Sleep {
    handle: Handle,
    at: Duration,
    timer: Option<u64>,
}

/// Waits until a moment.
pub fn sleep_until(at: Instant) -> Sleep {
    Sleep { handle: Handle::current(), at: at.0, timer: None }
}

/// Waits for so much time.
pub fn pass(time: Duration) -> Sleep {
    sleep_until(Instant::now() + time)
}

impl Sleep {
    /// Waits until `at` in a world that may be another thread's.
    pub fn of(handle: &Handle, at: Duration) -> Sleep {
        Sleep { handle: handle.clone(), at, timer: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let handle = self.handle.clone();
        let mut state = handle.0.lock();
        if state.now >= self.at {
            return Poll::Ready(());
        }
        let number = *self.timer.get_or_insert_with(|| state.number());
        state.timers.insert((self.at, number), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.handle.0.lock().timers.remove(&(self.at, timer));
        }
    }
}

/// A time limit has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

/// Waits for a future, for at most so much time.
///
/// # Errors
/// [`Elapsed`]: the future did not end in time, and is dropped.
pub async fn timeout<F: Future>(time: Duration, future: F) -> Result<F::Output, Elapsed> {
    let (mut future, mut late) = (pin!(future), pin!(pass(time)));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => late.as_mut().poll(context).map(|()| Err(Elapsed)),
    })
    .await
}

/// Gives the other tasks their turn.
pub async fn yield_now() {
    let mut is_back = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_back, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_jumps_when_every_task_waits() {
        let order = Rc::new(RefCell::new(Vec::new()));
        let took = run(async {
            let began = Instant::now();
            for (name, ms) in [("c", 30), ("a", 10), ("b", 10)] {
                let order = Rc::clone(&order);
                drop(spawn_local(async move {
                    pass(Duration::from_millis(ms)).await;
                    order.borrow_mut().push((name, began.elapsed().as_millis()));
                }));
            }
            assert_eq!(timeout(Duration::from_millis(5), pass(Duration::from_millis(6))).await, Err(Elapsed));
            pass(Duration::from_hours(1)).await;
            began.elapsed()
        });
        assert_eq!(*order.borrow(), [("a", 10), ("b", 10), ("c", 30)]);
        assert_eq!(took, Duration::from_millis(5) + Duration::from_hours(1));
    }

    #[test]
    fn panic_of_a_task_is_an_error_of_its_join() {
        let error = run(async { spawn_local(async { panic!("no") }).await });
        assert_eq!(error.expect_err("a panic").to_string(), "a task panicked: no");
    }

    #[test]
    fn unfinished_tasks_are_dropped_at_the_end() {
        let kept = Arc::new(());
        run(async {
            for _ in 0..2 {
                let kept = Arc::clone(&kept);
                Handle::current().spawn(async move {
                    std::future::pending::<()>().await;
                    drop(kept);
                });
                yield_now().await;
            }
            let kept = Arc::clone(&kept);
            Handle::current().spawn(async move { drop(kept) });
        });
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
