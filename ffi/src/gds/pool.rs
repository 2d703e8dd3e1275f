//! The threads that wait for cuFile, and for sums.
//!
//! `cuFileRead` and `cuFileWrite` return when the bytes have arrived, [`DeviceSums::sum`] when the device
//! has summed them. A few threads make these calls, so that a volume's ring thread need not wait:
//!
//! ```text
//!   ring thread ─ begin ─► todo ─► thread ─┐
//!      ▲                           thread ─┤ cuFileRead / cuFileWrite / sum
//!      └─ ended ◄── bell ◄─────────thread ─┘
//! ```
//!
//! Invariants
//! - I1: a job shares its device memory until its call has returned, and no longer: it drops its share
//!   before its answer is visible.
//! - I2: the file is deregistered after the last thread has ended.
//! - I3: the bell rings after each answer is stored: a thread that looks after the ring finds the answer.

use super::driver::GdsOptions;
use super::error::GdsError;
use super::file::{Direction, GdsFile};
use super::memory::DeviceRange;
use super::sums::DeviceSums;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Called by the threads when there is an answer.
pub(crate) type Bell = Box<dyn Fn() + Send + Sync>;

/// The operation of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Fills the memory from the file.
    Read,
    /// Copies the memory to the file.
    Write,
    Sum,
}

/// One call.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) token: u32,
    pub(crate) task: Task,
    pub(crate) range: DeviceRange,
    pub(crate) file_offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Bytes moved; or, negated, an error number or a code of cuFile's.
    Moved(i32),
    /// The sum; or the code of [`DeviceSums`], [`PANICKED`], or CUDA's if the context cannot be made current.
    Summed(Result<u64, i32>),
}

/// The code of a sum that panicked.
pub(crate) const PANICKED: i32 = i32::MIN;

/// The answer to a transfer if its device's context cannot be made current:
/// `CU_FILE_INVALID_CONTEXT_ERROR`.
const INVALID_CONTEXT: i32 = 5047;

pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    file: GdsFile,
    sums: Option<Arc<dyn DeviceSums>>,
    bell: Bell,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    todo: VecDeque<Job>,
    ended: Vec<(u32, Answer)>,
    closing: bool,
}

impl Pool {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`GdsError::Thread`], if not even one thread starts.
    pub(crate) fn start(
        file: GdsFile,
        options: GdsOptions,
        sums: Option<Arc<dyn DeviceSums>>,
        bell: Bell,
    ) -> Result<Pool, GdsError> {
        let (state, work) = (Mutex::new(State::default()), Condvar::new());
        let shared = Arc::new(Shared { file, sums, bell, state, work });
        let mut pool = Pool { shared, threads: Vec::with_capacity(options.threads) };
        for _ in 0..options.threads {
            let shared = Arc::clone(&pool.shared);
            let thread = thread::Builder::new().name("kvstrata-gds".into()).spawn(move || shared.serve());
            match thread {
                Ok(thread) => pool.threads.push(thread),
                Err(source) if pool.threads.is_empty() => return Err(GdsError::Thread { source }),
                // Fewer threads do it, too.
                Err(_) => break,
            }
        }
        Ok(pool)
    }

    /// Hands a job to the threads. Its answer has its token.
    pub(crate) fn begin(&self, job: Job) {
        self.shared.lock().todo.push_back(job);
        self.shared.work.notify_one();
    }

    /// Appends the available answers.
    pub(crate) fn ended(&self, answers: &mut Vec<(u32, Answer)>) {
        answers.append(&mut self.shared.lock().ended);
    }
}

impl Drop for Pool {
    /// Waits for the calls under way. Jobs that have not begun are dropped: their answers have no reader.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closing = true;
        let left = core::mem::take(&mut state.todo);
        drop(state);
        self.shared.work.notify_all();
        drop(left);
        for thread in self.threads.drain(..) {
            // A thread catches the panics of callers' code; there is no one to tell of any other.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No caller's code runs under the lock, so a poisoned state is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.todo.pop_front() {
                drop(state);
                let token = job.token;
                // The job ends here, and with it its share of the memory (I1).
                let answer = self.carry_out(job);
                self.lock().ended.push((token, answer));
                (self.bell)();
                state = self.lock();
            } else if state.closing {
                return;
            } else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn carry_out(&self, job: Job) -> Answer {
        let Job { task, range, file_offset, .. } = job;
        let direction = match task {
            Task::Read => Direction::Read,
            Task::Write => Direction::Write,
            Task::Sum => return Answer::Summed(self.sum(&range)),
        };
        match range.driver().enter() {
            Ok(_entered) => Answer::Moved(self.file.call(direction, &range, file_offset)),
            Err(_) => Answer::Moved(-INVALID_CONTEXT),
        }
    }

    fn sum(&self, payload: &DeviceRange) -> Result<u64, i32> {
        // A volume without sums requests none.
        let sums = self.sums.as_ref().ok_or(libc::ENOSYS)?;
        let _entered = payload.driver().enter()?;
        // A caller's code: its panic ends neither the thread nor the other jobs.
        catch_unwind(AssertUnwindSafe(|| sums.sum(payload))).unwrap_or(Err(PANICKED))
    }
}
