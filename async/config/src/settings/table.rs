//! The table of settings: the only place that names them. Structs, defaults, builder calls, keys of files,
//! variables and the reference are generated from it.
//!
//! ```text
//!   device_blocks => blocks: u32 = 2048, Number { … };     in the section `device`
//!         │            │
//!         │            └ key device.blocks, field settings.device.blocks, in files [device] blocks
//!         └ the builder call; in capitals after KVSTRATA_, the variable
//! ```
//!
//! The reference prints the `///` text of a setting. Past 500 lines because a table is read as a whole.

use super::kind::{
    Address, Bytes, File, Files, Flag, Fraction, Kind, Maybe, Number, Sizes, Text, Time, Word,
};
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

/// A setting of `S`, without the type of its value.
pub(super) struct Row<S> {
    pub(super) key: &'static str,
    /// Description for the reference; begins with a space.
    pub(super) words: &'static str,
    pub(super) kind: &'static str,
    pub(super) unit: &'static str,
    pub(super) allowed: fn() -> String,
    /// Stores the value if it has the right type. The value may be outside the allowed range.
    pub(super) read: fn(&mut S, &Raw<'_>) -> bool,
    /// Whether the value is allowed.
    pub(super) holds: fn(&S) -> bool,
    /// The value as TOML.
    pub(super) toml: fn(&S) -> String,
    #[cfg(test)]
    pub(super) sample: fn(&mut S, u64),
}

impl<S> Row<S> {
    /// The key without its section.
    pub(super) fn field(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, field)| field)
    }

    /// A copy of the owner with this value; none if the value is not allowed.
    pub(super) fn with(&self, owner: &S, raw: &Raw<'_>) -> Option<S>
    where
        S: Clone,
    {
        let mut changed = owner.clone();
        ((self.read)(&mut changed, raw) && (self.holds)(&changed)).then_some(changed)
    }

    /// The full key in an entry of a list (`group[0]`), or in the settings if `entry` is empty.
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

        /// All settings except the lists of groups and tenants.
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

        /// The sections, each with its introduction.
        pub(super) const SECTIONS: &[(&str, &str)] = &[$((stringify!($section), $of)),+];

        /// Every setting; those without a section come first.
        pub(super) fn rows() -> Vec<Row<Settings>> {
            vec![
                $(row!(Settings, stringify!($root), [$($root_words)+], $root_type, $root_kind, $root),)+
                $($(row!(
                    Settings, concat!(stringify!($section), ".", stringify!($field)), [$($words)+], $type, $kind, $section.$field
                ),)+)+
            ]
        }

        /// The names of the builder calls, in the order of the rows.
        #[cfg(test)]
        pub(super) const SETTERS: &[&str] = &[$(stringify!($root),)+ $($(stringify!($setter)),+),+];
    };
}

/// The upper limit of every value in bytes: 1 PiB.
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

/// Passes the table to another macro: `settings` makes structs and rows, `setters` the builder calls
/// (`builder.rs`).
macro_rules! all_settings {
    ($then:ident) => {
        $then! {
            {
                /// Model preset: layers, KV heads, head size and dtype; `kvstrata layout --help` lists
                /// the presets. Values in `geometry` override it. None: `geometry` gives all of them.
                /// Layers with an attention window form a group of their own.
                model: Option<&'static Model> = None, Maybe(Word);
            }
            /// Geometry of a block: it replaces values of the model, or describes it where none is set.
            geometry: GeometrySettings {
                /// Path of a model's config.json, or of its folder, instead of `model`. Its layers become
                /// groups as if `[[group]]` listed them. Not together with `model`, `[[group]]`, layers,
                /// kv_heads, head_size, outer_dim or block_bytes. None: `model` or this section describes
                /// the model.
                geometry_config => config: Option<PathBuf> = None, Maybe(File);
                /// Tokens per block: the unit of hashing, reuse and transfers. Use the block size of the
                /// engine (vLLM: `--block-size`).
                geometry_page_size => page_size: u32 = 16, number(1, 65_536, "tokens");
                /// Number of layers. None: the model's.
                geometry_layers => layers: Option<u32> = None, Maybe(number(1, 65_536, "layers"));
                /// Number of KV heads of the whole model, all ranks together; 1 for a latent (MLA). None:
                /// the model's.
                geometry_kv_heads => kv_heads: Option<u32> = None, Maybe(number(1, 65_536, "heads"));
                /// Elements per head and token; for MLA, the size of the latent. None: the model's.
                geometry_head_size => head_size: Option<u32> = None, Maybe(number(1, 1 << 24, "elements"));
                /// Number of parts that a layer stores: 2 for separate keys and values, 1 for one latent
                /// (MLA). None: the model's, or 2 without a model.
                geometry_outer_dim => outer_dim: Option<u32> = None, Maybe(number(1, 2, ""));
                /// Element type of the KV cache, as torch or vLLM spell it. Set it if the cache is
                /// quantized (vLLM: `--kv-cache-dtype`). None: the model's, or bfloat16 without a model.
                geometry_dtype => dtype: Option<DType> = None, Maybe(Word);
                /// Alignment in bytes, a power of two, of blocks in GPU memory. None: the size of an
                /// element. In host memory, also if it acts as the device, and on volumes, blocks are
                /// always aligned to 4,096 bytes.
                geometry_alignment => alignment: Option<u64> = None, Maybe(Bytes { least: 1, most: 1 << 30 });
                /// Order of the dimensions within a page: nhd (tokens first) or hnd (heads first). Use
                /// the KV layout of the engine.
                geometry_head_order => head_order: HeadOrder = HeadOrder::Nhd, Word;
                /// Bytes per block, for opaque blocks that are not divided into layers. Not together with
                /// a model, `[[group]]`, layers, kv_heads, head_size, outer_dim, dtype or tp. None:
                /// computed from these, or 64K if none of them is given.
                geometry_block_bytes => block_bytes: Option<u64> = None, Maybe(Bytes { least: 64, most: 1 << 30 });
                /// Number of tensor-parallel ranks that share the KV heads of the model.
                geometry_tp => tp: u32 = 1, number(1, 65_536, "ranks");
                /// Index of this process among the tensor-parallel ranks, from 0; below geometry.tp.
                geometry_rank => rank: u32 = 0, number(0, 65_535, "");
            }
            /// Hashes that name blocks, where the manager computes them from tokens.
            hash: HashSettings {
                /// Hash function for block hashes. keyed: AES-128-CBC-MAC under a secret of the
                /// deployment. xxh3: XXH3-128, without a secret: a client can choose tokens that get the
                /// hash of another tenant's block, and is then served that block's bytes.
                hash_function => function: HashFunction = HashFunction::Keyed, Word;
                /// File with the secret of keyed hashes: 64 hexadecimal digits or 32 bytes, mode 0600;
                /// the same on all nodes that share blocks. None: with disk.paths, kvstrata.hash-key
                /// beside each volume, created at the first start; without disk.paths, a random secret
                /// per process.
                hash_key_file => key_file: Option<PathBuf> = None, Maybe(File);
                /// Name of the environment variable that holds the secret, as 64 hexadecimal digits;
                /// instead of hash.key_file.
                hash_key_env => key_env: Option<String> = None, Maybe(Text);
            }
            /// The device tier (G1).
            device: DeviceSettings {
                /// Kind of device: sim (host memory that acts as a device), cuda (an NVIDIA GPU), or auto
                /// (a GPU if this machine has one with room for the blocks, otherwise sim).
                device_kind => kind: DeviceKind = DeviceKind::Sim, Word;
                /// Index of the GPU, in the numbering of the driver. Unused with device.kind = "sim".
                device_ordinal => ordinal: u32 = 0, number(0, 1023, "");
                /// Number of blocks in the device tier. Computed from device.bytes if that is given.
                device_blocks => blocks: u32 = 2048, blocks(1);
                /// Bytes of the device tier, instead of device.blocks. None: device.blocks decides.
                device_bytes => bytes: Option<u64> = None, Maybe(bytes(1));
                /// Eviction policy of the device tier. reuse learns from the turns of conversations and
                /// is never far behind lru; `kvstrata policies` compares the policies on a trace.
                device_policy => policy: Policy = Policy::Reuse, Word;
            }
            /// The host tier (G2).
            host: HostSettings {
                /// Number of blocks in the host tier; 0 leaves the tier out. Computed from host.bytes if
                /// that is given. Raise it if the device loses blocks (kvstrata_dropped_blocks_total).
                host_blocks => blocks: u32 = 8192, blocks(0);
                /// Bytes of the host tier, instead of host.blocks; 0 leaves the tier out. None:
                /// host.blocks decides.
                host_bytes => bytes: Option<u64> = None, Maybe(bytes(0));
                /// Eviction policy of the host tier.
                host_policy => policy: Policy = Policy::Lru, Word;
                /// Number of host blocks that only evictions from the device may take. With a disk tier
                /// they are kept free, so that evictions need not wait for writes to the disk. Below
                /// host.blocks; unless given, at most an eighth of host.blocks.
                host_headroom => headroom: u32 = 16, blocks(0);
                /// Number of threads that copy in host memory. None: one per core, at most 4.
                host_copy_threads => copy_threads: Option<u32> = None, Maybe(number(1, 256, "threads"));
            }
            /// The disk tier (G3).
            disk: DiskSettings {
                /// Number of blocks in the disk tier, a multiple of the number of disk.paths; 0 leaves
                /// the tier out. Computed from disk.bytes if that is given. Raise it if the host loses
                /// blocks (kvstrata_dropped_blocks_total).
                disk_blocks => blocks: u32 = 0, blocks(0);
                /// Bytes of the disk tier, instead of disk.blocks; 0 leaves the tier out. None:
                /// disk.blocks decides.
                disk_bytes => bytes: Option<u64> = None, Maybe(bytes(0));
                /// Files, or directories for them; several are striped. They persist: a restart finds
                /// their blocks. All ranks use the same paths: files in a directory are named by model,
                /// group, rank and degree; to a file path, group and rank are appended if there are
                /// several. Empty: an unnamed temporary file.
                disk_paths => paths: Vec<PathBuf> = Vec::new(), Files;
                /// Name that identifies the weights, for example model and revision. Files with blocks of
                /// other weights are refused, since equal hashes mean other bytes there. None: only model
                /// name, geometry and rank tell models apart; the hashes (salt) must contain any other
                /// difference.
                disk_weights => weights: Option<String> = None, Maybe(Text);
                /// Eviction policy of the disk tier.
                disk_policy => policy: Policy = Policy::Lru, Word;
                /// Number of host blocks, per group, that stage bytes between device and disk: a limit on
                /// concurrent disk reads. At least 2. None: as many as 16 MiB hold, from 40 to 256. With
                /// small blocks a drive needs many reads at once.
                disk_staging => staging: Option<u32> = None, Maybe(blocks(0));
                /// Backend for disk I/O: uring (io_uring with O_DIRECT), uring-buffered (io_uring through
                /// the page cache), threads (pread and pwrite), or auto (the first that works; threads on
                /// a file system that another machine or process serves, such as NFS or Lustre).
                disk_backend => backend: Backend = Backend::Auto, Word;
                /// Time at which the unwritten parts of the files of disk.paths are filled, since writes
                /// to such parts are slower: first (before use; a long first start), background (while
                /// there are no requests), or no (never).
                disk_fill => fill: DiskFill = DiskFill::First, Word;
                /// Whether each start empties existing volumes and adapts them to these settings, also
                /// volumes that match. Set it for one start only. False: volumes of another model,
                /// geometry or key are refused. A file that never was a volume is refused in any case.
                disk_reinitialize => reinitialize: bool = false, Flag;
                /// Whether the space of forgotten blocks is returned to the file system. It can reduce
                /// the wear of the drive; later writes to that space are slower.
                disk_trim => trim: bool = false, Flag;
                /// File with the key that encrypts the disk tier (AES-256-GCM): 64 hexadecimal digits or
                /// 32 bytes, mode 0600. None: no encryption, unless disk.key_env is given.
                disk_key_file => key_file: Option<PathBuf> = None, Maybe(File);
                /// Name of the environment variable that holds the key, as 64 hexadecimal digits; instead
                /// of disk.key_file.
                disk_key_env => key_env: Option<String> = None, Maybe(Text);
                /// Filter for writes to the disk tier: always (every block), second-use (blocks used at
                /// least twice lately), or tinylfu (any block while the tier has room, then blocks used
                /// more often than the last victim). A filter saves writes and wear, at the cost of hits.
                disk_admission => admission: AdmissionPolicy = AdmissionPolicy::Always, Word;
                /// Maximum bytes written per day to the disk tier of each group, ten minutes' worth at
                /// once; at least one block. Blocks beyond it are refused
                /// (kvstrata_disk_refused_blocks_total, cause budget). None: unlimited.
                disk_write_budget => write_budget: Option<u64> = None, Maybe(bytes(1));
            }
            /// The keyed store, for engines that lend their memory. Its host tier needs host.bytes.
            store: StoreSettings {
                /// Sizes of the store's blocks in bytes: an entry takes a block of the smallest size that
                /// holds it. Each size gets the same number of blocks. Empty: the bytes per block of the
                /// geometry.
                store_sizes => sizes: Vec<u64> = Vec::new(), Sizes { least: 64, most: 1 << 30, count: 16 };
                /// Whether page-aligned memory goes straight to and from the disk. A drive that hangs then
                /// keeps the memory, and so the call, until the kernel gives up. False: all bytes pass
                /// through staging, one copy more, and each key is answered by its deadline.
                store_straight => straight: bool = true, Flag;
                /// Model: a name or a path. Part of the fingerprint: entries of another fingerprint are not
                /// found.
                store_model => model: Option<String> = None, Maybe(Text);
                /// Revision of the weights. Part of the fingerprint. Change it when weights are updated.
                store_revision => revision: Option<String> = None, Maybe(Text);
                /// Element type of the KV cache. Part of the fingerprint.
                store_dtype => dtype: Option<String> = None, Maybe(Text);
                /// Layout of the bytes of an entry, with the version of the engine that defines it. Part of
                /// the fingerprint.
                store_layout => layout: Option<String> = None, Maybe(Text);
                /// Tokens per entry. Part of the fingerprint.
                store_span => span: Option<u32> = None, Maybe(number(1, 1 << 24, "tokens"));
                /// Ranks of the parallel engine, such as tp0of2: an entry has their parts. Part of the
                /// fingerprint, and of the names of the files.
                store_ranks => ranks: Option<String> = None, Maybe(Text);
                /// LoRA adapter. Part of the fingerprint. None: the base model, or keys that contain the
                /// adapter.
                store_lora => lora: Option<String> = None, Maybe(Text);
                /// Salt of a tenant. Part of the fingerprint. None: no salt, or keys that contain it.
                store_salt => salt: Option<String> = None, Maybe(Text);
            }
            /// Fill levels at which victims are copied to the tier below ahead of need, between iterations.
            watermark: WatermarkSettings {
                /// Fraction of device blocks in use above which the next victims are copied to the tier
                /// below. They stay in the device, and are found there, until they are evicted. In use
                /// are all blocks that are not free, including those without a holder. Lower it if
                /// allocations wait for copies.
                watermark_device => device: f64 = 0.90, Fraction;
                /// Fraction down to which copying continues once watermark.device is exceeded; copied
                /// blocks count as free. Below watermark.device; unless given, lowered to 0.05 below it
                /// where necessary.
                watermark_device_low => device_low: f64 = 0.85, Fraction;
                /// Fraction of host blocks in use above which the next victims are copied to the disk.
                watermark_host => host: f64 = 0.90, Fraction;
                /// Fraction down to which copying continues once watermark.host is exceeded. Below
                /// watermark.host; unless given, lowered to 0.05 below it where necessary.
                watermark_host_low => host_low: f64 = 0.85, Fraction;
            }
            /// Copies of idle blocks to the tier below, by iterations of the engine.
            idle: IdleSettings {
                /// Iterations without a use after which a block is copied from device to host. None: idle
                /// blocks are not copied for that reason.
                idle_host_after => host_after: Option<u64> = Some(100), Maybe(number(1, MOST_ITERATIONS, "iterations"));
                /// Iterations without a use after which a block is copied from host to disk, counted from
                /// the same use; not below idle.host_after. None: idle blocks are not copied for that
                /// reason.
                idle_disk_after => disk_after: Option<u64> = Some(1000), Maybe(number(1, MOST_ITERATIONS, "iterations"));
            }
            /// Copies of blocks to the tier below.
            offload: OffloadSettings {
                /// Condition for copies down. write-through: at registration, from tier to tier.
                /// write-back: the tier needs room, is above its watermark, or the block is idle.
                /// second-use: the second request that finds the block in the device; blocks used once
                /// leave without a copy; from the host as write-back.
                offload_mode => mode: WriteMode = WriteMode::Back, Word;
            }
            /// Copies of blocks up to the device.
            onboard: OnboardSettings {
                /// Verification of checksums. all: of blocks from host memory and from the disk. disk,
                /// nothing: of blocks from the disk alone; damaged bytes of host memory are then served,
                /// or written to the disk. Reads from the disk are verified in any case.
                onboard_verify => verify: Verify = Verify::All, Word;
            }
            /// Copies of blocks up to the device ahead of requests.
            prefetch: PrefetchSettings {
                /// Heat, from 0 to 1, from which a block that has left the device is fetched back ahead
                /// of requests. Heat is the number of recent uses divided by 15, the most that are
                /// counted. Lower values fetch more; each block needs at least one use.
                prefetch_threshold => threshold: f64 = 0.7, Fraction;
                /// Maximum blocks that prefetching moves at a time; at most device.blocks. 0 disables
                /// prefetching, by hints and by heat.
                prefetch_blocks => blocks: u32 = 64, blocks(0);
                /// Maximum hints of queued requests that are remembered; the oldest is dropped first. As
                /// many hot blocks (prefetch.threshold) are remembered as well.
                prefetch_hints => hints: u32 = 256, number(1, 1 << 20, "hints");
            }
            /// Queues of transfers by path: device to host, host to disk, host to device, disk to device.
            transfer: TransferSettings {
                /// Maximum queued transfers per path, in a class and more urgent ones (disk reads: per
                /// group); waits for host memory count. When full: onboards wait, explicit offloads are
                /// refused, speculative copies deferred. Evictions and admitted lists are exempt. Also
                /// limits offloads held for a layer or iteration.
                transfer_queue => queue: u32 = 1024, number(1, 1 << 20, "transfers");
                /// Maximum bytes in flight per path; at least one block, and raised to one block unless
                /// given. Raise it if transfers wait (kvstrata_queue_transfers) while the drive or the
                /// link has bandwidth left.
                transfer_in_flight => in_flight: u64 = 64 << 20, bytes(1);
                /// Maximum bytes in flight from device to host. None: transfer.in_flight.
                transfer_in_flight_device_to_host => in_flight_device_to_host: Option<u64> = None, Maybe(bytes(1));
                /// Maximum bytes in flight from host to disk. None: transfer.in_flight.
                transfer_in_flight_host_to_disk => in_flight_host_to_disk: Option<u64> = None, Maybe(bytes(1));
                /// Maximum bytes in flight from host to device. None: transfer.in_flight.
                transfer_in_flight_host_to_device => in_flight_host_to_device: Option<u64> = None, Maybe(bytes(1));
                /// Maximum bytes in flight from disk to device. None: transfer.in_flight.
                transfer_in_flight_disk_to_device => in_flight_disk_to_device: Option<u64> = None, Maybe(bytes(1));
                /// Bytes that a request may move on a path before the next request of its class has a
                /// turn (deficit round robin). Smaller is fairer, down to the size of one transfer.
                transfer_quantum => quantum: u64 = 4 << 20, bytes(1);
                /// Maximum retries of a transfer after an error that may pass. 0: no retry.
                transfer_retries => retries: u32 = 2, number(0, 100, "times");
                /// Delay before each retry of a transfer.
                transfer_retry_after => retry_after: Duration = Duration::from_millis(10), Time { least: Duration::ZERO, most: A_DAY };
                /// Time that a request for device blocks may wait for writes to the tier below; then
                /// unwritten host blocks are dropped for it, and counted (cause slow). 0: no wait. None:
                /// twice the 99th percentile of copies to host memory; longer for one in 200, or while
                /// the tier keeps up (transfer.keeps_up).
                transfer_patience => patience: Option<Duration> = None, Maybe(Time { least: Duration::ZERO, most: A_DAY });
                /// Maximum ratio of the time per byte of writes to the tier below to that of copies to
                /// host memory at which the tier keeps up. Requests then wait for its writes as long as
                /// they take, up to transfer.slow_above. Unused if transfer.patience is given.
                transfer_keeps_up => keeps_up: u32 = 2, number(0, 1 << 20, "times");
                /// Average time of a write, from start to end, above which a path to a slower tier takes
                /// one write at a time. Other blocks that would go down it are dropped, and counted
                /// (cause slow).
                transfer_slow_above => slow_above: Duration = Duration::from_secs(1), Time { least: Duration::from_millis(1), most: A_DAY };
                /// Average time of a write below which such a path takes as many writes as before; at
                /// most transfer.slow_above.
                transfer_slow_below => slow_below: Duration = Duration::from_millis(500), Time { least: Duration::from_millis(1), most: A_DAY };
            }
            /// Limits on transfers during an iteration of the model.
            iteration: IterationSettings {
                /// Maximum bytes moved per iteration, on all paths together; at least one block. Exempt:
                /// urgent onboards, and transfers that a waiting request depends on. Set it if transfers
                /// slow iterations down. None: unlimited.
                iteration_bytes => bytes: Option<u64> = None, Maybe(bytes(1));
                /// Time without an iteration after which the engine is idle and iteration.bytes does not
                /// apply, until the next iteration. Longer than an iteration if the engine reports
                /// iterations by `step` only. None: transfers wait for the next iteration, however long.
                iteration_idle => idle: Option<Duration> = Some(Duration::from_millis(100)), Maybe(deadline());
            }
            /// Maximum times that a caller waits.
            deadline: DeadlineSettings {
                /// Maximum time that an allocation waits for blocks of the device, unless the call gives
                /// a deadline. Then it fails (kvstrata_late_allocations_total), and the engine should
                /// preempt or admit fewer requests.
                deadline_allocate => allocate: Duration = Duration::from_secs(10), deadline();
                /// Maximum time that an onboard waits for its blocks, unless the call gives a deadline.
                /// Then it ends short, and the engine computes the missing blocks.
                deadline_onboard => onboard: Duration = Duration::from_secs(30), deadline();
                /// Maximum wait for an offload, a persist or the copies of a preempted request. Later the
                /// copies continue, except those still held for a layer or an iteration: these release
                /// their blocks. Blocks registered ahead of a pass are withdrawn if the engine reports
                /// nothing for as long.
                deadline_offload => offload: Duration = Duration::from_secs(30), deadline();
                /// Maximum duration of a shutdown. After half of it, transfers that have not started are
                /// cancelled.
                deadline_shutdown => shutdown: Duration = Duration::from_secs(10), deadline();
            }
            /// Fraction of each tier that a tenant may have, unless its `[[tenant]]` entry says otherwise.
            quota: QuotaSettings {
                /// Maximum fraction of device blocks per tenant. 1: no limit. Lower it so that one tenant
                /// cannot displace the others.
                quota_device => device: f64 = 1.0, Fraction;
                /// Maximum fraction of host blocks per tenant. 1: no limit.
                quota_host => host: f64 = 1.0, Fraction;
                /// Maximum fraction of disk blocks per tenant. 1: no limit.
                quota_disk => disk: f64 = 1.0, Fraction;
                /// Maximum number of tenants at a time, at a cost of 8 bytes per tenant, tier and group.
                /// A tenant counts while it has a handle, a block in any tier, or a transfer.
                quota_tenants => tenants: u32 = 4095, number(1, 32_767, "tenants");
            }
            /// Metrics for operators, and the endpoint that serves them.
            metrics: MetricsSettings {
                /// Address and port of the HTTP endpoint: /metrics for Prometheus, and /healthz. It has
                /// no password: use a loopback address, or a proxy that authenticates. Processes of one
                /// machine need different ports (port 0, or KVSTRATA_METRICS_LISTEN). None: no endpoint.
                metrics_listen => listen: Option<SocketAddr> = None, Maybe(Address);
                /// Whether histograms of the latencies of transfers and calls are kept, and of the sizes
                /// of transfers exported.
                metrics_histograms => histograms: bool = true, Flag;
                /// Number of tenants with metrics of their own, under their names: those of the settings
                /// first, in their order, then by arrival. Each client that scrapes the endpoint sees the
                /// names. 0: none.
                metrics_tenants => tenants: u32 = 0, number(0, 32_767, "tenants");
            }
            /// The tokio runtime that the manager creates if it is given none and none is current.
            runtime: RuntimeSettings {
                /// Number of threads of that runtime; with several, the first serves deadlines and the
                /// others the disk tier.
                runtime_threads => threads: u32 = 2, number(1, 256, "threads");
            }
        }
    };
}
pub(super) use all_settings;

all_settings!(settings);
