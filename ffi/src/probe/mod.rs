//! The features of this machine, as facts for `kvstrata doctor`.
//!
//! A probe never panics and never hangs. A part that may wait for a sick driver or a dead network mount
//! runs on a thread of its own, and is reported as limited if it does not answer in time.

// | file | facts |
// |---|---|
// | `kernel.rs` | kernel version, io_uring, CPU features |
// | `memory.rs` | memory, memory-lock limit, huge pages, NUMA nodes |
// | `room.rs` | memory that this process can still have, by the machine and by its control groups |
// | `disk.rs` | the file system of a path, its free space, O_DIRECT |
// | `vendor.rs` | CUDA driver and devices, nvcc, NIXL, cuFile |

mod disk;
mod kernel;
mod memory;
mod room;
#[cfg(test)]
mod tests;
mod vendor;

pub use room::{Bound, MemoryRoom, memory_room};

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Whether a feature is present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Present, as good as it gets.
    Found,
    /// Absent.
    NotFound,
    /// Present, but less than it could be.
    Limited,
}

impl core::fmt::Display for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            Status::Found => "found",
            Status::NotFound => "not found",
            Status::Limited => "limited",
        })
    }
}

/// One fact about this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The subject; unique among the facts, and stable.
    pub name: &'static str,
    /// Whether the subject is present.
    pub status: Status,
    /// The finding, in one line.
    pub detail: String,
    /// Why it matters, in one line.
    pub why: &'static str,
    /// The remedy, if there is one.
    pub remedy: Option<String>,
}

impl Fact {
    fn found(name: &'static str, detail: impl Into<String>, why: &'static str) -> Fact {
        Fact { name, status: Status::Found, detail: detail.into(), why, remedy: None }
    }

    fn limited(
        name: &'static str,
        detail: impl Into<String>,
        why: &'static str,
        remedy: impl Into<String>,
    ) -> Fact {
        Fact { name, status: Status::Limited, detail: detail.into(), why, remedy: Some(remedy.into()) }
    }

    fn not_found(
        name: &'static str,
        detail: impl Into<String>,
        why: &'static str,
        remedy: impl Into<String>,
    ) -> Fact {
        Fact { name, status: Status::NotFound, detail: detail.into(), why, remedy: Some(remedy.into()) }
    }
}

/// The time limit of a part of the probe.
const PATIENCE: Duration = Duration::from_secs(10);

/// Probes the machine. `disk_path` is the future place of a volume: a folder, or a file that exists or
/// could be created. To try O_DIRECT, a small file is created beside it for a moment.
#[must_use]
pub fn probe(disk_path: &Path) -> Vec<Fact> {
    let mut facts = vec![kernel::version(), kernel::io_uring(), kernel::cpu()];
    facts.extend([
        memory::room(),
        memory::lock_limit(),
        memory::transparent_huge_pages(),
        memory::hugetlb(),
        memory::numa(),
    ]);
    let path = disk_path.to_owned();
    facts.extend(in_time("disk", move || disk::facts(&path)));
    facts.extend(in_time("CUDA driver", vendor::cuda));
    facts.push(vendor::kernels());
    facts.push(vendor::nvcc());
    facts.extend(in_time("NIXL", || vec![vendor::nixl()]));
    facts.extend(in_time("cuFile", || vec![vendor::cufile()]));
    facts
}

/// Returns the bytes that can be written in a folder, or beside a path that is not a folder.
///
/// # Errors
/// There is no such folder, or it cannot be opened.
pub fn disk_room(disk_path: &Path) -> std::io::Result<u64> {
    crate::disk::available_at(&disk::folder_of(disk_path))
}

/// Reports how much memory may be locked.
#[must_use]
pub fn memory_lock() -> Fact {
    memory::lock_limit()
}

/// Runs a part of the probe on its own thread. A thread that does not answer in time is left behind.
fn in_time(name: &'static str, part: impl FnOnce() -> Vec<Fact> + Send + 'static) -> Vec<Fact> {
    answer_within(PATIENCE, name, part)
}

fn answer_within(
    patience: Duration,
    name: &'static str,
    part: impl FnOnce() -> Vec<Fact> + Send + 'static,
) -> Vec<Fact> {
    let why = "kvstrata cannot use hardware or a mount that does not answer";
    let (answer, answered) = mpsc::channel();
    let asked = thread::Builder::new().name("kvstrata-probe".into()).spawn(move || {
        let _ = answer.send(part());
    });
    if let Err(error) = asked {
        return vec![Fact::limited(
            name,
            format!("not probed: {error}"),
            why,
            "raise the limit on threads (`ulimit -u`)",
        )];
    }
    answered.recv_timeout(patience).unwrap_or_else(|error| {
        let detail = match error {
            mpsc::RecvTimeoutError::Timeout => format!("no answer within {} s", patience.as_secs()),
            mpsc::RecvTimeoutError::Disconnected => "the probe ended without an answer".to_owned(),
        };
        vec![Fact::limited(name, detail, why, "check the driver or the mount with its own tools")]
    })
}

/// Formats bytes for people: three digits, and the unit that fits.
fn binary(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut number, mut unit) = (bytes as f64, 0);
    // A number that would be rounded up to 1024 takes the next unit.
    while number >= 1023.5 && unit + 1 < units.len() {
        (number, unit) = (number / 1024.0, unit + 1);
    }
    let digits = match number {
        _ if unit == 0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{number:.digits$} {}", units[unit])
}

/// Reads a small file of the kernel's, trimmed. `None` if it cannot be read.
fn read_trimmed(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
