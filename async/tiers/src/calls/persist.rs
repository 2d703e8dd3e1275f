//! Blocks copied to the tiers below host memory, from whichever tier has them.
//!
//! ```text
//!   device ── first half ──► host ── second half ──► below
//!   device ── first half, by staging ──► below                  without a host tier
//! ```
//!
//! The call queues the first half. The second half follows the answer of the first, so it begins only
//! while the caller waits.

use crate::calls::answer::Answer;
use crate::calls::blocks::Blocks;
use crate::calls::handle::Handle;
use crate::calls::offload::Offload;
use crate::engine::group_tiers::GroupTiers;
use crate::engine::inner::Inner;
use crate::engine::notices::About;
use crate::engine::request_span::RequestSpan;
use crate::metrics::Refusal;
use crate::state::{GroupId, OffloadOptions, Offloaded};
use crate::transfer::{Cause, Path};
use kvstrata_core::{ImmutableBlock, SequenceHash};
use std::sync::Arc;
use std::time::Duration;

/// See [`Group::persist`](crate::Group::persist).
pub(crate) fn persist(handle: &Handle, group: GroupId, hashes: &[SequenceHash]) -> Answer<Offloaded> {
    let inner = &handle.inner;
    if inner.is_inherited() {
        return Answer::now(Offloaded { refused: hashes.len(), ..Offloaded::default() });
    }
    let span = RequestSpan::persist(inner, group, hashes);
    let first = FirstHalf::begin(inner, group, hashes);
    let (handle, hashes) = (handle.clone(), hashes.to_vec());
    Answer::later(async move {
        let outcome = first.then_the_second(&handle.inner, group, &hashes).await;
        span.offloaded(&handle.inner, outcome);
        outcome
    })
}

/// Blocks on their way down from the device.
struct FirstHalf {
    down: Offload,
    /// Blocks of the device, held until both halves are over.
    _blocks: Blocks,
    /// Number of blocks that the tiers below have already.
    there: usize,
    /// Hashes that no tier has.
    nowhere: Vec<SequenceHash>,
    /// Deadline of both halves.
    due: Option<Duration>,
}

fn in_host(of: &GroupTiers, hash: SequenceHash) -> bool {
    of.host.as_ref().is_some_and(|host| host.pool().contains(hash))
}

fn is_below(of: &GroupTiers, hash: SequenceHash) -> bool {
    !of.lower.is_empty() && of.all_lower_contain(hash)
}

impl FirstHalf {
    fn begin(inner: &Arc<Inner>, group: GroupId, hashes: &[SequenceHash]) -> FirstHalf {
        let of = inner.group(group);
        let (mut there, mut nowhere) = (0, Vec::new());
        let (mut refs, mut missing) = (Vec::new(), Vec::new());
        for hash in hashes.iter().copied() {
            match () {
                () if is_below(of, hash) => there += 1,
                () if in_host(of, hash) => {}
                () => match of.device.pool().find(hash).map(ImmutableBlock::into_ref) {
                    Some(block) => refs.push(block),
                    None => missing.push(hash),
                },
            }
        }
        let blocks = Blocks::new(Arc::clone(inner), group, refs);
        let due = inner.due_in(inner.rules.offload_deadline);
        let key = inner.with(|traffic| {
            let key = traffic.offload(inner, group, blocks.refs(), OffloadOptions::default(), false);
            // Victims: the device no longer has them, and the host does not have them yet; or they have
            // come down since.
            for hash in missing {
                match traffic.join_down(key, group, hash, None) {
                    false if of.any_lower_contains(hash) && !in_host(of, hash) => there += 1,
                    false if !in_host(of, hash) => nowhere.push(hash),
                    _ => {}
                }
            }
            traffic.offload_due(key, due);
            key
        });
        inner.counts.refused(Refusal::Room, nowhere.len());
        let down = Offload::of(Arc::clone(inner), key, RequestSpan::none());
        FirstHalf { down, _blocks: blocks, there, nowhere, due }
    }

    /// Waits for the first half, then copies the host's blocks further down.
    async fn then_the_second(self, inner: &Arc<Inner>, group: GroupId, hashes: &[SequenceHash]) -> Offloaded {
        let FirstHalf { down, _blocks, there, nowhere, due } = self;
        let of = inner.group(group);
        let first = down.await;
        if of.host.is_none() {
            return Offloaded { there: first.there + there, refused: first.refused + nowhere.len(), ..first };
        }
        let late = first.cause == Some(Cause::Deadline) && due.is_some_and(|due| due <= inner.elapsed());
        if late {
            // Blocks that reached the host have gone no further.
            let there = hashes.iter().filter(|hash| of.any_lower_contains(**hash)).count();
            let left = hashes.len() - there;
            let refused = left.min(first.refused + nowhere.len());
            let failed = left - refused;
            let further = failed.saturating_sub(first.failed);
            (0..further)
                .for_each(|_| inner.counts.failed(Path::ToBelow(0), Cause::Deadline, About::of_group(group)));
            inner.say();
            return Offloaded {
                copied: 0,
                there,
                refused,
                failed,
                cause: first.cause.filter(|_| failed > 0),
            };
        }
        let (key, left) = inner.with(|traffic| {
            // In the order of `hashes`.
            let mut gone = nowhere.iter().copied().peekable();
            let known = hashes.iter().copied().filter(|hash| gone.next_if_eq(hash).is_none());
            let (key, left) = traffic.offload_below(inner, group, known);
            traffic.offload_due(key, due);
            (key, left)
        });
        let second = Offload::of(Arc::clone(inner), key, RequestSpan::none()).await;
        // `second` counts each block that was in the host by then, whatever its first half had come to.
        // Of the others (`left`), some failed in the first half. The rest, with blocks that left the
        // host again, count as refused.
        let failed = left.min(first.failed);
        inner.counts.refused(Refusal::Room, left.saturating_sub(first.failed + first.refused));
        Offloaded {
            refused: second.refused + nowhere.len() + left - failed,
            failed: second.failed + failed,
            cause: second.cause.or(first.cause.filter(|_| failed > 0)),
            ..second
        }
    }
}
