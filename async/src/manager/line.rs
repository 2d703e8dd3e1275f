//! The line for blocks of the device: who came first is served first, wholly.
//!
//! ```text
//!   released, freed ──► first entry: got ▓▓▓░░ of need ──► second ──► …        victims are sent down for what the first still needs
//! ```
//!
//! Invariants
//! - I1: only the first entry gathers blocks, so two never hold a part each and wait for the other's.
//! - I2: while there is an entry, blocks that become free go to it, and nobody passes by it to the pool's free ones.
//! - I3: an entry needs no more blocks than the tier has.

use super::down::{Down, Have, Left};
use super::inner::Inner;
use super::tenants::TenantId;
use super::traffic::{At, Traffic};
use crate::tier::Tier;
use crate::transfer::{Cause, Class, Failure, Path};
use kvstrata_core::BlockId;
use std::collections::VecDeque;
use tokio::sync::oneshot;

/// Who waits in a stack, and for what.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) entries: VecDeque<Entry>,
    /// Who waits for credits first, and is not in line yet: see `tenants/quota.rs`.
    pub(super) held: VecDeque<Entry>,
    /// Victims of the device on their way down: blocks that will be free.
    pub(super) draining: u32,
    /// Victims of the host on their way to the disk.
    pub(super) sinking: u32,
    /// Flights from the device that have their host block: it will be the host tier's.
    pub(super) landing: u32,
    /// Flights down that wait for a host block.
    pub(super) grounded: VecDeque<u32>,
    /// Blocks of host memory for staging that are free.
    pub(super) staging: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Entry {
    number: u64,
    pub(super) need: usize,
    pub(super) tenant: TenantId,
    got: Vec<BlockId>,
    whose: Whose,
}

/// Who gets the blocks.
#[derive(Debug)]
pub(super) enum Whose {
    Caller(oneshot::Sender<Grant>),
    Flights(VecDeque<u32>),
}

/// Blocks for a caller, by number: handed over outside the lock, where they become a handle.
pub(super) type Grant = super::blocks::BlocksMut;

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether something passes through the host tier: its blocks will be had again.
    pub(super) fn passes(&self) -> bool {
        self.landing + self.sinking > 0
    }

    /// Blocks that the line has gathered.
    pub(super) fn gathered(&self) -> usize {
        self.entries.iter().map(|entry| entry.got.len()).sum()
    }

    /// Whether nobody waits.
    pub(super) fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.held.is_empty()
    }

    /// Who is before an entry.
    pub(super) fn before(&self, number: u64) -> usize {
        self.entries.iter().chain(&self.held).take_while(|entry| entry.number != number).count()
    }

    pub(super) fn waiting(&self) -> usize {
        self.entries.len() + self.held.len()
    }

    /// An entry, and whether it is in line: then it has credits.
    fn find(&mut self, number: u64) -> Option<(&mut VecDeque<Entry>, usize, bool)> {
        let at = |entries: &VecDeque<Entry>| entries.iter().position(|entry| entry.number == number);
        match at(&self.entries) {
            Some(found) => Some((&mut self.entries, found, true)),
            None => at(&self.held).map(|found| (&mut self.held, found, false)),
        }
    }
}

impl Traffic {
    /// Gets into line for `need` blocks (I3: at most what the tier has); a tenant with a quota is held before.
    pub(super) fn enter_line(
        &mut self,
        inner: &Inner,
        stack: u16,
        need: usize,
        whose: Whose,
        tenant: TenantId,
    ) -> u64 {
        self.drop_guesses(inner);
        let number = self.serial();
        let got = Vec::with_capacity(need);
        let (line, owners) = (&mut self.lines[stack as usize], &inner.stack(stack).device.owners);
        let credited = owners.limit(tenant).is_none() && owners.take(tenant, need);
        let entries = if credited { &mut line.entries } else { &mut line.held };
        entries.push_back(Entry { number, need, tenant, got, whose });
        // Before the line is served: who releases from now on looks after it.
        inner.waiting.enter();
        number
    }

    /// A caller has given up.
    pub(super) fn quit_line(&mut self, inner: &Inner, stack: u16, number: u64) {
        let Some((entries, at, credited)) = self.lines[stack as usize].find(number) else { return };
        let Some(entry) = entries.remove(at) else { return };
        let Entry { need, tenant, got, whose, .. } = entry;
        if let Whose::Caller(to) = whose {
            self.out.gone.push(to);
        }
        self.left_line(inner, stack, got, tenant, if credited { need } else { 0 });
    }

    /// An entry is no more: its blocks and its credits are anybody's.
    fn left_line(&mut self, inner: &Inner, stack: u16, got: Vec<BlockId>, tenant: TenantId, credits: usize) {
        inner.waiting.leave();
        inner.stack(stack).device.owners.give(tenant, credits);
        got.into_iter().for_each(|block| self.freed(inner, stack, block));
    }

    /// A flight needs its block no more.
    pub(super) fn leave_line(&mut self, inner: &Inner, stack: u16, number: u64, flight: u32) {
        let Some((entries, at, credited)) = self.lines[stack as usize].find(number) else { return };
        let Some(entry) = entries.get_mut(at) else { return };
        if let Whose::Flights(flights) = &mut entry.whose {
            flights.retain(|key| *key != flight);
            let fewer = entry.need - flights.len();
            entry.need = flights.len();
            inner.stack(stack).device.owners.give(entry.tenant, if credited { fewer } else { 0 });
        }
        if entry.need == 0 {
            return self.quit_line(inner, stack, number);
        }
        let too_many = entry.got.len().saturating_sub(entry.need);
        let spare: Vec<BlockId> = entry.got.drain(..too_many).collect();
        spare.into_iter().for_each(|block| self.freed(inner, stack, block));
    }

    /// A block of the device is free: it is the first's in line, or the pool's.
    pub(super) fn freed(&mut self, inner: &Inner, stack: u16, block: BlockId) {
        match self.lines[stack as usize].entries.front_mut() {
            Some(entry) if entry.got.len() < entry.need => entry.got.push(block),
            _ => _ = inner.stack(stack).device.pool.give_back_ids([block]),
        }
    }

    /// Serves the line as far as there are blocks, and sends victims down for what is missing.
    pub(super) fn serve_line(&mut self, inner: &Inner, stack: u16) {
        let pool = &inner.stack(stack).device.pool;
        loop {
            if !self.may_depart(stack) {
                return;
            }
            let line = &mut self.lines[stack as usize];
            let Some(entry) = line.entries.front_mut() else { return };
            let missing = entry.need - entry.got.len();
            if missing == 0 {
                self.serve_first(inner, stack);
                continue;
            }
            let free = pool.free().min(missing);
            if free > 0 && pool.allocate_free_ids(free, &mut entry.got).is_ok() {
                continue;
            }
            let wanted = missing.saturating_sub(line.draining as usize);
            let mut victims = std::mem::take(&mut self.victims);
            if wanted == 0 || pool.evict_ids(wanted, &mut victims) == 0 {
                self.victims = victims;
                return self.hurry(inner, stack);
            }
            for (block, hash) in victims.drain(..) {
                let name = inner.stack(stack).device.name(block, hash);
                if let Left::Free(block) = self.victim(inner, stack, block, name, Class::Urgent) {
                    self.freed(inner, stack, block);
                }
            }
            self.victims = victims;
        }
    }

    /// Somebody waits for blocks, and nobody leaves: the copies that keep some from leaving wait for no iteration's budget. The next
    /// iteration may wait for these blocks.
    pub(super) fn hurry(&mut self, inner: &Inner, stack: u16) {
        if self.allowance.left().is_none() {
            return;
        }
        let pool = &inner.stack(stack).device.pool;
        let of_stack = |down: &&mut Down| down.stack == stack && down.class > Class::Urgent;
        for down in self.downs.iter_mut().map(|(_, down)| down).filter(of_stack) {
            let keeps = match (down.from, down.source) {
                (_, Have::Owned(_)) | (Tier::Device, Have::Leased(_)) => true,
                // The flight's reference, and the one that asks.
                (Tier::Device, Have::Held(block)) => {
                    pool.upgrade(block).is_some_and(|held| held.references() <= 2)
                }
                _ => false,
            };
            if keeps {
                down.class = Class::Urgent;
                if let At::Queued(path, ticket) = down.at {
                    self.queues[path as usize].promote(ticket, Class::Urgent);
                }
            }
        }
    }

    /// Whether the first in line could go on with its blocks: queues are bounded, and who would fill one waits here.
    fn may_depart(&self, stack: u16) -> bool {
        match self.lines[stack as usize].entries.front().map(|entry| &entry.whose) {
            Some(Whose::Flights(flights)) => {
                let room = |path| self.has_room(path, flights.len());
                room(Path::HostToDevice) && room(Path::DiskToDevice)
            }
            _ => true,
        }
    }

    /// The first in line has all its blocks.
    fn serve_first(&mut self, inner: &Inner, stack: u16) {
        let Some(entry) = self.lines[stack as usize].entries.pop_front() else { return };
        inner.waiting.leave();
        match entry.whose {
            Whose::Caller(to) => self.out.grant(to, stack, entry.got, entry.tenant),
            Whose::Flights(flights) => {
                for (key, block) in flights.into_iter().zip(entry.got) {
                    self.depart(inner, key, block);
                }
            }
        }
    }

    /// Everybody in line goes away with nothing.
    pub(super) fn dissolve_line(&mut self, inner: &Inner, stack: u16) {
        self.dismiss_if(inner, stack, |_| true);
    }

    /// A tenant's go away with nothing.
    pub(super) fn dismiss(&mut self, inner: &Inner, stack: u16, tenant: TenantId) {
        self.dismiss_if(inner, stack, |whose| whose == tenant);
    }

    fn dismiss_if(&mut self, inner: &Inner, stack: u16, whom: impl Fn(TenantId) -> bool) {
        loop {
            let line = &self.lines[stack as usize];
            let mut all = line.entries.iter().chain(&line.held);
            let Some(number) = all.find(|entry| whom(entry.tenant)).map(|entry| entry.number) else { return };
            let Some((entries, at, credited)) = self.lines[stack as usize].find(number) else { return };
            let Some(entry) = entries.remove(at) else { return };
            let Entry { need, tenant, got, whose, .. } = entry;
            self.left_line(inner, stack, got, tenant, if credited { need } else { 0 });
            match whose {
                // Told when the lock has been given back.
                Whose::Caller(to) => self.out.gone.push(to),
                Whose::Flights(flights) => {
                    for key in flights {
                        self.up_failed(inner, key, Failure::of(Cause::Cancelled));
                    }
                }
            }
        }
    }
}
