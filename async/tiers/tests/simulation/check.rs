//! Conditions at each moment, and at the end.

use crate::content;
use crate::recorder::lock;
use crate::sim::Kept;
use crate::world::{LONG, World};
use kvstrata_tiers::Tier;
use kvstrata_tiers::tier::MOST_BELOW;
use kvstrata_tiers::transfer::{Cause, Loses, Path, TierPort};

impl World {
    /// Checks conservation, and the bytes of all held blocks.
    pub fn check(&self) {
        let census = self.manager().census();
        let [device, host] = census.tiers[0];
        let [device_inside, host_inside] = census.inside[0];
        let mut books = self.books.borrow_mut();
        books.check_order();
        let mut wrong = Vec::new();
        for (name, tier) in [("device", device), ("host", host)] {
            if tier.capacity != tier.free + tier.inactive + tier.active + tier.owned {
                wrong.push(format!("the {name}'s blocks do not add up: {tier:?}"));
            }
        }
        // A failed device keeps blocks, and blocks that cannot be overwritten are not used again.
        let (kept, [device_parked, host_parked]) = (self.mover.kept(), census.parked[0]);
        let count = |of: &dyn Fn(&Kept) -> bool| kept.iter().filter(|kept| of(kept)).count();
        let of_host = |kept: &Kept| kept.host.is_some_and(|host| host < self.settings.host as usize);
        let staged = |kept: &Kept| kept.host.is_some() && !of_host(kept);
        let kept_down = count(&|kept| !kept.up);
        let owned = books.owned.len() + device_inside + device_parked;
        // Some waiting allocations may have been served, and not know it yet.
        let granted: usize = books.waiting.values().map(|waiting| waiting.blocks as usize).sum();
        let purged = census.purges > 0;
        if device.owned < owned || device.owned > owned + granted {
            wrong.push(format!(
                "{} of the device's blocks are owned, {} by engines, {device_inside} by flights and the line, at most {granted} on their way",
                device.owned,
                books.owned.len()
            ));
        }
        let under_way = census.up + census.down + census.gated + census.unwritten + census.onboardings;
        let at_rest = books.unsure == 0 && !purged && under_way == 0;
        let most = books.held.len() + kept_down;
        if !purged && (device.active < books.held.len() || at_rest && device.active > most) {
            wrong.push(format!(
                "{} of the device's blocks are active, {} held",
                device.active,
                books.held.len()
            ));
        }
        if host.owned != host_inside + host_parked {
            wrong.push(format!("{} of the host's blocks are owned, {host_inside} by flights", host.owned));
        }
        let host_kept = count(&|kept| kept.up && of_host(kept));
        if at_rest && host.active != host_kept {
            wrong.push(format!("{} of the host's blocks are active, {host_kept} kept", host.active));
        }
        let staging = self.settings.staging() as usize;
        let staging_kept = count(&staged);
        if census.staging + census.staged + staging_kept != staging {
            let (free, taken) = (census.staging, census.staged);
            wrong.push(format!(
                "of {staging} blocks of staging {free} are free, {taken} taken, {staging_kept} kept"
            ));
        }
        // No transfer waits for host memory that is free. Exceptions: staging reserved for urgent reads,
        // and the host, until blocks that leave it for the disk have left.
        let spare = match self.settings.host {
            0 => census.staging > census.urgent_reads,
            _ => census.queued + census.moving == 0 && host.free > self.settings.headroom as usize,
        };
        if census.grounded > 0 && spare {
            wrong.push(format!("{} flights wait for host memory, and some is free", census.grounded));
        }
        let pinned = self.pins().keys().filter(|block| !books.held.contains_key(block)).count();
        let inactive = device.inactive.saturating_sub(pinned);
        let evictable = if self.settings.linked || kept_down > 0 { 0 } else { inactive };
        if census.waiting > 0
            && !purged
            && self.settings.quotas == [1.0; 3]
            && census.down + census.queued + census.moving == 0
            && device.free + evictable > 0
        {
            wrong.push(format!("{} wait for blocks, and some are there: {device:?}", census.waiting));
        }
        for (block, held) in &books.held {
            if !content::is(&self.device, *block, held.hash, 0..self.settings.block_bytes()) {
                wrong.push(format!("block {block} is held as {:?}, and has other bytes", held.hash));
            }
        }
        self.check_quotas(&mut wrong);
        wrong.append(&mut lock(&self.notes).violations);
        wrong.append(&mut self.mover.violations());
        if let Some(disk) = &self.disk {
            wrong.append(&mut disk.counts().violations);
        }
        if let Some(remote) = &self.remote {
            wrong.append(&mut remote.violations());
        }
        // One violation is enough: those behind it follow from it.
        if books.violations.is_empty() {
            wrong.into_iter().take(1).for_each(|what| books.violation(what));
        }
    }

    /// Checks that nothing is in flight, and that no request waits or holds a block.
    pub fn check_at_rest(&self) {
        self.check();
        let census = self.manager().census();
        let [device, host] = census.tiers[0];
        let mut books = self.books.borrow_mut();
        let kept = self.mover.kept();
        let of_host = |kept: &&Kept| kept.host.is_some_and(|host| host < self.settings.host as usize);
        let up = kept.iter().filter(of_host).filter(|kept| kept.up).count();
        let down = kept.iter().filter(|kept| !kept.up).count();
        // A block on its way up is read, so held; a block on its way down may have been held, leased, or
        // a victim.
        let parked =
            [device.owned, host.owned] == census.parked[0] && device.active <= down && host.active == up;
        if !census.is_idle() || !parked {
            books.violation(format!("not at rest: {census:?}, {kept:?}"));
        }
        for (tier, counted, stored) in [("device", device, &self.stored[0]), ("host", host, &self.stored[1])]
        {
            let stored = lock(stored).len();
            let stored = stored + lock(&self.notes).twins.keys().filter(|(of, _)| *of == tier).count();
            let registered = counted.inactive..=counted.inactive + counted.active;
            if !registered.contains(&stored) {
                let what = format!("{stored} hashes are in the {tier}, and {} blocks", counted.inactive);
                books.violation(what);
            }
        }
        if let Some(disk) = &self.disk {
            let (counted, parked) = (disk.pool().census(), disk.counts().parked as usize);
            let (unforgotten, expected) = disk.unforgotten();
            if counted.active != 0 || counted.owned != parked + unforgotten {
                books.violation(format!("of the disk's blocks {parked} are parked, and {counted:?}"));
            }
            if unforgotten > 0 && !expected {
                books.violation(format!("{unforgotten} slots that were given back nobody has forgotten"));
            }
        }
        if let Some(counted) = self.remote.as_ref().map(|remote| remote.pool().census())
            && counted.active + counted.owned != 0
        {
            books.violation(format!("of the remote store's blocks {counted:?}"));
        }
        self.check_tenants(&mut books);
        self.check_counters(&mut books);
    }

    /// Checks that no tenant exceeds a quota.
    fn check_quotas(&self, wrong: &mut Vec<String>) {
        for number in 1..=self.settings.tenants {
            for tier in self.manager().tiers() {
                let usage = self.tenant(number).usage(tier);
                // Blocks found by a restart were owned before it.
                if tier == Tier::DISK && self.disk.is_some() && self.is_restarted {
                    continue;
                }
                if usage.quota.is_some_and(|quota| usage.blocks > quota) {
                    wrong.push(format!("tenant {number} has of the {tier} {usage:?}"));
                }
            }
        }
    }

    /// Checks that tenants own the blocks that are counted for them. Partial blocks have names that only
    /// the manager knows.
    fn check_tenants(&self, books: &mut crate::books::Books) {
        if !self.mover.kept().is_empty() {
            return;
        }
        for (tier, stored) in [(Tier::Device, &self.stored[0]), (Tier::Host, &self.stored[1])] {
            let stored = lock(stored);
            let name = ["device", "host"][tier.index()];
            let twins: Vec<u128> = (lock(&self.notes).twins.iter())
                .filter_map(|((tier, _), (_, hash))| (*tier == name).then_some(*hash))
                .collect();
            let mut partial = stored.keys().filter(|hash| !books.known.contains_key(hash)).count();
            for number in 1..=self.settings.tenants {
                let known = books.known_of(number, None);
                let there = known.iter().filter(|hash| stored.contains_key(&hash.to_u128())).count();
                let there = there + known.iter().filter(|hash| twins.contains(&hash.to_u128())).count();
                let used = self.tenant(number).usage(tier).blocks;
                match used.checked_sub(there).and_then(|of| partial.checked_sub(of)) {
                    Some(left) => partial = left,
                    None => books.violation(format!(
                        "tenant {number} has {there} of the {tier}, and {used} are counted"
                    )),
                }
            }
        }
        if let Some(remote) = &self.remote {
            let tier = Tier::Below(u8::from(self.disk.is_some()));
            let mut used = 0;
            for number in 1..=self.settings.tenants {
                let known = books.known_of(number, None);
                let there = known.iter().filter(|hash| remote.pool().contains(**hash)).count();
                let of = self.tenant(number).usage(tier).blocks;
                used += of;
                if of < there {
                    books
                        .violation(format!("tenant {number} has {there} of the store, and {of} are counted"));
                }
            }
            let stored = remote.pool().census();
            if used > stored.inactive + stored.active {
                books.violation(format!("tenants have {used} of the store's blocks, which has {stored:?}"));
            }
        }
        let Some(disk) = &self.disk else { return };
        if disk.losses() == 0 {
            let used = |number| self.tenant(number).usage(Tier::DISK).blocks;
            let (used, stored) = ((1..=self.settings.tenants).map(used).sum::<usize>(), disk.pool().census());
            if used > stored.inactive + stored.active {
                books.violation(format!("tenants have {used} of the disk's blocks, which has {stored:?}"));
            }
        }
        for number in 1..=self.settings.tenants {
            let known = books.known_of(number, None);
            let there = known.iter().filter(|hash| disk.has(**hash)).count();
            let used = self.tenant(number).usage(Tier::DISK).blocks;
            if used < there {
                books.violation(format!("tenant {number} has {there} of the disk, and {used} are counted"));
            }
        }
    }

    fn check_counters(&self, books: &mut crate::books::Books) {
        let (stats, block) = (self.manager().stats(), self.settings.block_bytes() as u64);
        let notes = lock(&self.notes);
        let mut same = |what: &str, counted: u64, noted: u64| {
            if counted != noted {
                books.violation(format!("{what}: {counted} are counted, {noted} were"));
            }
        };
        same("transfers under way", 0, notes.under_way);
        let kept = self.mover.kept().into_iter().filter(|kept| kept.host.is_some());
        same("flights that are parked", stats.parked, kept.count() as u64);
        // Paths of the watched ports.
        let watched =
            Path::OF_SETTINGS.into_iter().filter(|path| path.below().is_none() || self.disk.is_some());
        for path in watched {
            // Blocks that have rotted in host memory are not given to the disk.
            let rotten =
                if path == Path::HOST_TO_DISK { stats.path(path).failed_by(Cause::Mismatch) } else { 0 };
            let (counted, noted) = (stats.path(path).transfers, notes.landed[path.index()] + rotten);
            // Nor is a transfer begun while its memory is in use. Of those that ended so, some had
            // landed before.
            let busy = counted.saturating_sub(noted).min(stats.path(path).failed_by(Cause::Busy));
            same(&format!("transfers, {path}"), counted, noted + busy);
        }
        let slow = Path::all(MOST_BELOW).map(|path| stats.path(path).failed_by(Cause::Slow)).sum::<u64>();
        let may_be_slow = self.settings.staging() > 0 && self.settings.patience != Some(LONG);
        let most = if may_be_slow { stats.dropped.iter().sum() } else { 0 };
        same("blocks that were dropped for a slow disk", slow, slow.min(most));
        if let Some(disk) = &self.disk {
            let counts = disk.counts();
            let (down, up) = (stats.path(Path::HOST_TO_DISK), stats.path(Path::DISK_TO_DEVICE));
            same("blocks written to the disk", down.bytes / block, counts.written);
            same("blocks read from the disk", up.bytes / block, counts.read);
            same("reads that were rejected", up.failed_by(Cause::Rejected), counts.rejected);
        }
    }
}
