//! A whole volume in one thread, over a device that fails as a seed says. For tests and
//! fuzzing, and hidden.
//!
//! ```text
//!   seed ─► plan ─► operations ─► harness ─► inbox ─► engine.round() ─► SimRing ─► disk: file, last sync
//!                                   │  ▲                                  │ time, faults, crashes
//!                                   ▼  └───────────── log of incidents ───┘
//!                                 oracle: which reads may succeed, which blocks must be found
//! ```
//!
//! Engine, table, write-back, inbox and opening are the code that ships; the ring, its clock and its
//! threads are replaced. So a seed gives the same run again, and a failure is a number.
//!
//! The simulation checks against the oracle:
//! - I1: a read that succeeds has the bytes of the requested block. Always.
//! - I2: without a reason in the log, a written block is readable, and nothing fails.
//! - I3: after an orderly end, a flush, or enough time, the file has the known state of each slot;
//!   opening finds exactly the file's contents.
//! - I4: every request is answered within a bounded number of rounds, and no ring thread
//!   sleeps before that.
//! - I5: all buffers come back, except those that a lost device may still touch.
//! - I6: no two payloads of an encrypted volume are sealed with the same key stream; another
//!   key is refused.
//! - I7: at whatever moment of an opening or an end the power fails, the next opening finds the volume.
//! - I8: the ring is given at most `depth` pieces, few writes beside reads, and bytes that do not change.
//!
//! | file | contents |
//! |---|---|
//! | `random.rs` | the one source of chance |
//! | `disk.rs` | the device's bytes: the file, its state at the last sync, its damaged sectors |
//! | `faults.rs`, `plan.rs` | the meaning of a seed |
//! | `../ring/sim.rs` | the ring: time, faults, crashes |
//! | `oracle.rs` | the known state of each slot |
//! | `image.rs` | the blocks that opening must find in a file |
//! | `life.rs`, `lives.rs` | a volume from its opening to its end; how it ends |
//! | `attempt.rs`, `opening.rs` | one opening, step by step; from one life to the next |
//! | `harness.rs`, `sealing.rs` | operations, and their results; the key streams of encrypted writes |
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

/// A folder in memory, if there is one: the files are small and many, and none is kept.
#[must_use]
pub fn folder() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// Runs the simulation of a seed, with files in `folder`.
///
/// # Errors
/// The broken rule, and the operation after which it was found.
///
/// # Panics
/// If the engine broke a promise to the ring, or panicked itself.
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
        harness.operate(operation).map_err(|wrong| format!("operation {n}, {operation:?}: {wrong}"))?;
    }
    harness.finish().map_err(|wrong| format!("at the end: {wrong}"))
}
