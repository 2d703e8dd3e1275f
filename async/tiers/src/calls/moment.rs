//! A moment, as a future.

use crate::engine::inner::Inner;
use crate::state::Waits;
use futures_channel::oneshot;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A future that completes at a moment. Dropping it removes the deadline.
pub(crate) struct Moment<'i> {
    inner: &'i Arc<Inner>,
    at: Duration,
    number: u64,
    come: oneshot::Receiver<()>,
}

impl Inner {
    /// Returns a future that completes at a moment, also after the runtime has ended.
    pub(crate) fn moment(self: &Arc<Inner>, at: Duration) -> Moment<'_> {
        let (tell, come) = oneshot::channel();
        let number = self.change(|traffic| {
            let number = traffic.deadlines.add_moment(tell);
            traffic.due(Some(at), Waits::Moment(number));
            number
        });
        Moment { inner: self, at, number, come }
    }

    /// Waits for a duration.
    pub(crate) async fn pause(self: &Arc<Inner>, time: Duration) {
        if let Some(at) = self.due_in(time) {
            self.moment(at).await;
        }
    }
}

/// Returns the output of a future, or none if the moment comes first.
pub(crate) async fn first_of<F: Future>(future: F, moment: impl Future<Output = ()>) -> Option<F::Output> {
    let (mut future, mut moment) = (pin!(future), pin!(moment));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => moment.as_mut().poll(context).map(|()| None),
    })
    .await
}

impl Future for Moment<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.come).poll(context).map(|_| ())
    }
}

impl Drop for Moment<'_> {
    fn drop(&mut self) {
        if self.inner.is_inherited() {
            return;
        }
        let mut traffic = self.inner.look();
        traffic.not_due(Some(self.at), Waits::Moment(self.number));
        let tell = traffic.deadlines.take_moment(self.number);
        drop(traffic);
        drop(tell);
    }
}
