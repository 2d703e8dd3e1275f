//! Copies down that a caller asks for, under the lock.

use crate::engine::group_tiers::let_go;
use crate::engine::inner::Inner;
use crate::engine::notices::About;
use crate::metrics::Refusal;
use crate::scheduler::Gate;
use crate::state::{
    Cargo, GatedCopy, GroupId, Have, OffloadOptions, Offloaded, OffloadingId, Traffic, Waits, written_after,
};
use crate::tier::Tier;
use crate::transfer::{Cause, Class, Failure, Path};
use kvstrata_core::{BlockRef, ImmutableBlock, SequenceHash};
use std::time::Duration;

impl Traffic {
    /// Copies blocks down on request. With `whole` (a preempted request) the queue's bound does not
    /// apply, except to blocks that are not written yet.
    pub(crate) fn offload(
        &mut self,
        inner: &Inner,
        group: GroupId,
        blocks: &[BlockRef],
        options: OffloadOptions,
        whole: bool,
    ) -> OffloadingId {
        let of = inner.group(group);
        let tier_pool = &of.device;
        let key = self.offloadings.begin();
        if of.host.is_none() && of.lower.is_empty() {
            inner.counts.refused(Refusal::Tier, blocks.len());
            self.offloadings.note(key, |so_far| so_far.refused = blocks.len());
            return key;
        }
        let (mut there, mut refused) = (0, 0);
        // A list that finds room goes whole: the device's blocks bound it.
        let OffloadOptions { class, request, gate, .. } = options;
        let (all, steps) = self.steps_of(of, gate);
        // A block that is copied whole needs its last layer written, too.
        let gate = if steps.is_some() { gate } else { all };
        let at_once =
            whole || self.iterations.clock().passed(gate) && self.has_room(Path::DeviceToHost, class);
        for block in blocks {
            // Held, but purged: it must not be copied.
            let Some(held) = tier_pool.pool().upgrade(*block) else {
                inner.counts.refused(Refusal::Room, 1);
                refused += 1;
                continue;
            };
            let name = tier_pool.name(held.id(), held.hash());
            let held = held.into_ref();
            if whole {
                // A block that finds no room now is copied at its eviction.
                tier_pool.ages().second_use(held, inner.now());
            }
            if self.join_down(key, group, name.hash, None) {
                let_go(tier_pool, Have::Held(held), inner.now());
                continue;
            }
            if !self.wants_copy(of, group, name, tier_pool.class(held.id)) {
                there += 1;
                let_go(tier_pool, Have::Held(held), inner.now());
                continue;
            }
            self.offloadings.wait_for_one(key);
            let writes = self.unwritten.iteration(group, held.id);
            if at_once && writes.is_none() {
                self.offload_whole(
                    inner,
                    (group, key),
                    Cargo { source: Have::Held(held), name, class, request, steps },
                );
                continue;
            }
            let (block, asked, since) = (held, Some(key), inner.elapsed());
            // A pass before the one that writes the block writes none of its layers.
            let steps = steps.filter(|steps| writes.is_none_or(|writes| writes <= steps.iteration()));
            let written = writes
                .map_or(Gate::Open, |writes| self.iterations.clock().of_all_layers(written_after(writes)));
            let gate = if steps.is_some() { gate } else { all.later(written) };
            self.copy_at(inner, gate, GatedCopy { group, block, name, class, request, steps, asked, since });
        }
        self.offloadings.note(key, |so_far| {
            so_far.there += there;
            so_far.refused += refused;
        });
        key
    }

    /// Copies one block, whether the queue has room or not: the device's blocks bound these copies.
    fn offload_whole(&mut self, inner: &Inner, (group, key): (GroupId, OffloadingId), cargo: Cargo) {
        let transfer = if self.is_closed() { None } else { self.send_down(inner, group, cargo) };
        match transfer {
            Some(transfer) => self.downs[transfer].asked_by(key),
            None => {
                let of = inner.group(group);
                let_go(&of.device, cargo.source, inner.now());
                if of.host.is_none() && of.any_lower_contains(cargo.name.hash) {
                    return self.offload_there(key);
                }
                let why = if self.is_closed() { Refusal::Closed } else { Refusal::Room };
                self.offload_refused(inner, key, why);
            }
        }
    }

    /// Calls a transfer down back, if it does not move yet; otherwise waits for it.
    pub(crate) fn call_back(&mut self, inner: &Inner, key: OffloadingId, group: GroupId, hash: SequenceHash) {
        let Some(transfer) = self.downs.find((group, hash)) else { return };
        let Some((at, source)) = self.downs.get(transfer).map(|down| (down.at(), down.source())) else {
            return;
        };
        if !matches!(source, Have::Owned(_)) && self.recall(at) {
            self.groups[group].waiting_for_host.remove(transfer);
            return self.down_failed(inner, transfer, Failure::of(Cause::Cancelled));
        }
        // A request waits for it: the rest of its way needs no iteration's budget.
        self.promote_down(transfer);
        self.join_down(key, group, hash, None);
    }

    /// Sends blocks of the host to the tiers below. Also returns how many of the hashes are in neither.
    pub(crate) fn offload_below(
        &mut self,
        inner: &Inner,
        group: GroupId,
        hashes: impl Iterator<Item = SequenceHash>,
    ) -> (OffloadingId, usize) {
        let key = self.offloadings.begin();
        let of = inner.group(group);
        let Some(host) = of.host.as_ref().filter(|_| !of.lower.is_empty()) else {
            return (key, hashes.count());
        };
        let mut left = 0;
        for hash in hashes {
            if of.all_lower_contain(hash) {
                self.offloadings.note(key, |so_far| so_far.there += 1);
                continue;
            }
            // A block that is still on its way to the host comes too late to go on from there.
            if self.join_down(key, group, hash, Some(Tier::Host)) {
                continue;
            }
            let Some(block) = host.pool().find(hash).map(ImmutableBlock::into_ref) else {
                match of.any_lower_contains(hash) {
                    true => self.offloadings.note(key, |so_far| so_far.there += 1),
                    false => left += 1,
                }
                continue;
            };
            let source = Have::Held(block);
            let name = host.name(block.id, hash);
            self.offloadings.wait_for_one(key);
            match self.sink(inner, group, Cargo::new(source, name, Class::Offload)) {
                Some(transfer) => self.downs[transfer].asked_by(key),
                None => {
                    let_go(host, source, inner.now());
                    match of.any_lower_contains(hash) {
                        true => self.offload_there(key),
                        false => self.offload_refused(inner, key, Refusal::Room),
                    }
                }
            }
        }
        (key, left)
    }

    /// Waits for a block that is on its way down. Returns false if it is not.
    pub(crate) fn join_down(
        &mut self,
        key: OffloadingId,
        group: GroupId,
        hash: SequenceHash,
        from: Option<Tier>,
    ) -> bool {
        let transfer = self.downs.find((group, hash));
        let down = transfer.and_then(|transfer| self.downs.get_mut(transfer));
        let Some(down) = down.filter(|down| from.is_none_or(|from| down.from() == from)) else {
            return false;
        };
        down.asked_by(key);
        self.offloadings.wait_for_one(key);
        true
    }

    /// Sets an offload's deadline, if any part of it is under way.
    pub(crate) fn offload_due(&mut self, key: OffloadingId, due: Option<Duration>) {
        if self.offloadings.due(key, due) {
            self.due(due, Waits::Offloading(key));
        }
    }

    pub(crate) fn late_offloading(&mut self, inner: &Inner, key: OffloadingId) {
        if let Some(waker) = self.offloadings.late(key) {
            self.effects.wake(waker);
            self.count_late(inner, key);
        }
    }

    /// Counts the blocks of a late offload as failed, where they are. Those behind a gate are not counted
    /// again when the gate is given up.
    fn count_late(&self, inner: &Inner, key: OffloadingId) {
        let flying = self.downs.iter().filter(|(_, down)| down.asked().contains(&key));
        let gated = self.iterations.waiters().filter(|waiter| waiter.is_copy_for(key));
        let flying = flying.map(|(_, down)| (down.path(), About::of(down.group(), down.tenant())));
        let late = flying.chain(gated.map(|_| (Path::DeviceToHost, About::default())));
        late.for_each(|(path, whose)| inner.counts.failed(path, Cause::Deadline, whose));
    }

    /// Whether an offload is late, and so counted already.
    pub(crate) fn is_late(&self, key: OffloadingId) -> bool {
        self.offloadings.is_late(key)
    }

    /// Counts a requested copy as refused.
    pub(crate) fn offload_refused(&mut self, inner: &Inner, key: OffloadingId, why: Refusal) {
        inner.counts.refused(why, 1);
        self.offload_counted(key, |so_far| so_far.refused += 1);
    }

    /// Counts a requested block as being below already.
    pub(crate) fn offload_there(&mut self, key: OffloadingId) {
        self.offload_counted(key, |so_far| so_far.there += 1);
    }

    pub(crate) fn why_refused(&self, path: Path, class: Class) -> Refusal {
        match (self.is_closed(), self.has_room(path, class)) {
            (true, _) => Refusal::Closed,
            (_, false) => Refusal::Queue,
            _ => Refusal::Room,
        }
    }

    /// Counts a requested transfer that has ended.
    pub(crate) fn offload_answered(&mut self, key: OffloadingId, outcome: Result<(), Cause>) {
        self.offload_counted(key, |so_far| match outcome {
            Ok(()) => so_far.copied += 1,
            Err(cause) => {
                so_far.failed += 1;
                so_far.cause = Some(cause);
            }
        });
    }

    fn offload_counted(&mut self, key: OffloadingId, count: impl FnOnce(&mut Offloaded)) {
        if let Some((waker, due)) = self.offloadings.answered(key, count) {
            self.effects.wake(waker);
            self.not_due(due, Waits::Offloading(key));
        }
    }
}
