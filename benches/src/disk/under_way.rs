//! Many requests in flight, one task that waits for any of them.
//!
//! All of them have the task's own waker, so that a volume that ends several at once wakes it once.
//! `FuturesUnordered` gives each a waker of its own: the first wakes the thread, which finds one block
//! and sleeps again, before the second does.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Requests without a returned result.
#[derive(Debug)]
pub struct UnderWay<F: Future> {
    running: Vec<Pin<Box<F>>>,
    ended: Vec<F::Output>,
}

impl<F: Future> Default for UnderWay<F> {
    fn default() -> UnderWay<F> {
        UnderWay { running: Vec::new(), ended: Vec::new() }
    }
}

impl<F: Future> UnderWay<F> {
    /// Adds a request; it begins at once.
    pub fn push(&mut self, one: F) {
        let mut one = Box::pin(one);
        // Its task's waker comes with the next poll of all of them.
        match one.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(output) => self.ended.push(output),
            Poll::Pending => self.running.push(one),
        }
    }

    /// Returns the next result; none if nothing is in flight.
    pub async fn next(&mut self) -> Option<F::Output>
    where
        F::Output: Unpin,
    {
        poll_fn(|context| {
            if self.ended.is_empty() {
                let mut at = 0;
                while let Some(one) = self.running.get_mut(at) {
                    match one.as_mut().poll(context) {
                        Poll::Ready(output) => {
                            self.ended.push(output);
                            drop(self.running.swap_remove(at));
                        }
                        Poll::Pending => at += 1,
                    }
                }
            }
            match self.ended.pop() {
                None if !self.running.is_empty() => Poll::Pending,
                output => Poll::Ready(output),
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_executor::block_on;
    use std::future::{pending, ready};

    #[test]
    fn ended_request_comes_out_once() {
        let mut under_way = UnderWay::default();
        for n in 0..5 {
            under_way.push(ready(n));
        }
        let mut came: Vec<_> = (0..5).filter_map(|_| block_on(under_way.next())).collect();
        came.sort_unstable();
        assert_eq!(came, [0, 1, 2, 3, 4]);
        assert_eq!(block_on(under_way.next()), None);
    }

    #[test]
    fn unfinished_request_is_awaited() {
        let mut under_way = UnderWay::default();
        under_way.push(pending::<u8>());
        let mut next = Box::pin(under_way.next());
        assert!(next.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
    }
}
