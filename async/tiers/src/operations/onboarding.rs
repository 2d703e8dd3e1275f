//! One request's onboarding: the blocks that it waits for, and the outcome of each.
//!
//! ```text
//!   wanted   0      1      2      3      4       each is Here (held), Coming (in a transfer) or Failed (why)
//!            Here   Here   Coming Failed Coming
//!            └── the run ──┘      ▲
//!                                 first_failed: no block behind it is of use to this request
//! ```
//!
//! The waiters for a transfer are a list through the onboardings: a transfer has the first link, each
//! wanted block the next one.
//!
//! Invariants
//! - I1: `wanted[i]` is `Coming(f)` exactly while the list of transfer `f` has it.
//! - I2: `coming` counts those before `first_failed`; at 0 the onboarding has ended.
//! - I3: sources are released when the onboarding ends, the last first, so that lower tiers keep the
//!   order of sequences.
//! - I4: each future that waits here has at most one waker, from its last poll, and none once it is dropped.

use crate::engine::inner::Inner;
use crate::engine::notices::About;
use crate::state::{
    Ended, Link, Onboarding, OnboardingId, Progress, Remains, Source, Traffic, Up, UpId, Waits,
};
use crate::transfer::Cause;
use kvstrata_core::BlockRef;
use std::iter;
use std::ops::Range;

impl Traffic {
    /// Joins a transfer, as the next wanted block of an onboarding.
    pub(crate) fn join(&mut self, onboarding: OnboardingId, transfer: UpId, layers: u32) {
        let (Some(of), Some(up)) = (self.onboardings.get_mut(onboarding), self.ups.get_mut(transfer)) else {
            return;
        };
        let link = Link { onboarding, index: of.len() as u32 };
        let next = up.joined_by(link, of.counts_layers());
        of.comes_by(transfer, up.landed().min(layers) as usize, next);
        self.onboardings.connect(Some(link), next);
        self.joined_behind(link, transfer);
    }

    pub(crate) fn waiters(&self, up: &Up) -> impl Iterator<Item = Link> {
        iter::successors(up.first(), |link| self.onboardings.next(*link))
    }

    /// Whether the block right before a wanted one is wanted too, and comes by this transfer.
    pub(crate) fn waits_before(&self, link: Link, transfer: UpId) -> bool {
        self.onboardings.waits_before(link, transfer)
    }

    /// Notes that a wanted block has come, or will not. Returns the next one that waits for the same
    /// transfer; the caller tells it next.
    pub(crate) fn came(
        &mut self,
        inner: &Inner,
        link: Link,
        outcome: Result<BlockRef, Cause>,
    ) -> Option<Link> {
        let of = self.onboardings.get_mut(link.onboarding)?;
        let next = of.came(link.index as usize, outcome);
        if of.is_done() || outcome.is_err() {
            self.effects.wake(of.take_wakers());
        }
        if outcome.is_err() {
            self.abandon_behind(inner, link, Cause::Cancelled);
        }
        next
    }

    /// Gives up the blocks behind a failure: they are of no use to this request.
    fn abandon_behind(&mut self, inner: &Inner, link: Link, cause: Cause) {
        let Some(of) = self.onboardings.get(link.onboarding) else { return };
        for index in of.behind_failed() {
            self.unwant(inner, Link { onboarding: link.onboarding, index: index as u32 }, cause);
        }
    }

    /// Ends a late onboarding: it gives up the blocks that have not come, and its place in the queue.
    pub(crate) fn late_onboarding(&mut self, inner: &Inner, key: OnboardingId) {
        let Some(of) = self.onboardings.get(key) else { return };
        let coming = |progress| matches!(progress, Progress::Coming(_));
        let Some(index) = of.progress().position(coming) else { return };
        for progress in of.progress() {
            if let Progress::Coming(transfer) = progress
                && let Some(up) = self.ups.get(transfer)
                && !up.waits_for_parent()
            {
                inner.counts.failed(up.source().path(), Cause::Deadline, About::of(up.group(), up.tenant()));
            }
        }
        let link = Link { onboarding: key, index: index as u32 };
        self.unwant(inner, link, Cause::Deadline);
        let Some(of) = self.onboardings.get_mut(key) else { return };
        of.fail(index, Cause::Deadline);
        self.effects.wake(of.take_wakers());
        self.abandon_behind(inner, link, Cause::Deadline);
    }

    /// Fails the last wanted block: it is not available.
    pub(crate) fn cut_off(&mut self, inner: &Inner, key: OnboardingId, cause: Cause) {
        let Some(of) = self.onboardings.get(key) else { return };
        let Some(last) = of.len().checked_sub(1) else { return };
        let progress = of.progress_of(last);
        self.unwant(inner, Link { onboarding: key, index: last as u32 }, Cause::Cancelled);
        self.onboardings[key].fail(last, cause);
        if let Some(Progress::Here(block)) = progress {
            inner.group(self.onboardings[key].group()).device.release(block, inner.now());
        }
    }

    /// Leaves the transfer that brings a wanted block.
    fn unwant(&mut self, inner: &Inner, link: Link, cause: Cause) {
        let index = link.index as usize;
        let Some(of) = self.onboardings.get_mut(link.onboarding) else { return };
        let Some(Progress::Coming(transfer)) = of.progress_of(index) else { return };
        // It has ended, and is about to tell this waiter: the list stays as it was.
        let Some(up) = self.ups.get_mut(transfer) else { return };
        let (before, next) = of.unwant(index, cause);
        up.left_by_waiter(cause, before.is_none(), next);
        self.onboardings.connect(before, next);
        self.drop_if_unwanted(inner, transfer);
    }

    /// Notes landed layers of a transfer, and wakes waiters for a layer.
    pub(crate) fn layers_landed(&mut self, transfer: UpId, layers: Range<u32>) {
        let mut next = self.ups.get(transfer).and_then(|up| up.first());
        while let Some(link) = next {
            let Some(of) = self.onboardings.get_mut(link.onboarding) else { return };
            if of.layers_came(&layers) {
                self.effects.wake(of.take_wakers());
            }
            next = self.onboardings.next(link);
        }
    }

    /// Keeps the transfer's source, which is read, until the onboarding ends (I3).
    pub(crate) fn spend(&mut self, link: Link, source: Source) {
        if let Some(of) = self.onboardings.get_mut(link.onboarding) {
            of.spend(link.index, source);
        }
    }

    /// Takes the onboarding's outcome, whether it has ended or not. Blocks that have not come are given up.
    pub(crate) fn end_onboarding(&mut self, inner: &Inner, key: OnboardingId) -> Ended {
        let wanted = self.onboardings.get(key).map_or(0, Onboarding::len);
        let mut failed = None;
        for index in 0..wanted {
            match self.onboardings[key].progress_of(index) {
                Some(Progress::Coming(_)) => {
                    failed.get_or_insert(Cause::Cancelled);
                    self.unwant(inner, Link { onboarding: key, index: index as u32 }, Cause::Cancelled);
                }
                Some(Progress::Failed(cause)) => _ = failed.get_or_insert(cause),
                Some(Progress::Here(_)) | None => {}
            }
        }
        let mut of = self.onboardings.remove(key);
        // A request over several groups is counted by the holder of all its parts.
        if let Some(cause) = failed.filter(|_| !of.is_part()) {
            inner.counts.missed(cause);
        }
        self.not_due(of.due(), Waits::Onboarding(key));
        // No future waits; but a waker is a caller's code, and none of that runs under the lock.
        self.effects.wake(of.take_wakers());
        let group = of.group();
        let Remains { run, beyond, spent } = of.end();
        for block in beyond.into_iter().rev() {
            inner.group(group).device.release(block, inner.now());
        }
        spent.into_iter().for_each(|(_, source)| self.put_down(inner, group, source));
        Ended { run, failed }
    }
}
