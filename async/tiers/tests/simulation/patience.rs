//! Futures that are dropped after a number of polls, or after a time.

use crate::common::Random;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// How long a caller waits for a future before dropping it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    Endless,
    /// With 0 the call has begun, and its future is dropped.
    Polls(u32),
    Time(Duration),
}

impl Patience {
    /// Mostly endless: of a hundred, so many are not.
    pub fn draw(random: &mut Random, of_100: u64) -> Patience {
        let (hasty, kind) = (random.below(100) < of_100, random.next());
        match (hasty, kind % 2) {
            (false, _) => Patience::Endless,
            (_, 0) => Patience::Polls((kind >> 8) as u32 % 5),
            _ => Patience::Time(Duration::from_millis((kind >> 8) % 400)),
        }
    }

    /// The future's outcome; `None` if it was dropped.
    pub async fn wait<F: IntoFuture>(self, call: F) -> Option<F::Output> {
        let future = call.into_future();
        match self {
            Patience::Endless => Some(future.await),
            Patience::Polls(0) => None,
            Patience::Polls(left) => Polls { future: Some(Box::pin(future)), left }.await,
            Patience::Time(time) => kvstrata_testing::virtual_time::timeout(time, future).await.ok(),
        }
    }
}

/// Lets virtual time pass.
pub async fn pass(time: Duration) {
    kvstrata_testing::virtual_time::pass(time).await;
}

struct Polls<F> {
    future: Option<Pin<Box<F>>>,
    left: u32,
}

impl<F: Future> Future for Polls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let Some(future) = self.future.as_mut() else { return Poll::Ready(None) };
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        self.left -= 1;
        if self.left > 0 {
            return Poll::Pending;
        }
        self.future = None;
        Poll::Ready(None)
    }
}
