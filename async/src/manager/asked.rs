//! A call of an engine's that is answered later: when it came, and its span. Both end with the answer, or with the handle that is dropped before.
//!
//! Spans, one a call, with the number of its request and counts: at debug what requests do (`onboard`, `allocate` if it waits in line, `offload`,
//! `preempt`, `resume`), since a line for each is a tenth of a request's time and more where blocks are small; at info what an operator asks for
//! (`persist`, `purge`). A look-up has none: it is what an engine does most, and waits for nobody. Blocks by their numbers, and transfers of
//! single ones, are for `trace` and `debug`, too.

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
use tracing::field::Empty;
use tracing::{Span, debug_span, info_span, trace};

/// Blocks on their way down.
macro_rules! down {
    ($span:ident, $name:literal, $inner:expr, $stack:expr, $blocks:expr, $($request:ident)?) => {
        $span!(
            $name,
            $($request,)?
            group = $inner.stack($stack).name,
            blocks = $blocks,
            copied = Empty,
            there = Empty,
            refused = Empty,
            failed = Empty
        )
    };
}

/// A call. Nothing of it, where it is the manager's own or has its answer at once.
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

    /// For a run to come up; for one that is all there nobody waits.
    pub(super) fn onboard(inner: &Inner, found: &PrefixMatch, options: OnboardOptions) -> Asked {
        if found.is_ready() {
            return Asked::nobody();
        }
        let span = debug_span!(
            "onboard",
            request = options.request,
            group = inner.stack(found.device.stack()).name,
            blocks = found.len(),
            host = found.in_tier(Tier::Host),
            disk = found.in_tier(Tier::Disk),
            pending = found.pending(),
            came = Empty,
            missed = Empty
        );
        Asked { since: inner.watch.now(), span }
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
        trace!(parent: &self.span, blocks = ?answer.blocks.refs().iter().map(|block| block.id.0).collect::<Vec<_>>(), "onboarded");
    }

    /// For blocks to be copied down.
    pub(super) fn offload(inner: &Inner, blocks: &Blocks, request: u64) -> Asked {
        let span = down!(debug_span, "offload", inner, blocks.stack(), blocks.len(), request);
        trace!(parent: &span, blocks = ?blocks.refs().iter().map(|block| block.id.0).collect::<Vec<_>>(), "offload");
        Asked { since: inner.watch.now(), span }
    }

    /// For blocks to be brought down to the disk.
    pub(super) fn persist(inner: &Inner, stack: u16, blocks: usize) -> Asked {
        Asked { since: inner.watch.now(), span: down!(info_span, "persist", inner, stack, blocks,) }
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

/// Of an allocation that waits in line.
pub(super) fn in_line(request: u64, blocks: usize, tenant: TenantId) -> Span {
    debug_span!("allocate", request, blocks, tenant = tenant.0)
}

/// Of a request that gives up its blocks.
pub(super) fn preempt(request: u64, blocks: usize, partial: usize) -> Span {
    debug_span!("preempt", request, blocks, partial)
}

/// Of one that is to have them back.
pub(super) fn resume(request: u64, blocks: usize, partial: usize) -> Span {
    debug_span!("resume", request, blocks, partial, came = Empty, missed = Empty)
}

/// What came of it.
pub(super) fn resumed(span: &Span, answer: &Resumed) {
    span.record("came", answer.blocks.len() + answer.partial.as_ref().map_or(0, BlocksMut::len));
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
