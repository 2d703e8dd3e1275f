//! Why a replay ends without a result. Every message names the option, its value and what to do.

use super::settings::Settings;
use crate::trace::TraceError;
use kvstrata::config::ConfigError;
use kvstrata::disk::TierError;
use kvstrata::manager::BuildError;
use kvstrata::movers::{CudaMoverError, ThreadsError};
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
        /// The option as it is typed.
        option: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it, and what would be right.
        why: String,
    },
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Memory for a tier.
    #[error("{option} {blocks}: {source}")]
    Memory {
        /// The option that says how many blocks.
        option: &'static str,
        /// Its value.
        blocks: u64,
        /// What the arena says.
        source: ArenaError,
    },
    /// The disk tier's files.
    #[error(
        "--disk: {source} (--disk-blocks {blocks} × --block-bytes {block_bytes} = {}; --disk-blocks 0 \
         leaves the disk tier out)", binary(*blocks as f64 * *block_bytes as f64)
    )]
    Volume {
        /// `--disk-blocks`.
        blocks: u32,
        /// `--block-bytes`.
        block_bytes: usize,
        /// What the tier says.
        source: TierError,
    },
    /// The disk tier's files are of other settings.
    #[error(
        "--disk {}: its {field} is {found}, and {wanted} is wanted: {remedy}, or start over with --reinitialize, which forgets \
         what it holds",
        shown_path(path)
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The field of its superblock that differs.
        field: &'static str,
        /// What the file has.
        found: String,
        /// What the settings ask for.
        wanted: String,
        /// Which option to change.
        remedy: &'static str,
    },
    /// No `--disk` was given, and none of the usual places will do.
    #[error(
        "--disk: none of the usual places will do; name a directory on a local file system with room for --disk-blocks \
         {blocks} × --block-bytes {block_bytes} = {}, or ask for fewer. Tried:{}",
        binary(*blocks as f64 * *block_bytes as f64), tried(.errors)
    )]
    NoPlace {
        /// `--disk-blocks`.
        blocks: u32,
        /// `--block-bytes`.
        block_bytes: usize,
        /// What each place says.
        errors: Vec<TierError>,
    },
    /// A request waited for room on the device for longer than any transfer takes.
    #[error(
        "--concurrency {workers}: a request waited {seconds} s for {blocks} of --device-blocks {device_blocks}; is the disk \
         of --disk hanging?"
    )]
    Stuck {
        /// `--concurrency`.
        workers: usize,
        /// How long.
        seconds: u64,
        /// What it waited for.
        blocks: usize,
        /// `--device-blocks`.
        device_blocks: usize,
    },
    /// The system gave no threads to serve requests.
    #[error("--concurrency {workers}: cannot start threads: {source}; use fewer")]
    Runtime {
        /// `--concurrency`.
        workers: usize,
        /// The system's answer.
        source: std::io::Error,
    },
    /// It gave none to copy.
    #[error("{threads} threads that copy: {source}")]
    Threads {
        /// How many.
        threads: usize,
        /// What the mover says.
        source: ThreadsError,
    },
    /// A GPU that cannot be had, or not for so many blocks.
    #[error("--device cuda: {0}; or use --device sim")]
    Cuda(#[from] CudaMoverError),
    /// What the options come to is nothing that the manager takes.
    #[error(transparent)]
    Config(Box<ConfigError>),
    /// The manager cannot be made.
    #[error(transparent)]
    Manager(Box<BuildError>),
    /// A request ended by a panic, which has been printed.
    #[error("a request ended by a panic: this is a fault of kvstrata; please report it with the lines above")]
    Panic,
}

impl ReplayError {
    /// What the disk tier says, with the settings that it depends on.
    pub(super) fn disk(settings: &Settings, source: TierError) -> ReplayError {
        match source {
            TierError::Volume(VolumeError::Foreign { path, field, found, wanted }) => {
                let remedy = match field {
                    "model_fingerprint" => "give the --seed that it was filled with",
                    "slot_bytes" | "layout_fingerprint" => "give the --block-bytes that it was made with",
                    "slots" => "give the --disk-blocks that it was made with, and as many paths",
                    "stripe_index" | "stripe_count" | "set_id" => {
                        "give the paths that it was made with, in that order"
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
