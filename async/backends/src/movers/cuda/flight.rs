//! A list in flight, and its next step.
//!
//! ```text
//!   New ─► Before: sums, to verify ─► Away: the device copies ─► After: sums, to seal ─► answered, Idle
//! ```
//!
//! Several threads make the sums. Each takes a block's guard out of the list and puts it back. The
//! thread that puts the last one back goes on with the next stage.
//!
//! Invariants
//! - I1: the stage changes only under the flight's lock. A thread that comes late, or without need,
//!   finds another stage and has nothing to do.
//! - I2: a copy without a `fate` is still on its way. It has one if it is answered with anything other
//!   than [`Cause::Abandoned`](kvstrata_tiers::transfer::Cause::Abandoned).

use super::crew::Shared;
use super::ends::Ends;
use super::plans::Way;
use crate::movers::turns::brings_up;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use kvstrata_core::BlockId;
use kvstrata_ffi::cuda::{Batch, CudaError, Held, Transfer};
use kvstrata_tiers::transfer::{Cause, Copies, Copy, Failure, HostMemory, HostSide};
use std::mem::take;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Wake;

/// A place for one list after another. Waking it has a thread look at it.
pub(super) struct Flight {
    crew: Weak<Shared>,
    /// Whether its list brings blocks up, for the order of flights. Relaxed: a hint that publishes
    /// nothing.
    up: AtomicBool,
    leg: Mutex<Leg>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Idle,
    New,
    Before,
    Away,
    After,
}

/// A flight's state for its list.
#[derive(Default)]
struct Leg {
    stage: Stage,
    copies: Option<Copies>,
    fates: Vec<Option<Result<(), Failure>>>,
    /// Copies that can be carried out, sorted by way and layers: copies of one transfer are neighbours.
    order: Vec<(Way, u32, u32, usize)>,
    /// Sums of this stage: the next position to look at, and the number of sums still to make.
    next: usize,
    to_sum: usize,
    sent: Vec<Sent>,
    /// The failure of onboards, if their order with the engine was refused.
    unheld: Option<Failure>,
    // Kept for their memory.
    device: Vec<BlockId>,
    host: Vec<BlockId>,
    batches: Vec<Batch>,
}

/// Copies that the device has.
struct Sent {
    transfer: Transfer,
    /// Their range in `order`.
    of: Range<usize>,
}

impl Flight {
    pub(super) fn new(crew: &Arc<Shared>) -> Arc<Flight> {
        Arc::new(Flight { crew: Arc::downgrade(crew), up: AtomicBool::new(false), leg: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Leg> {
        // After a panic of a step, `crash` gives the flight up.
        self.leg.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a list.
    pub(super) fn board(&self, copies: Copies) {
        self.up.store(brings_up(&copies), Relaxed);
        let mut leg = self.lock();
        leg.copies = Some(copies);
        leg.stage = Stage::New;
    }

    pub(super) fn brings_up(&self) -> bool {
        self.up.load(Relaxed)
    }

    /// Takes a list that the device has written. Returns the number of sums to make.
    #[cfg(test)]
    pub(super) fn board_written(&self, copies: Copies) -> usize {
        let blocks = copies.list().len();
        self.board(copies);
        let mut leg = self.lock();
        leg.fates.resize(blocks, None);
        leg.begin_sums(Stage::After)
    }

    /// Returns the number of sums still to make.
    #[cfg(test)]
    pub(super) fn sums_left(&self) -> usize {
        self.lock().to_sum
    }

    /// Takes a list at a stage that it has not reached, so that a step panics.
    #[cfg(test)]
    pub(super) fn board_too_late(&self, copies: Copies) {
        self.board(copies);
        self.lock().stage = Stage::After;
    }

    /// Goes on as far as possible without waiting.
    pub(super) fn step(self: &Arc<Self>, crew: &Shared) {
        let mut leg = self.lock();
        loop {
            match leg.stage {
                Stage::Idle => return,
                Stage::New if crew.is_closing() => return self.answer(leg, crew),
                Stage::New => {
                    leg.judge(&crew.ends);
                    let sums = leg.begin_sums(Stage::Before);
                    self.ask_for_help(crew, sums);
                }
                Stage::Before | Stage::After => {
                    let given_way;
                    (leg, given_way) = self.sum(leg, crew);
                    if leg.to_sum > 0 {
                        drop(leg);
                        if given_way {
                            crew.ready(self, 1);
                        }
                        // Otherwise another thread makes the last sum, and goes on.
                        return;
                    }
                    if leg.stage == Stage::After {
                        return self.answer(leg, crew);
                    }
                    leg.send(&crew.ends);
                    leg.stage = Stage::Away;
                }
                Stage::Away => {
                    let waker = Waker::from(Arc::clone(self));
                    leg.arrive(&mut Context::from_waker(&waker));
                    if !leg.sent.is_empty() {
                        return;
                    }
                    let sums = leg.begin_sums(Stage::After);
                    self.ask_for_help(crew, sums);
                }
            }
        }
    }

    fn ask_for_help(self: &Arc<Self>, crew: &Shared, sums: usize) {
        let helpers = crew.helpers(sums);
        if helpers > 0 {
            crew.ready(self, helpers);
        }
    }

    /// Makes sums that no thread has taken, without the lock. Returns whether it stopped early to give
    /// way to a list that brings blocks up.
    fn sum<'a>(&'a self, mut leg: MutexGuard<'a, Leg>, crew: &Shared) -> (MutexGuard<'a, Leg>, bool) {
        while let Some((at, host, layers)) = leg.next_to_sum() {
            drop(leg);
            let fate = sum(crew.ends.memory(), &host, layers);
            let gives_way = !self.brings_up() && crew.has_up();
            leg = self.lock();
            leg.summed(at, host, fate);
            if gives_way {
                return (leg, true);
            }
        }
        (leg, false)
    }

    fn answer(self: &Arc<Self>, mut leg: MutexGuard<'_, Leg>, crew: &Shared) {
        let copies = leg.end();
        drop(leg);
        if let Some(copies) = copies {
            crew.end(self, copies, true);
        }
    }

    /// After a panic of a step: answers the list, and does not reuse the flight. The queue keeps the
    /// copies that the device has.
    pub(super) fn crash(self: &Arc<Self>, crew: &Shared) {
        let Leg { copies, .. } = take(&mut *self.lock());
        if let Some(copies) = copies {
            crew.end(self, copies, false);
        }
    }
}

impl Wake for Flight {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(crew) = self.crew.upgrade() {
            crew.ready(self, 1);
        }
    }
}

impl Leg {
    fn list(&mut self) -> &mut [Copy] {
        self.copies.as_mut().map_or(&mut [], Copies::list_mut)
    }

    /// Finds the copies that can be carried out, and groups them.
    fn judge(&mut self, ends: &Ends) {
        let Leg { copies: Some(copies), fates, order, .. } = self else { return };
        for (at, copy) in copies.list().iter().enumerate() {
            match ends.way_of(copy) {
                Ok(_) if copy.layers.is_empty() => fates.push(Some(Ok(()))),
                Ok(way) => {
                    order.push((way, copy.layers.start, copy.layers.end, at));
                    fates.push(None);
                }
                Err(failure) => fates.push(Some(Err(failure))),
            }
        }
        // Within a group they keep their order: neighbours stay neighbours.
        order.sort_unstable();
    }

    /// Begins a stage of sums. Returns their number.
    fn begin_sums(&mut self, stage: Stage) -> usize {
        self.stage = stage;
        self.next = 0;
        let Leg { copies, fates, .. } = self;
        let list = copies.as_ref().map_or(&[][..], Copies::list);
        let needed = list.iter().zip(fates).filter(|(copy, fate)| needs_sum(stage, copy, fate));
        self.to_sum = needed.count();
        self.to_sum
    }

    /// Takes the guard of the next copy to sum out of the list.
    fn next_to_sum(&mut self) -> Option<(usize, HostSide, Range<u32>)> {
        let stage = self.stage;
        let Leg { copies: Some(copies), fates, next, .. } = self else { return None };
        while let Some(copy) = copies.list_mut().get_mut(*next) {
            let at = *next;
            *next += 1;
            if needs_sum(stage, copy, &fates[at]) {
                return Some((at, copy.host.take(), copy.layers.clone()));
            }
        }
        None
    }

    fn summed(&mut self, at: usize, host: HostSide, fate: Option<Result<(), Failure>>) {
        // The list is gone if a step panicked meanwhile; the guard is then dropped.
        if let Some(copy) = self.list().get_mut(at) {
            copy.host = host;
            self.fates[at] = fate;
            self.to_sum -= 1;
        }
    }

    /// Submits all copies without a fate, as one transfer for each way and range of layers.
    fn send(&mut self, ends: &Ends) {
        let Leg { order, fates, .. } = self;
        // A copy with a wrong sum has a fate.
        order.retain(|(.., at)| fates[*at].is_none());
        let (mut from, mut follows) = (0, None::<(Way, Result<(), CudaError>)>);
        while let Some((way, start, end, _)) = self.order.get(from).copied() {
            let alike = |of: &&(Way, u32, u32, usize)| (of.0, of.1, of.2) == (way, start, end);
            let of = from..from + self.order[from..].iter().take_while(alike).count();
            from = of.end;
            // Once for each way; the copies of a way are neighbours.
            follows.take_if(|(of, _)| *of != way);
            let (_, follows) = follows.get_or_insert_with(|| (way, ends.follow_engine(way)));
            if let Err(error) = follows.clone().and_then(|()| self.submit(ends, way, start..end, of.clone()))
            {
                self.settle(of, Err(Failure::from(&error)));
            }
        }
        let onboards = self.sent.iter().any(|sent| self.order[sent.of.start].0 == Way::Onboard);
        let held = if onboards { ends.hold_engine() } else { Ok(()) };
        self.unheld = held.err().map(|error| Failure::from(&error));
    }

    /// Queues copies of the same layers. If refused, their guards are in the list again.
    fn submit(
        &mut self,
        ends: &Ends,
        way: Way,
        layers: Range<u32>,
        of: Range<usize>,
    ) -> Result<(), CudaError> {
        let mut batch = self.batches.pop().unwrap_or_default();
        let prepared = match way {
            Way::Erase => ends.zeros.copy(&ends.plans, &layers, &mut batch)?,
            Way::Offload | Way::Onboard => ends.plans.of(way, &layers)?,
        };
        self.device.clear();
        self.host.clear();
        let Leg { copies: Some(copies), order, device, host, .. } = self else { return Ok(()) };
        let list = copies.list_mut();
        for (.., at) in &order[of.clone()] {
            let copy = &mut list[*at];
            device.push(copy.device);
            // None is dropped here: `Ends::way_of` has checked their memory.
            match copy.host.take() {
                HostSide::Write(held) => {
                    host.push(BlockId(held.block() as u32));
                    batch.write(held, &ends.pinned)?;
                }
                HostSide::Read(held) => {
                    host.push(BlockId(held.block() as u32));
                    batch.read(held, &ends.pinned)?;
                }
                HostSide::Zeros => host.push(BlockId(0)),
                HostSide::Kept { .. } => {}
            }
        }
        let (from, to) = match way {
            Way::Offload => (&*device, &*host),
            Way::Onboard | Way::Erase => (&*host, &*device),
        };
        match prepared.submit(ends.queue(way), from, to, batch) {
            Ok(transfer) => {
                self.sent.push(Sent { transfer, of });
                Ok(())
            }
            Err(rejected) => {
                self.take_back(rejected.batch, of);
                Err(rejected.error)
            }
        }
    }

    /// Puts a batch's guards back, and keeps the batch for reuse.
    fn take_back(&mut self, mut batch: Batch, of: Range<usize>) {
        let Leg { copies, order, batches, .. } = self;
        let list = copies.as_mut().map_or(&mut [][..], Copies::list_mut);
        let guards = batch.release().filter_map(|held| match held {
            Held::Read(held, _) => Some(HostSide::Read(held)),
            Held::Write(held, _) => Some(HostSide::Write(held)),
            Held::Device(_) | Held::Other(_) => None,
        });
        // The guards come in their original order. One guard stands for all overwritten blocks.
        let erased = order[of.start].0 == Way::Erase;
        let zeros = std::iter::repeat_with(|| HostSide::Zeros).take(if erased { of.len() } else { 0 });
        let guards = zeros.chain(guards);
        for ((.., at), guard) in order[of].iter().zip(guards) {
            list[*at].host = guard;
        }
        batches.push(batch);
    }

    /// Takes the transfers that the device has answered.
    fn arrive(&mut self, context: &mut Context<'_>) {
        let mut at = 0;
        while let Some(sent) = self.sent.get_mut(at) {
            let Poll::Ready(outcome) = Pin::new(&mut sent.transfer).poll(context) else {
                at += 1;
                continue;
            };
            let Sent { mut transfer, of } = self.sent.swap_remove(at);
            let (batch, failure) = match outcome {
                Ok(batch) => (Some(batch), None),
                // Without a batch: the device keeps the memory that it may still use.
                Err(error) => (transfer.take_left(), Some(Failure::from(&error))),
            };
            if let Some(batch) = batch {
                self.take_back(batch, of.clone());
            }
            match (failure, self.order[of.start].0) {
                (Some(failure), _) => self.settle(of, Err(failure)),
                (None, Way::Onboard) => self.settle(of, self.unheld.map_or(Ok(()), Err)),
                (None, Way::Erase) => self.settle(of, Ok(())),
                // They must still be sealed.
                (None, Way::Offload) => {}
            }
        }
    }

    fn settle(&mut self, of: Range<usize>, fate: Result<(), Failure>) {
        for (.., at) in &self.order[of] {
            self.fates[*at] = Some(fate);
        }
    }

    /// Returns the list with its outcomes; the flight is then idle.
    fn end(&mut self) -> Option<Copies> {
        let mut copies = self.copies.take();
        let list = copies.as_mut().map_or(&mut [][..], Copies::list_mut);
        for (copy, fate) in list.iter_mut().zip(&self.fates) {
            copy.outcome = fate.unwrap_or(Err(Failure::of(Cause::Abandoned)));
        }
        self.stage = Stage::Idle;
        self.fates.clear();
        self.order.clear();
        copies
    }
}

/// Whether a stage sums a copy's bytes.
fn needs_sum(stage: Stage, copy: &Copy, fate: &Option<Result<(), Failure>>) -> bool {
    fate.is_none()
        && match (&copy.host, stage) {
            (HostSide::Read(_), Stage::Before) => copy.verify,
            (HostSide::Write(_), Stage::After) => true,
            _ => false,
        }
}

/// Compares the sums of blocks that are read, and stores those of blocks that were written. Returns the
/// copy's fate, if this decides it.
fn sum(memory: &HostMemory, host: &HostSide, layers: Range<u32>) -> Option<Result<(), Failure>> {
    let mut layers = layers.filter_map(|layer| Some((layer, memory.layer(layer)?)));
    match host {
        HostSide::Read(held) => {
            let same =
                |(layer, of): (u32, Range<usize>)| memory.matches(held, layer, HostMemory::sum_of(&held[of]));
            (!layers.all(same)).then_some(Err(Failure::of(Cause::Mismatch)))
        }
        HostSide::Write(held) => {
            layers.for_each(|(layer, of)| memory.seal(held, layer, HostMemory::sum_of(&held[of])));
            Some(Ok(()))
        }
        HostSide::Zeros | HostSide::Kept { .. } => None,
    }
}
