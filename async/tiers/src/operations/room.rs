//! Room below: blocks of host memory for transfers down, and slots of the tiers below it.
//!
//! ```text
//!   a transfer down ─► a free block ─► a victim that the disk ─► a victim on its way ─► none
//!                                      has, or does not want     to the disk
//!                      now             now                       soon                   never: dropped
//! ```
//!
//! Only victims of the device may take the last free blocks of the host tier, its headroom; copies by
//! choice leave them. The headroom is kept free ahead of need where there is a disk: without one, a
//! victim of the host costs nothing. The waiters: `waiting_for_host.rs`.

use crate::engine::group_tiers::GroupTiers;
use crate::engine::inner::Inner;
use crate::engine::notices::About;
use crate::state::{Cargo, DownId, GroupId, Have, HostSlot, Piece, Slot, Traffic};
use crate::tier::Tier;
use crate::transfer::{Class, Path};
use kvstrata_core::{BlockId, BlockPool, SequenceHash, TenantId};
use kvstrata_ffi::disk::Name;

impl Traffic {
    /// Takes a slot of the first tier below host memory that lacks a block, admits it and has room. Also
    /// returns the owner of the block that is still in the slot. A tier itself counts the blocks that it
    /// does not admit.
    pub(crate) fn slot_below(
        &mut self,
        inner: &Inner,
        of: &GroupTiers,
        name: Name,
        (from, source): (Tier, Have),
        tenant: TenantId,
        class: Class,
    ) -> Option<((u8, BlockId), TenantId)> {
        let mut full = None;
        for (number, lower) in of.lower_from(0) {
            if lower.contains(name.hash) || !self.may_go_on(inner, of, number, source, class) {
                continue;
            }
            if lower.port.admits(name.hash, inner.elapsed()) {
                match self.slot_of(of, number, tenant) {
                    Some((slot, was)) => return Some(((number, slot), was)),
                    None => full = full.or(Some(number)),
                }
            }
        }
        // A block that another tier has is not lost.
        if let Some(number) = full.filter(|_| !of.any_lower_contains(name.hash)) {
            self.without_room(inner, of.number, (from, Tier::Below(number)), source, tenant);
        }
        None
    }

    /// Sends a transfer on that was written to a tier below, or cannot be: to the next tier that lacks
    /// its block, and takes it. Returns false if there is none.
    pub(crate) fn goes_on_below(&mut self, inner: &Inner, key: DownId) -> bool {
        let Some(down) = self.downs.get(key) else { return false };
        let of = inner.group(down.group());
        let (next, hash, source) = (down.below() + 1, down.name().hash, down.source());
        let (tenant, class, written) = (down.tenant(), down.class(), down.is_written());
        let (from, victim) = (down.from(), down.is_victim());
        // Requests wait for the end of a device victim's transfer: once written, it goes no further.
        let waited_for = from == Tier::Device && victim && written;
        if usize::from(next) >= of.lower.len() || self.is_closed() || waited_for {
            return false;
        }
        for (number, lower) in of.lower_from(next) {
            if !lower.contains(hash)
                && self.may_go_on(inner, of, number, source, class)
                && lower.port.admits(hash, inner.elapsed())
                && let Some((slot, was)) = self.slot_of(of, number, tenant)
            {
                if from == Tier::Host && victim && self.downs[key].below() == 0 {
                    self.groups[of.number].on_their_way.host_victim_goes_further();
                }
                self.downs[key].gets_slot(number, slot, was);
                self.queue_down(inner, key, Path::ToBelow(number));
                return true;
            }
        }
        false
    }

    /// Whether a block may go to a tier below: to the first one always, as far as this goes. A tier
    /// further down must have room in its queue. Blocks that no caller has asked for go there up to a
    /// part of the blocks above, so that a slow tier keeps these from no waiter. If it does not keep up,
    /// victims go one at a time.
    pub(crate) fn may_go_on(
        &mut self,
        inner: &Inner,
        of: &GroupTiers,
        number: u8,
        source: Have,
        class: Class,
    ) -> bool {
        let path = Path::ToBelow(number);
        if number == 0 {
            return true;
        }
        let queue = &self.queues[path];
        let on_it = queue.in_flight() as usize + queue.waiting() as usize;
        // One at a time tells when it keeps up again.
        let most = match source {
            Have::Held(_) => usize::MAX,
            Have::Leased(_) => Traffic::share_of(of),
            Have::Owned(_) if self.waits_for_none(inner, of.number, path) => Traffic::share_of(of),
            // Of the device: a request waits for it.
            Have::Owned(_) => usize::from(of.host.is_some()),
        };
        self.has_room(path, class) && on_it < most
    }

    /// Counts a victim that goes no further, since the tier below has no room. The operator, who may have
    /// a larger one, is told, except if a quota of nothing is the cause. If no quota is reached, the
    /// operator is not told either while there is a purge, a quarantined block or a lost slot: these may
    /// keep the room.
    pub(crate) fn without_room(
        &self,
        inner: &Inner,
        group: GroupId,
        (from, to): (Tier, Tier),
        source: Have,
        tenant: TenantId,
    ) {
        inner.counts.goes_no_further(source, from);
        let of = inner.group(group);
        let quota = of.owners(to).and_then(|owners| Some((owners.limit(tenant)?, owners.used(tenant))));
        let is_said = match quota {
            Some((limit, used)) if used >= limit => limit > 0,
            _ => {
                let lost = matches!(to, Tier::Below(number) if of.lower(number).is_some_and(|lower| lower.port.losses() > 0));
                !lost && self.purges.is_empty() && self.quarantine.is_empty()
            }
        };
        if is_said && matches!(source, Have::Owned(_)) {
            inner.counts.no_room(from, About::of(group, tenant));
        }
    }

    /// Takes a block of host memory for a transfer down.
    pub(crate) fn host_slot(&mut self, inner: &Inner, group: GroupId, source: Have, class: Class) -> Slot {
        let of = inner.group(group);
        let victim = matches!(source, Have::Owned(_));
        let Some(host) = &of.host else {
            // Urgent reads take theirs when their turn in the queue comes.
            let reads = self.urgent_reads(group);
            let staging = &mut self.groups[group].staging;
            let spare = victim || staging.free() > reads;
            let staged = if spare { staging.take() } else { None };
            return match staged {
                Some(staged) => Slot::Now(staged),
                None if self.quarantine.has_all_staging(group, inner.group(group).staging) => Slot::Never,
                // Staging comes back: each of its holders owns all that it needs.
                None => Slot::Soon,
            };
        };
        // Only victims of the device may take the last ones.
        let spared = if victim { 0 } else { inner.rules.host_headroom as usize };
        if host.pool().free() > spared
            && let Some(slot) = self.scratch.one_free(host.pool())
        {
            return Slot::Now(HostSlot::of(slot));
        }
        if !victim && !self.may_sink(of, class) {
            // As many are on their way as may wait for the disk.
            return Slot::Soon;
        }
        if victim && !self.may_wait_below(inner, group) {
            let slot = self.slot_without_waiting(inner, group, class);
            // A block that lands is the host's next victim.
            let lands = self.groups[group].on_their_way.landing() > 0;
            return if matches!(slot, Slot::Never) && lands { Slot::Soon } else { slot };
        }
        // Before the look and behind it: blocks released meanwhile are more than there were.
        let available = host.pool().available();
        let slot = self.host_victim(inner, group, class);
        let state = &mut self.groups[group];
        let through = &state.on_their_way;
        match slot {
            Slot::Never if victim && through.any_through_host() => Slot::Soon,
            // A block on its way through the host can be a victim then. It costs a copy by choice nothing
            // where the disk has it.
            Slot::Never
                if !victim
                    && !of.lower.is_empty()
                    && (through.any_through_host() || through.host_copies() > 0) =>
            {
                Slot::Soon
            }
            Slot::Never if !victim => {
                state.waiting_for_host.note_full(available.min(host.pool().available()));
                Slot::Never
            }
            slot => slot,
        }
    }

    /// Makes room in the host tier.
    fn host_victim(&mut self, inner: &Inner, group: GroupId, class: Class) -> Slot {
        let of = inner.group(group);
        let Some(host) = &of.host else { return Slot::Never };
        let (block, hash) = loop {
            let Some((block, hash)) = self.one_victim(inner, group, host.pool()) else { return Slot::Never };
            if !self.hand_to_purge(host.owners().owner(block), Piece::Host(group, HostSlot::of(block))) {
                break (block, hash);
            }
        };
        let name = host.name(block, hash);
        match self.sink(inner, group, Cargo::new(Have::Owned(block), name, class)) {
            Some(_) => Slot::Soon,
            None => Slot::Now(HostSlot::of(block)),
        }
    }

    /// Takes the host's next victim. Not by `victims`, which a caller may be going through.
    pub(crate) fn one_victim(
        &mut self,
        inner: &Inner,
        group: GroupId,
        host: &BlockPool,
    ) -> Option<(BlockId, SequenceHash)> {
        let mut victim = self.scratch.lend_one_victim();
        if self.take_ready(inner, (group, Tier::Host), 1, &mut victim) == 0 {
            host.evict_ids(1, &mut victim);
        }
        self.scratch.return_one_victim(victim)
    }

    /// Frees a block of host memory: the first waiting victim gets it. Otherwise it is given out when the
    /// needs are seen.
    pub(crate) fn freed_host(&mut self, inner: &Inner, group: GroupId, block: HostSlot) {
        match (self.pop_victim(group), &inner.group(group).host) {
            (Some(key), _) => self.give_host(inner, key, block),
            (None, Some(host)) => _ = host.pool().give_back_ids([block.block()]),
            (None, None) => self.groups[group].staging.give(block),
        }
    }

    /// Whether a copy by choice may begin: its queue has room, and, as far as is known, host memory is
    /// available without more blocks on the way to the disk than may wait for it.
    pub(crate) fn may_copy(&mut self, inner: &Inner, group: GroupId, class: Class) -> bool {
        let of = inner.group(group);
        let spared = inner.rules.host_headroom as usize;
        let waiting = &mut self.groups[group].waiting_for_host;
        if of.host.as_ref().is_some_and(|host| waiting.is_full(|| host.pool().available())) {
            return false;
        }
        self.has_room(Path::DeviceToHost, class)
            && (of.host.as_ref().is_none_or(|host| host.pool().free() > spared) || self.may_sink(of, class))
    }

    /// Whether a block of the host may leave for the sake of a copy by choice.
    fn may_sink(&self, of: &GroupTiers, class: Class) -> bool {
        of.lower.is_empty() || self.has_room(Path::ToBelow(0), class)
    }

    /// Keeps some host blocks free ahead of need: the tier's headroom.
    pub(crate) fn serve_headroom(&mut self, inner: &Inner, group: GroupId) {
        let of = inner.group(group);
        let Some(host) = of.host.as_ref().filter(|_| !of.lower.is_empty()) else { return };
        loop {
            let state = &self.groups[group];
            let ahead = host.pool().free() + state.on_their_way.host_victims();
            let needed = inner.rules.host_headroom as usize + state.waiting_for_host.victims();
            if ahead >= needed || self.is_closed() || self.is_shut(Path::ToBelow(0)) {
                return;
            }
            match self.host_victim(inner, group, Class::Offload) {
                Slot::Soon => {}
                Slot::Now(block) => _ = host.pool().give_back_ids([block.block()]),
                Slot::Never => return,
            }
        }
    }
}
