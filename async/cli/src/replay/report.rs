//! The report of a replay. The names of the fields are the keys of `--json`; they are stable.

use super::histogram::Histogram;
use super::machine;
use super::settings::Settings;
use super::tally::{Flow, Tally};
use super::tiers::{self, Tiers};
use crate::trace::TraceWarning;
use kvstrata::backend::disk::Rejected;
use kvstrata::backend::transfer::{Cause, Path};
use kvstrata::manager::{ManagerStats, PathStats};
use kvstrata::tier::Tier;
use kvstrata_ffi::arena::Backing;
use serde::{Serialize, Serializer};
use std::time::Duration;

/// The result of a replay, printed by `Display` as a table and by serde as JSON.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of kvstrata.
    pub version: &'static str,
    /// Name of the trace, for people.
    pub trace: String,
    /// Warnings of the trace, one for each kind, with the first line.
    pub trace_warnings: Vec<String>,
    /// Whether the replay was stopped before the end of the trace. The report then
    /// covers the requests served.
    pub interrupted: bool,
    /// Requests served.
    pub requests: u64,
    /// Blocks of these requests.
    pub blocks: u64,
    /// Blocks of leading runs that some tier had.
    pub hit_blocks: u64,
    /// `hit_blocks` / `blocks`; 0 without blocks.
    pub hit_ratio: f64,
    /// Hits by tier.
    pub hits: ByTier,
    /// Hits that were read back from the device and compared.
    pub verified_blocks: u64,
    /// Verified blocks with wrong bytes.
    pub wrong_blocks: u64,
    /// Bytes that differ from the bytes written. Must be 0.
    pub wrong_bytes: u64,
    /// The wrong block with the lowest line.
    pub first_wrong: Option<Wrong>,
    /// Blocks not served, because their request is larger than the device.
    pub uncached_blocks: u64,
    /// Victims, by the tier that evicted them.
    pub evicted: ByTier,
    /// Victims that were dropped: the tier below had no room, or the copy failed.
    pub dropped_blocks: u64,
    /// Failed transfers by cause; each is a miss.
    pub failures: Failures,
    /// Bytes moved, by path.
    pub bytes: ByPath<u64>,
    /// Bytes a second on each path, while it has transfers in flight.
    pub bytes_per_second: ByPath<f64>,
    /// Latencies of a request's steps, in nanoseconds.
    pub latency_ns: Latencies,
    /// Delays of requests after their times, in nanoseconds; `None` without `--speed`.
    pub lateness_ns: Option<Latency>,
    /// Peak memory of the process, tiers included.
    pub peak_memory_bytes: Option<u64>,
    /// Pages that back the host tier and the staging buffers; `None` without both.
    #[serde(serialize_with = "in_words")]
    pub host_backing: Option<Backing>,
    /// Time to make the tiers.
    pub setup_seconds: f64,
    /// Time to serve the trace.
    pub wall_seconds: f64,
    /// The settings of the replay.
    pub settings: Asked,
    /// The disk tier, if there is one.
    pub disk: Option<Disk>,
}

/// A number for each tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ByTier {
    /// G1.
    pub device: u64,
    /// G2.
    pub host: u64,
    /// G3.
    pub disk: u64,
}

/// A number for each path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ByPath<N> {
    /// Offloads from the device.
    pub device_to_host: N,
    /// Offloads to the volumes.
    pub host_to_disk: N,
    /// Onboards from the volumes.
    pub disk_to_host: N,
    /// Onboards to the device.
    pub host_to_device: N,
    /// Blocks computed and copied to the device.
    pub filled: N,
}

/// Failed transfers; each is a miss, or was retried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Failures {
    /// Reads of the volumes.
    pub disk_read: u64,
    /// Writes to the volumes.
    pub disk_write: u64,
    /// Copies from the device.
    pub device_read: u64,
    /// Copies to the device.
    pub device_write: u64,
    /// Host blocks that were in use elsewhere: a bug of kvstrata, but harmless.
    pub host_busy: u64,
    /// Host blocks whose checksum did not match.
    pub host_mismatch: u64,
}

/// A block with wrong bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wrong {
    /// Line of the request in the trace.
    pub line: u64,
    /// The block's id.
    pub id: u64,
    /// The tier that had the block.
    pub found_in: Tier,
    /// Number of wrong bytes.
    pub bytes: u64,
    /// Offset of the first wrong byte.
    pub first_offset: usize,
}

/// The steps of a request, each measured as a whole.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latencies {
    /// Allocation of device blocks for misses, including the offloads that make room.
    pub allocation: Latency,
    /// Look-up of the run in all tiers.
    #[serde(rename = "match")]
    pub matching: Latency,
    /// Onboard of the blocks that lower tiers have, including their allocation; only for
    /// requests with such blocks.
    pub onboard: Latency,
    /// Release of the blocks.
    pub release: Latency,
}

/// Quantiles of one step, in nanoseconds, at most 1 % too high.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// Requests measured.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Maximum.
    pub max: u64,
}

/// The settings of the replay.
#[derive(Debug, Clone, Serialize)]
pub struct Asked {
    /// Kind of the device; `sim` is host memory that stands in for one.
    pub device: &'static str,
    /// `--device-blocks`.
    pub device_blocks: u32,
    /// `--host-blocks`.
    pub host_blocks: u32,
    /// `--disk-blocks`.
    pub disk_blocks: u32,
    /// `--block-bytes`.
    pub block_bytes: usize,
    /// `--policy`.
    pub policy: &'static str,
    /// `--policy-below`.
    pub policy_below: &'static str,
    /// `--disk-admission`.
    pub disk_admission: &'static str,
    /// `--disk-write-budget`, in bytes a day.
    pub disk_write_budget: Option<u64>,
    /// `--seed`.
    pub seed: u64,
    /// `--concurrency`.
    pub concurrency: usize,
    /// `--speed`.
    pub speed: f64,
}

/// The disk tier: its files, the blocks found in them, blocks written and refused.
#[derive(Debug, Clone, Serialize)]
pub struct Disk {
    /// Paths of its files, separated by commas. An unnamed file has the path of its creation.
    pub path: String,
    /// Number of files.
    pub volumes: usize,
    /// The backend that reads and writes.
    pub backend: String,
    /// Whether it bypasses the page cache.
    pub direct: bool,
    /// Length of the files.
    pub file_bytes: u64,
    /// Memory registered with the rings.
    pub fixed_bytes: u64,
    /// Limitations of the volumes, with their reasons.
    pub notes: Vec<String>,
    /// Whether this run made the files.
    pub created: bool,
    /// Whether the last run closed all files in order.
    pub clean: bool,
    /// Blocks found in the files.
    pub recovered_blocks: u64,
    /// Blocks rejected on opening and on reading, by cause. Each is a miss.
    pub rejected: Rejected,
    /// Blocks offloaded that the tier did not have.
    pub offered_blocks: u64,
    /// Offered blocks that were written.
    pub written_blocks: u64,
    /// Offered blocks that `--disk-admission` refused.
    pub refused_by_admission_blocks: u64,
    /// Offered blocks over `--disk-write-budget`.
    pub refused_by_budget_blocks: u64,
    /// Slots of volumes that are out of service.
    pub quarantined_slots: u64,
    /// Volumes that are out of service.
    pub lost_volumes: u64,
}

impl Disk {
    fn new(disk: &tiers::Disk) -> Disk {
        let volumes = disk.tier.volumes().volumes();
        let found: Vec<_> = volumes.iter().map(|volume| volume.describe()).collect();
        let stats = disk.tier.stats();
        let paths: Vec<_> = found.iter().map(|volume| volume.path.display().to_string()).collect();
        let mut backends: Vec<_> = found.iter().map(|volume| volume.backend.to_string()).collect();
        backends.dedup();
        let mut notes = Vec::new();
        for (volume, note) in
            found.iter().flat_map(|volume| volume.notes.iter().map(move |note| (volume, note)))
        {
            // A note of some volumes only names its volume.
            let note = match found.iter().all(|volume| volume.notes.contains(note)) {
                true => note.clone(),
                false => format!("{}: {note}", volume.path.display()),
            };
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        Disk {
            path: paths.join(","),
            volumes: found.len(),
            backend: backends.join(", "),
            direct: found.iter().all(|volume| volume.direct),
            file_bytes: found.iter().map(|volume| volume.file_bytes).sum(),
            fixed_bytes: found.iter().map(|volume| volume.fixed_bytes).sum(),
            notes,
            created: disk.found.created,
            clean: disk.found.clean,
            recovered_blocks: disk.found.recovered_blocks,
            rejected: stats.rejected,
            offered_blocks: stats.offered,
            written_blocks: stats.written,
            refused_by_admission_blocks: stats.refused_by_admission,
            refused_by_budget_blocks: stats.refused_by_budget,
            quarantined_slots: stats.quarantined,
            lost_volumes: stats.lost_volumes,
        }
    }
}

impl Report {
    pub(super) fn new(
        settings: &Settings,
        (trace, warnings): (String, Vec<TraceWarning>),
        tiers: &Tiers,
        tally: &Tally,
        [setup, wall]: [Duration; 2],
        interrupted: bool,
    ) -> Report {
        let hits = ByTier { device: tally.hits[0], host: tally.hits[1], disk: tally.hits[2] };
        let hit_blocks = tally.hits.iter().sum::<u64>();
        let evicted = |tier| tiers.manager.default_group().pool_stats(tier).evicted;
        let stats = tiers.manager.stats();
        Report {
            version: env!("CARGO_PKG_VERSION"),
            trace,
            trace_warnings: warnings.iter().map(ToString::to_string).collect(),
            interrupted,
            requests: tally.requests,
            blocks: tally.blocks,
            hit_blocks,
            hit_ratio: hit_blocks as f64 / tally.blocks.max(1) as f64,
            hits,
            verified_blocks: tally.verified_blocks,
            wrong_blocks: tally.wrong_blocks,
            wrong_bytes: tally.wrong_bytes,
            first_wrong: tally.first_wrong.clone(),
            uncached_blocks: tally.uncached_blocks,
            evicted: ByTier {
                device: evicted(Tier::Device),
                host: evicted(Tier::Host),
                disk: evicted(Tier::DISK),
            },
            dropped_blocks: stats.dropped.iter().sum(),
            failures: Failures::new(&stats, tally),
            bytes: paths(&stats, tally, |flow| flow.bytes),
            bytes_per_second: paths(&stats, tally, |flow| match flow.busy.as_secs_f64() {
                0.0 => 0.0,
                seconds => flow.bytes as f64 / seconds,
            }),
            latency_ns: Latencies {
                allocation: Latency::new(&tally.allocation),
                matching: Latency::new(&tally.matching),
                onboard: Latency::new(&tally.onboard),
                release: Latency::new(&tally.release),
            },
            lateness_ns: (settings.speed > 0.0).then(|| Latency::new(&tally.lateness)),
            peak_memory_bytes: machine::peak_memory_bytes(),
            host_backing: tiers.backing,
            setup_seconds: setup.as_secs_f64(),
            wall_seconds: wall.as_secs_f64(),
            settings: Asked {
                device: tiers.device,
                device_blocks: settings.device_blocks,
                host_blocks: settings.host_blocks,
                disk_blocks: settings.disk_blocks,
                block_bytes: settings.block_bytes,
                policy: settings.policy.name(),
                policy_below: settings.policy_below.name(),
                disk_admission: settings.disk_admission.name(),
                disk_write_budget: settings.disk_write_budget,
                seed: settings.seed,
                concurrency: settings.concurrency,
                speed: settings.speed,
            },
            disk: tiers.disk.as_ref().map(Disk::new),
        }
    }
}

fn in_words<S: Serializer>(backing: &Option<Backing>, to: S) -> Result<S::Ok, S::Error> {
    backing.map(|backing| backing.to_string()).serialize(to)
}

fn paths<N>(stats: &ManagerStats, tally: &Tally, number: impl Fn(&Flow) -> N) -> ByPath<N> {
    let of = |path| {
        let PathStats { bytes, busy, .. } = stats.path(path);
        number(&Flow { bytes, busy })
    };
    ByPath {
        device_to_host: of(Path::DeviceToHost),
        host_to_disk: of(Path::HOST_TO_DISK),
        disk_to_host: of(Path::DISK_TO_DEVICE),
        host_to_device: of(Path::HostToDevice),
        filled: number(&tally.filled),
    }
}

impl Latency {
    fn new(histogram: &Histogram) -> Latency {
        Latency {
            count: histogram.count(),
            p50: histogram.quantile(500),
            p99: histogram.quantile(990),
            p999: histogram.quantile(999),
            max: histogram.max(),
        }
    }
}

impl Failures {
    /// Counts failed transfers. The disk tier counts blocks that it rejects, and cancelled
    /// transfers have not failed.
    fn new(stats: &ManagerStats, tally: &Tally) -> Failures {
        let of = |path, causes: &[Cause]| {
            causes.iter().map(|cause| stats.path(path).failed_by(*cause)).sum::<u64>()
        };
        let device = [Cause::Device, Cause::Abandoned];
        Failures {
            disk_read: of(Path::DISK_TO_DEVICE, &[Cause::Tier, Cause::Lost, Cause::Away, Cause::Abandoned]),
            // A write to a lost volume goes to another volume.
            disk_write: of(Path::HOST_TO_DISK, &[Cause::Tier, Cause::Away, Cause::Abandoned]),
            device_read: of(Path::DeviceToHost, &device) + tally.unread,
            device_write: of(Path::HostToDevice, &device) + tally.unwritten,
            host_busy: Path::OF_SETTINGS.iter().map(|path| of(*path, &[Cause::Busy])).sum(),
            host_mismatch: of(Path::HostToDevice, &[Cause::Mismatch]),
        }
    }

    /// All causes together.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Failures { disk_read, disk_write, device_read, device_write, host_busy, host_mismatch } = self;
        disk_read + disk_write + device_read + device_write + host_busy + host_mismatch
    }
}
