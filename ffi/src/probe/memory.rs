//! Memory, memory-lock limit, huge pages, NUMA nodes.

use super::room::{Bound, memory_room};
use super::{Fact, read_trimmed};

pub(super) fn room() -> Fact {
    let name = "memory";
    let why = "the kernel kills a process that uses more";
    let Some(room) = memory_room() else {
        let remedy = "none; kvstrata does not check configured sizes against it";
        return Fact::not_found(name, "the kernel does not report it", why, remedy);
    };
    let mib = room.available_bytes >> 20;
    match &room.bound {
        Bound::Machine => Fact::found(name, format!("{mib} MiB available"), why),
        Bound::Group { file, .. } => {
            let detail = format!("{mib} MiB available, bounded by {}", room.bound);
            let remedy = format!("keep device.bytes (simulated) plus host.bytes below it, or raise {file}");
            Fact::limited(name, detail, why, remedy)
        }
    }
}

pub(super) fn lock_limit() -> Fact {
    let name = "memory-lock limit";
    let why = "registered buffers are pinned once instead of at every transfer";
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours, and the call writes to nothing else.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } != 0 {
        let error = std::io::Error::last_os_error();
        return Fact::limited(name, error.to_string(), why, "check `ulimit -l`");
    }
    let remedy = "raise it above the host tier's size: `ulimit -l unlimited`, `LimitMEMLOCK=infinity` in a \
                  unit, or `--ulimit memlock=-1` for a container";
    match limit.rlim_cur {
        libc::RLIM_INFINITY => Fact::found(name, "unlimited", why),
        bytes if may_lock_anyway() => {
            Fact::found(name, format!("{} KiB, but CAP_IPC_LOCK lifts it", bytes >> 10), why)
        }
        bytes => Fact::limited(name, format!("{} KiB", bytes >> 10), why, remedy),
    }
}

/// Whether the effective capabilities of this process have CAP_IPC_LOCK (14).
fn may_lock_anyway() -> bool {
    let status = read_trimmed("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> 14 & 1 == 1)
}

pub(super) fn transparent_huge_pages() -> Fact {
    let name = "transparent huge pages";
    let why = "4 KiB pages halve the read rate of large blocks";
    let remedy = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
    match read_trimmed("/sys/kernel/mm/transparent_hugepage/enabled") {
        Some(mode) if mode.contains("[never]") => Fact::limited(name, mode, why, remedy),
        Some(mode) => Fact::found(name, mode, why),
        None => {
            Fact::not_found(name, "the kernel has none", why, "reserve huge pages instead: `vm.nr_hugepages`")
        }
    }
}

pub(super) fn hugetlb() -> Fact {
    let name = "huge page pool";
    let why = "reserved huge pages cannot be split or run out; kvstrata's host memory uses them first";
    let pool = "/sys/kernel/mm/hugepages/hugepages-2048kB";
    let count = |file: &str| read_trimmed(format!("{pool}/{file}")).and_then(|text| text.parse::<u64>().ok());
    match (count("nr_hugepages"), count("free_hugepages")) {
        (Some(total), Some(free)) if total > 0 => {
            Fact::found(name, format!("{free} of {total} pages of 2 MiB free"), why)
        }
        (Some(_), _) => {
            let remedy = "optional: `sysctl vm.nr_hugepages=N`, N = the host tier's size / 2 MiB";
            Fact::not_found(name, "no pages of 2 MiB reserved", why, remedy)
        }
        (None, _) => Fact::not_found(
            name,
            "the kernel has no pages of 2 MiB",
            why,
            "none; this kernel has no such pages",
        ),
    }
}

pub(super) fn numa() -> Fact {
    let name = "NUMA nodes";
    let why = "an arena on the node of the drive or the GPU saves a hop";
    let nodes = std::fs::read_dir("/sys/devices/system/node").map(|entries| {
        let is_node =
            |name: &str| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok());
        entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count()
    });
    match nodes {
        Ok(1) => Fact::found(name, "1: nothing to place", why),
        Ok(nodes) if nodes > 1 => {
            let remedy = "bind the process to the GPU's node: `numactl --cpunodebind=N --membind=N`";
            Fact { remedy: Some(remedy.to_owned()), ..Fact::found(name, nodes.to_string(), why) }
        }
        _ => Fact::not_found(
            name,
            "the kernel does not report it",
            why,
            "none; kvstrata treats memory as uniform",
        ),
    }
}
