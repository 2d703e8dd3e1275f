//! One request's onboarding: the blocks that it waits for.

use crate::state::{GroupId, Key, Link, OnboardingId, Source, UpId};
use crate::transfer::{Cause, Class};
use kvstrata_core::BlockRef;
use slab::Slab;
use std::cmp::Reverse;
use std::ops::{Index, IndexMut, Range};
use std::task::Waker;
use std::time::Duration;

/// How a run is brought up.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct OnboardOptions {
    /// The urgency. A caller waits for the run, so it is no guess: [`Class::Prefetch`] is treated as
    /// [`Class::Background`].
    pub class: Class,
    /// The number of the request: requests of one class take turns. 0: no request.
    pub request: u64,
    /// Layers a transfer, for an engine that begins with the first layers while others are in flight;
    /// none: whole blocks.
    pub layers: Option<u32>,
    /// How long to wait at most, whether the future is polled or not; none: the manager's
    /// `deadline.onboard`.
    pub deadline: Option<Duration>,
}

impl Default for OnboardOptions {
    fn default() -> OnboardOptions {
        OnboardOptions { class: Class::Urgent, request: 0, layers: None, deadline: None }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Progress {
    Here(BlockRef),
    Coming(UpId),
    Failed(Cause),
}

#[derive(Debug)]
struct Wanted {
    progress: Progress,
    /// Neighbours in the list of waiters for the same transfer: the waiter that joined before this one,
    /// and the waiter that joined after it.
    next: Option<Link>,
    before: Option<Link>,
}

impl Wanted {
    fn new(progress: Progress, next: Option<Link>) -> Wanted {
        Wanted { progress, next, before: None }
    }
}

/// The blocks of a request that are on their way.
#[derive(Debug)]
pub(crate) struct Onboarding {
    group: GroupId,
    wanted: Vec<Wanted>,
    first_failed: usize,
    coming: usize,
    /// Sources that have been read, to be released in order (`operations/onboarding.rs` I3).
    spent: Vec<(u32, Source)>,
    /// By layer: how many wanted blocks lack it. Empty unless layers are asked for.
    layers_left: Vec<u32>,
    wakers: Vec<(u32, Waker)>,
    /// Futures that have waited for layers.
    waiters: u32,
    /// When to stop waiting for blocks that have not come.
    due: Option<Duration>,
    /// Whether it is one of several groups' onboardings.
    part: bool,
}

/// The outcome of an onboarding.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The run, held.
    pub(crate) run: Vec<BlockRef>,
    /// Why the run is not longer.
    pub(crate) failed: Option<Cause>,
}

/// The blocks of an onboarding that has ended.
pub(crate) struct Remains {
    pub(crate) run: Vec<BlockRef>,
    /// Blocks that have come, behind a block that has not.
    pub(crate) beyond: Vec<BlockRef>,
    /// Sources of its blocks, by index, the last first.
    pub(crate) spent: Vec<(u32, Source)>,
}

impl Onboarding {
    pub(crate) fn new(group: GroupId, layers: u32, blocks: usize, due: Option<Duration>) -> Onboarding {
        Onboarding {
            group,
            wanted: Vec::with_capacity(blocks),
            first_failed: usize::MAX,
            coming: 0,
            spent: Vec::with_capacity(blocks),
            layers_left: vec![0; layers as usize],
            wakers: Vec::new(),
            waiters: 0,
            due,
            part: false,
        }
    }

    pub(crate) fn group(&self) -> GroupId {
        self.group
    }

    pub(crate) fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Makes it one of several groups' onboardings.
    pub(crate) fn becomes_part(&mut self) {
        self.part = true;
    }

    /// Whether it is one of several groups' onboardings.
    pub(crate) fn is_part(&self) -> bool {
        self.part
    }

    /// Whether it has ended (I2).
    pub(crate) fn is_done(&self) -> bool {
        self.coming == 0
    }

    /// Returns the number of blocks that it wants.
    pub(crate) fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Returns the progress of each block that it wants.
    pub(crate) fn progress(&self) -> impl DoubleEndedIterator<Item = Progress> + ExactSizeIterator {
        self.wanted.iter().map(|wanted| wanted.progress)
    }

    /// Returns the progress of one block.
    pub(crate) fn progress_of(&self, index: usize) -> Option<Progress> {
        self.wanted.get(index).map(|wanted| wanted.progress)
    }

    /// Returns the range of its blocks from the first that has failed: of no use to the request.
    pub(crate) fn behind_failed(&self) -> Range<usize> {
        self.first_failed.min(self.wanted.len())..self.wanted.len()
    }

    /// Whether layers are counted.
    pub(crate) fn counts_layers(&self) -> bool {
        !self.layers_left.is_empty()
    }

    /// Returns `Ok` once all blocks have the layers up to this one, the cause if they never will, and
    /// none while they are coming.
    pub(crate) fn has_layer(&self, layer: u32) -> Option<Result<(), Cause>> {
        if let Some(Progress::Failed(cause)) = self.progress_of(self.first_failed) {
            return Some(Err(cause));
        }
        if self.layers_left.is_empty() {
            // Layers are not counted: they have come when the blocks have.
            return (self.coming == 0).then_some(Ok(()));
        }
        let lacking = self.layers_left.iter().take(layer as usize + 1).any(|left| *left > 0);
        (!lacking || self.coming == 0).then_some(Ok(()))
    }

    /// Returns a number for another future that waits. 0 is the onboarding's own.
    pub(crate) fn new_waiter(&mut self) -> u32 {
        self.waiters += 1;
        self.waiters
    }

    /// Notes the waker of a waiting future, to be woken by any progress that ends a wait. Returns the
    /// future's former waker, to be dropped outside the lock.
    pub(crate) fn tell(&mut self, waiter: u32, waker: Waker) -> Option<Waker> {
        match self.wakers.iter_mut().find(|(of, _)| *of == waiter) {
            Some((_, known)) => Some(std::mem::replace(known, waker)),
            None => {
                self.wakers.push((waiter, waker));
                None
            }
        }
    }

    /// Removes a future that waits no more. Returns its waker, to be dropped outside the lock.
    pub(crate) fn quit(&mut self, waiter: u32) -> Option<Waker> {
        let at = self.wakers.iter().position(|(of, _)| *of == waiter)?;
        Some(self.wakers.swap_remove(at).1)
    }

    /// Takes the wakers of all waiting futures.
    pub(crate) fn take_wakers(&mut self) -> impl Iterator<Item = Waker> {
        self.wakers.drain(..).map(|(_, waker)| waker)
    }

    /// Adds a block that is there.
    pub(crate) fn here(&mut self, block: BlockRef) {
        self.wanted.push(Wanted::new(Progress::Here(block), None));
    }

    /// Adds a block that is in no tier any more.
    pub(crate) fn gone(&mut self) {
        self.wanted.push(Wanted::new(Progress::Failed(Cause::Cancelled), None));
        self.fail(self.wanted.len() - 1, Cause::Cancelled);
    }

    /// Adds a block that comes by a transfer with `landed` layers; `next` is that transfer's next waiter.
    pub(crate) fn comes_by(&mut self, transfer: UpId, landed: usize, next: Option<Link>) {
        self.wanted.push(Wanted::new(Progress::Coming(transfer), next));
        self.coming += 1;
        self.layers_left.iter_mut().skip(landed).for_each(|left| *left += 1);
    }

    /// Notes that a block has come, or has failed. Returns the next waiter of the same transfer.
    pub(crate) fn came(&mut self, index: usize, outcome: Result<BlockRef, Cause>) -> Option<Link> {
        let next = self.wanted[index].next.take();
        match outcome {
            Ok(block) => {
                self.wanted[index].progress = Progress::Here(block);
                self.coming -= usize::from(index < self.first_failed);
            }
            Err(cause) => self.fail(index, cause),
        }
        next
    }

    /// Notes that some layers of a block have come. Returns whether all blocks have one of these
    /// layers now.
    pub(crate) fn layers_came(&mut self, layers: &Range<u32>) -> bool {
        let range = layers.start as usize..(layers.end as usize).min(self.layers_left.len());
        let mut whole = false;
        for left in self.layers_left.get_mut(range).into_iter().flatten() {
            *left -= 1;
            whole |= *left == 0;
        }
        whole
    }

    /// Stops waiting for a block that was coming. Returns its neighbours in the transfer's list
    /// of waiters.
    pub(crate) fn unwant(&mut self, index: usize, cause: Cause) -> (Option<Link>, Option<Link>) {
        let wanted = &mut self.wanted[index];
        wanted.progress = Progress::Failed(cause);
        self.coming -= usize::from(index < self.first_failed);
        (wanted.before.take(), wanted.next.take())
    }

    /// Notes that a block has failed.
    pub(crate) fn fail(&mut self, index: usize, cause: Cause) {
        self.wanted[index].progress = Progress::Failed(cause);
        if index < self.first_failed {
            self.first_failed = index;
            let before = self.wanted[..index].iter();
            self.coming = before.filter(|wanted| matches!(wanted.progress, Progress::Coming(_))).count();
        }
    }

    /// Keeps a source that was read for one of its blocks.
    pub(crate) fn spend(&mut self, index: u32, source: Source) {
        self.spent.push((index, source));
    }

    /// Ends it.
    pub(crate) fn end(mut self) -> Remains {
        let (mut run, mut beyond, mut whole) = (Vec::with_capacity(self.wanted.len()), Vec::new(), true);
        for wanted in &self.wanted {
            match wanted.progress {
                Progress::Here(block) if whole => run.push(block),
                Progress::Here(block) => beyond.push(block),
                _ => whole = false,
            }
        }
        self.spent.sort_unstable_by_key(|(index, _)| Reverse(*index));
        Remains { run, beyond, spent: self.spent }
    }
}

/// All onboardings. The lists of waiters for each transfer go through them.
///
/// Invariants
/// - I1: of two neighbours in such a list, each names the other.
#[derive(Debug, Default)]
pub(crate) struct Onboardings(Slab<Onboarding>);

impl Onboardings {
    pub(crate) fn insert(&mut self, onboarding: Onboarding) -> OnboardingId {
        OnboardingId::new(self.0.insert(onboarding))
    }

    pub(crate) fn remove(&mut self, key: OnboardingId) -> Onboarding {
        self.0.remove(key.index())
    }

    pub(crate) fn get(&self, key: OnboardingId) -> Option<&Onboarding> {
        self.0.get(key.index())
    }

    pub(crate) fn get_mut(&mut self, key: OnboardingId) -> Option<&mut Onboarding> {
        self.0.get_mut(key.index())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Onboarding> {
        self.0.iter().map(|(_, of)| of)
    }

    /// Returns the next waiter of the same transfer.
    pub(crate) fn next(&self, link: Link) -> Option<Link> {
        self.get(link.onboarding)?.wanted.get(link.index as usize)?.next
    }

    /// Whether the block right before a wanted one is wanted, too, and comes by this transfer.
    pub(crate) fn waits_before(&self, link: Link, transfer: UpId) -> bool {
        let before = || self.get(link.onboarding)?.progress_of((link.index as usize).checked_sub(1)?);
        matches!(before(), Some(Progress::Coming(of)) if of == transfer)
    }

    /// Makes two waiters neighbours in a list, or one of them its end.
    pub(crate) fn connect(&mut self, before: Option<Link>, next: Option<Link>) {
        if let Some(of) = before.and_then(|link| self.wanted_mut(link)) {
            of.next = next;
        }
        if let Some(of) = next.and_then(|link| self.wanted_mut(link)) {
            of.before = before;
        }
    }

    fn wanted_mut(&mut self, link: Link) -> Option<&mut Wanted> {
        self.get_mut(link.onboarding).map(|of| &mut of.wanted[link.index as usize])
    }
}

impl Index<OnboardingId> for Onboardings {
    type Output = Onboarding;

    fn index(&self, key: OnboardingId) -> &Onboarding {
        &self.0[key.index()]
    }
}

impl IndexMut<OnboardingId> for Onboardings {
    fn index_mut(&mut self, key: OnboardingId) -> &mut Onboarding {
        &mut self.0[key.index()]
    }
}
