//! The disk tier beside fio and its peers: the same blocks, depths and
//! footprint, in turns on one file system.
//!
//! ```text
//!   disk ─┬─ Ours        a volume a block size, in this process
//!         ├─ Fio         a process a turn; its JSON
//!         ├─ Looked      a bare ring that loads each byte once
//!         └─ Worker      foyer, NIXL: a process each, driven by lines, stopped (SIGSTOP) outside its turns
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `target.rs` | the measured volume and its buffers |
//! | `ours.rs` | the closed loop, urgent reads beside writes, a cold prefix |
//! | `fio.rs` | the limit |
//! | `looked.rs` | the limit of a verifying reader |
//! | `worker.rs` | peers that answer a line with a line |
//! | `checksum.rs` | the payload checksum beside memcpy |
//! | `calls.rs` | system calls, seen by strace |
//! | `files.rs` | the folder for files, and whether there is room |
//! | `report.rs` | the tables, as Markdown and JSON |
//! | `soak.rs` | minutes of everything at once, each byte checked, memory and descriptors watched |

pub mod calls;
pub mod checksum;
pub mod files;
pub mod fio;
pub mod looked;
pub mod ours;
pub mod report;
pub mod soak;
pub mod target;
pub mod under_way;
pub mod worker;

use std::time::Duration;

/// Reads of a mix, in a hundred.
const READS_OF_100: u64 = 70;

/// The reason, in words, why a contender has no figure.
pub type Failure = Box<dyn std::error::Error>;

/// The operation of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Reads of random slots.
    Read,
    /// Writes to random slots.
    Write,
    /// 70 reads to 30 writes.
    Mix,
}

impl Way {
    /// Returns the word in the tables and in the workers' lines.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Way::Read => "read",
            Way::Write => "write",
            Way::Mix => "mix",
        }
    }
}

/// One line of the table: the work of each contender during a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// Bytes a block.
    pub block_bytes: usize,
    /// Blocks in flight.
    pub depth: usize,
    /// Reads, writes or both.
    pub way: Way,
}

/// The bytes and the costs of one turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Payload bytes.
    pub bytes: u64,
    /// The time from the first request to the last answer.
    pub seconds: f64,
    /// Processor time of all threads, user and kernel.
    pub cpu_seconds: f64,
    /// System calls by which the volume was driven; none if that is not known.
    pub calls: Option<u64>,
}

impl Turn {
    /// Returns the throughput.
    #[must_use]
    pub fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e9
    }

    /// Returns the processor seconds a GiB.
    #[must_use]
    pub fn cpu_a_gib(&self) -> f64 {
        self.cpu_seconds / (self.bytes as f64 / (1_u64 << 30) as f64)
    }
}

/// A contender that takes turns.
pub trait Contender {
    /// Returns its name in the table.
    fn name(&self) -> &str;

    /// Moves blocks for so long, and finishes the requests that it has begun.
    ///
    /// # Errors
    /// Any failure; it ends the bench.
    fn turn(&mut self, cell: Cell, length: Duration) -> Result<Turn, Failure>;
}

/// Formats `131072` as `128 KiB`.
#[must_use]
pub fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ => format!("{} KiB", bytes >> 10),
    }
}
