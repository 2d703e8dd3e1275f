//! The volumes of the disk tier: their places and options.
//!
//! With `--disk` they are files that stay for the next run. Without it, there is one unnamed file that
//! vanishes with the process. O_DIRECT is required unless `--disk-backend` says otherwise: through the
//! page cache, a "disk" hit would be a hit of memory. io_uring is not required: if a container forbids
//! it, a few threads with pread and pwrite replace it, and the report says so.

use super::error::ReplayError;
use super::pattern::Pattern;
use super::settings::Settings;
use super::tiers;
use kvstrata::backend::disk::{DiskTier, RecoveryReport, TierError, TierOptions};
use kvstrata::config::DiskFill;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::disk::{Backend, VolumeError, VolumeOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pieces in flight.
const DEPTH: u32 = 64;
/// The name of the file in a directory given as `--disk`.
const FILE: &str = "kvstrata.kvs";

/// Receives the progress of filling a file: bytes done, bytes in total.
pub type FillProgress = Arc<dyn Fn(u64, u64) + Send + Sync>;

type Opened = (DiskTier, RecoveryReport);

/// Opens or makes the volumes, which have `--disk-blocks` slots together.
pub(super) fn open(
    settings: &Settings,
    arena: &Arc<HostArena>,
    filled: &FillProgress,
) -> Result<Opened, ReplayError> {
    let made = Made { settings, arena, filled };
    if settings.disk.is_empty() {
        return open_scratch(&made);
    }
    let files: Vec<PathBuf> = settings.disk.iter().map(|place| file_in(place)).collect();
    let is_missing = |file: &PathBuf| {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.is_some_and(|folder| !folder.is_dir())
    };
    // If only some of several are missing, the tier leaves them out with a warning.
    if let Some(place) = settings.disk.first()
        && files.iter().all(is_missing)
    {
        let why = "its directory does not exist; create it, or name another".to_owned();
        return Err(ReplayError::Setting { option: "--disk", value: place.display().to_string(), why });
    }
    open_at(&files, true, &made).map_err(|error| match error {
        TierError::Volume(VolumeError::NoDirect { path, why }) => ReplayError::Setting {
            option: "--disk",
            value: path.display().to_string(),
            why: format!(
                "the file system refuses O_DIRECT ({why}), and through the page cache a disk hit would be a hit of memory; \
                 name a directory on ext4, xfs or another local file system (`kvstrata doctor --path DIR` checks it), permit \
                 the page cache with --disk-backend uring-buffered, or leave the disk tier out with --disk-blocks 0"
            ),
        },
        source => ReplayError::disk(settings, source),
    })
}

/// The parts that volumes are made of.
struct Made<'m> {
    settings: &'m Settings,
    arena: &'m Arc<HostArena>,
    filled: &'m FillProgress,
}

fn open_scratch(made: &Made<'_>) -> Result<Opened, ReplayError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let mut errors = Vec::new();
    for place in [PathBuf::from("."), PathBuf::from("/var/tmp"), std::env::temp_dir()] {
        // Relaxed: the numbers only have to differ.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = place.join(format!("kvstrata-replay-{}-{number}.kvs", std::process::id()));
        match open_at(&[file], false, made) {
            Ok(opened) => return Ok(opened),
            Err(error) => errors.push(error),
        }
    }
    let (blocks, block_bytes) = (made.settings.disk_blocks, made.settings.block_bytes);
    Err(ReplayError::NoPlace { blocks, block_bytes, errors })
}

fn open_at(files: &[PathBuf], keep: bool, made: &Made<'_>) -> Result<Opened, TierError> {
    let Made { settings, arena, filled } = *made;
    // `--disk-blocks` is a multiple of their number.
    let slots = settings.disk_blocks / files.len() as u32;
    let volumes = files.iter().map(|file| {
        let filled = Arc::clone(filled);
        let options = VolumeOptions::new(file, slots, settings.block_bytes)
            .keep(keep)
            .write_through(keep && settings.disk_fill == DiskFill::First)
            .write_through_in_background(keep && settings.disk_fill == DiskFill::Background)
            .progress(move |done, bytes| filled(done, bytes))
            .layout_fingerprint(settings.block_bytes as u128)
            .model_fingerprint(Pattern::new(settings.seed).fingerprint())
            .reinitialize(settings.reinitialize)
            .trim(settings.trim)
            .skip_verification_unsafe(settings.skip_verification)
            .backend(settings.disk_backend)
            // By default, since otherwise the page cache would be measured.
            .require_direct(settings.disk_backend == Backend::Auto)
            .depth(DEPTH)
            .register(arena);
        match &settings.disk_key {
            Some(key) => options.key(key.clone()),
            None => options,
        }
    });
    let options = TierOptions::default()
        .admission(settings.disk_admission)
        .write_budget(settings.disk_write_budget)
        .linked(tiers::linked(settings.policy_below));
    DiskTier::open(
        volumes.collect(),
        tiers::pool_config(settings.disk_blocks, settings.policy_below),
        options,
    )
}

/// The file of a `--disk` path: a file of fixed name in a directory, else the path itself.
pub(crate) fn file_in(place: &Path) -> PathBuf {
    match place.is_dir() {
        true => place.join(FILE),
        false => place.to_owned(),
    }
}
