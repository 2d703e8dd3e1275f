//! The machine of a measurement.

use std::fs;
use std::process::Command;

/// Returns processor, cores, memory and kernel, in a line.
pub fn describe() -> String {
    let cpu = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = field("/proc/meminfo", "MemTotal")
        .and_then(|line| line.split(' ').next()?.parse::<u64>().ok())
        .map_or(String::new(), |kib| format!(", {} GiB", kib.div_ceil(1 << 20)));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cpu}, {cores} cores{memory}, Linux {}", kernel.trim())
}

/// Returns today's date, UTC, as `2026-01-31`; `?` on systems without `date`.
pub fn today() -> String {
    let output = Command::new("date").args(["-u", "+%F"]).output();
    output
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or("?".into(), |date| date.trim().into())
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
