//! The settings of a replay, and their limits.

use super::error::ReplayError;
use super::machine;
use kvstrata::backend::disk::AdmissionPolicy;
use kvstrata::config::DiskFill;
use kvstrata::shared::figures::binary;
use kvstrata_core::Policy;
use kvstrata_core::pool::MAX_CAPACITY;
use kvstrata_ffi::arena::BLOCK_ALIGN_BYTES;
use kvstrata_ffi::disk::{Backend, Key};
use kvstrata_ffi::probe::memory_room;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The settings of a replay; each is an option of `kvstrata replay`.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The most requests; `None` for all.
    pub requests: Option<u64>,
    /// Blocks of the device tier, at least 1.
    pub device_blocks: u32,
    /// Blocks of the host tier; 0 leaves it out.
    pub host_blocks: u32,
    /// Blocks of the disk tier; 0 leaves it out.
    pub disk_blocks: u32,
    /// Files of the disk tier, or directories for them. Blocks are striped over several files, and
    /// `disk_blocks` is a multiple of their number. The files stay, and the next run finds their blocks.
    /// If empty: an unnamed file in the first usable one of the current directory, `/var/tmp` and the
    /// directory for temporary files. That file is never left behind.
    pub disk: Vec<PathBuf>,
    /// Starts over if `disk` was made with other settings: another seed, size or number of blocks.
    pub reinitialize: bool,
    /// Encrypts the disk tier. The same key opens it again.
    pub disk_key: Option<Key>,
    /// When files of `disk` are filled.
    pub disk_fill: DiskFill,
    /// How the disk tier reads and writes. `Auto`: bypassing the page cache, by io_uring or by threads.
    pub disk_backend: Backend,
    /// Returns the space of blocks that the disk tier no longer holds to the file system.
    pub trim: bool,
    /// Skips the checksums of blocks read from disk.
    pub skip_verification: bool,
    /// Which blocks to write to the disk.
    pub disk_admission: AdmissionPolicy,
    /// The most bytes written to the disk in a day of the trace; `None` for no limit.
    pub disk_write_budget: Option<u64>,
    /// How long a request waits for writes to the disk (`transfer.patience`); `None`: as long as they take.
    pub patience: Option<Duration>,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Eviction policy of the device.
    pub policy: Policy,
    /// Eviction policy of host and disk.
    pub policy_below: Policy,
    /// Seed of the blocks' bytes, which depend on the seed and on the block's id.
    pub seed: u64,
    /// Requests served at the same time.
    pub concurrency: usize,
    /// How many times as fast as in the trace requests come; 0: each as soon as it can be served.
    pub speed: f64,
    /// Address at which the manager serves its metrics (`metrics.listen`); `None` for none.
    pub metrics: Option<SocketAddr>,
    /// Whether the metrics have histograms of latencies (`metrics.histograms`).
    pub histograms: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            requests: None,
            device_blocks: 2048,
            host_blocks: 8192,
            disk_blocks: 65_536,
            disk: Vec::new(),
            reinitialize: false,
            disk_key: None,
            disk_fill: DiskFill::First,
            disk_backend: Backend::Auto,
            trim: false,
            skip_verification: false,
            disk_admission: AdmissionPolicy::Always,
            disk_write_budget: None,
            patience: None,
            block_bytes: 64 << 10,
            policy: Policy::Reuse,
            policy_below: Policy::Lru,
            seed: 0,
            concurrency: 1,
            speed: 0.0,
            metrics: None,
            histograms: true,
        }
    }
}

/// The bytes of smaller blocks might not differ.
const MIN_BLOCK_BYTES: usize = 64;
const MAX_BLOCK_BYTES: usize = 1 << 30;
const MAX_CONCURRENCY: usize = 256;
const MAX_SPEED: f64 = 1e9;
/// Pool metadata of a block, rounded up.
const POOL_BYTES: u128 = 160;
/// Metadata of a block on disk: its record, and the memory of recovery and admission.
const DISK_BOOKS_BYTES: u128 = 320;
/// Bytes staged at a time between device and disk, for each request served.
const STAGING_BYTES: usize = 8 << 20;

impl Settings {
    /// Checks the limits of the settings, and that they fit into the memory of this machine.
    ///
    /// # Errors
    /// [`ReplayError::Setting`], which names the option, its value and the allowed values.
    pub fn check(&self) -> Result<(), ReplayError> {
        let refuse = |option, value: String, why: String| Err(ReplayError::Setting { option, value, why });
        let counts = [
            ("--device-blocks", self.device_blocks, 1),
            ("--host-blocks", self.host_blocks, 0),
            ("--disk-blocks", self.disk_blocks, 0),
        ];
        for (option, value, least) in counts {
            if value < least || value > MAX_CAPACITY {
                return refuse(
                    option,
                    value.to_string(),
                    format!("must be from {least} to {MAX_CAPACITY} blocks"),
                );
            }
        }
        if !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&self.block_bytes) {
            let why = format!("must be from {MIN_BLOCK_BYTES} bytes to {}", binary(MAX_BLOCK_BYTES as f64));
            return refuse("--block-bytes", self.block_bytes.to_string(), why);
        }
        if !(1..=MAX_CONCURRENCY).contains(&self.concurrency) {
            return refuse(
                "--concurrency",
                self.concurrency.to_string(),
                format!("must be from 1 to {MAX_CONCURRENCY}"),
            );
        }
        if !(0.0..=MAX_SPEED).contains(&self.speed) {
            let why = format!(
                "must be from 0 to {MAX_SPEED}, times as fast as the trace; 0 is as fast as possible"
            );
            return refuse("--speed", self.speed.to_string(), why);
        }
        self.check_volumes()?;
        self.check_memory()
    }

    fn check_volumes(&self) -> Result<(), ReplayError> {
        let (blocks, volumes) = (self.disk_blocks, self.disk.len().max(1) as u32);
        if let (0, Some(path)) = (blocks, self.disk.first()) {
            let why = "--disk-blocks 0 leaves the disk tier out; raise it, or leave --disk out".to_owned();
            return Err(ReplayError::Setting { option: "--disk", value: path.display().to_string(), why });
        }
        if blocks.is_multiple_of(volumes) {
            return Ok(());
        }
        let up = blocks.next_multiple_of(volumes);
        let why = match blocks / volumes * volumes {
            0 => format!("must be a multiple of the {volumes} paths of --disk; use {up}"),
            down => format!("must be a multiple of the {volumes} paths of --disk; use {down} or {up}"),
        };
        Err(ReplayError::Setting { option: "--disk-blocks", value: blocks.to_string(), why })
    }

    /// Checks that the memory suffices. The kernel overcommits, and would kill the process
    /// when it touches its memory.
    fn check_memory(&self) -> Result<(), ReplayError> {
        let stride = self.block_bytes.next_multiple_of(BLOCK_ALIGN_BYTES) as u128;
        let tier = |blocks: u32, bytes: u128| u128::from(blocks) * bytes;
        let device = tier(self.device_blocks, stride + POOL_BYTES);
        let host = tier(self.host_blocks, stride + POOL_BYTES);
        let disk = tier(self.disk_blocks, DISK_BOOKS_BYTES) + self.staging_blocks() as u128 * stride;
        let needed = device + host + disk;
        let Some(room) = memory_room() else { return Ok(()) };
        if needed <= u128::from(room.available_bytes) {
            return Ok(());
        }
        let largest = device.max(host).max(disk);
        let (option, blocks) = match largest {
            _ if largest == device => ("--device-blocks", self.device_blocks),
            _ if largest == host => ("--host-blocks", self.host_blocks),
            _ => ("--disk-blocks", self.disk_blocks),
        };
        let [needed, device, host, disk] = [needed, device, host, disk].map(|bytes| binary(bytes as f64));
        let available = binary(room.available_bytes as f64);
        let why = format!(
            "needs {needed} of memory (device tier {device}, host tier {host}, metadata and buffers of the disk tier {disk}), but \
             {available} is available, by {}; use fewer or smaller blocks (--block-bytes {})",
            room.bound, self.block_bytes
        );
        Err(ReplayError::Setting { option, value: blocks.to_string(), why })
    }

    /// The number of staging buffers.
    pub(super) fn staging_blocks(&self) -> usize {
        let each = if self.disk_blocks == 0 { 0 } else { (STAGING_BYTES / self.block_bytes).clamp(2, 128) };
        each * self.concurrency
    }

    /// Threads that copy between device and host. With one thread, copies end in the
    /// order in which they began.
    pub(super) fn copy_threads(&self) -> usize {
        self.concurrency.min(machine::cores()).min(4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(settings: Settings) -> String {
        settings.check().expect_err("must be refused").to_string()
    }

    #[test]
    fn impossible_setting_is_refused_by_name_and_value() {
        Settings::default().check().expect("the defaults are possible");
        let default = Settings::default;
        assert_eq!(
            refusal(Settings { device_blocks: 0, ..default() }),
            "--device-blocks 0: must be from 1 to 268435456 blocks"
        );
        assert!(
            refusal(Settings { disk_blocks: u32::MAX, ..default() })
                .starts_with("--disk-blocks 4294967295: must")
        );
        assert!(
            refusal(Settings { block_bytes: 8, ..default() }).starts_with("--block-bytes 8: must be from 64")
        );
        assert!(
            refusal(Settings { concurrency: 0, ..default() }).starts_with("--concurrency 0: must be from 1")
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn too_much_memory_is_refused_before_it_is_touched() {
        let message = refusal(Settings { host_blocks: 1 << 28, block_bytes: 1 << 30, ..Settings::default() });
        assert!(message.starts_with("--host-blocks 268435456: needs 256 PiB of memory"), "{message}");
        let message = refusal(Settings {
            disk_blocks: 1 << 28,
            host_blocks: 1 << 28,
            block_bytes: 1 << 20,
            ..Settings::default()
        });
        assert!(message.contains("of the disk tier 80.0 GiB)"), "{message}");
    }
}
