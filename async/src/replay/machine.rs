//! This machine: its cores, its memory, and the most of it that this process used.

/// Cores that this process may use; 1 where the system does not say.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The most memory that this process has held, in bytes, where the system says.
#[cfg(target_os = "linux")]
pub(super) fn peak_memory_bytes() -> Option<u64> {
    kibibytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Memory that can be had without swapping, in bytes: the machine's, or the control group's limit if that is less.
#[cfg(target_os = "linux")]
pub(super) fn available_memory_bytes() -> Option<u64> {
    let machine = kibibytes(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    let group = |file: &str| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let limit =
        group("/sys/fs/cgroup/memory.max").or_else(|| group("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    Some(limit.map_or(machine, |limit| machine.min(limit)))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn peak_memory_bytes() -> Option<u64> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(super) fn available_memory_bytes() -> Option<u64> {
    None
}

#[cfg(target_os = "linux")]
fn kibibytes(table: &str, name: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_both() {
        let (peak, available) =
            (peak_memory_bytes().expect("procfs"), available_memory_bytes().expect("procfs"));
        assert!(peak > 1 << 16 && available > 1 << 20);
        assert_eq!(kibibytes("VmPeak:\t 9 kB\nVmHWM:\t     128 kB\n", "VmHWM:"), Some(131_072));
    }
}
