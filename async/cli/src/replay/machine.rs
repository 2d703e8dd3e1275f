//! This machine: its cores, and the peak memory of this process.

/// Cores that this process may use; 1 if the system does not report them.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The peak memory of this process in bytes, if the system reports it.
#[cfg(target_os = "linux")]
pub(super) fn peak_memory_bytes() -> Option<u64> {
    kibibytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

#[cfg(not(target_os = "linux"))]
pub(super) fn peak_memory_bytes() -> Option<u64> {
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
    fn peak_memory_is_read_from_the_kernel() {
        assert!(peak_memory_bytes().expect("procfs") > 1 << 16);
        assert_eq!(kibibytes("VmPeak:\t 9 kB\nVmHWM:\t     128 kB\n", "VmHWM:"), Some(131_072));
    }
}
