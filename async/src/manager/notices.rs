//! What an operator can act on, said once: a condition is raised where it is counted, under the lock or not, and logged when that has been given
//! back. How often it has happened is in the figures.
//!
//! Volumes speak for themselves, by their files (`disk/said.rs`): what a disk answers is not said here.
//!
//! Invariants
//! - I1: no subscriber, which is a caller's code, runs under the lock.
//! - I2: of each condition there is one line in the life of a manager.
//!
//! # Orderings
//! Relaxed throughout: what is said is in the bits themselves; who sees one late says it late.

use super::out::contained;
use crate::tier::Tier;
use crate::transfer::{Cause, Path};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tracing::{error, warn};

/// A condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    /// A transfer failed.
    Failed(Path, Cause),
    /// A failed device keeps blocks.
    Parked,
    /// Copies on request are refused for want of room in the queue.
    QueueFull,
    /// The same, of room behind gates.
    GatesFull,
    /// An allocation was late.
    Late,
    /// A run was cut off at its tenant's quota.
    Quota,
}

/// How grave it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grade {
    /// Something is broken.
    Error,
    /// Something is too small.
    Warning,
}

/// What is said of a condition.
struct Words {
    grade: Grade,
    tier: Tier,
    path: Path,
    what: &'static str,
    remedy: &'static str,
}

const FAILURES: u32 = (Path::ALL.len() * Cause::ALL.len()) as u32;
const ALL: u32 = FAILURES + 5;
const _: () = assert!(ALL <= u64::BITS);

impl Notice {
    fn bit(self) -> u32 {
        match self {
            Notice::Failed(path, cause) => path as u32 * Cause::ALL.len() as u32 + cause as u32,
            Notice::Parked => FAILURES,
            Notice::QueueFull => FAILURES + 1,
            Notice::GatesFull => FAILURES + 2,
            Notice::Late => FAILURES + 3,
            Notice::Quota => FAILURES + 4,
        }
    }

    fn of(bit: u32) -> Notice {
        let causes = Cause::ALL.len() as u32;
        match bit.checked_sub(FAILURES) {
            None => Notice::Failed(Path::ALL[(bit / causes) as usize], Cause::ALL[(bit % causes) as usize]),
            Some(0) => Notice::Parked,
            Some(1) => Notice::QueueFull,
            Some(2) => Notice::GatesFull,
            Some(3) => Notice::Late,
            Some(_) => Notice::Quota,
        }
    }

    /// None: it is no news to an operator, or others say it.
    fn words(self) -> Option<Words> {
        let of = |grade, tier, path, what, remedy| Some(Words { grade, tier, path, what, remedy });
        let (down, up) = (Path::DeviceToHost, Path::HostToDevice);
        match self {
            Notice::Failed(path, cause) => {
                let (grade, what, remedy) = of_failure(cause)?;
                of(grade, path.from(), path, what, remedy)
            }
            Notice::Parked => of(
                Grade::Error,
                Tier::Device,
                down,
                "a device has failed with copies under way: their blocks are never used again",
                "see the driver's log (dmesg, nvidia-smi -q), and start the process again",
            ),
            Notice::QueueFull => of(
                Grade::Warning,
                Tier::Device,
                down,
                "a queue is full: copies that are asked for are refused",
                "ask for fewer at a time, or raise transfer.queue; kvstrata_queue_transfers shows what waits",
            ),
            Notice::GatesFull => of(
                Grade::Warning,
                Tier::Device,
                down,
                "as many copies wait for layers and iterations as may: others are refused",
                "end iterations (iteration_end, step), or raise transfer.queue",
            ),
            Notice::Late => of(
                Grade::Warning,
                Tier::Device,
                down,
                "an allocation was not served in time",
                "preempt or admit fewer requests, or raise device.blocks or deadline.allocate",
            ),
            Notice::Quota => of(
                Grade::Warning,
                Tier::Device,
                up,
                "a run was cut off at its tenant's quota",
                "ask for shorter runs, or raise the tenant's quota.device",
            ),
        }
    }
}

fn of_failure(cause: Cause) -> Option<(Grade, &'static str, &'static str)> {
    let (grade, what, remedy) = match cause {
        Cause::Mismatch => (
            Grade::Error,
            "bytes in memory are not what was put there: the block is dropped, and computed anew",
            "test the machine's memory (EDAC counters, memtest)",
        ),
        Cause::Device => (
            Grade::Error,
            "the device, or its driver, failed a copy",
            "see the driver's log (dmesg, nvidia-smi -q)",
        ),
        Cause::Busy => (
            Grade::Warning,
            "something else was using a block of host memory: the copy is given up",
            "if nothing else has the manager's memory, report it: the books should prevent this",
        ),
        Cause::Abandoned => (
            Grade::Warning,
            "whoever moved bytes gave up without an answer",
            "let the manager's runtime live as long as the manager, and shut the manager down before",
        ),
        Cause::Deadline => (
            Grade::Warning,
            "blocks were not there in time for who waited",
            "ask for shorter runs, or raise deadline.onboard or deadline.offload; kvstrata_transfer_wait_seconds shows the queues",
        ),
        // Volumes say these themselves; nobody is to act on the others.
        Cause::Rejected | Cause::Disk | Cause::Lost | Cause::Cancelled | Cause::Quota => return None,
    };
    Some((grade, what, remedy))
}

/// What has been raised, and what of it said.
#[derive(Debug, Default)]
pub(super) struct Notices {
    raised: AtomicU64,
    said: AtomicU64,
}

impl Notices {
    /// A condition is met, perhaps not for the first time.
    pub(super) fn raise(&self, notice: Notice) {
        let bit = 1 << notice.bit();
        if self.said.load(Relaxed) & bit == 0 {
            self.raised.fetch_or(bit, Relaxed);
        }
    }

    /// Says what has been raised and was not said before (I2). To be called without the lock (I1).
    #[inline]
    pub(super) fn say(&self) {
        if self.raised.load(Relaxed) != 0 {
            contained(|| self.say_all());
        }
    }

    #[cold]
    fn say_all(&self) {
        let raised = self.raised.swap(0, Relaxed);
        let news = raised & !self.said.fetch_or(raised, Relaxed);
        for bit in (0..ALL).filter(|bit| news & 1 << bit != 0) {
            let Some(Words { grade, tier, path, what, remedy }) = Notice::of(bit).words() else { continue };
            match grade {
                Grade::Error => error!(%tier, %path, remedy, "{what}"),
                Grade::Warning => warn!(%tier, %path, remedy, "{what}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_has_a_bit_of_its_own() {
        for bit in 0..ALL {
            assert_eq!(Notice::of(bit).bit(), bit);
        }
        let last = Notice::Failed(Path::DiskToDevice, Cause::Quota);
        assert_eq!(Notice::of(FAILURES - 1), last);
    }

    #[test]
    fn what_is_said_has_a_remedy_and_what_volumes_say_is_not_said_twice() {
        let said: Vec<Words> = (0..ALL).filter_map(|bit| Notice::of(bit).words()).collect();
        assert!(said.iter().all(|words| !words.remedy.is_empty() && !words.what.is_empty()));
        for path in Path::ALL {
            for cause in [Cause::Rejected, Cause::Disk, Cause::Lost, Cause::Cancelled] {
                assert!(Notice::Failed(path, cause).words().is_none(), "{path} {cause:?}");
            }
        }
    }
}
