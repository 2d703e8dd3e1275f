//! Blocks that are registered before they are written: others find them in the device at once, and no
//! copy of them begins before the pass that writes them is over.
//!
//! ```text
//!   register_ahead(hashes, parent, n)
//!     └─► marked ─┬─ all layers of iteration n are done ─────► written: as any registered block
//!                 ├─ the engine goes on no more: late ───────┐
//!                 ├─ shutdown ───────────────────────────────┼─► withdrawn: no look-up finds it any more
//!                 └─ Ahead::withdraw: no write of the list ──┘
//! ```
//!
//! A request that finds such a block reads it in the device, where one stream orders the read behind the
//! write. A copy down is in no such order: bytes that it copied too early would be found below under the
//! block's hash for ever.
//!
//! Invariants
//! - I1: a mark holds its block until the iteration is over, or late. So the block is no victim. Copies
//!   ahead of need do not look at it either, since they are of blocks without a holder.
//! - I2: a block is marked before any look-up can find it. A copy of a block that may be held asks for
//!   its mark, under the lock, and waits for its gate at least: offloads, persist and preemption
//!   (`offload.rs`), and write-through (`ahead.rs`), which the end of the mark makes up for. A block that
//!   several lists have registered ahead is written with the first of their passes that is over, and
//!   given up with the last. A copy that waits for a pass, or goes by its layers, waits for the next one,
//!   or ends, when all lists of the passes up to that have withdrawn.
//! - I3: a block that is registered behind a marked block is marked for the same pass or a later one: it
//!   is computed from that block. If a block is withdrawn, or put off to a later pass than theirs, the
//!   blocks registered behind it go with it.
//! - I4: no byte of a marked block is registered below (I2, and I3 of `down.rs`). So nothing of a block
//!   that is given up gets there: its transfer is called back, or is found by no look-up any more and
//!   ends when it lands. The same hash may be registered anew at once.

use crate::engine::inner::Inner;
use crate::engine::rules::WriteMode;
use crate::scheduler::Key;
use crate::state::{Down, GroupId, Have, Marked, MarkedBlock, Traffic, Waiter, written_after};
use crate::transfer::{Cause, Failure};
use kvstrata_core::{BlockId, BlockRef, ImmutableBlock, SequenceHash};
use std::collections::HashMap;

impl Traffic {
    /// Marks the blocks of a list that are registered behind another: the new ones, and others' blocks
    /// that are not written yet.
    pub(crate) fn mark_unwritten(
        &mut self,
        inner: &Inner,
        group: GroupId,
        iteration: u64,
        mut behind: Option<BlockRef>,
        list: impl Iterator<Item = (BlockId, BlockRef)>,
    ) -> Option<Key> {
        if self.is_closed() || self.is_written(iteration) {
            return None;
        }
        let gate = self.iterations.clock().of_all_layers(written_after(iteration));
        let pool = &inner.group(group).device.pool();
        let mut blocks = Vec::new();
        for (own, block) in list {
            let behind = behind.replace(block);
            if own != block.id && !self.unwritten.has(group, block.id) {
                continue;
            }
            let Some(block) = pool.hold_again(block) else { continue };
            blocks.push(MarkedBlock { block, behind });
            self.unwritten.add(group, block.id, iteration);
        }
        if blocks.is_empty() {
            return None;
        }
        let marked = Marked { group, blocks, iteration, withdrawn: false, since: inner.elapsed() };
        self.watch_gates(inner, inner.rules.offload_deadline);
        Some(self.iterations.hold_beyond(gate, Waiter::Marked(marked)))
    }

    /// Whether blocks that were registered ahead of an iteration are written by now.
    pub(crate) fn is_written(&self, iteration: u64) -> bool {
        self.iterations.clock().passed(self.iterations.clock().of_all_layers(written_after(iteration)))
    }

    /// Ends a mark after its pass: its blocks are as any others, and write-through copies them now.
    pub(crate) fn written(&mut self, inner: &Inner, marked: Marked) {
        let Marked { group, blocks, withdrawn, .. } = marked;
        for MarkedBlock { block, .. } in blocks.iter().filter(|_| !withdrawn) {
            if self.unwritten.remove(group, block.id) && inner.rules.mode != WriteMode::Back {
                self.write_through(inner, group, *block);
            }
        }
        release(inner, group, &blocks);
    }

    /// Gives up a list that its pass will not write.
    pub(crate) fn never_written(&mut self, inner: &Inner, marked: Marked, why: Cause) {
        if !marked.withdrawn {
            self.not_by_this(inner, &marked, why);
        }
        release(inner, marked.group, &marked.blocks);
    }

    /// Gives up a list as [`never_written`](Traffic::never_written) does. If the pass may have begun, and
    /// be writing the blocks, their memory stays until it is over. Returns how many blocks no pass writes.
    pub(crate) fn withdraw_list(&mut self, inner: &Inner, mark: Key, why: Cause) -> usize {
        let Some(marked) = self.iterations.marked_mut(mark) else { return 0 };
        if std::mem::replace(&mut marked.withdrawn, true) {
            return 0;
        }
        let (group, iteration) = (marked.group, marked.iteration);
        let marked = Marked { blocks: marked.blocks.clone(), ..*marked };
        let count = self.not_by_this(inner, &marked, why);
        // The next one may run already, if the engine tells of no begin.
        if iteration > self.iterations.clock().iteration() + 1 {
            self.iterations.remove(mark);
            release(inner, group, &marked.blocks);
        }
        count
    }

    /// Takes a list off its blocks. Returns how many blocks no list is to write any more, including those
    /// registered behind them.
    fn not_by_this(&mut self, inner: &Inner, list: &Marked, why: Cause) -> usize {
        let (group, mut gone, mut put_off) = (list.group, Vec::new(), Vec::new());
        for MarkedBlock { block, .. } in &list.blocks {
            let left = self.unwritten.leave(group, block.id, list.iteration);
            let Some((is_last, first)) = left else { continue };
            if is_last {
                self.withdraw(inner, group, *block, why);
                gone.push(*block);
            } else {
                put_off.push((*block, first));
                self.by_others(inner, group, *block, why);
            }
        }
        self.withdraw_behind(inner, group, &mut gone, put_off, why);
        self.end_copies_of(inner, group, &mut gone);
        gone.len()
    }

    /// Withdraws blocks that are registered behind blocks that are gone, or that a later pass than theirs
    /// writes (I3), and adds them to `gone`.
    fn withdraw_behind(
        &mut self,
        inner: &Inner,
        group: GroupId,
        gone: &mut Vec<BlockRef>,
        put_off: Vec<(BlockRef, u64)>,
        why: Cause,
    ) {
        let lists = self.iterations.waiters().filter_map(|waiter| match waiter {
            Waiter::Marked(list) if list.group == group && !list.withdrawn => Some(list),
            Waiter::Marked(_) | Waiter::Transfer(_) | Waiter::Copy(_) => None,
        });
        let behind_another = |list: &Marked| {
            let iteration = list.iteration;
            list.blocks
                .clone()
                .into_iter()
                .filter_map(move |MarkedBlock { block, behind }| Some((behind?, block, iteration)))
        };
        let mut links: Vec<_> = lists.flat_map(behind_another).collect();
        // The passes before which blocks are not written.
        let never = gone.iter().map(|block| (*block, u64::MAX));
        let mut not_before: HashMap<BlockRef, u64> = put_off.into_iter().chain(never).collect();
        loop {
            let known = not_before.len();
            links.retain(|(behind, block, iteration)| {
                let right = not_before.get(behind).is_none_or(|first| iteration >= first);
                if !right && self.withdraw(inner, group, *block, why) {
                    gone.push(*block);
                    not_before.insert(*block, u64::MAX);
                }
                right
            });
            if not_before.len() == known {
                return;
            }
        }
    }

    /// Ends copies of a block that other lists still write: a copy that goes by the layers of an earlier
    /// pass than theirs; and a copy of an unknown pass, since its staging was needed.
    fn by_others(&mut self, inner: &Inner, group: GroupId, block: BlockRef, why: Cause) {
        let Some(first) = self.unwritten.iteration(group, block.id) else { return };
        let Some((_, hash)) = inner.group(group).device.pool().registered(block.id) else { return };
        let its_pass = |down: &Down| down.steps().map_or(0, |steps| steps.iteration());
        self.end_way_down(inner, (group, hash), why, |down| {
            down.source() == Have::Held(block) && its_pass(down) < first
        });
    }

    /// Ends the copies of withdrawn blocks that wait for gates, so that they hold the blocks no longer.
    fn end_copies_of(&mut self, inner: &Inner, group: GroupId, blocks: &mut [BlockRef]) {
        if blocks.is_empty() {
            return;
        }
        blocks.sort_unstable_by_key(|block| block.id);
        let of_these = |waiter: &Waiter| match waiter {
            Waiter::Copy(copy) => {
                copy.group == group && blocks.binary_search_by_key(&copy.block.id, |block| block.id).is_ok()
            }
            Waiter::Transfer(_) | Waiter::Marked(_) => false,
        };
        let mut ended = self.iterations.take_if(of_these);
        for waiter in ended.drain(..) {
            if let Waiter::Copy(copy) = waiter {
                self.let_through(inner, copy);
            }
        }
        self.iterations.give_back(ended);
    }

    /// Withdraws blocks that a pass is still to write: computed blocks are to be registered under these
    /// hashes. That may still fail: then the withdrawn blocks are a miss.
    pub(crate) fn give_way(&mut self, inner: &Inner, group: GroupId, hashes: &[SequenceHash]) {
        if self.unwritten.is_empty() {
            return;
        }
        let tier_pool = &inner.group(group).device;
        let mut gone = Vec::new();
        for hash in hashes {
            let Some(there) = tier_pool.pool().find(*hash).map(ImmutableBlock::into_ref) else { continue };
            if self.withdraw(inner, group, there, Cause::Cancelled) {
                gone.push(there);
            }
            tier_pool.release(there, inner.now());
        }
        if gone.is_empty() {
            return;
        }
        // Whether the pass writes the withdrawn blocks is not told any more.
        self.withdraw_behind(inner, group, &mut gone, Vec::new(), Cause::Cancelled);
        self.end_copies_of(inner, group, &mut gone);
    }

    /// Takes a marked block that the caller holds out of the pool, and ends its way down (I4). Returns
    /// whether it was marked.
    fn withdraw(&mut self, inner: &Inner, group: GroupId, block: BlockRef, why: Cause) -> bool {
        if !self.unwritten.remove(group, block.id) {
            return false;
        }
        let pool = &inner.group(group).device.pool();
        let there = pool.registered(block.id).filter(|(there, _)| *there == block);
        let Some((_, hash)) = there else { return true };
        pool.withdraw_held(block);
        inner.counts.unwritten();
        // Another block of the hash may be on its way.
        self.end_way_down(inner, (group, hash), why, |down| down.source() == Have::Held(block));
        true
    }

    /// Ends a hash's transfer down that is `such`: nothing of it will be found below.
    fn end_way_down(
        &mut self,
        inner: &Inner,
        name: (GroupId, SequenceHash),
        why: Cause,
        such: impl Fn(&Down) -> bool,
    ) {
        let Some(key) = self.downs.find(name) else { return };
        let Some(down) = self.downs.get_mut(key).filter(|down| such(down)) else { return };
        down.withdraw();
        let at = down.at();
        self.downs.disown(key);
        if self.recall(at) {
            self.groups[name.0].waiting_for_host.remove(key);
            self.down_failed(inner, key, Failure::of(why));
        }
    }
}

/// Releases the blocks, the last one first, as any request does.
fn release(inner: &Inner, group: GroupId, blocks: &[MarkedBlock]) {
    let (tier_pool, now) = (&inner.group(group).device, inner.now());
    blocks.iter().rev().for_each(|of| tier_pool.release(of.block, now));
}
