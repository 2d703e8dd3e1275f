//! The table of settings: the one place where each is named. Structs, defaults, builder calls, files,
//! variables and the reference come of it.
//!
//! ```text
//!   device_blocks => blocks: u32 = 2048, Number { … };     in the section `device`
//!         │            │
//!         │            └ key device.blocks, field settings.device.blocks, in files [device] blocks
//!         └ the builder's call; in capitals behind KVSTRATA_, the variable
//! ```
//!
//! The words behind `///` are the reference's.

use super::kind::{Address, Bytes, File, Files, Flag, Fraction, Kind, Maybe, Number, Text, Time, Word};
use super::raw::Raw;
use super::words::{DeviceKind, DiskFill, HashFunction, Verify, WriteMode};
use kvstrata_backends::disk::AdmissionPolicy;
use kvstrata_core::Policy;
use kvstrata_core::layout::{DType, HeadOrder, Model};
use kvstrata_core::pool::MAX_CAPACITY;
use kvstrata_ffi::disk::Backend;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A setting of `S`, with its type taken away.
pub(super) struct Row<S> {
    pub(super) key: &'static str,
    /// Of the reference; begins with a space.
    pub(super) words: &'static str,
    pub(super) kind: &'static str,
    pub(super) unit: &'static str,
    pub(super) allowed: fn() -> String,
    /// Whether the value was of the right type, and is now there: not always an allowed one.
    pub(super) read: fn(&mut S, &Raw<'_>) -> bool,
    /// Whether the value is allowed.
    pub(super) holds: fn(&S) -> bool,
    /// The value as TOML has it.
    pub(super) toml: fn(&S) -> String,
    #[cfg(test)]
    pub(super) sample: fn(&mut S, u64),
}

impl<S> Row<S> {
    /// The key without its section.
    pub(super) fn field(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, field)| field)
    }

    /// The owner with this value; none if the value is not allowed.
    pub(super) fn with(&self, owner: &S, raw: &Raw<'_>) -> Option<S>
    where
        S: Clone,
    {
        let mut changed = owner.clone();
        ((self.read)(&mut changed, raw) && (self.holds)(&changed)).then_some(changed)
    }

    /// The key of an owner: of an entry of a list (`group[0]`), or of the settings themselves, where there is none.
    pub(super) fn key_in(&self, entry: &str) -> String {
        if entry.is_empty() { self.key.to_owned() } else { format!("{entry}.{}", self.field()) }
    }
}

macro_rules! row {
    ($owner:ty, $key:expr, [$($words:literal)+], $type:ty, $kind:expr, $($path:ident).+) => {
        Row::<$owner> {
            key: $key,
            words: concat!($($words),+),
            kind: kind_of::<$type>(&$kind),
            unit: unit_of::<$type>(&$kind),
            allowed: || Kind::<$type>::allowed(&$kind),
            read: |owner, raw| {
                let value = Kind::<$type>::read(&$kind, raw);
                value.map(|value| owner.$($path).+ = value).is_some()
            },
            holds: |owner| Kind::<$type>::holds(&$kind, &owner.$($path).+),
            toml: |owner| Kind::<$type>::toml(&$kind, &owner.$($path).+),
            #[cfg(test)]
            sample: |owner, random| owner.$($path).+ = Kind::<$type>::sample(&$kind, random),
        }
    };
}
pub(super) use row;

pub(super) fn kind_of<T>(kind: &impl Kind<T>) -> &'static str {
    kind.name()
}

pub(super) fn unit_of<T>(kind: &impl Kind<T>) -> &'static str {
    kind.unit()
}

macro_rules! settings {
    (
        {$($(#[doc = $root_words:literal])+ $root:ident: $root_type:ty = $root_default:expr, $root_kind:expr;)+}
        $(#[doc = $of:literal] $section:ident: $name:ident {
            $($(#[doc = $words:literal])+ $setter:ident => $field:ident: $type:ty = $default:expr, $kind:expr;)+
        })+
    ) => {
        $(
            #[doc = $of]
            #[derive(Debug, Clone, PartialEq)]
            pub struct $name { $($(#[doc = $words])+ pub $field: $type,)+ }

            impl Default for $name {
                fn default() -> $name {
                    $name { $($field: $default),+ }
                }
            }
        )+

        /// All settings but the lists of groups and tenants.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Settings {
            $($(#[doc = $root_words])+ pub $root: $root_type,)+
            $(#[doc = $of] pub $section: $name,)+
        }

        impl Default for Settings {
            fn default() -> Settings {
                Settings { $($root: $root_default,)+ $($section: $name::default()),+ }
            }
        }

        /// The sections, and what each is.
        pub(super) const SECTIONS: &[(&str, &str)] = &[$((stringify!($section), $of)),+];

        /// Every setting, those without a section first.
        pub(super) fn rows() -> Vec<Row<Settings>> {
            vec![
                $(row!(Settings, stringify!($root), [$($root_words)+], $root_type, $root_kind, $root),)+
                $($(row!(
                    Settings, concat!(stringify!($section), ".", stringify!($field)), [$($words)+], $type, $kind, $section.$field
                ),)+)+
            ]
        }

        /// The builder's calls, in the order of the rows.
        #[cfg(test)]
        pub(super) const SETTERS: &[&str] = &[$(stringify!($root),)+ $($(stringify!($setter)),+),+];
    };
}

/// Of anything: 1 PiB.
pub(super) const MOST_BYTES: u64 = 1 << 50;
const MOST_ITERATIONS: u64 = 1_000_000_000;
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);
const A_MILLISECOND: Duration = Duration::from_millis(1);

const fn blocks(least: u32) -> Number {
    Number { least: least as u64, most: MAX_CAPACITY as u64, unit: "blocks" }
}

const fn number(least: u64, most: u64, unit: &'static str) -> Number {
    Number { least, most, unit }
}

const fn bytes(least: u64) -> Bytes {
    Bytes { least, most: MOST_BYTES }
}

const fn deadline() -> Time {
    Time { least: A_MILLISECOND, most: A_DAY }
}

/// Hands the table to another macro: one makes structs and rows of it, one the builder's calls (`builder.rs`).
macro_rules! all_settings {
    ($then:ident) => {
        $then! {
            {
                /// The model whose KV cache it is; `kvstrata layout --help` lists them. Without one, the geometry says all. Where
                /// some layers of it have a window, those are a group of their own.
                model: Option<&'static Model> = None, Maybe(Word);
            }
            /// What a block is, where no model says it, or otherwise than the model does.
            geometry: GeometrySettings {
                /// A model's config.json, or the folder that has it, instead of `model`: its layers are groups as if they were listed.
                geometry_config => config: Option<PathBuf> = None, Maybe(File);
                /// Tokens a block.
                geometry_page_size => page_size: u32 = 16, number(1, 65_536, "tokens");
                /// Layers, instead of the model's.
                geometry_layers => layers: Option<u32> = None, Maybe(number(1, 65_536, "layers"));
                /// KV heads of the whole model, instead of the model's; 1 for a latent (MLA).
                geometry_kv_heads => kv_heads: Option<u32> = None, Maybe(number(1, 65_536, "heads"));
                /// Elements a head and token, instead of the model's; the latent's size for MLA.
                geometry_head_size => head_size: Option<u32> = None, Maybe(number(1, 1 << 24, "elements"));
                /// 2 where keys and values are apart, 1 for one latent (MLA), instead of the model's.
                geometry_outer_dim => outer_dim: Option<u32> = None, Maybe(number(1, 2, ""));
                /// The elements' type, as torch or vLLM spell it, instead of the model's (bfloat16 without one).
                geometry_dtype => dtype: Option<DType> = None, Maybe(Word);
                /// Blocks of a GPU start at multiples of this many bytes, a power of two; an element's unless given. Those of host memory and of volumes start at multiples of 4,096.
                geometry_alignment => alignment: Option<u64> = None, Maybe(Bytes { least: 1, most: 1 << 30 });
                /// What comes first within a page: tokens (nhd) or heads (hnd).
                geometry_head_order => head_order: HeadOrder = HeadOrder::Nhd, Word;
                /// Bytes of a block that is not told apart into layers, instead of all that; 64K where nothing else is given.
                geometry_block_bytes => block_bytes: Option<u64> = None, Maybe(Bytes { least: 64, most: 1 << 30 });
                /// Ranks that share the model's heads (tensor parallelism).
                geometry_tp => tp: u32 = 1, number(1, 65_536, "ranks");
                /// Which of them this is, from 0.
                geometry_rank => rank: u32 = 0, number(0, 65_535, "");
            }
            /// The hashes that name blocks, where the manager makes them of tokens.
            hash: HashSettings {
                /// Hash function. keyed: AES-128-CBC-MAC under a secret of the deployment. xxh3: XXH3-128, which has no secret; anyone who
                /// may send prompts can choose tokens that get the hash of another tenant's block, and is then served that block's bytes.
                hash_function => function: HashFunction = HashFunction::Keyed, Word;
                /// File with the secret: 64 hexadecimal digits or 32 bytes, mode 0600; the same on all nodes that share blocks. None, with
                /// disk.paths: kvstrata.hash-key beside each of them, made at the first start. None without: drawn by each process.
                hash_key_file => key_file: Option<PathBuf> = None, Maybe(File);
                /// The same with the secret in this environment variable, as 64 hexadecimal digits.
                hash_key_env => key_env: Option<String> = None, Maybe(Text);
            }
            /// The device tier (G1).
            device: DeviceSettings {
                /// What it is made of: host memory posing as a device, a GPU, or a GPU where there is one.
                device_kind => kind: DeviceKind = DeviceKind::Sim, Word;
                /// Which GPU, as the driver counts them.
                device_ordinal => ordinal: u32 = 0, number(0, 1023, "");
                /// Blocks; follows from device.bytes where that is given.
                device_blocks => blocks: u32 = 2048, blocks(1);
                /// Bytes for blocks, instead of their number.
                device_bytes => bytes: Option<u64> = None, Maybe(bytes(1));
                /// Which blocks leave first.
                device_policy => policy: Policy = Policy::Reuse, Word;
            }
            /// The host tier (G2).
            host: HostSettings {
                /// Blocks; 0 leaves the tier out. Follows from host.bytes where that is given.
                host_blocks => blocks: u32 = 8192, blocks(0);
                /// Bytes for blocks, instead of their number; 0 leaves the tier out.
                host_bytes => bytes: Option<u64> = None, Maybe(bytes(0));
                /// Which blocks leave first.
                host_policy => policy: Policy = Policy::Lru, Word;
                /// Blocks that only evictions from the device may take; at most an eighth of the tier unless given.
                host_headroom => headroom: u32 = 16, blocks(0);
                /// Threads that copy in host memory; as many as the machine has cores, at most 4, unless given.
                host_copy_threads => copy_threads: Option<u32> = None, Maybe(number(1, 256, "threads"));
            }
            /// The disk tier (G3).
            disk: DiskSettings {
                /// Blocks; 0 leaves the tier out. A multiple of the number of paths. Follows from disk.bytes where that is given.
                disk_blocks => blocks: u32 = 0, blocks(0);
                /// Bytes for blocks, instead of their number; 0 leaves the tier out.
                disk_bytes => bytes: Option<u64> = None, Maybe(bytes(0));
                /// Files, or directories for them; several are striped. They stay, and what they hold is found again. All ranks take the same paths: in a directory a file's name says model, group, rank and degree, and elsewhere group and rank are appended where there are several. None: a file without a
                /// name, which goes with the process.
                disk_paths => paths: Vec<PathBuf> = Vec::new(), Files;
                /// Which weights make the blocks, by any text that others do not have: a name and a revision. Files that hold blocks of other weights are refused, since the same hash means other bytes there. None: models are told apart by name, geometry and rank alone, and what else tells them apart has to be in the hashes (the salt).
                disk_weights => weights: Option<String> = None, Maybe(Text);
                /// Which blocks leave first.
                disk_policy => policy: Policy = Policy::Lru, Word;
                /// Blocks of host memory in which bytes are staged between device and disk: no more reads are under way at a time. As many as 16 MiB hold, 40 at least and 256 at most, unless given: a drive that is asked for small blocks wants many at once.
                disk_staging => staging: Option<u32> = None, Maybe(blocks(0));
                /// How bytes are moved.
                disk_backend => backend: Backend = Backend::Auto, Word;
                /// When new files are written through, which makes later writes faster: before use, in the background, or not at all.
                disk_fill => fill: DiskFill = DiskFill::First, Word;
                /// Starts over with files that hold something else.
                disk_reinitialize => reinitialize: bool = false, Flag;
                /// Gives the room of forgotten blocks back to the file system.
                disk_trim => trim: bool = false, Flag;
                /// Encrypts (AES-256-GCM) with the key in this file: 64 hexadecimal digits or 32 bytes, mode 0600.
                disk_key_file => key_file: Option<PathBuf> = None, Maybe(File);
                /// The same with the key in this environment variable, as 64 hexadecimal digits.
                disk_key_env => key_env: Option<String> = None, Maybe(Text);
                /// Which blocks are worth a write.
                disk_admission => admission: AdmissionPolicy = AdmissionPolicy::Always, Word;
                /// Bytes written a day at most.
                disk_write_budget => write_budget: Option<u64> = None, Maybe(bytes(1));
            }
            /// How full a tier may be before its next victims are copied to the tier below, between iterations. They stay where they are until they must go, and are found there; blocks in use are all that are not free, those that nobody holds included.
            watermark: WatermarkSettings {
                /// Above this part of the device's blocks in use, copying starts.
                watermark_device => device: f64 = 0.90, Fraction;
                /// It goes on down to this part.
                watermark_device_low => device_low: f64 = 0.85, Fraction;
                /// Above this part of the host's blocks in use, copying to the disk starts.
                watermark_host => host: f64 = 0.90, Fraction;
                /// It goes on down to this part.
                watermark_host_low => host_low: f64 = 0.85, Fraction;
            }
            /// After how many iterations without a use blocks are offloaded.
            idle: IdleSettings {
                /// Device to host; none: never for that reason.
                idle_host_after => host_after: Option<u64> = Some(100), Maybe(number(1, MOST_ITERATIONS, "iterations"));
                /// Host to disk, counted from the same use; none: never for that reason.
                idle_disk_after => disk_after: Option<u64> = Some(1000), Maybe(number(1, MOST_ITERATIONS, "iterations"));
            }
            /// When blocks are written to the tier below.
            offload: OffloadSettings {
                /// As soon as they are registered, from tier to tier; when there is a reason (room, watermark, idleness); or at the second request
                /// that has them in the device, and from the host to the disk when there is a reason.
                offload_mode => mode: WriteMode = WriteMode::Back, Word;
            }
            /// Bringing blocks up to the device.
            onboard: OnboardSettings {
                /// What is compared with its checksum on the way; nothing: wrong bytes are then served.
                onboard_verify => verify: Verify = Verify::All, Word;
            }
            /// Bringing blocks up before they are asked for.
            prefetch: PrefetchSettings {
                /// The heat, from 0 to 1, from which a block that has left the device is fetched ahead: its uses of late, of the 15 that are counted.
                prefetch_threshold => threshold: f64 = 0.7, Fraction;
                /// Blocks under way at a time, at most those of the device; 0 leaves prefetching out.
                prefetch_blocks => blocks: u32 = 64, blocks(0);
                /// Hints of queued requests that are remembered; the oldest is dropped first.
                prefetch_hints => hints: u32 = 256, number(1, 1 << 20, "hints");
            }
            /// Queues of transfers, one a path: device to host, host to disk, host to device, disk to device.
            transfer: TransferSettings {
                /// Transfers of a class, and of more urgent ones, that wait in a path's queue at most, or for host memory before they come to it; for reads from the disk, in each group's part of the queue. Then runs to be brought up wait beside it, copies on request are refused, and copies ahead are put off. A list that finds room goes whole; victims never wait for room here. As many copies at most wait for the gates of their offloads.
                transfer_queue => queue: u32 = 1024, number(1, 1 << 20, "transfers");
                /// Bytes under way on a path at most; at least one block.
                transfer_in_flight => in_flight: u64 = 64 << 20, bytes(1);
                /// The same for device to host alone.
                transfer_in_flight_device_to_host => in_flight_device_to_host: Option<u64> = None, Maybe(bytes(1));
                /// The same for host to disk alone.
                transfer_in_flight_host_to_disk => in_flight_host_to_disk: Option<u64> = None, Maybe(bytes(1));
                /// The same for host to device alone.
                transfer_in_flight_host_to_device => in_flight_host_to_device: Option<u64> = None, Maybe(bytes(1));
                /// The same for disk to device alone.
                transfer_in_flight_disk_to_device => in_flight_disk_to_device: Option<u64> = None, Maybe(bytes(1));
                /// Bytes that a request may move before the next one's turn (deficit round robin).
                transfer_quantum => quantum: u64 = 4 << 20, bytes(1);
                /// How often a transfer is tried again where its error may pass.
                transfer_retries => retries: u32 = 2, number(0, 100, "times");
                /// How long to wait before that.
                transfer_retry_after => retry_after: Duration = Duration::from_millis(10), Time { least: Duration::ZERO, most: A_DAY };
                /// How long a request for blocks may wait for writes to the tier below. Then host blocks that are not written are dropped for it, and counted (cause slow). 0: it never waits. None: twice what its copies to host memory take (99th percentile), and longer in one request of 200 or where the tier keeps up (transfer.keeps_up).
                transfer_patience => patience: Option<Duration> = None, Maybe(Time { least: Duration::ZERO, most: A_DAY });
                /// A tier below that takes up to so many times as long for a byte as copies to host memory keeps up: requests wait for it as long as it takes, up to transfer.slow_above, where transfer.patience is none.
                transfer_keeps_up => keeps_up: u32 = 2, number(0, 1 << 20, "times");
                /// Above this average of a write's time, from its start to its end, a path to a slower tier takes one write at a time; blocks that would go down it are dropped, and counted (cause slow).
                transfer_slow_above => slow_above: Duration = Duration::from_secs(1), Time { least: Duration::from_millis(1), most: A_DAY };
                /// Below this average it takes as many as before; at most the one above.
                transfer_slow_below => slow_below: Duration = Duration::from_millis(500), Time { least: Duration::from_millis(1), most: A_DAY };
            }
            /// What transfers may take of an iteration of the model.
            iteration: IterationSettings {
                /// Bytes moved an iteration at most; at least one block. Apart from urgent onboardings, and what must move so that whoever waits is served. None: any number.
                iteration_bytes => bytes: Option<u64> = None, Maybe(bytes(1));
                /// An engine that is in no iteration, and begins none for so long, is idle: until it does, any number of bytes. To be longer than an iteration where an engine tells of its iterations by `step` alone. None: what waits for the next iteration's bytes waits for that, however long.
                iteration_idle => idle: Option<Duration> = Some(Duration::from_millis(100)), Maybe(deadline());
            }
            /// How long somebody waits at most.
            deadline: DeadlineSettings {
                /// For blocks.
                deadline_allocate => allocate: Duration = Duration::from_secs(10), deadline();
                /// For blocks to come up.
                deadline_onboard => onboard: Duration = Duration::from_secs(30), deadline();
                /// For blocks that a caller asked for to be below: an offload, what is to persist, a preempted request. Their copies go on, but for those
                /// that still wait for the gate of their offload, a layer or an iteration: those have held their blocks, which are let go. Blocks that were
                /// registered ahead of a pass are withdrawn when the engine has said nothing for so long.
                deadline_offload => offload: Duration = Duration::from_secs(30), deadline();
                /// For transfers to end at shutdown; those that have not are cancelled.
                deadline_shutdown => shutdown: Duration = Duration::from_secs(10), deadline();
            }
            /// The part of each tier that one tenant may have, unless the tenant has quotas of its own.
            quota: QuotaSettings {
                /// Of the device's blocks.
                quota_device => device: f64 = 1.0, Fraction;
                /// Of the host's.
                quota_host => host: f64 = 1.0, Fraction;
                /// Of the disk's.
                quota_disk => disk: f64 = 1.0, Fraction;
                /// Tenants that the manager tells apart at once. A name counts until nothing of its tenant is left: no handle, no block in any tier, no transfer. Each costs 8 bytes per tier and group.
                quota_tenants => tenants: u32 = 4095, number(1, 32_767, "tenants");
            }
            /// What there is to be watched.
            metrics: MetricsSettings {
                /// Where figures are served over HTTP: /metrics for Prometheus, /healthz. They have no password, so this is best an address of the machine itself, or behind something that asks for one. Processes of one machine need a port each (0, or KVSTRATA_METRICS_LISTEN). None: nowhere.
                metrics_listen => listen: Option<SocketAddr> = None, Maybe(Address);
                /// Whether latencies of transfers and calls are counted, in histograms.
                metrics_histograms => histograms: bool = true, Flag;
                /// So many tenants have figures of their own, under their names: those of the settings first, in their order, then those who come. Whoever may scrape reads the names.
                metrics_tenants => tenants: u32 = 0, number(0, 32_767, "tenants");
            }
            /// The tokio runtime that the manager makes where it is handed none.
            runtime: RuntimeSettings {
                /// Its threads.
                runtime_threads => threads: u32 = 2, number(1, 256, "threads");
            }
        }
    };
}
pub(super) use all_settings;

all_settings!(settings);
