//! The disk tier's volumes: where they go, and that they are what was asked for.
//!
//! With `--disk` they are files that stay, and are used again by the next run; without, one that has no name
//! and goes with the process. O_DIRECT is a must unless `--disk-backend` says otherwise: through the page
//! cache a "disk" hit would be one of memory. io_uring is not: where a container forbids it, pread and pwrite
//! by a few threads take its place, and the report says so.

use super::error::ReplayError;
use super::pattern::Pattern;
use super::settings::Settings;
use super::tiers;
use kvstrata::config::DiskFill;
use kvstrata::disk::{DiskTier, RecoveryReport, TierError, TierOptions};
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::disk::{Backend, VolumeError, VolumeOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pieces in flight.
const DEPTH: u32 = 64;
/// The file that a directory given as `--disk` gets.
const FILE: &str = "kvstrata.kvs";

/// Told how far writing a file through has come: bytes done, bytes in all.
pub type FillProgress = Arc<dyn Fn(u64, u64) + Send + Sync>;

type Opened = (DiskTier, RecoveryReport);

/// Opens or makes the volumes, of `--disk-blocks` slots together.
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
    // One of several is left out, with a warning.
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
                "O_DIRECT is refused here ({why}), and through the page cache a disk hit would be one of memory; name a \
                 directory on ext4, xfs or another local file system (`kvstrata doctor --path DIR` tells), allow it with \
                 --disk-backend uring-buffered, or leave the disk tier out with --disk-blocks 0"
            ),
        },
        source => ReplayError::disk(settings, source),
    })
}

/// What volumes are made of.
struct Made<'m> {
    settings: &'m Settings,
    arena: &'m Arc<HostArena>,
    filled: &'m FillProgress,
}

fn open_scratch(made: &Made<'_>) -> Result<Opened, ReplayError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let mut errors = Vec::new();
    for place in [PathBuf::from("."), PathBuf::from("/var/tmp"), std::env::temp_dir()] {
        // Relaxed: only that the numbers differ.
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
            // By default: a page cache in between would be what is measured.
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

/// A directory gets a file of a name that the next run will know; anything else is the file itself.
pub(crate) fn file_in(place: &Path) -> PathBuf {
    match place.is_dir() {
        true => place.join(FILE),
        false => place.to_owned(),
    }
}
