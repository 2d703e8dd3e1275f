//! The disk tier's file: where it goes, and that it is what was asked for.
//!
//! O_DIRECT is a must: through the page cache a "disk" hit would be one of memory. io_uring is not: where a container
//! forbids it, pread and pwrite by a few threads take its place, and the report says so.

use super::error::ReplayError;
use super::settings::Settings;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::disk::{Backend, Volume, VolumeError, VolumeOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pieces in flight.
const DEPTH: u32 = 64;

/// Makes the volume of `--disk-blocks` slots.
pub(super) fn create(settings: &Settings, arena: &Arc<HostArena>) -> Result<Volume, ReplayError> {
    let (blocks, block_bytes) = (settings.disk_blocks, settings.block_bytes);
    if let Some(place) = &settings.disk {
        let path = file_in(place);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if folder.is_some_and(|folder| !folder.is_dir()) {
            let why = "its directory does not exist; create it, or name another".to_owned();
            return Err(ReplayError::Setting { option: "--disk", value: place.display().to_string(), why });
        }
        return try_at(&path, settings, arena).map_err(|source| match source {
            VolumeError::NoDirect { path, why } => ReplayError::Setting {
                option: "--disk",
                value: path.display().to_string(),
                why: format!(
                    "O_DIRECT is refused here ({why}), and through the page cache a disk hit would be one of memory; name a \
                     directory on ext4, xfs or another local file system (`kvstrata doctor --path DIR` tells), or leave the \
                     disk tier out with --disk-blocks 0"
                ),
            },
            source => ReplayError::Volume { blocks, block_bytes, source },
        });
    }
    let mut tried = Vec::new();
    for place in [PathBuf::from("."), PathBuf::from("/var/tmp"), std::env::temp_dir()] {
        match try_at(&file_in(&place), settings, arena) {
            Ok(volume) => return Ok(volume),
            Err(error) => tried.push(error),
        }
    }
    Err(ReplayError::NoPlace { blocks, block_bytes, errors: tried })
}

fn try_at(path: &Path, settings: &Settings, arena: &Arc<HostArena>) -> Result<Volume, VolumeError> {
    let options = |backend| {
        VolumeOptions::new(path, settings.disk_blocks, settings.block_bytes)
            .backend(backend)
            .depth(DEPTH)
            .register(arena)
    };
    match Volume::open(options(Backend::UringDirect)) {
        Err(VolumeError::NoUring { .. }) => {}
        opened => return opened.map(|(volume, _)| volume),
    }
    let (volume, _) = Volume::open(options(Backend::Blocking))?;
    let description = volume.describe();
    if description.direct {
        return Ok(volume);
    }
    Err(VolumeError::NoDirect { path: path.to_owned(), why: description.notes.join("; ") })
}

/// A directory gets a file of a name that nobody else uses; anything else is the file itself.
fn file_in(place: &Path) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    if !place.is_dir() {
        return place.to_owned();
    }
    // Relaxed: only that the numbers differ.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    place.join(format!("kvstrata-replay-{}-{number}.kvs", std::process::id()))
}
