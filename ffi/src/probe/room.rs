//! The memory that this process can still use: the machine's, less the limits of each memory control group.
//!
//! ```text
//!   /proc/self/cgroup      4:memory:/pods/a        v1            0::/pods/a        v2
//!   /proc/self/mountinfo   the memory controller's mount         the cgroup2 mount
//!
//!   <mount>/pods/a    limit − (used − page cache that can be dropped)   ┐
//!   <mount>/pods      the same                                          ├ the least, and MemAvailable
//!   <mount>           the same                                          ┘
//! ```
//!
//! The kernel promises memory that it does not have, and kills the process that touches it. A limit of
//! any group above the process's own group kills, too. So sizes are compared with this figure before
//! anything is mapped.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

/// Limits from here on mean no limit: v1 writes the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 60;

/// The bound of a process's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// The machine's available memory (`MemAvailable`).
    Machine,
    /// A control group of the process, its own or one above it.
    Group {
        /// Its folder.
        path: PathBuf,
        /// The file in the folder that has the limit.
        file: &'static str,
        /// The limit, in bytes.
        limit_bytes: u64,
    },
}

/// Memory that a process can still have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryRoom {
    /// Bytes, without swapping.
    pub available_bytes: u64,
    /// Their bound.
    pub bound: Bound,
    /// Bytes of free reserved huge pages of 2 MiB. `available_bytes` does not include them, and no memory
    /// control group counts them.
    pub huge_bytes: u64,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Machine => f.write_str("the machine's memory"),
            Bound::Group { path, file, limit_bytes } => {
                write!(f, "the control group's {file} = {limit_bytes} in {}", path.display())
            }
        }
    }
}

/// Asks the kernel for the room. `None` if the kernel does not say.
#[must_use]
pub fn memory_room() -> Option<MemoryRoom> {
    room_under(Path::new("/"))
}

/// The same, for a tree that has `proc` and `sys`.
fn room_under(root: &Path) -> Option<MemoryRoom> {
    let meminfo = read(&root.join("proc/meminfo"))?;
    let machine = kibibytes(&meminfo, "MemAvailable:")?;
    let pool = root.join("sys/kernel/mm/hugepages/hugepages-2048kB");
    let pages = |file: &str| number(&pool.join(file)).unwrap_or(0);
    let huge_bytes = pages("free_hugepages").saturating_sub(pages("resv_hugepages")).saturating_mul(2 << 20);
    let mut room = MemoryRoom { available_bytes: machine, bound: Bound::Machine, huge_bytes };
    for (folder, top, version) in hierarchies(root) {
        // From the process's own group up to the mount, which may itself be a group of the host.
        for group in folder.ancestors().take_while(|group| group.starts_with(&top)) {
            // In v1 a group may keep its members' memory to itself.
            if version == Version::One && group != folder && is_apart(group) {
                break;
            }
            if let Some((limit_bytes, left)) = version.left_in(group)
                && left < room.available_bytes
            {
                let bound = Bound::Group { path: group.to_owned(), file: version.limit(), limit_bytes };
                room = MemoryRoom { available_bytes: left, bound, ..room };
            }
        }
    }
    Some(room)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    const fn limit(self) -> &'static str {
        match self {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        }
    }

    /// Returns a group's limit, and the bytes left of it. `None` without a limit.
    fn left_in(self, group: &Path) -> Option<(u64, u64)> {
        // "max" is not a number.
        let limit = number(&group.join(self.limit())).filter(|limit| *limit < NO_LIMIT)?;
        let (used, cached) = match self {
            Version::One => ("memory.usage_in_bytes", ["total_inactive_file", "total_active_file"]),
            Version::Two => ("memory.current", ["inactive_file", "active_file"]),
        };
        let used = number(&group.join(used)).unwrap_or(0);
        let stat = read(&group.join("memory.stat")).unwrap_or_default();
        // The kernel drops these before it kills.
        let cached = cached.iter().filter_map(|name| counted(&stat, name)).fold(0, u64::saturating_add);
        Some((limit, limit.saturating_sub(used.saturating_sub(cached))))
    }
}

/// Whether a v1 group ignores the use of the groups below it.
fn is_apart(group: &Path) -> bool {
    number(&group.join("memory.use_hierarchy")) == Some(0)
}

/// Returns the process's own group in each hierarchy that may limit memory: its folder, the mount above
/// it, its version.
fn hierarchies(root: &Path) -> Vec<(PathBuf, PathBuf, Version)> {
    let groups = read(&root.join("proc/self/cgroup")).unwrap_or_default();
    let mounts = read(&root.join("proc/self/mountinfo")).unwrap_or_default();
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let version = match controllers {
            "" => Version::Two,
            _ if controllers.split(',').any(|name| name == "memory") => Version::One,
            _ => continue,
        };
        for (inside, point) in mounts.lines().filter_map(|line| mounted(line, version)) {
            let top = below(root, &point);
            // A container may see its group's path as the host does, with the group itself mounted, or a
            // path that it cannot reach.
            let own = match Path::new(path).strip_prefix(&inside) {
                Ok(rest) if !path.contains("..") => below(&top, &rest.to_string_lossy()),
                _ => top.clone(),
            };
            found.push((if own.is_dir() { own } else { top.clone() }, top, version));
        }
    }
    found
}

/// Parses a line of `mountinfo`. If the line mounts such a hierarchy, returns the mounted group and the
/// mount point.
fn mounted(line: &str, version: Version) -> Option<(String, String)> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(3);
    let (inside, point) = (fields.next()?, fields.next()?);
    let mut kind = kind.split(' ');
    let (name, options) = (kind.next()?, kind.nth(1).unwrap_or(""));
    let is_it = match version {
        Version::Two => name == "cgroup2",
        Version::One => name == "cgroup" && options.split(',').any(|option| option == "memory"),
    };
    let plain = |text: &str| text.replace("\\040", " ");
    is_it.then(|| (plain(inside), plain(point)))
}

/// Moves a path from the root to another root.
fn below(root: &Path, path: &str) -> PathBuf {
    match path.trim_start_matches('/') {
        "" => root.to_owned(),
        rest => root.join(rest),
    }
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn number(path: &Path) -> Option<u64> {
    read(path)?.trim().parse().ok()
}

/// Returns a figure of `memory.stat`.
fn counted(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Returns a figure of `/proc/meminfo`, in bytes.
fn kibibytes(table: &str, name: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
