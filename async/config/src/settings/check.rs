//! Checks across settings: some values follow from others, and conflicting values are refused by both names.
//!
//! Order: the geometry; bytes and blocks of each tier; defaults that follow from given values, so that no
//! default is refused; then all remaining conflicts.

use super::ManagerConfig;
use super::block::Shape;
use super::draft::{Draft, Origins};
use super::error::{Fault, Origin};
use super::geometry::{self, Group};
use super::kind::bytes_text;
use super::table::MOST_BYTES;
use super::words::HashFunction;
use kvstrata_tiers::tier;

/// The most bytes of a slot of a volume: 4 GiB with its padding.
const MOST_SLOT_BYTES: u64 = u32::MAX as u64 - 4095;

/// Returns the checked configuration, or the conflicts.
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

/// The numbers of blocks and of bytes of one tier.
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

    /// Bytes of the largest block, which every limit in bytes must allow.
    fn block(&self) -> u64 {
        self.groups.iter().map(Group::block_bytes).max().unwrap_or(0)
    }

    /// Computes blocks from bytes where bytes have the stronger origin. With origins of one strength, both
    /// must agree.
    fn tiers(&mut self) {
        let Draft { settings, origins, .. } = &mut self.builder;
        // A store has sizes of its own, and checks them itself.
        let is_keyed = !settings.store.sizes.is_empty();
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
                } else if follow == 0 && given > 0 && !is_keyed {
                    let why =
                        format!("less than the smallest tier, {one} bytes; raise it, or set {of_blocks}");
                    refuse(&mut self.faults, origins, of_bytes, bytes_text(given), why);
                } else if strengths[0] < strengths[1] {
                    *blocks = follow;
                    origins.set(of_blocks, Origin::Derived(of_bytes));
                } else if *blocks != follow {
                    let why = format!(
                        "gives {of_blocks} = {follow} (a block{}: {one} bytes), not {blocks} ({}); \
                         set one of them",
                        if volumes > 1 { " on each path" } else { "" },
                        origins.of(of_blocks)
                    );
                    refuse(&mut self.faults, origins, of_bytes, bytes_text(given), why);
                }
            }
            let all = shape.bytes(&self.groups, *blocks);
            if all > u128::from(MOST_BYTES) {
                let why = format!(
                    "takes {all} bytes, above the maximum of {}; use fewer or smaller blocks",
                    bytes_text(MOST_BYTES)
                );
                refuse(&mut self.faults, origins, of_blocks, *blocks, why);
            }
        }
    }

    /// Adjusts defaults to given values.
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
                // The low one follows from the high one, and no fraction is below 0.
                let why = "must be above 0: copying continues down to a fraction below it";
                self.refuse(high, format!("{high_value:?}"), why);
            } else if low_value >= high_value {
                let why = format!("must be below {}", self.said(high, format!("{high_value:?}")));
                self.refuse(low, format!("{low_value:?}"), why);
            }
        }
        let (headroom, capacity) = (settings.host.headroom, settings.host.blocks);
        if capacity > 0 && headroom >= capacity {
            let why =
                format!("must be below {}; other copies need the rest", self.said("host.blocks", capacity));
            self.refuse("host.headroom", headroom, why);
        }
        if let (Some(host), Some(disk)) = (settings.idle.host_after, settings.idle.disk_after)
            && disk < host
        {
            let why = format!(
                "must not be below {}: blocks reach the host first",
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
                let why =
                    format!("smaller than one block, {block} bytes; set at least {}", bytes_text(block));
                self.refuse(key, bytes_text(budget), why);
            }
        }
    }

    fn disk(&mut self) {
        let disk = self.builder.settings.disk.clone();
        let volumes = u32::try_from(disk.paths.len()).unwrap_or(u32::MAX).max(1);
        if let (0, Some(path)) = (disk.blocks, disk.paths.first()) {
            let why = format!(
                "unused, since {}; set disk.blocks or disk.bytes, or remove the paths",
                self.said("disk.blocks", 0)
            );
            self.refuse("disk.paths", path.display(), why);
        }
        if !disk.blocks.is_multiple_of(volumes) {
            let (up, down) = (disk.blocks.next_multiple_of(volumes), disk.blocks / volumes * volumes);
            let down = if down == 0 { String::new() } else { format!("{down} or ") };
            let why = format!("must be a multiple of the number of disk.paths, {volumes}; use {down}{up}");
            self.refuse("disk.blocks", disk.blocks, why);
        }
        if let Some(i) = (1..disk.paths.len()).find(|i| disk.paths[..*i].contains(&disk.paths[*i])) {
            self.refuse(
                "disk.paths",
                disk.paths[i].display(),
                "listed twice; each volume needs its own path",
            );
        }
        let large = self.groups.iter().find(|group| group.block_bytes() > MOST_SLOT_BYTES);
        if let Some(group) = large.filter(|_| disk.blocks > 0) {
            let why = format!(
                "{} tokens of group {} make a block of {} bytes, above the {MOST_SLOT_BYTES} of a \
                 disk; lower geometry.page_size, or set disk.blocks = 0",
                group.page_size,
                group.name,
                group.block_bytes()
            );
            self.refuse("disk.blocks", disk.blocks, why);
        }
        if let Some(staging) = disk.staging.filter(|staging| disk.blocks > 0 && *staging < 2) {
            let why = "must be at least 2 with a disk tier: one block is copied while the next is read";
            self.refuse("disk.staging", staging, why);
        }
        if let (Some(file), Some(variable)) = (&disk.key_file, &disk.key_env) {
            let why = format!("conflicts with {}; remove one of them", self.said("disk.key_env", variable));
            self.refuse("disk.key_file", file.display(), why);
        }
    }

    fn hash(&mut self) {
        let hash = &self.builder.settings.hash;
        let (file, variable) = (hash.key_file.clone(), hash.key_env.clone());
        let takes_secret = hash.function == HashFunction::Keyed;
        if let (Some(file), Some(variable)) = (&file, &variable) {
            let why = format!("conflicts with {}; remove one of them", self.said("hash.key_env", variable));
            self.refuse("hash.key_file", file.display(), why);
        }
        if takes_secret {
            return;
        }
        if let Some(file) = file {
            self.refuse(
                "hash.key_file",
                file.display(),
                "xxh3 takes no secret; remove it, or set hash.function = keyed",
            );
        }
        if let Some(variable) = variable {
            self.refuse(
                "hash.key_env",
                variable,
                "xxh3 takes no secret; remove it, or set hash.function = keyed",
            );
        }
    }

    fn tenants(&mut self) {
        let names: Vec<_> = self.builder.tenants.iter().map(|tenant| tenant.name.clone()).collect();
        let most = self.builder.settings.quota.tenants;
        if names.len() > most as usize {
            let why = format!("less than the number of [[tenant]] entries, {}; raise it", names.len());
            self.refuse("quota.tenants", most, why);
        }
        if let Some(i) = (1..names.len()).find(|i| names[..*i].contains(&names[*i])) {
            self.refuse(
                &format!("tenant[{i}].name"),
                &names[i],
                "another tenant has this name; rename one of them",
            );
        }
    }
}
