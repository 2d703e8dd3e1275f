//! A call of an engine's that is answered later: when it came, and its span. Both end when the engine takes
//! the answer, or drops the handle before.
//!
//! Spans, one a call, with the number of its request, counts, and the device's blocks by their numbers, the
//! first [`MOST_IDS`] of them: at debug what requests do (`allocate`, `onboard`, `offload`, `persist`,
//! `preempt`, `resume`), since a line for each is a tenth of a request's time and more where blocks are
//! small; at info what an operator asks for (`purge`). `persist` knows no request, and names its blocks by
//! their hashes: not all are in the device. A look-up has none: it is what an engine does most, waits for
//! nobody, and knows no request; nor has `try_allocate`. Transfers of single blocks are for `trace` and
//! `debug`, too.

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

/// Blocks that a span names: more are counted.
const MOST_IDS: usize = 64;

/// Numbers of blocks, or hashes, as a span has them.
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

/// Which blocks: nothing where the span is not wanted.
fn names(span: &Span, ids: impl Iterator<Item = BlockId> + Clone) {
    if !span.is_disabled() {
        span.record("block_ids", display(Ids(ids.map(|id| id.0))));
    }
}

/// Blocks on their way down.
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

/// A call. Nothing of it, where it is the manager's own.
#[derive(Debug)]
pub(crate) struct RequestSpan {
    since: Since,
    span: Span,
}

impl RequestSpan {
    /// By nobody.
    pub(crate) fn none() -> RequestSpan {
        RequestSpan { since: Since::default(), span: Span::none() }
    }

    /// For a run to come up. For one that is all there nobody waits: it is not timed.
    pub(crate) fn onboard(
        inner: &Inner,
        group: GroupId,
        (in_device, beyond): (usize, &[Found]),
        options: OnboardOptions,
    ) -> RequestSpan {
        // Counted where the span is wanted.
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

    /// The same for one of several groups: the request is timed once.
    pub(crate) fn untimed(self) -> RequestSpan {
        RequestSpan { since: Since::default(), ..self }
    }

    /// What came of it.
    pub(crate) fn onboarded(&self, inner: &Inner, came: &[BlockRef], missed: Option<Cause>) {
        inner.watch.answered(Call::Onboard, self.since);
        self.span.record("came", came.len());
        if let Some(cause) = missed {
            self.span.record("missed", cause.name());
        }
        names(&self.span, came.iter().map(|block| block.id));
    }

    /// For blocks to be copied down.
    pub(crate) fn offload(inner: &Inner, group: GroupId, blocks: &[BlockRef], request: u64) -> RequestSpan {
        let span = down!("offload", inner, group, blocks.len(), request, block_ids = Empty,);
        names(&span, blocks.iter().map(|block| block.id));
        RequestSpan { since: inner.watch.now(), span }
    }

    /// For blocks to be brought down to the disk.
    pub(crate) fn persist(inner: &Inner, group: GroupId, hashes: &[SequenceHash]) -> RequestSpan {
        let named = || hashes.iter().map(|hash| format!("{:032x}", hash.to_u128()));
        let span = down!("persist", inner, group, hashes.len(), hashes = display(Ids(named())),);
        RequestSpan { since: inner.watch.now(), span }
    }

    /// What came of either.
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

/// Of an allocation.
pub(crate) fn allocate(request: u64, blocks: usize, tenant: TenantId) -> Span {
    debug_span!("allocate", request, blocks, tenant = tenant.0, block_ids = Empty)
}

/// What it has got, of all groups that it is for.
pub(crate) fn served(span: &Span, blocks: impl Iterator<Item = BlockId> + Clone) {
    names(span, blocks);
}

/// Of a request that gives up its blocks.
pub(crate) fn preempt(request: u64, blocks: &[BlockRef], partial: &[BlockId]) -> Span {
    let span =
        debug_span!("preempt", request, blocks = blocks.len(), partial = partial.len(), block_ids = Empty);
    names(&span, blocks.iter().map(|block| block.id).chain(partial.iter().copied()));
    span
}

/// Of one that is to have them back.
pub(crate) fn resume(request: u64, blocks: usize, partial: usize) -> Span {
    debug_span!("resume", request, blocks, partial, came = Empty, missed = Empty, block_ids = Empty)
}

/// What came of it.
pub(crate) fn resumed(span: &Span, blocks: &[BlockRef], partial: &[BlockId], missed: Option<Cause>) {
    span.record("came", blocks.len() + partial.len());
    names(span, blocks.iter().map(|block| block.id).chain(partial.iter().copied()));
    if let Some(cause) = missed {
        span.record("missed", cause.name());
    }
}

/// Of a purge that somebody waits for.
pub(crate) fn purge(tenant: &str, zero: bool) -> Span {
    info_span!("purge", tenant, zero, purged = Empty, busy = Empty, failed = Empty, complete = Empty)
}

/// What came of it by then.
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
