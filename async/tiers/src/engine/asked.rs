//! A call of an engine's that is answered later: when it came, and its span. Both end when the engine takes the answer, or drops
//! the handle before.
//!
//! Spans, one a call, with the number of its request, counts, and the device's blocks by their numbers, the first [`MOST_IDS`] of them: at debug what requests do (`allocate`, `onboard`, `offload`, `persist`,
//! `preempt`, `resume`), since a line for each is a tenth of a request's time and more where blocks are small; at info what an operator asks for
//! (`purge`). `persist` knows no request, and names its blocks by their hashes: not all are in the device. A look-up has none: it is what an engine
//! does most, waits for nobody, and knows no request; nor has `try_allocate`. Transfers of single blocks are for `trace` and `debug`, too.

use super::blocks::{Blocks, BlocksMut};
use super::inner::Inner;
use super::matching::PrefixMatch;
use super::offload::Offloaded;
use super::onboard::{OnboardOptions, Onboarded};
use super::preempt::Resumed;
use super::tenants::{Purged, TenantId};
use super::watch::Since;
use crate::metrics::Call;
use crate::tier::Tier;
use kvstrata_core::{BlockId, SequenceHash};
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
    ($name:literal, $inner:expr, $stack:expr, $blocks:expr, $($more:tt)*) => {
        debug_span!(
            $name,
            $($more)*
            group = $inner.stack($stack).name,
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
pub(super) struct Asked {
    since: Since,
    span: Span,
}

impl Asked {
    /// By nobody.
    pub(super) fn nobody() -> Asked {
        Asked { since: Since::default(), span: Span::none() }
    }

    /// For a run to come up. For one that is all there nobody waits: it is not timed.
    pub(super) fn onboard(inner: &Inner, found: &PrefixMatch, options: OnboardOptions) -> Asked {
        let span = debug_span!(
            "onboard",
            request = options.request,
            group = inner.stack(found.device.stack()).name,
            blocks = found.len(),
            host = found.in_tier(Tier::Host),
            disk = found.in_tier(Tier::Disk),
            pending = found.pending(),
            came = Empty,
            missed = Empty,
            block_ids = Empty
        );
        Asked { since: if found.is_ready() { Since::default() } else { inner.watch.now() }, span }
    }

    /// The same for one of several groups: the request is timed once.
    pub(super) fn untimed(self) -> Asked {
        Asked { since: Since::default(), ..self }
    }

    /// What came of it.
    pub(super) fn onboarded(&self, inner: &Inner, answer: &Onboarded) {
        inner.watch.answered(Call::Onboard, self.since);
        self.span.record("came", answer.blocks.len());
        if let Some(cause) = answer.missed {
            self.span.record("missed", cause.name());
        }
        names(&self.span, answer.blocks.refs().iter().map(|block| block.id));
    }

    /// For blocks to be copied down.
    pub(super) fn offload(inner: &Inner, blocks: &Blocks, request: u64) -> Asked {
        let span = down!("offload", inner, blocks.stack(), blocks.len(), request, block_ids = Empty,);
        names(&span, blocks.refs().iter().map(|block| block.id));
        Asked { since: inner.watch.now(), span }
    }

    /// For blocks to be brought down to the disk.
    pub(super) fn persist(inner: &Inner, stack: u16, hashes: &[SequenceHash]) -> Asked {
        let named = || hashes.iter().map(|hash| format!("{:032x}", hash.to_u128()));
        let span = down!("persist", inner, stack, hashes.len(), hashes = display(Ids(named())),);
        Asked { since: inner.watch.now(), span }
    }

    /// What came of either.
    pub(super) fn offloaded(&self, inner: &Inner, answer: Offloaded) {
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
pub(super) fn allocate(request: u64, blocks: usize, tenant: TenantId) -> Span {
    debug_span!("allocate", request, blocks, tenant = tenant.0, block_ids = Empty)
}

/// What it has got, of all groups that it is for.
pub(super) fn served(span: &Span, all: &[BlocksMut]) {
    names(span, all.iter().flat_map(|blocks| blocks.ids().iter().copied()));
}

/// Of a request that gives up its blocks.
pub(super) fn preempt(request: u64, blocks: &Blocks, partial: &BlocksMut) -> Span {
    let span =
        debug_span!("preempt", request, blocks = blocks.len(), partial = partial.len(), block_ids = Empty);
    names(&span, with_partial(blocks, Some(partial)));
    span
}

fn with_partial<'b>(
    blocks: &'b Blocks,
    partial: Option<&'b BlocksMut>,
) -> impl Iterator<Item = BlockId> + Clone {
    let partial = partial.into_iter().flat_map(|blocks| blocks.ids().iter().copied());
    blocks.refs().iter().map(|block| block.id).chain(partial)
}

/// Of one that is to have them back.
pub(super) fn resume(request: u64, blocks: usize, partial: usize) -> Span {
    debug_span!("resume", request, blocks, partial, came = Empty, missed = Empty, block_ids = Empty)
}

/// What came of it.
pub(super) fn resumed(span: &Span, answer: &Resumed) {
    span.record("came", answer.blocks.len() + answer.partial.as_ref().map_or(0, BlocksMut::len));
    names(span, with_partial(&answer.blocks, answer.partial.as_ref()));
    if let Some(cause) = answer.missed {
        span.record("missed", cause.name());
    }
}

/// Of a purge that somebody waits for.
pub(super) fn purge(tenant: &str, zero: bool) -> Span {
    info_span!("purge", tenant, zero, purged = Empty, busy = Empty, failed = Empty, complete = Empty)
}

/// What came of it by then.
pub(super) fn purged(span: &Span, answer: &Purged) {
    let tiers = [answer.device, answer.host, answer.disk];
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
