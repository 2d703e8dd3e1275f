//! The figures of a manager at one moment, as the view needs them.
//!
//! Names of tiers, paths, groups, causes and tenants are taken from the text, so that names of a later
//! version are shown too. They are made harmless for terminals first ([`shown`]).

use super::buckets::Buckets;
use super::exposition::{Exposition, value_of};

/// The most tiers, paths and causes kept of each kind; no manager has as many.
pub(super) const MOST: usize = 64;

/// Figures at one moment. Counters count from the start of the process.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Reading {
    pub(super) version: Option<String>,
    pub(super) uptime: Option<f64>,
    pub(super) tiers: Vec<TierReading>,
    pub(super) paths: Vec<PathReading>,
    pub(super) lookups: Vec<LookupReading>,
    pub(super) troubles: Vec<(String, f64)>,
    pub(super) requests: Requests,
    pub(super) tenant: Option<Tenant>,
}

/// A tier of a group of layers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TierReading {
    pub(super) name: String,
    pub(super) blocks: f64,
    pub(super) free: f64,
    pub(super) inactive: f64,
    /// Active and owned.
    pub(super) in_use: f64,
    pub(super) evicted: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct PathReading {
    pub(super) name: String,
    pub(super) bytes: f64,
    pub(super) transfers: f64,
    pub(super) queued: f64,
    pub(super) inflight: f64,
    /// `None` without `metrics.histograms`.
    pub(super) latency: Option<Buckets>,
}

/// Look-ups of a group of layers, in its blocks.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct LookupReading {
    pub(super) group: String,
    pub(super) asked: f64,
    /// Blocks found, by place.
    pub(super) found: Vec<(String, f64)>,
}

/// Requests served, and waiting calls and transfers.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize)]
pub struct Requests {
    /// Requests that the engine serves, if the engine reports them.
    pub served: u64,
    /// Requests that the engine can serve at once; 0 if it does not report them.
    pub slots: u64,
    /// Allocations and onboards that wait for device blocks.
    pub waiting: u64,
    /// Onboards in progress.
    pub onboarding: u64,
    /// Transfers to the device that wait for room in a queue, or for staging.
    pub waiting_for_queue: u64,
    /// Offloads that wait for a block of host memory.
    pub waiting_for_host: u64,
    /// Offloads that wait for a layer or an iteration.
    pub gated: u64,
    /// Purges of tenants.
    pub purges: u64,
}

/// The tenant nearest to its quota.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Tenant {
    /// The tenant's name.
    pub tenant: String,
    /// The tier of the quota.
    pub tier: String,
    /// Blocks that the tenant has in the tier.
    pub blocks: u64,
    /// Blocks that the tenant may have in the tier.
    pub quota: u64,
}

impl Tenant {
    /// The used share of the quota, from 0 to 1.
    #[must_use]
    pub fn part(&self) -> f64 {
        self.blocks as f64 / self.quota as f64
    }
}

/// Troubles, the worst first: the metric, and its description, to which the values of the labels are
/// appended. A counter gives the number of events, a gauge the current number.
const TROUBLES: [(&str, &str); 10] = [
    ("kvstrata_verification_failures_total", "wrong bytes"),
    ("kvstrata_disk_lost_volumes", "volumes lost"),
    ("kvstrata_quarantined_transfers_total", "transfers quarantined"),
    ("kvstrata_disk_quarantined_slots", "slots quarantined"),
    ("kvstrata_transfer_failures_total", "failed"),
    ("kvstrata_short_onboardings_total", "short onboards"),
    ("kvstrata_late_allocations_total", "late allocations"),
    ("kvstrata_dropped_blocks_total", "dropped from"),
    ("kvstrata_refused_blocks_total", "offload refused"),
    ("kvstrata_disk_refused_blocks_total", "refused by"),
];

/// Causes that need no action: cancelled transfers, and blocks that a quota or a filter refuses as
/// configured. An onboard cut short at a quota is not among them: the manager logs its remedy.
const USUAL: [(&str, &str); 4] = [
    ("kvstrata_transfer_failures_total", "cancelled"),
    ("kvstrata_transfer_failures_total", "quota"),
    ("kvstrata_short_onboardings_total", "cancelled"),
    ("kvstrata_disk_refused_blocks_total", "admission"),
];

impl Reading {
    /// The figures of a text; `None` if it has no tier of a manager.
    pub(super) fn of(text: &Exposition) -> Option<Reading> {
        let tiers = tiers(text);
        if tiers.is_empty() {
            return None;
        }
        let sum = |name: &str| text.sum(name, &[]).unwrap_or_default();
        let gauge = |name: &str| sum(name) as u64;
        let versions = text.values("kvstrata_build_info", "version");
        Some(Reading {
            version: versions.first().map(|version| shown(version)),
            uptime: text.sum("kvstrata_uptime_seconds", &[]),
            paths: text
                .values("kvstrata_transfers_total", "path")
                .iter()
                .map(|path| of_path(text, path))
                .collect(),
            lookups: text
                .values("kvstrata_lookup_blocks_total", "group")
                .iter()
                .map(|group| of_group(text, group))
                .collect(),
            troubles: TROUBLES.iter().flat_map(|(name, words)| troubles(text, name, words)).collect(),
            requests: Requests {
                served: gauge("kvstrata_worker_request_active_slots"),
                slots: gauge("kvstrata_worker_request_total_slots"),
                waiting: gauge("kvstrata_waiting_requests"),
                onboarding: gauge("kvstrata_onboarding_requests"),
                waiting_for_queue: gauge("kvstrata_waiting_for_queue_transfers"),
                waiting_for_host: gauge("kvstrata_waiting_for_host_transfers"),
                gated: gauge("kvstrata_gated_transfers"),
                purges: gauge("kvstrata_purges"),
            },
            tenant: tenant(text),
            tiers,
        })
    }
}

fn tiers(text: &Exposition) -> Vec<TierReading> {
    let several = text.values("kvstrata_tier_blocks", "group").len() > 1;
    let of = |(labels, blocks): (&[(String, String)], f64)| {
        let (tier, group) = (value_of(labels, "tier")?, value_of(labels, "group")?);
        let labels = [("tier", tier), ("group", group)];
        let of_state = |state| {
            let [tier, group] = labels;
            text.sum("kvstrata_blocks", &[tier, group, ("state", state)]).unwrap_or_default()
        };
        Some(TierReading {
            name: if several { format!("{} {}", shown(tier), shown(group)) } else { shown(tier) },
            blocks,
            free: of_state("free"),
            inactive: of_state("inactive"),
            in_use: of_state("active") + of_state("owned"),
            evicted: text.sum("kvstrata_evicted_blocks_total", &labels).unwrap_or_default(),
        })
    };
    text.samples("kvstrata_tier_blocks").filter_map(of).take(MOST).collect()
}

fn of_path(text: &Exposition, path: &str) -> PathReading {
    let sum = |name: &str| text.sum(name, &[("path", path)]).unwrap_or_default();
    let latency = text.histogram("kvstrata_transfer_seconds", &[("path", path)]);
    PathReading {
        name: shown_path(path),
        bytes: sum("kvstrata_transfer_bytes_total"),
        transfers: sum("kvstrata_transfers_total"),
        queued: sum("kvstrata_queue_transfers"),
        inflight: sum("kvstrata_inflight_transfers"),
        latency: (latency != Buckets::default()).then_some(latency),
    }
}

fn of_group(text: &Exposition, group: &str) -> LookupReading {
    let group_label = ("group", group);
    let found = |tier: &&str| {
        let blocks = text.sum("kvstrata_hit_blocks_total", &[group_label, ("tier", tier)]);
        (shown(tier), blocks.unwrap_or_default())
    };
    LookupReading {
        group: shown(group),
        asked: text.sum("kvstrata_lookup_blocks_total", &[group_label]).unwrap_or_default(),
        found: text.values("kvstrata_hit_blocks_total", "tier").iter().map(found).collect(),
    }
}

/// The samples of a trouble that are not 0, by the values of their labels, added up over groups.
fn troubles(text: &Exposition, name: &str, words: &str) -> Vec<(String, f64)> {
    let mut all = Vec::<(String, f64)>::new();
    let usual = |labels| value_of(labels, "cause").is_some_and(|cause| USUAL.contains(&(name, cause)));
    for (labels, count) in text.samples(name).filter(|(labels, count)| *count > 0.0 && !usual(labels)) {
        let told = labels.iter().filter(|(label, _)| label != "group");
        let what = told.fold(words.to_owned(), |text, (_, value)| text + " " + &shown_path(value));
        match all.iter().position(|(other, _)| *other == what) {
            Some(at) => all[at].1 += count,
            None if all.len() < MOST => all.push((what, count)),
            None => {}
        }
    }
    all
}

/// The tenant with the largest used share of its quota.
fn tenant(text: &Exposition) -> Option<Tenant> {
    let held: std::collections::BTreeMap<_, f64> = text
        .samples("kvstrata_tenant_blocks")
        .filter_map(|(labels, blocks)| {
            Some(((value_of(labels, "tenant")?, value_of(labels, "tier")?), blocks))
        })
        .collect();
    let of = |(labels, quota): (&[(String, String)], f64)| {
        let (tenant, tier) = (value_of(labels, "tenant")?, value_of(labels, "tier")?);
        let blocks = *held.get(&(tenant, tier))?;
        let of = || Tenant {
            tenant: shown(tenant),
            tier: shown(tier),
            blocks: blocks as u64,
            quota: quota as u64,
        };
        (quota >= 1.0 && blocks >= 1.0).then(of)
    };
    let all = text.samples("kvstrata_tenant_quota_blocks").filter_map(of);
    all.max_by(|a, b| a.part().total_cmp(&b.part()))
}

/// Whether a terminal shows a character without obeying it.
pub(super) fn harmless(c: char) -> bool {
    c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric()
}

/// A name from outside, harmless and at most 24 characters long: none of them moves the cursor, changes
/// the direction of the text, or has no width.
pub(super) fn shown(text: &str) -> String {
    let mut chars = text.chars();
    let mut name: String = chars.by_ref().take(24).map(|c| if harmless(c) { c } else { '?' }).collect();
    if chars.next().is_some() {
        name.push('…');
    }
    name
}

/// [`shown`] for a path, written `from_to_to`.
fn shown_path(path: &str) -> String {
    match path.split_once("_to_") {
        Some((from, to)) => format!("{}→{}", shown(from), shown(to)),
        None => shown(path),
    }
}
