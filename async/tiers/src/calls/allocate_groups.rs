//! Blocks of every group, all or none. A caller enters all queues at once, after it has its credits for
//! all of them. So of two callers the same one is ahead wherever both wait
//! (`waiting_for_quota.rs`).

use crate::calls::allocate::{check, free_ones};
use crate::calls::allocate_error::AllocateError;
use crate::calls::allocation::AllocateOptions;
use crate::calls::answer::Answer;
use crate::calls::blocks::BlocksMut;
use crate::calls::handle::Handle;
use crate::calls::in_queue::InQueue;
use crate::engine::request_span;
use crate::metrics::Call;
use crate::state::GroupId;
use std::fmt;
use std::future::{IntoFuture, poll_fn};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tracing::Instrument;

/// A call for blocks of all groups ([`Tiers::allocate_groups`](crate::Tiers::allocate_groups)) that has
/// not begun. It begins when it is awaited, or by [`into_future`](IntoFuture::into_future).
#[derive(Clone, Copy)]
#[must_use = "the call begins when it is awaited, or at into_future()"]
pub struct AllocateGroups<'g> {
    handle: &'g Handle,
    counts: &'g [usize],
    options: AllocateOptions,
}

type Answered = Result<Vec<BlocksMut>, AllocateError>;

impl<'g> AllocateGroups<'g> {
    pub(crate) fn of(handle: &'g Handle, counts: &'g [usize]) -> AllocateGroups<'g> {
        AllocateGroups { handle, counts, options: AllocateOptions::default() }
    }

    /// Sets the longest wait. None: the manager's `deadline.allocate`.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn deadline(mut self, deadline: impl Into<Option<Duration>>) -> AllocateGroups<'g> {
        self.options.deadline = deadline.into();
        self
    }

    /// Names the request in spans. 0: none.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn request(mut self, request: u64) -> AllocateGroups<'g> {
        self.options.request = request;
        self
    }

    fn check(&self) -> Result<(), AllocateError> {
        let (inner, counts) = (&self.handle.inner, self.counts);
        if counts.len() != inner.groups.len() {
            return Err(AllocateError::Groups { given: counts.len(), groups: inner.groups.len() });
        }
        if inner.refusing.load(Relaxed) && !inner.is_inherited() {
            return Err(AllocateError::Closed);
        }
        wanted(counts).try_for_each(|(group, count)| check(inner, group, count, self.handle.tenant.id()))
    }
}

fn wanted(counts: &[usize]) -> impl Iterator<Item = (GroupId, usize)> {
    GroupId::all(counts.len()).zip(counts.iter().copied())
}

impl IntoFuture for AllocateGroups<'_> {
    type Output = Answered;
    type IntoFuture = Answer<Answered>;

    fn into_future(self) -> Answer<Answered> {
        if let Err(refused) = self.check() {
            return Answer::now(Err(refused));
        }
        let AllocateGroups { handle, counts, options } = self;
        let (inner, tenant) = (&handle.inner, handle.tenant.id());
        let since = inner.watch.now();
        let span = request_span::allocate(options.request, counts.iter().sum(), tenant);
        let patience = options.deadline.unwrap_or(inner.rules.allocate_deadline);
        let at_once = wanted(counts).map(|(group, count)| free_ones(inner, group, count, tenant));
        if let Some(all) = at_once.collect::<Option<Vec<_>>>() {
            inner.watch.answered(Call::Allocate, since);
            request_span::served(&span, all.iter().flat_map(|blocks| blocks.ids().iter().copied()));
            return Answer::now(Ok(all));
        }
        let queues = wanted(counts).filter(|(_, count)| *count > 0);
        let mut in_queue = match InQueue::enter(inner, queues, tenant, patience) {
            Ok(in_queue) => in_queue,
            Err(refused) => {
                inner.watch.answered(Call::Allocate, since);
                return Answer::now(Err(refused));
            }
        };
        let counts = counts.to_vec();
        let in_span = span.clone();
        Answer::later(
            async move {
                let served = poll_fn(|context| in_queue.poll(context)).await;
                let inner = in_queue.inner();
                inner.watch.answered(Call::Allocate, since);
                let mut served = served?.into_iter();
                let none = |group| BlocksMut::new(Arc::clone(inner), group, Vec::new(), tenant);
                let of = |(group, count)| if count > 0 { served.next() } else { Some(none(group)) };
                // There are as many lists as places.
                let all: Vec<_> =
                    wanted(&counts).map(of).collect::<Option<_>>().ok_or(AllocateError::Closed)?;
                request_span::served(&span, all.iter().flat_map(|blocks| blocks.ids().iter().copied()));
                Ok(all)
            }
            .instrument(in_span),
        )
    }
}

impl fmt::Debug for AllocateGroups<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AllocateGroups({:?} blocks, {:?})", self.counts, self.options)
    }
}
