//! What must go together: numbers follow from one another, and what does not fit is refused with both.
//!
//! Order: the geometry; bytes and blocks of each tier; defaults that follow from what was given, so that
//! nobody is refused for a number that he did not give; then what is left to be refused, all of it.

use super::ManagerConfig;
use super::block::Shape;
use super::draft::{Draft, Origins};
use super::error::{Fault, Origin};
use super::geometry::{self, Group};
use super::kind::bytes_text;
use super::table::MOST_BYTES;
use super::words::HashFunction;
use kvstrata_tiers::tier;

/// Bytes of a slot of a volume at most, 4 GiB with its padding.
const MOST_SLOT_BYTES: u64 = u32::MAX as u64 - 4095;

/// The finished configuration, or all that does not go together.
pub(super) fn check(builder: Draft) -> Result<ManagerConfig, Vec<Fault>> {
    let (model_name, groups) = geometry::groups(&builder).map_err(|fault| vec![fault])?;
    let mut checker = Checker { builder, groups, faults: Vec::new() };
    checker.tiers();
    if checker.faults.is_empty() {
        checker.follow();
        checker.limits();
        checker.disk();
        checker.hash();
        checker.tenants();
    }
    let Checker { builder, groups, faults } = checker;
    if !faults.is_empty() {
        return Err(faults);
    }
    let Draft { settings, groups: group_settings, tenants, origins, .. } = builder;
    Ok(ManagerConfig { settings, group_settings, tenants, groups, model_name, origins })
}

struct Checker {
    builder: Draft,
    groups: Vec<Group>,
    faults: Vec<Fault>,
}

/// A number of blocks and a number of bytes of one tier.
struct Tier<'c> {
    name: [&'static str; 2],
    blocks: &'c mut u32,
    bytes: &'c mut Option<u64>,
    shape: Shape,
}

fn refuse(faults: &mut Vec<Fault>, origins: &Origins, key: &str, value: impl ToString, why: impl ToString) {
    let (origin, key) = (origins.of(key), key.to_owned());
    faults.push(Fault::Conflict { key, value: value.to_string(), origin, why: why.to_string() });
}

impl Checker {
    fn refuse(&mut self, key: &str, value: impl ToString, why: impl ToString) {
        refuse(&mut self.faults, &self.builder.origins, key, value, why);
    }

    fn said(&self, key: &str, value: impl ToString) -> String {
        format!("{key} = {} ({})", value.to_string(), self.builder.origins.of(key))
    }

    /// Bytes of the largest block: what must fit wherever something is bounded.
    fn block(&self) -> u64 {
        self.groups.iter().map(Group::block_bytes).max().unwrap_or(0)
    }

    /// Blocks follow from bytes where bytes are the stronger; where both are as strong they agree.
    fn tiers(&mut self) {
        let Draft { settings, origins, .. } = &mut self.builder;
        let shapes = tier::Tier::OF_SETTINGS.map(|tier| Shape::of(tier, settings));
        let (device, host, disk) = (&mut settings.device, &mut settings.host, &mut settings.disk);
        let tier = |name, blocks, bytes, shape| Tier { name, blocks, bytes, shape };
        let tiers = [
            tier(["device.blocks", "device.bytes"], &mut device.blocks, &mut device.bytes, shapes[0]),
            tier(["host.blocks", "host.bytes"], &mut host.blocks, &mut host.bytes, shapes[1]),
            tier(["disk.blocks", "disk.bytes"], &mut disk.blocks, &mut disk.bytes, shapes[2]),
        ];
        for Tier { name: [of_blocks, of_bytes], blocks, bytes, shape } in tiers {
            let volumes = shape.volumes;
            if let Some(given) = *bytes {
                let follow = shape.fitting(&self.groups, given);
                let strengths = [of_blocks, of_bytes].map(|key| origins.of(key).strength());
                let one = shape.bytes(&self.groups, volumes);
                if strengths[0] > strengths[1] {
                    *bytes = None;
                    origins.forget(of_bytes);
                } else if follow == 0 && given > 0 {
                    let why = format!("holds no block: the least is {one} bytes; give more, or {of_blocks}");
                    refuse(&mut self.faults, origins, of_bytes, bytes_text(given), why);
                } else if strengths[0] < strengths[1] {
                    *blocks = follow;
                    origins.set(of_blocks, Origin::Derived(of_bytes));
                } else if *blocks != follow {
                    let why = format!(
                        "makes {follow} blocks of {one} bytes{}, and {of_blocks} = {blocks} ({}); give one of them",
                        if volumes > 1 { " on all paths" } else { "" },
                        origins.of(of_blocks)
                    );
                    refuse(&mut self.faults, origins, of_bytes, bytes_text(given), why);
                }
            }
            let all = shape.bytes(&self.groups, *blocks);
            if all > u128::from(MOST_BYTES) {
                let why = format!(
                    "takes {all} bytes, and a tier has {} at most; use fewer or smaller blocks",
                    bytes_text(MOST_BYTES)
                );
                refuse(&mut self.faults, origins, of_blocks, *blocks, why);
            }
        }
    }

    /// Defaults that follow from what was given.
    fn follow(&mut self) {
        let block = self.block();
        let Draft { settings, origins, .. } = &mut self.builder;
        let mut follow = |key: &str, from: &'static str, differs: bool| {
            let follows = differs && !origins.is_given(key);
            if follows {
                origins.set(key, Origin::Derived(from));
            }
            follows
        };
        let eighth = settings.host.blocks / 8;
        if follow("host.headroom", "host.blocks", settings.host.blocks > 0 && settings.host.headroom > eighth)
        {
            settings.host.headroom = eighth;
        }
        let device = settings.device.blocks;
        if follow("prefetch.blocks", "device.blocks", settings.prefetch.blocks > device) {
            settings.prefetch.blocks = device;
        }
        if follow("transfer.in_flight", "geometry", settings.transfer.in_flight < block) {
            settings.transfer.in_flight = block;
        }
        let below = |high: f64| (((high - 0.05) * 1000.0).round() / 1000.0).max(0.0);
        let watermark = &mut settings.watermark;
        if follow("watermark.device_low", "watermark.device", watermark.device_low >= watermark.device) {
            watermark.device_low = below(watermark.device);
        }
        if follow("watermark.host_low", "watermark.host", watermark.host_low >= watermark.host) {
            watermark.host_low = below(watermark.host);
        }
        if let (Some(host), Some(disk)) = (settings.idle.host_after, settings.idle.disk_after)
            && follow("idle.disk_after", "idle.host_after", disk < host)
        {
            settings.idle.disk_after = Some(host);
        }
    }

    fn limits(&mut self) {
        let settings = self.builder.settings.clone();
        let watermark = &settings.watermark;
        let pairs = [
            ("watermark.device_low", watermark.device_low, "watermark.device", watermark.device),
            ("watermark.host_low", watermark.host_low, "watermark.host", watermark.host),
        ];
        for (low, low_value, high, high_value) in pairs {
            if low_value >= high_value && !self.builder.origins.is_given(low) {
                // It followed from the higher one, below which there is nothing.
                let why = "must be above 0: offloading goes on down to a part below it";
                self.refuse(high, format!("{high_value:?}"), why);
            } else if low_value >= high_value {
                let why = format!("must be below {}", self.said(high, format!("{high_value:?}")));
                self.refuse(low, format!("{low_value:?}"), why);
            }
        }
        let (headroom, capacity) = (settings.host.headroom, settings.host.blocks);
        if capacity > 0 && headroom >= capacity {
            let why = format!(
                "must be below {}: what is left is for everybody else",
                self.said("host.blocks", capacity)
            );
            self.refuse("host.headroom", headroom, why);
        }
        if let (Some(host), Some(disk)) = (settings.idle.host_after, settings.idle.disk_after)
            && disk < host
        {
            let why = format!(
                "must not be below {}: blocks come to the host first",
                self.said("idle.host_after", host)
            );
            self.refuse("idle.disk_after", disk, why);
        }
        if settings.prefetch.blocks > settings.device.blocks {
            let why = format!("must not be above {}", self.said("device.blocks", settings.device.blocks));
            self.refuse("prefetch.blocks", settings.prefetch.blocks, why);
        }
        let transfer = &settings.transfer;
        let budgets = [
            ("transfer.in_flight", Some(transfer.in_flight)),
            ("transfer.in_flight_device_to_host", transfer.in_flight_device_to_host),
            ("transfer.in_flight_host_to_disk", transfer.in_flight_host_to_disk),
            ("transfer.in_flight_host_to_device", transfer.in_flight_host_to_device),
            ("transfer.in_flight_disk_to_device", transfer.in_flight_disk_to_device),
            ("iteration.bytes", settings.iteration.bytes),
            ("disk.write_budget", settings.disk.write_budget),
        ];
        let block = self.block();
        for (key, budget) in budgets {
            if let Some(budget) = budget.filter(|budget| *budget < block) {
                let why = format!(
                    "less than one block, of {block} bytes: nothing would ever be moved; give at least {}",
                    bytes_text(block)
                );
                self.refuse(key, bytes_text(budget), why);
            }
        }
    }

    fn disk(&mut self) {
        let disk = self.builder.settings.disk.clone();
        let volumes = u32::try_from(disk.paths.len()).unwrap_or(u32::MAX).max(1);
        if let (0, Some(path)) = (disk.blocks, disk.paths.first()) {
            let why = format!(
                "{} leaves the disk tier out; give it blocks or bytes, or leave the paths out",
                self.said("disk.blocks", 0)
            );
            self.refuse("disk.paths", path.display(), why);
        }
        if !disk.blocks.is_multiple_of(volumes) {
            let (up, down) = (disk.blocks.next_multiple_of(volumes), disk.blocks / volumes * volumes);
            let down = if down == 0 { String::new() } else { format!("{down} or ") };
            let why = format!("must be a multiple of the {volumes} disk.paths; use {down}{up}");
            self.refuse("disk.blocks", disk.blocks, why);
        }
        if let Some(i) = (1..disk.paths.len()).find(|i| disk.paths[..*i].contains(&disk.paths[*i])) {
            self.refuse("disk.paths", disk.paths[i].display(), "is there twice; each volume needs its own");
        }
        let large = self.groups.iter().find(|group| group.block_bytes() > MOST_SLOT_BYTES);
        if let Some(group) = large.filter(|_| disk.blocks > 0) {
            let why = format!(
                "with pages of {} tokens a block of group {} has {} bytes, and one on a disk {MOST_SLOT_BYTES} at most; use smaller \
                 pages (geometry.page_size), or leave the disk tier out",
                group.page_size,
                group.name,
                group.block_bytes()
            );
            self.refuse("disk.blocks", disk.blocks, why);
        }
        if let Some(staging) = disk.staging.filter(|staging| disk.blocks > 0 && *staging < 2) {
            let why = "must be at least 2 with a disk tier: bytes go through host memory, and while one block is copied up the next is read";
            self.refuse("disk.staging", staging, why);
        }
        if let (Some(file), Some(variable)) = (&disk.key_file, &disk.key_env) {
            let why = format!(
                "there is one key, and {} is given too; leave one out",
                self.said("disk.key_env", variable)
            );
            self.refuse("disk.key_file", file.display(), why);
        }
    }

    fn hash(&mut self) {
        let hash = &self.builder.settings.hash;
        let (file, variable) = (hash.key_file.clone(), hash.key_env.clone());
        let takes_secret = hash.function == HashFunction::Keyed;
        if let (Some(file), Some(variable)) = (&file, &variable) {
            let why = format!(
                "there is one secret, and {} is given too; leave one out",
                self.said("hash.key_env", variable)
            );
            self.refuse("hash.key_file", file.display(), why);
        }
        if takes_secret {
            return;
        }
        if let Some(file) = file {
            self.refuse(
                "hash.key_file",
                file.display(),
                "xxh3 takes no secret; leave it out, or hash.function",
            );
        }
        if let Some(variable) = variable {
            self.refuse("hash.key_env", variable, "xxh3 takes no secret; leave it out, or hash.function");
        }
    }

    fn tenants(&mut self) {
        let names: Vec<_> = self.builder.tenants.iter().map(|tenant| tenant.name.clone()).collect();
        let most = self.builder.settings.quota.tenants;
        if names.len() > most as usize {
            let why = format!("{} [[tenant]] have a name; raise it to that at least", names.len());
            self.refuse("quota.tenants", most, why);
        }
        if let Some(i) = (1..names.len()).find(|i| names[..*i].contains(&names[*i])) {
            self.refuse(
                &format!("tenant[{i}].name"),
                &names[i],
                "another tenant has this name; each needs its own",
            );
        }
    }
}
