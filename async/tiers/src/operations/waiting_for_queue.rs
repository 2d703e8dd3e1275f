//! Transfers up that have their block, and wait: beside a queue that is full, or for staging.
//!
//! ```text
//!   wait queue ──► first: all its blocks ──► the path's queue has room for its class ── yes ──► queue
//!                                                     │ no                                        ▲
//!                                                     ▼                                           │
//!                                 here: by path, group and class, first come, first served ───────┘
//! ```
//!
//! A transfer for a full queue waits here, and not in the wait queue, where free blocks go to the next entry.
//!
//! Each group has staging of its own. So a group is a lane in the queue of reads from the disk, and the
//! lane is shut while there is no staging for it. Its reads hold up no other group's, neither in the
//! queue nor here.
//!
//! Staging is scarce, and its holders may wait for an iteration's budget. An urgent transfer that waits
//! for staging must not wait for that: the next iteration may wait for it. So the holders of staging
//! become as urgent then, and a guess gives it up. A copy down that has some, and waits for a layer of
//! the engine's, gives it up (`steps.rs`).
//!
//! Invariants
//! - I1: a transfer that waits here has its device block, and waits only for transfers that are in its
//!   queue: these end, or are promoted.
//! - I2: within a path, group and class, first come, first served. An entry may be stale, or there twice:
//!   only a transfer that still waits here goes. Its key may be another transfer's by now, but its number
//!   is not.

use crate::engine::inner::Inner;
use crate::state::{At, DownId, GroupId, GroupState, HostSlot, Quarantine, Traffic, TransferId, UpId};
use crate::transfer::{Class, Path, Popped};

impl Traffic {
    /// Puts a transfer that has its block into its queue, or beside it (I2).
    pub(crate) fn queue_or_wait(&mut self, inner: &Inner, key: UpId) {
        let Some(up) = self.ups.get(key) else { return };
        let (path, lane, class) = (up.path(), up.lane(), up.class());
        let behind = self.waiting_for_queue.list(path, lane, class);
        behind.push_back((key, up.serial()));
        if behind.len() == 1 {
            self.serve_waiting_for_queue_of(inner, (path, lane), class);
        }
    }

    /// Fills queues that have room again. Returns whether any transfer has left for one.
    pub(crate) fn serve_waiting_for_queue(&mut self, inner: &Inner) -> bool {
        let mut left = false;
        for path in std::iter::once(Path::HostToDevice).chain(self.queues.reads()) {
            for lane in self.waiting_for_queue.lanes(path) {
                for class in Class::ALL {
                    left |= self.serve_waiting_for_queue_of(inner, (path, lane), class);
                }
            }
        }
        left
    }

    fn serve_waiting_for_queue_of(&mut self, inner: &Inner, (path, lane): (Path, u16), class: Class) -> bool {
        let mut left = false;
        loop {
            let list = self.waiting_for_queue.list(path, lane, class);
            let waits = |key: UpId, serial| {
                self.ups.get(key).is_some_and(|up| up.serial() == serial && up.waits_for_queue())
            };
            let stale =
                |entry: Option<&(UpId, u64)>| entry.is_some_and(|(key, serial)| !waits(*key, *serial));
            // At both ends: a transfer that is given up while none goes leaves no trace.
            while stale(list.back()) {
                list.pop_back();
            }
            while stale(list.front()) {
                list.pop_front();
            }
            let first = list.front().copied().filter(|_| self.has_room_in(path, lane, class));
            let Some((key, _)) = first else { return left };
            left = true;
            self.waiting_for_queue.list(path, lane, class).pop_front();
            self.queue_up(inner, key);
        }
    }

    /// Notes which transfer has a block of host memory, if it is staging.
    pub(crate) fn note_staged(
        &mut self,
        inner: &Inner,
        group: GroupId,
        staged: HostSlot,
        transfer: TransferId,
    ) {
        let first = inner.group(group).host.as_ref().map_or(0, |host| host.pool().capacity());
        let Some(place) = (staged.number() as usize).checked_sub(first) else { return };
        let state = &mut self.groups[group];
        state.staging.note_holder(place, staged, transfer);
        state.queue.note_change();
    }

    /// Takes the next transfer of a path; of reads from the disk, only groups' that have staging.
    pub(crate) fn next_on(&mut self, inner: &Inner, path: Path) -> Option<Popped<TransferId>> {
        if !matches!(path, Path::FromBelow(_)) {
            return self.queues.pop(path);
        }
        loop {
            let (groups, quarantine) = (&self.groups, &self.quarantine);
            let open = |group: GroupId| has_staging(inner, &groups[group], quarantine, group);
            let next = self.queues.pop_open(path, open);
            if next.is_some() || !self.reclaim_for_reads(inner) {
                return next;
            }
        }
    }

    /// Lets awaited reads that lack only staging take it from transfers that wait for the engine. Returns
    /// whether one of those had some.
    fn reclaim_for_reads(&mut self, inner: &Inner) -> bool {
        self.groups.numbers().any(|group| {
            let awaited = [Class::Urgent, Class::Offload, Class::Background];
            let goes = self.queues.reads().any(|path| {
                let reads = &self.queues[path];
                awaited.iter().any(|class| reads.waiting_in(*class, group.lane()) > 0)
                    && reads.has_room(inner.group(group).block_bytes)
            });
            let lacks = !has_staging(inner, &self.groups[group], &self.quarantine, group);
            goes && lacks && self.reclaim_staging(inner, group)
        })
    }

    /// Counts a group's urgent reads that wait for their turn, of all tiers below host memory.
    pub(crate) fn urgent_reads(&self, group: GroupId) -> usize {
        let waiting = |path| self.queues[path].waiting_in(Class::Urgent, group.lane()) as usize;
        self.queues.reads().map(waiting).sum()
    }

    /// Presses the holders of staging that urgent reads wait for.
    pub(crate) fn press_for_reads(&mut self, inner: &Inner) {
        for group in self.groups.numbers() {
            if self.urgent_reads(group) > 0
                && !has_staging(inner, &self.groups[group], &self.quarantine, group)
            {
                self.press(inner, group);
            }
        }
    }

    /// Lets all holders of staging go without the iteration's budget; a guess gives it up.
    pub(crate) fn press(&mut self, inner: &Inner, group: GroupId) {
        let held = self.groups[group].staging.lend_holders();
        for (staged, transfer) in held.iter().flatten().copied() {
            match transfer {
                TransferId::Up(key) => {
                    let Some(up) = self.ups.get(key) else { continue };
                    let has = up.group() == group && up.staged() == Some(staged);
                    match up.class() {
                        _ if !has => {}
                        Class::Prefetch => self.recall_guess(inner, key),
                        _ => self.promote(inner, key, Class::Urgent),
                    }
                }
                TransferId::Down(key) => {
                    let down = self.downs.get(key);
                    if down.is_some_and(|down| down.group() == group && down.host() == Some(staged)) {
                        self.promote_down(key);
                    }
                }
            }
        }
        self.groups[group].staging.return_holders(held);
    }

    /// Lets a copy down go without an iteration's budget.
    pub(crate) fn promote_down(&mut self, key: DownId) {
        let Some(down) = self.downs.get_mut(key) else { return };
        down.hurries();
        if let At::Queued(path, ticket) = down.at() {
            self.queues.promote(path, ticket, Class::Urgent);
        }
    }

    /// Whether a guess that has been read is in the way of a waiter: for blocks, for its tenant's
    /// credits, or for staging.
    pub(crate) fn is_in_the_way(&self, key: UpId) -> bool {
        let guess = self.ups.get(key).filter(|up| up.class() == Class::Prefetch);
        guess.is_some_and(|up| {
            let state = &self.groups[up.group()];
            !state.queue.is_empty()
                || self.waiting_for_quota.holds(up.group(), up.tenant())
                || state.staging.free() == 0 && self.urgent_reads(up.group()) > 0
        })
    }
}

/// Whether a group's reads from the disk may go: there is staging for one. Reads that will never find any
/// go too, and fail.
fn has_staging(inner: &Inner, state: &GroupState, quarantine: &Quarantine, group: GroupId) -> bool {
    state.staging.free() > 0 || quarantine.has_all_staging(group, inner.group(group).staging)
}
