//! One request's onboarding: which blocks it waits for, and what came of each.
//!
//! ```text
//!   wanted   0      1      2      3      4             state of each: Here (held), Coming (in a flight), Failed (why)
//!            Here   Here   Coming Failed Coming
//!            └── the run ──┘      ▲
//!                                 first_failed: nothing behind it is of use to this request
//! ```
//!
//! Who waits for a flight is a list through the onboardings: a flight has the first link, each wanted block the next one.
//!
//! Invariants
//! - I1: `wanted[i]` is `Coming(f)` exactly while the list of flight `f` has it.
//! - I2: `coming` counts those before `first_failed`; at 0 the onboarding has ended.
//! - I3: sources are released when the onboarding ends, the last first, so that what is below keeps the order of sequences.
//! - I4: of each future that waits there is one waker at most, the last that polled it, and none once it is dropped.

use crate::engine::inner::Inner;
use crate::engine::notices::About;
use crate::state::{At, Ended, Link, Progress, Source, Traffic, Up, Waits, Wanted};
use crate::transfer::Cause;
use kvstrata_core::BlockRef;
use std::iter;
use std::ops::Range;

impl Traffic {
    /// Joins a flight, as the next wanted block of an onboarding.
    pub(crate) fn join(&mut self, onboarding: u32, flight: u32, layers: u32) {
        let (Some(of), Some(up)) = (self.onboardings.get_mut(onboarding as usize), self.ups.get_mut(flight))
        else {
            return;
        };
        let link = Link { onboarding, index: of.wanted.len() as u32 };
        let next = up.joined_by(link, !of.layers_left.is_empty());
        of.wanted.push(Wanted { state: Progress::Coming(flight), next, before: None });
        of.coming += 1;
        let landed = up.landed().min(layers) as usize;
        of.layers_left.iter_mut().skip(landed).for_each(|left| *left += 1);
        self.joined(next, |wanted| wanted.before = Some(link));
        self.joined_behind(link, flight);
    }

    /// Who waits for a flight.
    pub(crate) fn waiters(&self, up: &Up) -> impl Iterator<Item = Link> {
        let next = |link: &Link| {
            self.onboardings.get(link.onboarding as usize)?.wanted.get(link.index as usize)?.next
        };
        iter::successors(up.first(), next)
    }

    /// Whether the block right before a wanted one is wanted too, and comes by this flight.
    pub(crate) fn waits_before(&self, link: Link, flight: u32) -> bool {
        let of = self.onboardings.get(link.onboarding as usize);
        let before = of.and_then(|of| of.wanted.get((link.index as usize).checked_sub(1)?));
        before.is_some_and(|before| matches!(before.state, Progress::Coming(of) if of == flight))
    }

    /// Changes a neighbour in the list of who waits.
    fn joined(&mut self, link: Option<Link>, change: impl FnOnce(&mut Wanted)) {
        let Some(link) = link else { return };
        if let Some(of) = self.onboardings.get_mut(link.onboarding as usize) {
            change(&mut of.wanted[link.index as usize]);
        }
    }

    /// A wanted block has come, or will not. Gives the next one that waits for the same flight, which is then told.
    pub(crate) fn came(
        &mut self,
        inner: &Inner,
        link: Link,
        outcome: Result<BlockRef, Cause>,
    ) -> Option<Link> {
        let of = self.onboardings.get_mut(link.onboarding as usize)?;
        let index = link.index as usize;
        let next = of.wanted[index].next.take();
        match outcome {
            Ok(block) => {
                of.wanted[index].state = Progress::Here(block);
                of.coming -= usize::from(index < of.first_failed);
            }
            Err(cause) => of.fail(index, cause),
        }
        if of.coming == 0 || outcome.is_err() {
            self.out.wake(of.take_wakers());
        }
        if outcome.is_err() {
            self.abandon_behind(inner, link, Cause::Cancelled);
        }
        next
    }

    /// What lies behind a failure is of no use to this request.
    fn abandon_behind(&mut self, inner: &Inner, link: Link, cause: Cause) {
        let Some(of) = self.onboardings.get(link.onboarding as usize) else { return };
        for index in of.first_failed.min(of.wanted.len())..of.wanted.len() {
            self.unwant(inner, Link { onboarding: link.onboarding, index: index as u32 }, cause);
        }
    }

    /// Its deadline has passed: what has not come is not waited for any more, and neither is a place in line.
    pub(crate) fn late_onboarding(&mut self, inner: &Inner, key: u32) {
        let Some(of) = self.onboardings.get(key as usize) else { return };
        let coming = |wanted: &Wanted| matches!(wanted.state, Progress::Coming(_));
        let Some(index) = of.wanted.iter().position(coming) else { return };
        for wanted in &of.wanted {
            if let Progress::Coming(flight) = wanted.state
                && let Some(up) = self.ups.get(flight)
                && !matches!(up.at(), At::Behind)
            {
                inner.counts.failed(up.source().path(), Cause::Deadline, About::of(up.group(), up.tenant()));
            }
        }
        let link = Link { onboarding: key, index: index as u32 };
        self.unwant(inner, link, Cause::Deadline);
        let Some(of) = self.onboardings.get_mut(key as usize) else { return };
        of.fail(index, Cause::Deadline);
        self.out.wake(of.take_wakers());
        self.abandon_behind(inner, link, Cause::Deadline);
    }

    /// The last wanted block is not to be had.
    pub(crate) fn cut_off(&mut self, inner: &Inner, key: u32, cause: Cause) {
        let Some(of) = self.onboardings.get(key as usize) else { return };
        let Some(last) = of.wanted.len().checked_sub(1) else { return };
        let state = of.wanted[last].state;
        self.unwant(inner, Link { onboarding: key, index: last as u32 }, Cause::Cancelled);
        self.onboardings[key as usize].fail(last, cause);
        if let Progress::Here(block) = state {
            inner.stack(self.onboardings[key as usize].stack).device.release(block, inner.now());
        }
    }

    /// Leaves the flight that a wanted block is in.
    fn unwant(&mut self, inner: &Inner, link: Link, cause: Cause) {
        let index = link.index as usize;
        let Some(of) = self.onboardings.get_mut(link.onboarding as usize) else { return };
        let Progress::Coming(flight) = of.wanted[index].state else { return };
        // It has ended, and this one is about to be told: the list is as it was.
        let Some(up) = self.ups.get_mut(flight) else { return };
        let wanted = &mut of.wanted[index];
        let (before, next) = (wanted.before.take(), wanted.next.take());
        wanted.state = Progress::Failed(cause);
        up.left_by_waiter(cause, before.is_none(), next);
        of.coming -= usize::from(index < of.first_failed);
        self.joined(before, |wanted| wanted.next = next);
        self.joined(next, |wanted| wanted.before = before);
        self.drop_if_unwanted(inner, flight);
    }

    /// Layers of a flight have landed: whoever waits for a layer may go on.
    pub(crate) fn layers_landed(&mut self, flight: u32, layers: Range<u32>) {
        let mut next = self.ups.get(flight).and_then(|up| up.first());
        while let Some(link) = next {
            let Some(of) = self.onboardings.get_mut(link.onboarding as usize) else { return };
            let range = layers.start as usize..(layers.end as usize).min(of.layers_left.len());
            let mut whole = false;
            for left in of.layers_left.get_mut(range).into_iter().flatten() {
                *left -= 1;
                whole |= *left == 0;
            }
            if whole {
                self.out.wake(of.take_wakers());
            }
            next = of.wanted[link.index as usize].next;
        }
    }

    /// The flight's source is read; the onboarding keeps it until it ends (I3).
    pub(crate) fn spend(&mut self, link: Link, source: Source) {
        if let Some(of) = self.onboardings.get_mut(link.onboarding as usize) {
            of.spent.push((link.index, source));
        }
    }

    /// Takes the onboarding's outcome, whether it has ended or not: what has not come is not waited for any more.
    pub(crate) fn end_onboarding(&mut self, inner: &Inner, key: u32) -> Ended {
        let wanted = self.onboardings.get(key as usize).map_or(0, |of| of.wanted.len());
        let mut failed = None;
        for index in 0..wanted {
            let state = self.onboardings[key as usize].wanted[index].state;
            match state {
                Progress::Coming(_) => {
                    failed.get_or_insert(Cause::Cancelled);
                    self.unwant(inner, Link { onboarding: key, index: index as u32 }, Cause::Cancelled);
                }
                Progress::Failed(cause) => _ = failed.get_or_insert(cause),
                Progress::Here(_) => {}
            }
        }
        let mut of = self.onboardings.remove(key as usize);
        // Of several groups the request is counted, by who has all of them.
        if let Some(cause) = failed.filter(|_| !of.is_part) {
            inner.counts.missed(cause);
        }
        self.not_due(of.due, Waits::Onboarding(key));
        // Nobody waits; but a waker is a caller's code, and none of that runs under the lock.
        self.out.wake(of.take_wakers());
        let stack = inner.stack(of.stack);
        let (mut run, mut beyond) = (Vec::with_capacity(of.wanted.len()), Vec::new());
        let mut whole = true;
        for wanted in &of.wanted {
            match wanted.state {
                Progress::Here(block) if whole => run.push(block),
                Progress::Here(block) => beyond.push(block),
                _ => whole = false,
            }
        }
        for block in beyond.into_iter().rev() {
            stack.device.release(block, inner.now());
        }
        of.spent.sort_unstable_by_key(|(index, _)| std::cmp::Reverse(*index));
        for (_, source) in of.spent {
            self.put_down(inner, of.stack, source);
        }
        Ended { run, failed }
    }
}
