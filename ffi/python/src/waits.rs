//! Waits of a Python thread for the store, without the GIL.

use pyo3::prelude::*;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Between two looks for signals, such as that of Ctrl-C.
const SLICE: Duration = Duration::from_millis(50);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}

/// Waits for a future's end; `None`: the time is over. A signal's handler that raises ends the wait.
pub(crate) fn wait<F>(py: Python<'_>, future: F, until: Option<Instant>) -> PyResult<Option<F::Output>>
where
    F: Future + Send,
    F::Output: Send,
{
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        let slice = Instant::now() + SLICE;
        let stop = until.map_or(slice, |until| until.min(slice));
        let ended = py.detach(|| {
            loop {
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return Some(output);
                }
                let left = stop.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return None;
                }
                thread::park_timeout(left);
            }
        });
        if ended.is_some() {
            return Ok(ended);
        }
        py.check_signals()?;
        if until.is_some_and(|until| Instant::now() >= until) {
            return Ok(None);
        }
    }
}

/// Returns the moment after so many seconds; `None`: never.
pub(crate) fn after(name: &str, seconds: Option<f64>) -> PyResult<Option<Instant>> {
    Ok(duration(name, seconds)?.and_then(|duration| Instant::now().checked_add(duration)))
}

/// Checks a number of seconds.
pub(crate) fn duration(name: &str, seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    if seconds == f64::INFINITY {
        return Ok(Some(Duration::MAX));
    }
    Duration::try_from_secs_f64(seconds)
        .map(Some)
        .map_err(|_| crate::errors::refused(format!("{name} = {seconds}: pass seconds from 0 on, or None")))
}
