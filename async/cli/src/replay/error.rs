//! Errors that end a replay without a result. Every message names the option, its value and the remedy.

use super::settings::Settings;
use crate::trace::TraceError;
use kvstrata::backend::disk::TierError;
use kvstrata::backend::movers::{CudaMoverError, ThreadsError};
use kvstrata::config::ConfigError;
use kvstrata::manager::BuildError;
use kvstrata::shared::figures::binary;
use kvstrata_ffi::arena::ArenaError;
use kvstrata_ffi::disk::VolumeError;
use kvstrata_ffi::shown::{shown, shown_path};
use std::path::PathBuf;

/// Why a replay cannot start, or go on.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A setting is impossible, on any machine or on this one.
    #[error("{option} {}: {}", shown(value), shown(why))]
    Setting {
        /// The option, as typed.
        option: &'static str,
        /// Its value.
        value: String,
        /// The reason and the remedy.
        why: String,
    },
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The memory of a tier cannot be allocated.
    #[error("{option} {blocks}: {source}")]
    Memory {
        /// The option with the number of blocks.
        option: &'static str,
        /// Its value.
        blocks: u64,
        /// The error of the arena.
        source: ArenaError,
    },
    /// The files of the disk tier cannot be opened or made.
    #[error(
        "--disk: {source} (--disk-blocks {blocks} × --block-bytes {block_bytes} = {}; --disk-blocks 0 \
         leaves the disk tier out)", binary(*blocks as f64 * *block_bytes as f64)
    )]
    Volume {
        /// `--disk-blocks`.
        blocks: u32,
        /// `--block-bytes`.
        block_bytes: usize,
        /// The error of the tier.
        source: TierError,
    },
    /// The files of the disk tier were made with other settings.
    #[error(
        "--disk {}: its {field} is {found}, but the options ask for {wanted}: {remedy}, or discard its contents with \
         --reinitialize",
        shown_path(path)
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The field of its superblock that differs.
        field: &'static str,
        /// The value in the file.
        found: String,
        /// The value of the settings.
        wanted: String,
        /// The option to change.
        remedy: &'static str,
    },
    /// `--disk` is absent, and no default place is usable.
    #[error(
        "--disk: no default place is usable; name a directory on a local file system with room for --disk-blocks {blocks} × \
         --block-bytes {block_bytes} = {}, or use fewer blocks. Tried:{}",
        binary(*blocks as f64 * *block_bytes as f64), tried(.errors)
    )]
    NoPlace {
        /// `--disk-blocks`.
        blocks: u32,
        /// `--block-bytes`.
        block_bytes: usize,
        /// The error of each place.
        errors: Vec<TierError>,
    },
    /// A request waited longer for room on the device than any transfer takes.
    #[error(
        "--concurrency {workers}: a request waited {seconds} s for {blocks} of --device-blocks {device_blocks}; check whether \
         the drive of --disk hangs"
    )]
    Stuck {
        /// `--concurrency`.
        workers: usize,
        /// The time waited.
        seconds: u64,
        /// Blocks that the request needs.
        blocks: usize,
        /// `--device-blocks`.
        device_blocks: usize,
    },
    /// The threads that serve requests cannot be started.
    #[error("--concurrency {workers}: cannot start threads: {source}; use a lower number")]
    Runtime {
        /// `--concurrency`.
        workers: usize,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The copy threads cannot be started.
    #[error("--concurrency: cannot start the copy threads ({threads}): {source}; use a lower number")]
    Threads {
        /// The number of copy threads.
        threads: usize,
        /// The error of the mover.
        source: ThreadsError,
    },
    /// No GPU is usable, or it has no room for the blocks.
    #[error("--device cuda: {0}; or use --device sim")]
    Cuda(#[from] CudaMoverError),
    /// The manager refuses the settings.
    #[error(transparent)]
    Config(Box<ConfigError>),
    /// The manager cannot be made.
    #[error(transparent)]
    Manager(Box<BuildError>),
    /// A request ended by a panic, whose message has been printed.
    #[error("a request panicked: this is a bug of kvstrata; please report it with the lines above")]
    Panic,
}

impl ReplayError {
    /// Adds the settings that an error of the disk tier depends on.
    pub(super) fn disk(settings: &Settings, source: TierError) -> ReplayError {
        match source {
            TierError::Volume(VolumeError::Foreign { path, field, found, wanted }) => {
                let remedy = match field {
                    "model_fingerprint" => "give the --seed of the run that made it",
                    "slot_bytes" | "layout_fingerprint" => "give the --block-bytes of the run that made it",
                    "slots" => "give the --disk-blocks and the number of paths of the run that made it",
                    "stripe_index" | "stripe_count" | "set_id" => {
                        "give the paths of the run that made it, in the same order"
                    }
                    _ => "choose another path",
                };
                ReplayError::Foreign { path, field, found, wanted, remedy }
            }
            source => {
                let (blocks, block_bytes) = (settings.disk_blocks, settings.block_bytes);
                ReplayError::Volume { blocks, block_bytes, source }
            }
        }
    }
}

fn tried(errors: &[TierError]) -> String {
    errors.iter().map(|error| format!("\n  {error}")).collect()
}
