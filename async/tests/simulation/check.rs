//! What must be true at each moment, and at the end.

use crate::content;
use crate::recorder::lock;
use crate::world::World;
use kvstrata::transfer::{Cause, Path};

impl World {
    /// Conservation, and the bytes of all that is held.
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
        let owned = books.owned.len() + device_inside;
        // Of who waits, some may have been served and not know it yet.
        let granted: usize = books.waiting.values().map(|blocks| *blocks as usize).sum();
        if device.owned < owned || device.owned > owned + granted {
            wrong.push(format!(
                "{} of the device's blocks are owned, {} by engines, {device_inside} by flights and the line, at most {granted} on their way",
                device.owned,
                books.owned.len()
            ));
        }
        let at_rest = books.unsure == 0 && census.up + census.down + census.gated + census.onboardings == 0;
        if device.active < books.held.len() || at_rest && device.active != books.held.len() {
            wrong.push(format!(
                "{} of the device's blocks are active, {} held",
                device.active,
                books.held.len()
            ));
        }
        if host.owned != host_inside {
            wrong.push(format!("{} of the host's blocks are owned, {host_inside} by flights", host.owned));
        }
        if at_rest && host.active != 0 {
            wrong.push(format!("{} of the host's blocks are active, and nobody has any", host.active));
        }
        let staging = if self.settings.disk > 0 { self.settings.staging as usize } else { 0 };
        if census.staging + census.staged != staging {
            let (free, taken) = (census.staging, census.staged);
            wrong.push(format!("of {staging} blocks of staging {free} are free, {taken} taken"));
        }
        // Nobody waits for what is there; of the host, until what leaves it for the disk has left.
        let spare = match self.settings.host {
            0 => census.staging > 0,
            _ => census.queued + census.moving == 0 && host.free > self.settings.headroom as usize,
        };
        if census.grounded > 0 && spare {
            wrong.push(format!("{} flights wait for host memory, and some is free", census.grounded));
        }
        let evictable = if self.settings.linked { 0 } else { device.inactive };
        if census.waiting > 0
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
        wrong.append(&mut lock(&self.notes).violations);
        wrong.append(&mut self.mover.violations());
        if let Some(disk) = &self.disk {
            wrong.append(&mut disk.counts().violations);
        }
        // One is enough, and those behind it follow from it.
        if books.violations.is_empty() {
            wrong.into_iter().take(1).for_each(|what| books.violation(what));
        }
    }

    /// Nothing is under way, nobody waits or holds anything.
    pub fn check_at_rest(&self) {
        self.check();
        let census = self.manager().census();
        let [device, host] = census.tiers[0];
        let mut books = self.books.borrow_mut();
        if !census.is_idle() || [device.active, device.owned, host.active, host.owned] != [0; 4] {
            books.violation(format!("not at rest: {census:?}"));
        }
        for (tier, counted, stored) in [("device", device, &self.stored[0]), ("host", host, &self.stored[1])]
        {
            let stored = lock(stored).len();
            if stored != counted.inactive {
                let what = format!("{stored} hashes are in the {tier}, and {} blocks", counted.inactive);
                books.violation(what);
            }
        }
        if let Some(disk) = &self.disk {
            use kvstrata::transfer::DiskPort;
            let (counted, parked) = (disk.pool().census(), disk.counts().parked as usize);
            if counted.active != 0 || counted.owned != parked {
                books.violation(format!("of the disk's blocks {parked} are parked, and {counted:?}"));
            }
        }
        self.check_counters(&mut books);
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
        for path in Path::ALL {
            // What has rotted in host memory is not given to the disk.
            let rotten =
                if path == Path::HostToDisk { stats.path(path).failed_by(Cause::Mismatch) } else { 0 };
            let noted = notes.landed[path as usize] + rotten;
            same(&format!("transfers, {path}"), stats.path(path).transfers, noted);
        }
        if let Some(disk) = &self.disk {
            let counts = disk.counts();
            let (down, up) = (stats.path(Path::HostToDisk), stats.path(Path::DiskToDevice));
            same("blocks written to the disk", down.bytes / block, counts.written);
            same("blocks read from the disk", up.bytes / block, counts.read);
            same("reads that were rejected", up.failed_by(Cause::Rejected), counts.rejected);
        }
    }
}
