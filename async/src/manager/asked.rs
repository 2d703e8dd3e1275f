//! A call of an engine's that is answered later: when it came, and its span. Both end with the answer, or with the handle that is dropped before.
//!
//! Spans are at info, one a request, with its number and counts; blocks by their numbers are for `trace` and `debug`.

use super::blocks::Blocks;
use super::inner::Inner;
use super::matching::PrefixMatch;
use super::offload::Offloaded;
use super::onboard::{OnboardOptions, Onboarded};
use super::tenants::TenantId;
use super::watch::Since;
use crate::metrics::Call;
use crate::tier::Tier;
use tracing::field::Empty;
use tracing::{Span, info_span, trace};

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
        let span = info_span!(
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
        let span = info_span!(
            "offload",
            request,
            group = inner.stack(blocks.stack()).name,
            blocks = blocks.len(),
            copied = Empty,
            there = Empty,
            refused = Empty,
            failed = Empty
        );
        trace!(parent: &span, blocks = ?blocks.refs().iter().map(|block| block.id.0).collect::<Vec<_>>(), "offload");
        Asked { since: inner.watch.now(), span }
    }

    /// What came of it.
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
pub(super) fn in_line(blocks: usize, tenant: TenantId) -> Span {
    info_span!("allocate", blocks, tenant = tenant.0)
}
