//! The look-up of a prefix: the leading run of a sequence, held, with the tier of each of its blocks.
//!
//! ```text
//!   hashes   0 1 2 3 4 5 6 7
//!            D D D H P K D ·       D device, H host, K disk, P pending (on its way), · nowhere: the run ends
//!            └─┬─┘ └──┬──┘
//!          device   beyond: to be onboarded
//! ```
//!
//! A run that is wholly in the device takes no lock, and costs only the pool's look-ups. For blocks
//! behind the first one that the device lacks, the tiers below are asked. Transfers under way are looked
//! through only if there are any.
//!
//! Invariants
//! - I1: a block that was found is held, so it is still there when it is onboarded. A pending block is
//!   not held: it is looked up again then.

use crate::calls::blocks::Blocks;
use crate::engine::found::{Found, Place};
use crate::engine::inner::Inner;
use crate::engine::names::TenantHandle;
use crate::engine::rules::WriteMode;
use crate::metrics::{self, Call};
use crate::state::{GroupId, Traffic};
use crate::tier::{MOST_BELOW, Tier};
use kvstrata_core::{BlockRef, SequenceHash, TenantId};
use kvstrata_ffi::disk::{Name, OwnerId};
use std::fmt;
use std::sync::Arc;

/// Blocks that are looked up under one hold of the lock.
const AT_ONCE: usize = 64;

/// The leading run of a sequence that some tier has, held. Dropping it releases the run.
pub struct PrefixMatch {
    pub(crate) device: Blocks,
    pub(crate) beyond: Vec<Found>,
    /// The tenant for which the run is onboarded.
    pub(crate) tenant: TenantHandle,
}

impl PrefixMatch {
    /// Sets the tenant that asks for the run, unless one has asked before.
    pub(crate) fn by(mut self, tenant: &TenantHandle) -> PrefixMatch {
        self.asked_by(tenant);
        self
    }

    /// Does the same as [`by`](PrefixMatch::by), in place.
    pub(crate) fn asked_by(&mut self, tenant: &TenantHandle) {
        if self.tenant.id() == TenantId::NONE {
            self.tenant = tenant.clone();
        }
    }

    /// Returns the number of blocks of the run.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/embed.rs)
    #[must_use]
    pub fn len(&self) -> usize {
        self.device.len() + self.beyond.len()
    }

    /// Returns whether nothing was found.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/warm_restart.rs)
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the whole run is in the device.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.beyond.is_empty()
    }

    /// Returns how many blocks of the run were found in a tier.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/warm_restart.rs)
    #[must_use]
    pub fn in_tier(&self, tier: Tier) -> usize {
        let leading = if tier == Tier::Device { self.device.len() } else { 0 };
        leading + self.beyond.iter().filter(|found| found.tier() == Some(tier)).count()
    }

    /// Returns the tier in which a block of the run was found. None for a block that is on its way to
    /// the device already, or behind the run.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn tier_of(&self, index: usize) -> Option<Tier> {
        match index.checked_sub(self.device.len()) {
            None => Some(Tier::Device),
            Some(beyond) => self.beyond.get(beyond)?.tier(),
        }
    }

    /// Returns how many blocks of the run are on their way to the device already.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn pending(&self) -> usize {
        self.beyond.iter().filter(|found| matches!(found.place, Place::Pending)).count()
    }

    /// Returns the leading blocks of the run that the device has.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn device(&self) -> &Blocks {
        &self.device
    }

    /// Takes the leading blocks that the device has, and releases the rest.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn into_device(mut self) -> Blocks {
        let rest = Blocks::new(Arc::clone(self.device.inner()), self.device.group_id(), Vec::new());
        std::mem::replace(&mut self.device, rest)
    }
}

impl Drop for PrefixMatch {
    fn drop(&mut self) {
        if self.beyond.is_empty() {
            return;
        }
        let inner = self.device.inner();
        if inner.is_inherited() {
            return;
        }
        let (group, now) = (inner.group(self.device.group_id()), inner.now());
        for found in self.beyond.drain(..).rev() {
            match found.place {
                Place::Device(block) => group.device.release(block, now),
                Place::Host(block) => group.host.iter().for_each(|host| host.release(block, now)),
                Place::Below(number, block) => {
                    group.lower(number).iter().for_each(|lower| lower.release(block))
                }
                Place::Pending => {}
            }
        }
        inner.released();
    }
}

impl fmt::Debug for PrefixMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrefixMatch({} blocks in the device", self.device.len())?;
        for tier in self.device.inner().tiers().skip(1) {
            write!(f, ", {} in {}", self.in_tier(tier), self.device.inner().tier_names.tier(tier))?;
        }
        write!(f, ", {} pending)", self.pending())
    }
}

impl Inner {
    /// Looks up the leading run that a request asks for, and counts and times the call.
    pub(crate) fn look_up(self: &Arc<Inner>, group: GroupId, hashes: &[SequenceHash]) -> PrefixMatch {
        let hashes = self.findable(hashes);
        let since = self.watch.now();
        let found = self.match_prefix(group, hashes);
        self.looked_up(hashes.len(), &found, 0);
        self.watch.answered(Call::Match, since);
        found
    }

    /// Counts a look-up of so many blocks, with the tier of each block found. The first `spare` blocks
    /// found are left out: the whole sequence would not have needed them.
    pub(crate) fn looked_up(&self, blocks: usize, found: &PrefixMatch, spare: usize) {
        let group = found.device.group_id();
        // The usual case: all blocks found are in the device.
        if found.is_ready() {
            return self.watch.looked_up_in_device(group, blocks, found.len().saturating_sub(spare));
        }
        let mut counts = [0; metrics::Found::Tier(Tier::Below(MOST_BELOW as u8)).index()];
        for index in spare..found.len() {
            let place = found.tier_of(index).map_or(metrics::Found::Pending, metrics::Found::Tier);
            counts[place.index()] += 1;
        }
        self.watch.looked_up(group, blocks, &counts);
    }

    /// Does the same as [`look_up`](Inner::look_up), for the device alone.
    pub(crate) fn look_up_in_device(self: &Arc<Inner>, group: GroupId, hashes: &[SequenceHash]) -> Blocks {
        let hashes = self.findable(hashes);
        let since = self.watch.now();
        let found = self.use_in_device(group, hashes);
        self.watch.looked_up_in_device(group, hashes.len(), found.len());
        self.watch.answered(Call::Match, since);
        found
    }

    /// Returns the hashes that may be looked up: all of them, or none in a process that was forked from
    /// the manager's.
    fn findable<'h>(&self, hashes: &'h [SequenceHash]) -> &'h [SequenceHash] {
        if self.is_inherited() { &[] } else { hashes }
    }

    /// Copies blocks down at their second use.
    fn used_again(self: &Arc<Inner>, group: GroupId, blocks: &[BlockRef]) {
        let ages = &self.group(group).device.ages();
        let first = |block: &&BlockRef| ages.second_use(**block, self.now());
        let first: Vec<BlockRef> = blocks.iter().filter(first).copied().collect();
        if !first.is_empty() {
            self.with(|traffic| first.iter().for_each(|block| traffic.write_through(self, group, *block)));
        }
    }

    /// Returns the leading run that the device has, and notes a use of it.
    pub(crate) fn use_in_device(self: &Arc<Inner>, group: GroupId, hashes: &[SequenceHash]) -> Blocks {
        let hashes = self.findable(hashes);
        let found = self.match_device(group, hashes);
        self.group(group).used(&hashes[..found.len()]);
        if self.rules.mode == WriteMode::SecondUse {
            self.used_again(group, found.refs());
        }
        found
    }

    /// Returns the leading run that the device has, without noting a use.
    pub(crate) fn match_device(self: &Arc<Inner>, group: GroupId, hashes: &[SequenceHash]) -> Blocks {
        let hashes = self.findable(hashes);
        let mut refs = Vec::with_capacity(hashes.len());
        self.group(group).device.pool().match_refs(hashes, &mut refs);
        Blocks::new(Arc::clone(self), group, refs)
    }

    /// Returns the leading run, and notes a use.
    pub(crate) fn match_prefix(self: &Arc<Inner>, group: GroupId, hashes: &[SequenceHash]) -> PrefixMatch {
        let found = self.match_unused(group, None, hashes);
        self.used(group, [hashes], Some(&found));
        found
    }

    /// Notes one use of the blocks asked for, and of those found.
    pub(crate) fn used<const N: usize>(
        self: &Arc<Inner>,
        group: GroupId,
        asked: [&[SequenceHash]; N],
        found: Option<&PrefixMatch>,
    ) {
        asked.into_iter().for_each(|hashes| self.group(group).used(hashes));
        if let (WriteMode::SecondUse, Some(found)) = (self.rules.mode, found) {
            self.used_again(group, found.device.refs());
        }
    }

    /// Returns the leading run of the blocks that follow `parent` in their sequence, without noting a use.
    pub(crate) fn match_unused(
        self: &Arc<Inner>,
        group: GroupId,
        parent: Option<SequenceHash>,
        hashes: &[SequenceHash],
    ) -> PrefixMatch {
        let (of, hashes) = (self.group(group), self.findable(hashes));
        let mut refs = Vec::with_capacity(hashes.len());
        let leading = of.device.pool().match_refs(hashes, &mut refs);
        let device = Blocks::new(Arc::clone(self), group, refs);
        let mut found = PrefixMatch { device, beyond: Vec::new(), tenant: TenantHandle::default() };
        if leading < hashes.len() && (of.memory.is_some() || self.has_pending()) {
            self.match_beyond(group, parent, hashes, &mut found);
        }
        found
    }

    fn match_beyond(
        self: &Arc<Inner>,
        group: GroupId,
        before: Option<SequenceHash>,
        hashes: &[SequenceHash],
        found: &mut PrefixMatch,
    ) {
        let (mut next, mut goes_on) = (found.len(), true);
        while goes_on && next < hashes.len() {
            let part = next..hashes.len().min(next + AT_ONCE);
            next = part.end;
            let mut look = |mut traffic: Option<&mut Traffic>| {
                for index in part.clone() {
                    let parent = index.checked_sub(1).map_or(before, |before| Some(hashes[before]));
                    let name = Name { hash: hashes[index], parent, owner: OwnerId::NONE };
                    let Some(place) = self.find(traffic.as_deref_mut(), group, name.hash) else {
                        return false;
                    };
                    if found.beyond.is_empty() {
                        found.beyond.reserve(hashes.len() - index);
                    }
                    found.beyond.push(Found { name, place });
                }
                true
            };
            goes_on = if self.has_pending() { self.with(|traffic| look(Some(traffic))) } else { look(None) };
        }
    }

    /// Returns whether a tier has the block, or a transfer brings it.
    pub(crate) fn has(&self, group: GroupId, hash: SequenceHash) -> bool {
        let of = self.group(group);
        of.device.pool().contains(hash)
            || of.host.as_ref().is_some_and(|host| host.pool().contains(hash))
            || of.lower.iter().any(|lower| lower.contains(hash))
            || self.has_pending() && {
                let traffic = self.look();
                traffic.ups.has((group, hash)) || traffic.downs.has((group, hash))
            }
    }

    /// Finds a block and holds it. Under the lock, blocks on their way are found too.
    fn find(
        self: &Arc<Inner>,
        traffic: Option<&mut Traffic>,
        group: GroupId,
        hash: SequenceHash,
    ) -> Option<Place> {
        let of = self.group(group);
        let device = || of.device.pool().lookup_ref(hash).map(Place::Device);
        let at_rest = || device().or_else(|| of.find_below(hash));
        let Some(traffic) = traffic else { return at_rest() };
        // The device first, then transfers to it, so that no block is fetched twice.
        let on_its_way = || match traffic.ups.find((group, hash)) {
            // A block of a tenant that is being purged will not arrive.
            Some(up) if traffic.is_purging(traffic.ups[up].tenant()) => None,
            Some(_) => Some(Place::Pending),
            None => traffic.find_going_down(self, group, hash),
        };
        device().or_else(on_its_way).or_else(at_rest)
    }
}
