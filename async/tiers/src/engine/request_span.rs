//! A call of an engine that is answered later: when it came, and its span. Both end when the engine takes
//! the answer, or drops the handle before.
//!
//! Each call has one span: the number of its request, counts, and the numbers of device blocks, the first
//! [`MOST_IDS`] of them. Calls of requests (`allocate`, `onboard`, `offload`, `persist`, `preempt`,
//! `resume`) are at debug: where blocks are small, a line for each costs a tenth of a request's time or
//! more. Calls of operators (`purge`) are at info. `persist` knows no request, and names its blocks by
//! their hashes: not all are in the device. Lookups have no span: they are the most frequent call, never
//! wait, and know no request. `try_allocate` has none either. Transfers of single blocks are at `trace`
//! and `debug`, too.

use crate::engine::found::Found;
use crate::engine::inner::Inner;
use crate::metrics::Call;
use crate::state::{GroupId, Offloaded, OnboardOptions, Purged, Since};
use crate::tier::Tier;
use crate::transfer::Cause;
use kvstrata_core::{BlockId, BlockRef, SequenceHash, TenantId};
use std::fmt::{self, Display, Formatter};
use tracing::field::{Empty, display};
use tracing::{Span, debug_span, info_span};

/// Maximum number of blocks that a span names; the rest are counted.
const MOST_IDS: usize = 64;

/// Numbers of blocks, or hashes, as a span shows them.
struct Ids<I>(I);

impl<I: Iterator<Item: Display> + Clone> Display for Ids<I> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut ids = self.0.clone();
        f.write_str("[")?;
        for (index, id) in ids.by_ref().take(MOST_IDS).enumerate() {
            write!(f, "{}{id}", if index == 0 { "" } else { ", " })?;
        }
        match ids.count() {
            0 => f.write_str("]"),
            more => write!(f, ", … {more} more]"),
        }
    }
}

/// Records the block ids, unless the span is disabled.
fn names(span: &Span, ids: impl Iterator<Item = BlockId> + Clone) {
    if !span.is_disabled() {
        span.record("block_ids", display(Ids(ids.map(|id| id.0))));
    }
}

/// Span of a call that sends blocks down.
macro_rules! down {
    ($name:literal, $inner:expr, $group:expr, $blocks:expr, $($more:tt)*) => {
        debug_span!(
            $name,
            $($more)*
            group = $inner.group($group).name,
            blocks = $blocks,
            copied = Empty,
            there = Empty,
            refused = Empty,
            failed = Empty
        )
    };
}

/// A call's start and span; empty for the manager's own calls.
#[derive(Debug)]
pub(crate) struct RequestSpan {
    since: Since,
    span: Span,
}

impl RequestSpan {
    /// A call of the manager's own.
    pub(crate) fn none() -> RequestSpan {
        RequestSpan { since: Since::default(), span: Span::none() }
    }

    /// A call for a run to come up; not timed if the device has all of it.
    pub(crate) fn onboard(
        inner: &Inner,
        group: GroupId,
        (in_device, beyond): (usize, &[Found]),
        options: OnboardOptions,
    ) -> RequestSpan {
        // Evaluated only if the span is enabled.
        let found_in = |tier| beyond.iter().filter(|found| found.tier() == tier).count();
        let span = debug_span!(
            "onboard",
            request = options.request,
            group = inner.group(group).name,
            blocks = in_device + beyond.len(),
            host = found_in(Some(Tier::Host)),
            below = beyond.iter().filter(|found| matches!(found.tier(), Some(Tier::Below(_)))).count(),
            pending = found_in(None),
            came = Empty,
            missed = Empty,
            block_ids = Empty
        );
        RequestSpan { since: if beyond.is_empty() { Since::default() } else { inner.watch.now() }, span }
    }

    /// The same call for another group: the request is timed once.
    pub(crate) fn untimed(self) -> RequestSpan {
        RequestSpan { since: Since::default(), ..self }
    }

    /// Records the outcome.
    pub(crate) fn onboarded(&self, inner: &Inner, came: &[BlockRef], missed: Option<Cause>) {
        inner.watch.answered(Call::Onboard, self.since);
        self.span.record("came", came.len());
        if let Some(cause) = missed {
            self.span.record("missed", cause.name());
        }
        names(&self.span, came.iter().map(|block| block.id));
    }

    /// A call for blocks to be copied down.
    pub(crate) fn offload(inner: &Inner, group: GroupId, blocks: &[BlockRef], request: u64) -> RequestSpan {
        let span = down!("offload", inner, group, blocks.len(), request, block_ids = Empty,);
        names(&span, blocks.iter().map(|block| block.id));
        RequestSpan { since: inner.watch.now(), span }
    }

    /// A call for blocks to be brought down to the disk.
    pub(crate) fn persist(inner: &Inner, group: GroupId, hashes: &[SequenceHash]) -> RequestSpan {
        let named = || hashes.iter().map(|hash| format!("{:032x}", hash.to_u128()));
        let span = down!("persist", inner, group, hashes.len(), hashes = display(Ids(named())),);
        RequestSpan { since: inner.watch.now(), span }
    }

    /// Records the outcome of either.
    pub(crate) fn offloaded(&self, inner: &Inner, answer: Offloaded) {
        inner.watch.answered(Call::Offload, self.since);
        let Offloaded { copied, there, refused, failed, .. } = answer;
        for (field, blocks) in
            [("copied", copied), ("there", there), ("refused", refused), ("failed", failed)]
        {
            self.span.record(field, blocks);
        }
    }
}

/// Span of an allocation.
pub(crate) fn allocate(request: u64, blocks: usize, tenant: TenantId) -> Span {
    debug_span!("allocate", request, blocks, tenant = tenant.0, block_ids = Empty)
}

/// Records the blocks that it got, of all its groups.
pub(crate) fn served(span: &Span, blocks: impl Iterator<Item = BlockId> + Clone) {
    names(span, blocks);
}

/// Span of a request that gives up its blocks.
pub(crate) fn preempt(request: u64, blocks: &[BlockRef], partial: &[BlockId]) -> Span {
    let span =
        debug_span!("preempt", request, blocks = blocks.len(), partial = partial.len(), block_ids = Empty);
    names(&span, blocks.iter().map(|block| block.id).chain(partial.iter().copied()));
    span
}

/// Span of a request that gets its blocks back.
pub(crate) fn resume(request: u64, blocks: usize, partial: usize) -> Span {
    debug_span!("resume", request, blocks, partial, came = Empty, missed = Empty, block_ids = Empty)
}

/// Records the outcome.
pub(crate) fn resumed(span: &Span, blocks: &[BlockRef], partial: &[BlockId], missed: Option<Cause>) {
    span.record("came", blocks.len() + partial.len());
    names(span, blocks.iter().map(|block| block.id).chain(partial.iter().copied()));
    if let Some(cause) = missed {
        span.record("missed", cause.name());
    }
}

/// Span of a purge that a caller waits for.
pub(crate) fn purge(tenant: &str, zero: bool) -> Span {
    info_span!("purge", tenant, zero, purged = Empty, busy = Empty, failed = Empty, complete = Empty)
}

/// Records the outcome so far.
pub(crate) fn purged(span: &Span, answer: &Purged) {
    let tiers = answer.tiers();
    span.record("purged", tiers.iter().map(|of| of.purged).sum::<usize>());
    span.record("busy", tiers.iter().map(|of| of.busy).sum::<usize>());
    span.record("failed", answer.failed);
    span.record("complete", answer.complete);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_blocks_are_named_in_part_and_counted() {
        let ids = |count: u32| Ids(0..count).to_string();
        assert_eq!([ids(0), ids(1), ids(3)], ["[]", "[0]", "[0, 1, 2]"]);
        assert!(ids(64).ends_with(", 62, 63]"), "{}", ids(64));
        assert!(ids(200).ends_with(", 62, 63, … 136 more]"), "{}", ids(200));
    }
}
