//! A whole volume in one thread, over a device that fails as a seed says: for tests and for fuzzing, and
//! hidden.
//!
//! ```text
//!   seed ─► plan ─► operations ─► harness ─► inbox ─► engine.round() ─► SimRing ─► disk (a file, and what was synced)
//!                                   │  ▲                                  │ time, faults, crashes
//!                                   ▼  └────────── log of what went wrong ┘
//!                                 oracle: what may be served, what must be found
//! ```
//!
//! Engine, table, write-back, inbox and opening are the code that ships; the ring, its clock and its threads
//! are not there. So a seed gives the same run again, and a failure is a number.
//!
//! What is held against the oracle:
//! - I1: a read that ends well has the bytes of the block that was asked for. Always.
//! - I2: without a reason in the log a block that was written is readable, and nothing fails.
//! - I3: after an orderly end, a flush, or time enough, the file has what is known of each slot; opening
//!   finds exactly what the file has.
//! - I4: everything is answered within a bounded number of rounds, and no ring thread sleeps while it is not.
//! - I5: all buffers come back, but those that a lost device may still touch.
//! - I6: no payload of an encrypted volume is sealed with a key stream that another one had; another key is
//!   refused.
//! - I7: whatever moment of an opening or of an end the power fails at, the next opening finds the volume.
//! - I8: the ring is given at most `depth` pieces, few writes beside reads, and bytes that stay as they are.
//!
//! | file | what |
//! |---|---|
//! | `random.rs` | the one source of chance |
//! | `disk.rs` | the device's bytes: the file, what the last sync left, what is damaged |
//! | `faults.rs`, `plan.rs` | what a seed stands for |
//! | `../ring/sim.rs` | the ring: time, faults, crashes |
//! | `oracle.rs` | what is known of each slot |
//! | `image.rs` | what opening must find in a file |
//! | `life.rs`, `lives.rs` | a volume from its opening to its end; how it ends |
//! | `attempt.rs`, `opening.rs` | one opening, step by step; from one life to the next |
//! | `harness.rs`, `sealing.rs` | operations, and what comes back; the key streams of encrypted writes |
//! | `damaged.rs` | arbitrary damage to a file, for the fuzz target `volume` |

mod attempt;
mod damaged;
pub(super) mod disk;
pub(super) mod faults;
mod harness;
mod image;
mod life;
mod lives;
mod opening;
mod oracle;
mod plan;
pub(super) mod random;
mod sealing;
#[cfg(test)]
mod tests;

pub use damaged::{Case, Edit};

use super::format::SUPERBLOCK_BYTES as SUPERBLOCK;
use harness::Harness;
use plan::Plan;
use random::Random;
use std::path::{Path, PathBuf};

/// A folder in memory where there is one: the files are small and many, and nothing is to be kept.
#[must_use]
pub fn folder() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// Does what a seed stands for, with files in `folder`.
///
/// # Errors
/// What was not as it must be, and after which operation.
///
/// # Panics
/// Where the engine broke a promise to the ring, or panicked itself.
pub fn run(seed: u64, folder: &Path, tell: bool) -> Result<(), String> {
    let mut random = Random::new(seed);
    let plan = Plan::of(&mut random);
    if tell {
        println!("{plan:?}");
    }
    let mut harness = Harness::new(plan.clone(), folder, Random::new(random.next()))?;
    for n in 0..plan.operations {
        let operation = plan.operation(&mut random);
        if tell {
            println!("{n}: {operation:?}");
        }
        harness.operate(operation).map_err(|what| format!("operation {n}, {operation:?}: {what}"))?;
    }
    harness.finish().map_err(|what| format!("at the end: {what}"))
}
