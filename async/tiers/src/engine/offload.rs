//! Copies down that a caller asks for: the blocks stay where they are, and the tier below has them too.
//! Past 500 lines because an offload, whole or behind a layer, and what it counts are one state that its futures and the lock share.

use super::asked::Asked;
use super::blocks::Blocks;
use super::deadlines::Waits;
use super::down::{Cargo, Have, let_go};
use super::inner::Inner;
use super::notices::About;
use super::schedule::GatedCopy;
use super::traffic::Traffic;
use super::unwritten::written_after;
use crate::metrics::Refusal;
use crate::scheduler::Gate;
use crate::tier::Tier;
use crate::transfer::{Cause, Class, Failure, Path};
use kvstrata_core::{ImmutableBlock, SequenceHash};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How blocks are offloaded.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct OffloadOptions {
    /// Who goes first.
    pub class: Class,
    /// Whose it is: requests of one class take turns. 0: nobody's.
    pub request: u64,
    /// What must be over before: a layer or an iteration that still writes the blocks.
    ///
    /// Behind layer `k` a block goes down in steps of `k + 1` layers, each when its last layer is done, the last step being shorter if need be:
    /// what is left when the pass ends is one step, and not all of the block. What several steps have opened goes in one copy. The tier below
    /// has the block when all of its layers are there. Where a model has several groups of layers, a group's are not told apart by
    /// [`layer_done`](super::Tiers::layer_done): there a block goes whole, when the last layer of the model is done.
    ///
    /// A block that is [registered ahead](super::BlocksMut::register_ahead) of the pass that writes it goes down when that is over, whatever is said
    /// here, or by the layers of that pass: so does the copy that anybody else asks for.
    ///
    /// Until all of it is down a block is held, and cannot be evicted, also where its handles and the [`Offload`] have been dropped: what it
    /// will hold is not there yet. So an engine that awaits blocks in the midst of a pass may wait for those that only its own pass lets go. What has
    /// waited for a gate, or for the next of its layers, for the manager's `deadline.offload`, whatever `deadline` says here, is let go, and
    /// fails by [`Cause::Deadline`]: an engine that iterates no more keeps no blocks.
    pub gate: Gate,
    /// How long to wait at most; the manager's `deadline.offload` unless told. Copies go on.
    pub deadline: Option<Duration>,
}

impl Default for OffloadOptions {
    fn default() -> OffloadOptions {
        OffloadOptions { class: Class::Offload, request: 0, gate: Gate::Open, deadline: None }
    }
}

/// What came of an offload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offloaded {
    /// Blocks that were copied.
    pub copied: usize,
    /// Blocks that the tier below had, or that were on their way there.
    pub there: usize,
    /// Blocks that were not begun: no tier below, none that has room for them or wants them, a full queue, or a manager that is shut down
    /// ([`ManagerStats::refused`](super::ManagerStats::refused) tells them apart).
    pub refused: usize,
    /// Blocks whose copy failed, or was late.
    pub failed: usize,
    /// Why the last of those did.
    pub cause: Option<Cause>,
}

/// An offload that somebody may wait for.
#[derive(Debug, Default)]
pub(super) struct Offloading {
    left: usize,
    so_far: Offloaded,
    waker: Option<Waker>,
    /// Nobody does.
    alone: bool,
    due: Option<Duration>,
    /// That has passed.
    late: bool,
}

/// Blocks on their way down. Dropped, they go all the same.
pub struct Offload {
    inner: Arc<Inner>,
    key: Option<u32>,
    asked: Asked,
    /// In a process that was forked from the manager's: so many blocks, none of which goes anywhere.
    refused: Option<usize>,
}

impl Offload {
    fn of(inner: Arc<Inner>, key: u32, asked: Asked) -> Offload {
        Offload { inner, key: Some(key), asked, refused: None }
    }

    fn refused(inner: &Arc<Inner>, blocks: usize) -> Offload {
        Offload { inner: Arc::clone(inner), key: None, asked: Asked::nobody(), refused: Some(blocks) }
    }

    pub(super) fn begin(blocks: &Blocks, options: OffloadOptions) -> Offload {
        let inner = Arc::clone(blocks.inner());
        if inner.is_inherited() {
            return Offload::refused(&inner, blocks.len());
        }
        let asked = Asked::offload(&inner, blocks, options.request);
        let due = inner.due_in(options.deadline.unwrap_or(inner.rules.offload_deadline));
        let key = inner.with(|traffic| {
            let key = traffic.offload(&inner, blocks, options, false);
            traffic.offload_due(key, due);
            key
        });
        Offload::of(inner, key, asked)
    }

    /// It is answered.
    fn ended(&mut self, outcome: Offloaded) -> Poll<Offloaded> {
        self.key = None;
        self.asked.offloaded(&self.inner, outcome);
        Poll::Ready(outcome)
    }

    /// Of a request that will come back for them: all of them, also beyond the queue's bound, and whatever the mode.
    pub(super) fn begin_whole(blocks: &Blocks, request: u64) -> Offload {
        let inner = Arc::clone(blocks.inner());
        if inner.is_inherited() {
            return Offload::refused(&inner, blocks.len());
        }
        let options = OffloadOptions { request, ..OffloadOptions::default() };
        let asked = Asked::offload(&inner, blocks, request);
        let due = inner.due_in(inner.rules.offload_deadline);
        let key = inner.with(|traffic| {
            let key = traffic.offload(&inner, blocks, options, true);
            traffic.offload_due(key, due);
            key
        });
        Offload::of(inner, key, asked)
    }

    /// Ends when no copy of these blocks is under way: what has not begun to move is called back.
    pub(super) fn call_back(
        inner: &Arc<Inner>,
        stack: u16,
        hashes: &[SequenceHash],
        due: Option<Duration>,
    ) -> Offload {
        if inner.is_inherited() {
            return Offload::refused(inner, 0);
        }
        let key = inner.with(|traffic| {
            let key = traffic.offloadings.insert(Offloading::default()) as u32;
            hashes.iter().for_each(|hash| traffic.call_back(inner, key, stack, *hash));
            traffic.offload_due(key, due);
            key
        });
        Offload::of(Arc::clone(inner), key, Asked::nobody())
    }
}

/// See [`Tiers::persist`](super::Tiers::persist).
pub(super) async fn persist(inner: &Arc<Inner>, stack: u16, hashes: &[SequenceHash]) -> Offloaded {
    if inner.is_inherited() {
        return Offload::refused(inner, hashes.len()).await;
    }
    let asked = Asked::persist(inner, stack, hashes);
    let outcome = bring_down(inner, stack, hashes).await;
    asked.offloaded(inner, outcome);
    outcome
}

/// From wherever they are, down to the disk.
async fn bring_down(inner: &Arc<Inner>, stack: u16, hashes: &[SequenceHash]) -> Offloaded {
    let of = inner.stack(stack);
    let in_host = |hash: &SequenceHash| of.host.as_ref().is_some_and(|host| host.pool.contains(*hash));
    let on_disk = |hash: &SequenceHash| of.disk.as_ref().is_some_and(|disk| disk.pool().contains(*hash));
    let (mut there, mut nowhere) = (0, Vec::new());
    let (mut refs, mut missing) = (Vec::new(), Vec::new());
    for hash in hashes.iter().copied() {
        match () {
            () if on_disk(&hash) => there += 1,
            () if in_host(&hash) => {}
            () => match of.device.pool.find(hash).map(ImmutableBlock::into_ref) {
                Some(block) => refs.push(block),
                None => missing.push(hash),
            },
        }
    }
    let blocks = Blocks::new(Arc::clone(inner), stack, refs);
    // One for both halves.
    let due = inner.due_in(inner.rules.offload_deadline);
    let key = inner.with(|traffic| {
        let key = traffic.offload(inner, &blocks, OffloadOptions::default(), false);
        // Victims, which the device has no more and the host not yet; or they have come down since.
        for hash in missing {
            match traffic.join_down(key, stack, hash, None) {
                false if on_disk(&hash) => there += 1,
                false if !in_host(&hash) => nowhere.push(hash),
                _ => {}
            }
        }
        traffic.offload_due(key, due);
        key
    });
    inner.counts.refused(Refusal::Room, nowhere.len());
    let first = Offload::of(Arc::clone(inner), key, Asked::nobody()).await;
    if of.host.is_none() {
        return Offloaded { there: first.there + there, refused: first.refused + nowhere.len(), ..first };
    }
    let late = first.cause == Some(Cause::Deadline) && due.is_some_and(|due| due <= inner.elapsed());
    if late {
        // What has come to the host has not come further.
        let there = hashes.iter().filter(|hash| on_disk(hash)).count();
        let left = hashes.len() - there;
        let refused = left.min(first.refused + nowhere.len());
        let failed = left - refused;
        let further = failed.saturating_sub(first.failed);
        (0..further)
            .for_each(|_| inner.counts.failed(Path::HostToDisk, Cause::Deadline, About::stack(stack)));
        inner.say();
        return Offloaded { copied: 0, there, refused, failed, cause: first.cause.filter(|_| failed > 0) };
    }
    let (key, left) = inner.with(|traffic| {
        // In the order of `hashes`.
        let mut gone = nowhere.iter().copied().peekable();
        let known = hashes.iter().copied().filter(|hash| gone.next_if_eq(hash).is_none());
        let (key, left) = traffic.offload_to_disk(inner, stack, known);
        traffic.offload_due(key, due);
        (key, left)
    });
    let second = Offload::of(Arc::clone(inner), key, Asked::nobody()).await;
    // What was in the host by then is counted there, whatever has become of it before. Of the others some have failed; what has left the host
    // again is refused as the rest.
    let failed = left.min(first.failed);
    inner.counts.refused(Refusal::Room, left.saturating_sub(first.failed + first.refused));
    Offloaded {
        refused: second.refused + nowhere.len() + left - failed,
        failed: second.failed + failed,
        cause: second.cause.or(first.cause.filter(|_| failed > 0)),
        ..second
    }
}

impl Future for Offload {
    type Output = Offloaded;

    /// Ready once; polled after that it stays pending.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Offloaded> {
        if let Some(refused) = self.refused.take() {
            return Poll::Ready(Offloaded { refused, ..Offloaded::default() });
        }
        let Some(key) = self.key else { return Poll::Pending };
        if self.inner.is_inherited() {
            self.key = None;
            return Poll::Ready(Offloaded { cause: Some(Cause::Abandoned), ..Offloaded::default() });
        }
        // Cloned before and dropped after the lock: a waker is a caller's code.
        let waker = context.waker().clone();
        let mut traffic = self.inner.look();
        match traffic.offloadings.get_mut(key as usize) {
            Some(of) if of.left > 0 && of.late => {
                of.alone = true;
                let so_far = of.so_far;
                let late =
                    Offloaded { failed: so_far.failed + of.left, cause: Some(Cause::Deadline), ..so_far };
                drop(traffic);
                self.ended(late)
            }
            Some(of) if of.left > 0 => {
                let before = of.waker.replace(waker);
                drop(traffic);
                drop(before);
                Poll::Pending
            }
            _ => {
                let of = traffic.offloadings.try_remove(key as usize).unwrap_or_default();
                drop(traffic);
                self.ended(of.so_far)
            }
        }
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        if self.inner.is_inherited() {
            return self.inner.keep();
        }
        let Some(key) = self.key else { return };
        let mut traffic = self.inner.look();
        let waker = match traffic.offloadings.get_mut(key as usize) {
            Some(of) if of.left > 0 => {
                of.alone = true;
                let (due, waker) = (of.due.take(), of.waker.take());
                traffic.not_due(due, Waits::Offloading(key));
                waker
            }
            Some(_) => traffic.offloadings.remove(key as usize).waker,
            None => None,
        };
        drop(traffic);
        drop(waker);
    }
}

impl fmt::Debug for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offload({:?})", self.key)
    }
}

impl Traffic {
    /// `whole`: of a request that is preempted, and also beyond the queue's bound; but for what is not written yet.
    fn offload(&mut self, inner: &Inner, blocks: &Blocks, options: OffloadOptions, whole: bool) -> u32 {
        let stack = blocks.stack();
        let of = inner.stack(stack);
        let books = &of.device;
        let key = self.offloadings.insert(Offloading::default()) as u32;
        if of.host.is_none() && of.disk.is_none() {
            inner.counts.refused(Refusal::Tier, blocks.len());
            self.offloadings[key as usize].so_far.refused = blocks.len();
            return key;
        }
        let (mut there, mut refused) = (0, 0);
        // A list that finds room goes whole: the device's blocks bound it.
        let OffloadOptions { class, request, gate, .. } = options;
        let (all, steps) = self.steps_of(of, gate);
        // A block that is copied whole is so with the layers that are written last, too.
        let gate = if steps.is_some() { gate } else { all };
        let at_once = whole || self.clock.passed(gate) && self.has_room(Path::DeviceToHost, class);
        for block in blocks.refs() {
            // Held, and purged: nobody is to have it any more.
            let Some(held) = books.pool.upgrade(*block) else {
                inner.counts.refused(Refusal::Room, 1);
                refused += 1;
                continue;
            };
            let name = books.name(held.id(), held.hash());
            let held = held.into_ref();
            if whole {
                // What finds no room now does when it must go.
                books.ages.second_use(held, inner.now());
            }
            if self.join_down(key, stack, name.hash, None) {
                let_go(books, Have::Held(held), inner.now());
                continue;
            }
            if !self.wants_copy(of, stack, name, books.class(held.id)) {
                there += 1;
                let_go(books, Have::Held(held), inner.now());
                continue;
            }
            self.offloadings[key as usize].left += 1;
            let writes = self.unwritten.iteration(stack, held.id);
            if at_once && writes.is_none() {
                self.offload_whole(
                    inner,
                    (stack, key),
                    Cargo { source: Have::Held(held), name, class, request, steps },
                );
                continue;
            }
            let (block, asked, since) = (held, Some(key), inner.elapsed());
            // By the layers of a pass before the one that writes it nothing is written.
            let steps = steps.filter(|steps| writes.is_none_or(|writes| writes <= steps.iteration));
            let written = writes.map_or(Gate::Open, |writes| self.clock.of_all_layers(written_after(writes)));
            let gate = if steps.is_some() { gate } else { all.later(written) };
            self.copy_at(inner, gate, GatedCopy { stack, block, name, class, request, steps, asked, since });
        }
        let so_far = &mut self.offloadings[key as usize].so_far;
        so_far.there = there;
        so_far.refused += refused;
        key
    }

    /// One block, whether there is room in the queue or not: no more than the device has can come.
    fn offload_whole(&mut self, inner: &Inner, (stack, key): (u16, u32), cargo: Cargo) {
        let flight = if self.phase.is_closed() { None } else { self.send_down(inner, stack, cargo) };
        match flight {
            Some(flight) => self.downs[flight].asked.push(key),
            None => {
                let_go(&inner.stack(stack).device, cargo.source, inner.now());
                let why = if self.phase.is_closed() { Refusal::Closed } else { Refusal::Room };
                self.offload_refused(inner, key, why);
            }
        }
    }

    /// Calls a flight down back, if it has not begun to move; waits for it otherwise.
    fn call_back(&mut self, inner: &Inner, key: u32, stack: u16, hash: SequenceHash) {
        let Some(flight) = self.downs.find((stack, hash)) else { return };
        let Some((at, source)) = self.downs.get(flight).map(|down| (down.at, down.source)) else {
            return;
        };
        if !matches!(source, Have::Owned(_)) && self.recall(at) {
            self.lines[stack as usize].grounded.retain(|waits| *waits != flight);
            return self.down_failed(inner, flight, Failure::of(Cause::Cancelled));
        }
        // A request waits for it: with what is left of its way it waits for no iteration's budget.
        self.promote_down(flight);
        self.join_down(key, stack, hash, None);
    }

    /// Blocks of the host on their way to the disk; and how many of the hashes are in neither.
    fn offload_to_disk(
        &mut self,
        inner: &Inner,
        stack: u16,
        hashes: impl Iterator<Item = SequenceHash>,
    ) -> (u32, usize) {
        let key = self.offloadings.insert(Offloading::default()) as u32;
        let (Some(host), Some(disk)) = (&inner.stack(stack).host, &inner.stack(stack).disk) else {
            return (key, hashes.count());
        };
        let mut left = 0;
        for hash in hashes {
            if disk.pool().contains(hash) {
                self.offloadings[key as usize].so_far.there += 1;
                continue;
            }
            // One that is still on its way to the host has come too late to go on from there.
            if self.join_down(key, stack, hash, Some(Tier::Host)) {
                continue;
            }
            let Some(block) = host.pool.find(hash).map(ImmutableBlock::into_ref) else {
                left += 1;
                continue;
            };
            let source = Have::Held(block);
            let name = host.name(block.id, hash);
            self.offloadings[key as usize].left += 1;
            match self.sink(inner, stack, Cargo::new(source, name, Class::Offload)) {
                Some(flight) => self.downs[flight].asked.push(key),
                None => {
                    let_go(host, source, inner.now());
                    self.offload_refused(inner, key, Refusal::Room);
                }
            }
        }
        (key, left)
    }

    /// Waits for a block that is on its way down, if it is.
    fn join_down(&mut self, key: u32, stack: u16, hash: SequenceHash, from: Option<Tier>) -> bool {
        let flight = self.downs.find((stack, hash));
        let down = flight.and_then(|flight| self.downs.get_mut(flight));
        let Some(down) = down.filter(|down| from.is_none_or(|from| down.from == from)) else { return false };
        down.asked.push(key);
        self.offloadings[key as usize].left += 1;
        true
    }

    /// Answered by then, if anything of it is under way.
    fn offload_due(&mut self, key: u32, due: Option<Duration>) {
        if let Some(of) = self.offloadings.get_mut(key as usize).filter(|of| of.left > 0) {
            of.due = due;
            self.due(due, Waits::Offloading(key));
        }
    }

    /// The deadline has passed.
    pub(super) fn late_offloading(&mut self, inner: &Inner, key: u32) {
        if let Some(of) = self.offloadings.get_mut(key as usize) {
            of.late = true;
            self.out.wakes.extend(of.waker.take());
            self.count_late(inner, key);
        }
    }

    /// Counts the blocks that somebody has waited for in vain, where they are; those that wait for a gate are not counted again when that is
    /// given up.
    fn count_late(&self, inner: &Inner, key: u32) {
        let flying = self.downs.iter().filter(|(_, down)| down.asked.contains(&key));
        let gated = self.gated.iter().filter(|waiter| waiter.is_copy_for(key));
        let flying = flying.map(|(_, down)| (down.path(), About::of(down.stack, down.tenant)));
        let late = flying.chain(gated.map(|_| (Path::DeviceToHost, About::default())));
        late.for_each(|(path, whose)| inner.counts.failed(path, Cause::Deadline, whose));
    }

    /// Whether that has been counted.
    pub(super) fn is_late(&self, key: u32) -> bool {
        self.offloadings.get(key as usize).is_some_and(|of| of.late)
    }

    /// One that was asked for finds no room.
    pub(super) fn offload_refused(&mut self, inner: &Inner, key: u32, why: Refusal) {
        inner.counts.refused(why, 1);
        self.offload_counted(key, |so_far| so_far.refused += 1);
    }

    /// One that was asked for is below by now.
    pub(super) fn offload_there(&mut self, key: u32) {
        self.offload_counted(key, |so_far| so_far.there += 1);
    }

    /// Why a copy that was asked for has not begun.
    pub(super) fn why_refused(&self, path: Path, class: Class) -> Refusal {
        match (self.phase.is_closed(), self.has_room(path, class)) {
            (true, _) => Refusal::Closed,
            (_, false) => Refusal::Queue,
            _ => Refusal::Room,
        }
    }

    /// A flight that was asked for has ended.
    pub(super) fn offload_answered(&mut self, key: u32, outcome: Result<(), Cause>) {
        self.offload_counted(key, |so_far| match outcome {
            Ok(()) => so_far.copied += 1,
            Err(cause) => {
                so_far.failed += 1;
                so_far.cause = Some(cause);
            }
        });
    }

    fn offload_counted(&mut self, key: u32, count: impl FnOnce(&mut Offloaded)) {
        let Some(of) = self.offloadings.get_mut(key as usize) else { return };
        of.left -= 1;
        count(&mut of.so_far);
        if of.left == 0 {
            self.out.wakes.extend(of.waker.take());
            let (due, alone) = (of.due.take(), of.alone);
            if alone {
                self.offloadings.remove(key as usize);
            }
            self.not_due(due, Waits::Offloading(key));
        }
    }
}
