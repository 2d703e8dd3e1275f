//! The thread that calls a client's callback.

use crate::bell::Limit;
use crate::client::book::kvs_completion;
use crate::client::shared::Shared;
use std::ffi::c_void;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};

/// Is called for each job that has ended, one after another, on the client's thread "kvstrata-calls". It may
/// call everything except kvs_client_free of its own client. It must return, and must not throw.
///
/// context: that of kvs_client_options. completion: valid during the call.
pub type kvs_callback = Option<unsafe extern "C" fn(context: *mut c_void, completion: *const kvs_completion)>;

/// Completions that are taken at once.
const BATCH: usize = 64;

/// The thread's handle.
pub(super) struct Callbacks {
    end: Arc<End>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct End {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    is_asked: bool,
    has_ended: bool,
}

/// The callback and its argument.
struct Call {
    function: unsafe extern "C" fn(*mut c_void, *const kvs_completion),
    context: *mut c_void,
}

// SAFETY: the caller has chosen a callback, and so a thread of the library for both (kvs_callback).
unsafe impl Send for Call {}

impl End {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the end of the thread, however it ends.
struct Ending(Arc<End>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.state().has_ended = true;
        self.0.news.notify_all();
    }
}

impl Callbacks {
    /// Starts the thread.
    pub(super) fn start(
        shared: &Arc<Shared>,
        function: unsafe extern "C" fn(*mut c_void, *const kvs_completion),
        context: *mut c_void,
    ) -> io::Result<Callbacks> {
        let (shared, end) = (Arc::clone(shared), Arc::<End>::default());
        let (call, ending) = (Call { function, context }, Ending(Arc::clone(&end)));
        let named = thread::Builder::new().name("kvstrata-calls".to_owned());
        let thread = named.spawn(move || run(&shared, &call, &ending))?;
        Ok(Callbacks { end, thread })
    }

    pub(super) fn thread(&self) -> ThreadId {
        self.thread.thread().id()
    }

    /// Ends the thread, after the callbacks of all jobs. Returns whether it has ended within the limit.
    pub(super) fn end(&self, shared: &Shared, limit: Limit) -> bool {
        let mut state = self.end.state();
        state.is_asked = true;
        shared.bell.ring();
        while !state.has_ended {
            state = match limit.left() {
                None => self.end.news.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return false,
                Some(left) => {
                    let waited = self.end.news.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }

    /// Waits for the thread's last steps.
    pub(super) fn join(self) {
        let _ = self.thread.join();
    }
}

fn run(shared: &Shared, call: &Call, ending: &Ending) {
    let mut completions = Vec::with_capacity(BATCH);
    // The descriptor fails only if the process has closed it, against the header.
    while crate::bell::poll([shared.bell.raw()], Limit::of(-1)).is_ok() {
        // Read first: a job that was submitted before the request to end is reported before the end.
        let is_asked = ending.0.state().is_asked;
        let count = shared.report(BATCH, |_, completion| completions.push(completion));
        for completion in completions.drain(..) {
            // SAFETY: the caller has promised a function that may be called so, on this thread.
            unsafe { (call.function)(call.context, &completion) };
        }
        if is_asked && count == 0 {
            let mut book = shared.book();
            if !book.is_lent() && !book.has_ended() {
                return;
            }
        } else if is_asked {
            // Another round, to find that nothing is left.
            shared.bell.ring();
        }
    }
}
