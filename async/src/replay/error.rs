//! Why a replay ends without a result. Every message names the option, its value and what to do.

use super::settings::human_bytes;
use crate::trace::TraceError;
use kvstrata_ffi::arena::ArenaError;
use kvstrata_ffi::disk::VolumeError;

/// Why a replay cannot start, or go on.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A setting is impossible, on any machine or on this one.
    #[error("{option} {value}: {why}")]
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
    /// The disk tier's file.
    #[error(
        "--disk: {source} (--disk-blocks {blocks} × --block-bytes {block_bytes} = {}; --disk-blocks 0 \
         leaves the disk tier out)", human_bytes(*blocks as f64 * *block_bytes as f64)
    )]
    Volume {
        /// `--disk-blocks`.
        blocks: u32,
        /// `--block-bytes`.
        block_bytes: usize,
        /// What the volume says.
        source: VolumeError,
    },
    /// No `--disk` was given, and none of the usual places will do.
    #[error(
        "--disk: none of the usual places will do; name a directory on a local file system with room for --disk-blocks \
         {blocks} × --block-bytes {block_bytes} = {}, or ask for fewer. Tried:{}",
        human_bytes(*blocks as f64 * *block_bytes as f64), tried(.errors)
    )]
    NoPlace {
        /// `--disk-blocks`.
        blocks: u32,
        /// `--block-bytes`.
        block_bytes: usize,
        /// What each place says.
        errors: Vec<VolumeError>,
    },
    /// A worker waited for room on the device for longer than any transfer takes.
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
    /// The system gave no thread.
    #[error("--concurrency {workers}: cannot start a thread: {source}; use fewer")]
    Thread {
        /// `--concurrency`.
        workers: usize,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A worker ended by a panic, which has been printed.
    #[error("a worker ended by a panic: this is a fault of kvstrata; please report it with the lines above")]
    Panic,
}

fn tried(errors: &[VolumeError]) -> String {
    errors.iter().map(|error| format!("\n  {error}")).collect()
}
