//! The answer of a call that has begun.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The answer of a call that has begun ([rule](crate::Tiers#calls-futures-and-drops)): a future that
/// only waits. Each call says what dropping its answer does.
#[must_use = "the answer comes only when the future is awaited"]
pub struct Answer<T>(State<T>);

enum State<T> {
    /// None: the answer has been taken.
    Now(Option<T>),
    Later(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T> Answer<T> {
    /// Returns an answer that is ready.
    pub(crate) fn now(answer: T) -> Answer<T> {
        Answer(State::Now(Some(answer)))
    }

    /// Returns an answer that has to be awaited.
    pub(crate) fn later(answer: impl Future<Output = T> + Send + 'static) -> Answer<T> {
        Answer(State::Later(Box::pin(answer)))
    }
}

/// The answer is moved out, never polled in place.
impl<T> Unpin for Answer<T> {}

impl<T> Future for Answer<T> {
    type Output = T;

    /// Ready once. Polled again, it stays pending.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let ready = match &mut self.0 {
            State::Now(answer) => return answer.take().map_or(Poll::Pending, Poll::Ready),
            State::Later(answer) => std::task::ready!(answer.as_mut().poll(context)),
        };
        self.0 = State::Now(None);
        Poll::Ready(ready)
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            State::Now(None) => "Answer(taken)",
            State::Now(Some(_)) => "Answer(there)",
            State::Later(_) => "Answer(awaited)",
        })
    }
}
