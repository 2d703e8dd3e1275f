//! One request's onboarding: the blocks that it waits for.

use crate::state::{Link, Source};
use crate::transfer::{Cause, Class};
use kvstrata_core::BlockRef;
use std::task::Waker;
use std::time::Duration;

/// How a run is brought up.
#[derive(Debug, Clone, Copy)]
pub struct OnboardOptions {
    /// Who goes first. What somebody waits for is no guess: [`Class::Prefetch`] is taken as [`Class::Background`].
    pub class: Class,
    /// Whose it is: requests of one class take turns. 0: nobody's.
    pub request: u64,
    /// Layers a transfer, if the engine begins with the first while others are under way; whole blocks otherwise.
    pub layers: Option<u32>,
    /// How long to wait at most, polled or not; the manager's `deadline.onboard` unless told.
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
    Coming(u32),
    Failed(Cause),
}

#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) state: Progress,
    /// Who waits for the same flight: who joined before this one, and after it.
    pub(crate) next: Option<Link>,
    pub(crate) before: Option<Link>,
}

/// A request's blocks on their way.
#[derive(Debug)]
pub(crate) struct Onboarding {
    pub(crate) stack: u16,
    pub(crate) wanted: Vec<Wanted>,
    pub(crate) first_failed: usize,
    pub(crate) coming: usize,
    /// What has been read, to be released in order (I3).
    pub(crate) spent: Vec<(u32, Source)>,
    /// By layer: wanted blocks that lack it. Empty unless layers are asked for.
    pub(crate) layers_left: Vec<u32>,
    pub(crate) wakers: Vec<(u32, Waker)>,
    /// Futures that have waited for layers.
    pub(crate) waiters: u32,
    /// When what has not come is not waited for any more.
    pub(crate) due: Option<Duration>,
    /// Whether it is one of several groups'.
    pub(crate) is_part: bool,
}

/// What came of an onboarding.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The run, held.
    pub(crate) run: Vec<BlockRef>,
    /// Why it is no longer.
    pub(crate) failed: Option<Cause>,
}

impl Onboarding {
    pub(crate) fn new(stack: u16, layers: u32, blocks: usize, due: Option<Duration>) -> Onboarding {
        Onboarding {
            stack,
            wanted: Vec::with_capacity(blocks),
            first_failed: usize::MAX,
            coming: 0,
            spent: Vec::with_capacity(blocks),
            layers_left: vec![0; layers as usize],
            wakers: Vec::new(),
            waiters: 0,
            due,
            is_part: false,
        }
    }

    /// Whether it has ended (I2).
    pub(crate) fn is_done(&self) -> bool {
        self.coming == 0
    }

    /// Whether the layers up to this one are there for all blocks; the cause if they will not be.
    pub(crate) fn has_layer(&self, layer: u32) -> Option<Result<(), Cause>> {
        if let Some(Wanted { state: Progress::Failed(cause), .. }) = self.wanted.get(self.first_failed) {
            return Some(Err(*cause));
        }
        if self.layers_left.is_empty() {
            // Nobody counts layers: they are there when the blocks are.
            return (self.coming == 0).then_some(Ok(()));
        }
        let lacking = self.layers_left.iter().take(layer as usize + 1).any(|left| *left > 0);
        (!lacking || self.coming == 0).then_some(Ok(()))
    }

    /// A number for one more future that waits. 0 is the onboarding's own.
    pub(crate) fn new_waiter(&mut self) -> u32 {
        self.waiters += 1;
        self.waiters
    }

    /// Leaves word whom to tell, of a future that waits, of any progress that ends a wait. Gives back the waker that is not needed any more: to be
    /// dropped outside the lock.
    pub(crate) fn tell(&mut self, waiter: u32, waker: Waker) -> Option<Waker> {
        match self.wakers.iter_mut().find(|(of, _)| *of == waiter) {
            Some((_, known)) => Some(std::mem::replace(known, waker)),
            None => {
                self.wakers.push((waiter, waker));
                None
            }
        }
    }

    /// A future waits no more. Its waker is to be dropped outside the lock.
    pub(crate) fn quit(&mut self, waiter: u32) -> Option<Waker> {
        let at = self.wakers.iter().position(|(of, _)| *of == waiter)?;
        Some(self.wakers.swap_remove(at).1)
    }

    /// All who wait, to be told.
    pub(crate) fn take_wakers(&mut self) -> impl Iterator<Item = Waker> {
        self.wakers.drain(..).map(|(_, waker)| waker)
    }

    /// Wants a block that is there.
    pub(crate) fn here(&mut self, block: BlockRef) {
        self.wanted.push(Wanted { state: Progress::Here(block), next: None, before: None });
    }

    /// Wants a block that is nowhere any more.
    pub(crate) fn gone(&mut self) {
        self.wanted.push(Wanted { state: Progress::Failed(Cause::Cancelled), next: None, before: None });
        self.fail(self.wanted.len() - 1, Cause::Cancelled);
    }

    pub(crate) fn fail(&mut self, index: usize, cause: Cause) {
        self.wanted[index].state = Progress::Failed(cause);
        if index < self.first_failed {
            self.first_failed = index;
            let before = self.wanted[..index].iter();
            self.coming = before.filter(|wanted| matches!(wanted.state, Progress::Coming(_))).count();
        }
    }
}
