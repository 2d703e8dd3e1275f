//! The file system under a path: its type, its free space, and whether it supports O_DIRECT.

use super::{Fact, binary, read_trimmed};
use crate::disk::{Backend, Volume, VolumeError, VolumeOptions};
use crate::shown::{shown, shown_path};
use std::path::{Path, PathBuf};

const FILE_SYSTEM: &str = "file system";
const FILE_SYSTEM_WHY: &str = "the disk tier is tuned for ext4 and xfs on local NVMe";
const FREE_SPACE: &str = "free space";
const FREE_SPACE_WHY: &str = "a volume is allocated whole when it is created";
const DIRECT: &str = "O_DIRECT";
const DIRECT_WHY: &str = "transfers bypass the page cache, so memory holds no second copy of the blocks";

pub(super) fn facts(path: &Path) -> Vec<Fact> {
    let folder = folder_of(path);
    let mount = mount_of(&folder);
    match mount.filter(Mount::keeps_no_files) {
        Some(mount) => no_files(&mount),
        None => vec![file_system(&folder), free_space(&folder), direct(&folder)],
    }
}

/// The mount that holds a folder's files.
struct Mount {
    point: PathBuf,
    device: String,
    kind: String,
}

impl Mount {
    /// Whether the mount only shows the kernel's state: it has no free space, and it is not full either.
    fn keeps_no_files(&self) -> bool {
        const SHOWN: [&str; 19] = [
            "autofs",
            "binfmt_misc",
            "bpf",
            "cgroup",
            "cgroup2",
            "configfs",
            "debugfs",
            "devpts",
            "efivarfs",
            "fusectl",
            "hugetlbfs",
            "mqueue",
            "nsfs",
            "proc",
            "pstore",
            "rpc_pipefs",
            "securityfs",
            "sysfs",
            "tracefs",
        ];
        SHOWN.contains(&self.kind.as_str())
    }
}

impl core::fmt::Display for Mount {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Mount { point, device, kind } = self;
        write!(f, "{} ({} on {})", shown(kind), shown(device), shown_path(point))
    }
}

/// Returns the mount of a folder: the one with the longest mount point. Of equal points, the last hides
/// the others.
fn mount_of(folder: &Path) -> Option<Mount> {
    let mounts = read_trimmed("/proc/self/mounts").unwrap_or_default();
    let absolute = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mount = |line: &str| {
        let mut fields = line.split(' ').map(unescaped);
        let (device, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Mount { point: point.into(), device, kind })
    };
    let under = mounts.lines().filter_map(mount).filter(|mount| absolute.starts_with(&mount.point));
    under.max_by_key(|mount| mount.point.as_os_str().len())
}

/// Decodes a field of the kernel's: it writes blanks, ends of lines and backslashes as three octal digits.
fn unescaped(field: &str) -> String {
    let mut text = String::new();
    let mut parts = field.split('\\');
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let escaped = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped {
            Some(byte) => text.extend([char::from(byte)]),
            None => text.push('\\'),
        }
        text.push_str(&part[if escaped.is_some() { 3 } else { 0 }..]);
    }
    text
}

/// The facts of a folder that cannot hold files.
fn no_files(mount: &Mount) -> Vec<Fact> {
    let remedy = "name a folder on a local file system with --path";
    let of = |name, detail, why| Fact::not_found(name, detail, why, remedy);
    let keeps = format!("{mount}: it shows kernel state and keeps no files");
    let not_asked = format!("not probed: {} keeps no files", shown(&mount.kind));
    vec![
        of(FILE_SYSTEM, keeps, FILE_SYSTEM_WHY),
        of(FREE_SPACE, not_asked.clone(), FREE_SPACE_WHY),
        of(DIRECT, not_asked, DIRECT_WHY),
    ]
}

/// Returns the folder of a volume at `path`.
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
    let (name, why) = (FILE_SYSTEM, FILE_SYSTEM_WHY);
    let Some(mount) = mount_of(folder) else {
        let detail = format!("{}: unknown", shown_path(folder));
        return Fact::not_found(name, detail, why, "name an existing folder");
    };
    let detail = mount.to_string();
    match mount.kind.as_str() {
        "ext4" | "xfs" | "btrfs" | "f2fs" => Fact::found(name, detail, why),
        "tmpfs" | "ramfs" => Fact::limited(
            name,
            format!("{detail}: it keeps its files in memory"),
            why,
            "put the volume on a local drive",
        ),
        _ => Fact::limited(
            name,
            detail,
            why,
            "put the volume on ext4 or xfs on a local NVMe drive, if there is one",
        ),
    }
}

fn free_space(folder: &Path) -> Fact {
    let (name, why) = (FREE_SPACE, FREE_SPACE_WHY);
    let shown = shown_path(folder);
    match crate::disk::available_at(folder) {
        Ok(0) => Fact::not_found(name, format!("{shown}: none"), why, "free space or choose another path"),
        Ok(bytes) => Fact::found(name, format!("{shown}: {}", binary(bytes)), why),
        Err(error) => Fact::not_found(name, format!("{shown}: {error}"), why, "name an existing folder"),
    }
}

/// Creates a volume of one slot, the smallest possible; its name exists only for an instant.
fn direct(folder: &Path) -> Fact {
    let (name, why) = (DIRECT, DIRECT_WHY);
    let path = folder.join(format!(".kvstrata-probe-{}", std::process::id()));
    // The blocking backend, so that the outcome depends on O_DIRECT alone.
    let volume = Volume::open(VolumeOptions::new(path, 1, 4096).backend(Backend::Blocking).threads(1));
    let remedy = "put the volume on ext4 or xfs; until then the page cache buffers transfers";
    match volume {
        Ok((volume, _)) => {
            let description = volume.describe();
            let detail = format!("{}: alignment {} bytes", shown_path(folder), description.alignment);
            match description.direct {
                true => Fact::found(name, detail, why),
                false => Fact::not_found(name, description.notes.join("; "), why, remedy),
            }
        }
        Err(error @ (VolumeError::Os { .. } | VolumeError::NoSpace { .. } | VolumeError::Quota { .. })) => {
            Fact::not_found(name, error.to_string(), why, "name a writable folder with room")
        }
        Err(error) => Fact::not_found(name, error.to_string(), why, remedy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Status;

    #[test]
    fn escaped_field_of_mounts_is_decoded() {
        for (field, wanted) in [
            ("/a\\040b", "/a b"),
            ("/a\\011\\012\\134", "/a\t\n\\"),
            ("/plain", "/plain"),
            ("a\\9x", "a\\9x"),
            ("a\\", "a\\"),
        ] {
            assert_eq!(unescaped(field), wanted);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn folder_of_procfs_is_not_a_full_drive() {
        for folder in ["/proc", "/proc/self", "/proc/sys/kernel"] {
            let facts = facts(Path::new(folder));
            let words: Vec<String> =
                facts.iter().map(|fact| format!("{}: {}", fact.name, fact.detail)).collect();
            assert!(
                words[0].starts_with("file system: proc (") && words[0].ends_with("keeps no files"),
                "{words:?}"
            );
            assert_eq!(words[1], "free space: not probed: proc keeps no files");
            assert_eq!(words[2], "O_DIRECT: not probed: proc keeps no files");
            assert!(facts.iter().all(|fact| fact.status == Status::NotFound), "{facts:?}");
            assert!(
                facts
                    .iter()
                    .all(|fact| fact.remedy.as_deref().is_some_and(|remedy| remedy.contains("--path")))
            );
        }
    }
}
