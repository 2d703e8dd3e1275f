//! Starts to bring a run up, under the lock.

use crate::engine::found::{Found, Place};
use crate::engine::inner::Inner;
use crate::engine::notices::{About, Notice};
use crate::state::{
    At, GroupId, Link, OnboardOptions, Onboarding, OnboardingId, Progress, Shares, Source, Traffic, Up, UpId,
    Waits, Want, Wants,
};
use crate::tier::Tier;
use crate::transfer::{Cause, Class};
use kvstrata_core::{BlockRef, SequenceHash, TenantId};
use kvstrata_ffi::disk::Name;

impl Traffic {
    /// Begins an onboarding, except for its places in the wait queues: `wants` gathers these. Returns
    /// none if nothing begins any more.
    pub(crate) fn begin_onboarding(
        &mut self,
        inner: &Inner,
        (group, tenant): (GroupId, TenantId),
        (there, beyond): (&[BlockRef], Vec<Found>),
        options: OnboardOptions,
        wants: &mut Wants,
    ) -> Option<OnboardingId> {
        if self.refuses() && !beyond.is_empty() {
            beyond.into_iter().rev().for_each(|found| self.release_found(inner, group, found));
            return None;
        }
        // A run that a caller waits for is no guess.
        let options = OnboardOptions { class: options.class.min(Class::Background), ..options };
        let due = inner.due_in(options.deadline.unwrap_or(inner.rules.onboard_deadline));
        let layers = inner.group(group).layers;
        let counted = if options.layers.is_some() { layers } else { 0 };
        let key = self.onboardings.insert(Onboarding::new(group, counted, beyond.len(), due));
        let blocks = beyond.len();
        let mut beyond = beyond.into_iter();
        let mut shares = Shares::default();
        for found in beyond.by_ref() {
            let wanted = self.want(inner, group, key, found, options, tenant);
            if wanted.is_some() && !self.has_share(inner, there, key, &mut shares) {
                // Beyond its owner's quota: it would wait for its own blocks.
                inner.counts.notices.raise(Notice::Quota, About::of(group, tenant));
                self.cut_off(inner, key, Cause::Quota);
                break;
            }
            match wanted {
                Some(Some(transfer)) => {
                    // Of one tenant; of several only where hashes are not salted.
                    let tenant = self.ups[transfer].tenant();
                    let same = |of: &&mut Want| (of.group(), of.tenant()) == (group, tenant);
                    let added = wants.parts.iter_mut().rev().find(same).is_some_and(|of| of.add(transfer));
                    if !added {
                        wants.parts.push(Want::of_transfer((group, tenant), transfer, blocks));
                    }
                }
                Some(None) => self.note_joined(key, wants),
                // The run breaks here: a pending block has failed meanwhile.
                None => {
                    self.onboardings[key].gone();
                    break;
                }
            }
        }
        for found in beyond.rev() {
            self.release_found(inner, group, found);
        }
        if !self.onboardings[key].is_done() {
            self.due(due, Waits::Onboarding(key));
        }
        Some(key)
    }

    /// Counts the last block that an onboarding wants, behind those that were there. Returns whether its
    /// owner may have this one, too.
    fn has_share(&self, inner: &Inner, there: &[BlockRef], key: OnboardingId, shares: &mut Shares) -> bool {
        let of = &self.onboardings[key];
        let owners = &inner.group(of.group()).device.owners();
        let Some(last) = of.progress().next_back() else { return true };
        let tenant = match last {
            Progress::Here(block) => owners.owner(block.id),
            Progress::Coming(transfer) => self.ups[transfer].tenant(),
            Progress::Failed(_) => return true,
        };
        shares.has_room(owners, there, tenant)
    }

    /// Notes the entry that brings up the last wanted block, if that entry waits for credits: it must be
    /// served first.
    fn note_joined(&self, key: OnboardingId, wants: &mut Wants) {
        if self.waiting_for_quota.is_empty() {
            return;
        }
        let Some(Progress::Coming(transfer)) = self.onboardings[key].progress().next_back() else { return };
        let entry = self.ups[transfer].entry();
        if self.waiting_for_quota.has(entry) && !wants.joined.contains(&entry) {
            wants.joined.push(entry);
        }
    }

    /// Wants a block: holds one that is there, joins a transfer under way, or creates a transfer and
    /// returns it. Returns none if the block is nowhere any more.
    fn want(
        &mut self,
        inner: &Inner,
        group: GroupId,
        key: OnboardingId,
        found: Found,
        options: OnboardOptions,
        tenant: TenantId,
    ) -> Option<Option<UpId>> {
        let (Name { hash, .. }, of) = (found.name, inner.group(group));
        let layers = of.layers;
        let source = match found.place {
            Place::Device(block) => {
                self.onboardings[key].here(block);
                return Some(None);
            }
            Place::Host(block) => Some(Source::Host(block)),
            Place::Below(number, block) => Some(Source::Below(number, block, None)),
            Place::Pending => None,
        };
        let index = self.onboardings[key].len() as u32;
        let link = Link { onboarding: key, index };
        if let Some(transfer) = self.ups.find((group, hash)) {
            if self.is_purging(self.ups[transfer].tenant()) {
                source.into_iter().for_each(|source| self.put_down(inner, group, source));
                return None;
            }
            self.promote(inner, transfer, options.class);
            if let (Some(step), Some(up)) = (options.layers, self.ups.get_mut(transfer)) {
                up.refine(step.max(1));
            }
            self.join(key, transfer, layers);
            source.into_iter().for_each(|source| self.spend(link, source));
            return Some(None);
        }
        let there = of.device.pool().lookup_ref(hash).filter(|block| {
            // Bytes that exist are not exchanged for a block that a pass is still to write.
            let unwritten = source.is_some() && self.unwritten.iteration(group, block.id).is_some();
            if unwritten {
                of.device.release(*block, inner.now());
            }
            !unwritten
        });
        if let Some(block) = there {
            self.onboardings[key].here(block);
            source.into_iter().for_each(|source| self.spend(link, source));
            return Some(None);
        }
        let source = match source {
            Some(source) => source,
            None => match self.find_at_rest(inner, group, hash)? {
                Place::Device(block) => {
                    self.onboardings[key].here(block);
                    return Some(None);
                }
                Place::Host(block) => Source::Host(block),
                Place::Below(number, block) => Source::Below(number, block, None),
                Place::Pending => return None,
            },
        };
        let tenant = self.owner_of(inner, group, source, tenant);
        if self.is_purging(tenant) {
            self.put_down(inner, group, source);
            return None;
        }
        let step = options.layers.unwrap_or(layers).max(1);
        let (whose, serial) = ((options.class, options.request), self.serial());
        let up = Up::new((group, found.name), source, tenant, whose, step, serial);
        let transfer = self.ups.insert(up);
        inner.entered(1);
        self.join(key, transfer, layers);
        Some(Some(transfer))
    }

    /// Returns the owner of a block that comes up: its owner below. An unowned block becomes the
    /// asking tenant's.
    pub(crate) fn owner_of(&self, inner: &Inner, group: GroupId, source: Source, asks: TenantId) -> TenantId {
        let (tier, block) = match source {
            Source::Host(block) => (Tier::Host, block),
            Source::Below(number, block, _) => (Tier::Below(number), block),
        };
        let Some(owners) = inner.group(group).owners(tier) else { return asks };
        // A tenant that is being purged gets no more blocks.
        if !self.is_purging(asks) {
            owners.claim(block.id, asks);
        }
        match owners.owner(block.id) {
            TenantId::NONE => asks,
            owner => owner,
        }
    }

    /// Makes a transfer more urgent, if it is less so.
    pub(crate) fn promote(&mut self, inner: &Inner, transfer: UpId, class: Class) {
        let Some(up) = self.ups.get_mut(transfer) else { return };
        if let Some(before) = up.promote(class) {
            let (at, waits, group) = (up.at(), up.waits_for_queue(), up.group());
            // `hurry` may have left it out as a guess.
            self.groups[group].queue.note_change();
            self.guess_over(before, transfer);
            self.wait_no_more(transfer);
            if let At::Queued(path, ticket) = at {
                self.queues.promote(path, ticket, class);
            } else if waits {
                self.queue_or_wait(inner, transfer);
            }
        }
    }

    fn find_at_rest(&mut self, inner: &Inner, group: GroupId, hash: SequenceHash) -> Option<Place> {
        self.find_going_down(inner, group, hash).or_else(|| inner.group(group).find_below(hash))
    }

    /// Turns a block back that is on its way down.
    pub(crate) fn find_going_down(
        &mut self,
        inner: &Inner,
        group: GroupId,
        hash: SequenceHash,
    ) -> Option<Place> {
        let transfer = self.downs.find((group, hash))?;
        match self.turn_back(inner, transfer)? {
            (Tier::Device, block) => Some(Place::Device(block)),
            (_, block) => Some(Place::Host(block)),
        }
    }

    fn release_found(&mut self, inner: &Inner, group: GroupId, found: Found) {
        match found.place {
            Place::Device(block) => inner.group(group).device.release(block, inner.now()),
            Place::Host(block) => self.put_down(inner, group, Source::Host(block)),
            Place::Below(number, block) => self.put_down(inner, group, Source::Below(number, block, None)),
            Place::Pending => {}
        }
    }
}
