//! The disk tier beside fio and its peers: the same blocks, depths and footprint, in turns on one file system.
//!
//! ```text
//!   disk ─┬─ Ours        a volume a block size, in this process
//!         ├─ Fio         a process a turn; its JSON
//!         ├─ Looked      a bare ring that loads each byte once
//!         └─ Worker      foyer, NIXL: a process each, asked by a line, stopped (SIGSTOP) while others have their turn
//! ```
//!
//! | file | what |
//! |---|---|
//! | `target.rs` | what is measured: a volume and its buffers |
//! | `ours.rs` | the closed loop, urgent reads beside writes, a cold prefix |
//! | `fio.rs` | the limit |
//! | `looked.rs` | the limit of whoever looks at the bytes |
//! | `worker.rs` | peers that answer a line with a line |
//! | `checksum.rs` | the payload checksum beside memcpy |
//! | `calls.rs` | system calls, seen by strace |
//! | `files.rs` | where the files go, and whether there is room |
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

/// Why a contender has no figure, in words.
pub type Failure = Box<dyn std::error::Error>;

/// What a turn does.
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
    /// As the tables and the workers' lines have it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Way::Read => "read",
            Way::Write => "write",
            Way::Mix => "mix",
        }
    }
}

/// One line of the table: what each contender does for a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// Bytes a block.
    pub block_bytes: usize,
    /// Blocks in flight.
    pub depth: usize,
    /// Reads, writes or both.
    pub way: Way,
}

/// What one turn moved and what it cost.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Payload bytes.
    pub bytes: u64,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Processor time of all threads, user and kernel.
    pub cpu_seconds: f64,
    /// System calls by which the volume was driven; none where that is not known.
    pub calls: Option<u64>,
}

impl Turn {
    /// Throughput.
    #[must_use]
    pub fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e9
    }

    /// Processor seconds a GiB.
    #[must_use]
    pub fn cpu_a_gib(&self) -> f64 {
        self.cpu_seconds / (self.bytes as f64 / (1_u64 << 30) as f64)
    }
}

/// Who takes turns.
pub trait Contender {
    /// As the table calls it.
    fn name(&self) -> &str;

    /// Moves blocks for so long, and finishes what it has begun.
    ///
    /// # Errors
    /// What went wrong; the bench ends with it.
    fn turn(&mut self, cell: Cell, length: Duration) -> Result<Turn, Failure>;
}

/// `131072` as `128 KiB`.
#[must_use]
pub fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ => format!("{} KiB", bytes >> 10),
    }
}
