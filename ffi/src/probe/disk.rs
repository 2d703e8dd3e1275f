//! The file system under a path: which, how much room, and whether it takes O_DIRECT.

use super::{Fact, read_trimmed};
use crate::disk::{Backend, Volume, VolumeError, VolumeOptions};
use std::path::{Path, PathBuf};

pub(super) fn facts(path: &Path) -> Vec<Fact> {
    let folder = folder_of(path);
    vec![file_system(&folder), free_space(&folder), direct(&folder)]
}

/// The folder that a volume at `path` would lie in.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    if path.is_dir() {
        return path.to_owned();
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn file_system(folder: &Path) -> Fact {
    let name = "file system";
    let why = "ext4 and xfs on local NVMe are the ones that the disk tier is tuned for";
    let mounts = read_trimmed("/proc/self/mounts").unwrap_or_default();
    let absolute = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    // The longest mount point that the folder lies under; the last of equals hides the others.
    let mount = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (device, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
            let point = point.replace("\\040", " ");
            absolute.starts_with(&point).then_some((point, device, kind))
        })
        .max_by_key(|(point, ..)| point.len());
    let Some((point, device, kind)) = mount else {
        return Fact::not_found(
            name,
            format!("{}: unknown", folder.display()),
            why,
            "name an existing folder",
        );
    };
    let detail = format!("{kind} ({device} on {point})");
    match kind {
        "ext4" | "xfs" | "btrfs" | "f2fs" => Fact::found(name, detail, why),
        "tmpfs" | "ramfs" => {
            Fact::limited(name, format!("{detail}: this is memory"), why, "put the volume on a local drive")
        }
        _ => Fact::limited(
            name,
            detail,
            why,
            "put the volume on ext4 or xfs on a local NVMe drive, if there is one",
        ),
    }
}

fn free_space(folder: &Path) -> Fact {
    let name = "free space";
    let why = "a volume is allocated whole when it is created";
    let shown = folder.display();
    match crate::disk::available_at(folder) {
        Ok(0) => Fact::not_found(name, format!("{shown}: none"), why, "free space or choose another path"),
        Ok(bytes) => Fact::found(name, format!("{shown}: {} GiB", bytes >> 30), why),
        Err(error) => Fact::not_found(name, format!("{shown}: {error}"), why, "name an existing folder"),
    }
}

/// Creates a volume of one slot, as small as they come; it has no name for longer than an instant.
fn direct(folder: &Path) -> Fact {
    let name = "O_DIRECT";
    let why = "transfers past the page cache: no second copy of the cache in memory";
    let path = folder.join(format!(".kvstrata-probe-{}", std::process::id()));
    // The blocking backend, so that this asks about O_DIRECT alone.
    let volume = Volume::open(VolumeOptions::new(path, 1, 4096).backend(Backend::Blocking).threads(1));
    let remedy = "put the volume on ext4 or xfs; until then transfers are buffered";
    match volume {
        Ok((volume, _)) => {
            let description = volume.describe();
            let detail = format!("{}: alignment {} bytes", folder.display(), description.alignment);
            match description.direct {
                true => Fact::found(name, detail, why),
                false => Fact::not_found(name, description.notes.join("; "), why, remedy),
            }
        }
        Err(error @ (VolumeError::Os { .. } | VolumeError::NoSpace { .. })) => {
            Fact::not_found(name, error.to_string(), why, "name a writable folder with room")
        }
        Err(error) => Fact::not_found(name, error.to_string(), why, remedy),
    }
}
