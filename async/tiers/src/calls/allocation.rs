//! A call for blocks to fill, and the request that it becomes.

use crate::calls::allocate::{Taken, check, take_or_wait};
use crate::calls::allocate_error::AllocateError;
use crate::calls::blocks::BlocksMut;
use crate::calls::handle::Handle;
use crate::calls::in_queue::InQueue;
use crate::engine::request_span;
use crate::metrics::Call;
use crate::state::{GroupId, Since};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tracing::Span;

/// Options of an allocation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AllocateOptions {
    /// For spans only: callers are served in order of arrival.
    pub(crate) request: u64,
    pub(crate) deadline: Option<Duration>,
}

/// A call for blocks to fill ([`Group::allocate`](crate::Group::allocate)) that has not begun. It begins,
/// and takes its place in the queue, when it is awaited, or by [`into_future`](IntoFuture::into_future).
#[derive(Clone, Copy)]
#[must_use = "the call begins when it is awaited, or at into_future()"]
pub struct Allocate<'g> {
    handle: &'g Handle,
    group: GroupId,
    count: usize,
    options: AllocateOptions,
}

impl<'g> Allocate<'g> {
    pub(crate) fn of(handle: &'g Handle, group: GroupId, count: usize) -> Allocate<'g> {
        Allocate { handle, group, count, options: AllocateOptions::default() }
    }

    /// Sets the longest wait. None: the manager's `deadline.allocate`.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn deadline(mut self, deadline: impl Into<Option<Duration>>) -> Allocate<'g> {
        self.options.deadline = deadline.into();
        self
    }

    /// Names the request in spans only: callers are served in order of arrival. 0: none.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn request(mut self, request: u64) -> Allocate<'g> {
        self.options.request = request;
        self
    }
}

impl IntoFuture for Allocate<'_> {
    type Output = Result<BlocksMut, AllocateError>;
    type IntoFuture = Allocation;

    fn into_future(self) -> Allocation {
        let Allocate { handle, group, count, options } = self;
        let (inner, tenant) = (&handle.inner, handle.tenant.id());
        if let Err(refused) = check(inner, group, count, tenant) {
            return Allocation::answered(Err(refused));
        }
        let (since, span) = (inner.watch.now(), request_span::allocate(options.request, count, tenant));
        let patience = options.deadline.unwrap_or(inner.rules.allocate_deadline);
        let answer = match take_or_wait(inner, group, count, patience, tenant) {
            Ok(Taken::Place(place)) => {
                let in_queue = InQueue::at(inner, place, tenant, patience);
                return Allocation { state: State::InQueue(in_queue, since), span };
            }
            Ok(Taken::All(blocks)) => Ok(blocks),
            Err(refused) => Err(refused),
        };
        inner.watch.answered(Call::Allocate, since);
        if let Ok(blocks) = &answer {
            request_span::served(&span, blocks.ids().iter().copied());
        }
        Allocation { state: State::Answered(Some(answer)), span }
    }
}

/// A request for blocks to fill, with its place in the queue or its blocks. Dropping it leaves the
/// queue, and frees the blocks.
#[must_use = "dropping it withdraws the request"]
pub struct Allocation {
    state: State,
    span: Span,
}

enum State {
    /// None: the answer has been taken.
    Answered(Option<Result<BlocksMut, AllocateError>>),
    InQueue(InQueue, Since),
}

impl Allocation {
    /// Returns a request that is answered.
    pub(crate) fn answered(answer: Result<BlocksMut, AllocateError>) -> Allocation {
        Allocation { state: State::Answered(Some(answer)), span: Span::none() }
    }

    /// Takes the answer, if it is there.
    pub(crate) fn take(&mut self) -> Option<Result<BlocksMut, AllocateError>> {
        match &mut self.state {
            State::Answered(answer) => answer.take(),
            State::InQueue(..) => None,
        }
    }
}

impl Future for Allocation {
    type Output = Result<BlocksMut, AllocateError>;

    /// Ready once. Polled again, it stays pending.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Allocation { state, span } = &mut *self;
        let answer = match state {
            State::Answered(answer) => return answer.take().map_or(Poll::Pending, Poll::Ready),
            State::InQueue(in_queue, since) => {
                let served = ready!(span.in_scope(|| in_queue.poll(context)));
                in_queue.inner().watch.answered(Call::Allocate, *since);
                // One place, so one list.
                served.and_then(|blocks| blocks.into_iter().next().ok_or(AllocateError::Closed))
            }
        };
        *state = State::Answered(None);
        if let Ok(blocks) = &answer {
            request_span::served(span, blocks.ids().iter().copied());
        }
        Poll::Ready(answer)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // In its span, so that the effects of leaving the queue are traced there.
        let Allocation { state, span } = self;
        span.in_scope(|| *state = State::Answered(None));
    }
}

impl fmt::Debug for Allocate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Allocate({} blocks of group {}, {:?})", self.count, self.group, self.options)
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Answered(None) => "taken",
            State::Answered(Some(_)) => "answered",
            State::InQueue(..) => "in the queue",
        };
        write!(f, "Allocation({state})")
    }
}
