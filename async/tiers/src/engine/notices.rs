//! What an operator can act on, said once: a condition is raised where it is counted, under the lock or not,
//! and logged when that has been given back. How often it has happened is in the figures.
//!
//! Volumes speak for themselves, by their files (`disk/said.rs`): what a disk answers is said here only of a
//! port that does not ([`TierFacts::says_what_fails`](crate::transfer::TierFacts::says_what_fails)).
//!
//! Invariants
//! - I1: no subscriber, which is a caller's code, runs under the lock, or while its thread settles: landings
//!   go on, however long it takes.
//! - I2: of each condition there is one line in the life of a manager; of a path that does not keep up one
//!   each time that it begins, and one when it is over, half a minute later at least.
//!
//! # Orderings
//! `raised` is set by Release and taken by Acquire, so that whose it was is known to who says it. All else is
//! Relaxed: who sees a bit late says it late.

use crate::contained::contained;
use crate::engine::tier_names::TierNames;
use crate::state::GroupId;
use crate::tier::{MOST_BELOW, Tier};
use crate::transfer::{Cause, Path};
use kvstrata_core::TenantId;
use kvstrata_ffi::shown::shown;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use tracing::{error, info, warn};

/// A condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A transfer failed.
    Failed(Path, Cause),
    /// A failed device keeps blocks.
    Parked(Path),
    /// Copies on request are refused for want of room in the queue.
    QueueFull,
    /// The same, of room behind gates.
    GatesFull,
    /// An allocation was late.
    Late,
    /// A run was cut off at its tenant's quota.
    Quota,
    /// A victim of the device, or of the host, is lost, since the tier below has no room.
    Dropped(Tier),
    /// Blocks are dropped since a path to a slower tier does not keep up; and that is over. Said each time.
    Slow(Path),
    Recovered(Path),
}

/// Of which group, and which tenant, it was when a condition was met for the first time, as far as that is
/// known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct About {
    group: Option<GroupId>,
    tenant: TenantId,
}

impl About {
    pub(crate) fn of(group: GroupId, tenant: TenantId) -> About {
        About { group: Some(group), tenant }
    }

    pub(crate) fn of_group(group: GroupId) -> About {
        About::of(group, TenantId::NOBODY)
    }

    /// In one word: a group's number is one more there, so that 0 is none.
    fn packed(self) -> u32 {
        self.group.map_or(0, |group| group.index() as u32 + 1) << 16 | u32::from(self.tenant.0)
    }

    fn unpacked(word: u32) -> About {
        let group = (word >> 16).checked_sub(1).map(|group| GroupId::new(group as usize));
        About { group, tenant: TenantId(word as u16) }
    }

    /// The group.
    pub(crate) fn group(self) -> Option<GroupId> {
        self.group
    }

    /// The tenant; none: it is no tenant's, or not known.
    pub(crate) fn tenant(self) -> Option<TenantId> {
        Some(self.tenant).filter(|tenant| *tenant != TenantId::NOBODY)
    }
}

/// How grave it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grade {
    /// Something is broken.
    Error,
    /// Something is too small.
    Warning,
    /// Something is over.
    Info,
}

/// What is said of a condition.
struct Words {
    grade: Grade,
    tier: Tier,
    /// Of what moves, or would have.
    path: Option<Path>,
    what: &'static str,
    remedy: &'static str,
}

/// Paths that can have notices.
const PATHS: usize = Path::count(MOST_BELOW);

const FAILURES: u32 = (PATHS * Cause::ALL.len()) as u32;

/// Of the paths to tiers below: whether they keep up.
const PACES: u32 = 2 * MOST_BELOW as u32;

const OTHERS: [Notice; 8] = [
    Notice::Parked(Path::DeviceToHost),
    Notice::Parked(Path::HostToDevice),
    Notice::QueueFull,
    Notice::GatesFull,
    Notice::Late,
    Notice::Quota,
    Notice::Dropped(Tier::Device),
    Notice::Dropped(Tier::Host),
];

const ALL: u32 = FAILURES + PACES + OTHERS.len() as u32;

/// Words with a bit for each.
const WORDS: usize = ALL.div_ceil(u64::BITS) as usize;

impl Notice {
    fn bit(self) -> u32 {
        match self {
            Notice::Failed(path, cause) => path.index() as u32 * Cause::ALL.len() as u32 + cause as u32,
            Notice::Slow(path) => FAILURES + 2 * u32::from(path.below().unwrap_or_default()),
            Notice::Recovered(path) => FAILURES + 2 * u32::from(path.below().unwrap_or_default()) + 1,
            // All of them are there; of paths, those that a device moves bytes on; of tiers, those that
            // something is below.
            other => FAILURES + PACES + OTHERS.iter().position(|of| *of == other).unwrap_or_default() as u32,
        }
    }

    fn at(bit: u32) -> Notice {
        let causes = Cause::ALL.len() as u32;
        match bit.checked_sub(FAILURES) {
            None => Notice::Failed(Path::at((bit / causes) as usize), Cause::ALL[(bit % causes) as usize]),
            Some(pace @ 0..PACES) => {
                let path = Path::ToBelow((pace / 2) as u8);
                if pace.is_multiple_of(2) { Notice::Slow(path) } else { Notice::Recovered(path) }
            }
            Some(other) => OTHERS[(other - PACES) as usize],
        }
    }

    /// None: it is no news to an operator, or others say it.
    fn words(self) -> Option<Words> {
        let of = |grade, tier, path, what, remedy| Some(Words { grade, tier, path, what, remedy });
        let down = Some(Path::DeviceToHost);
        match self {
            Notice::Failed(path, cause) => {
                let (grade, what, remedy) = of_failure(cause)?;
                let lower = path.below().filter(|_| is_of_lower(cause));
                let tier = lower.map_or(path.from(), Tier::Below);
                of(grade, tier, Some(path), what, remedy)
            }
            Notice::Parked(path) => of(
                Grade::Error,
                Tier::Device,
                Some(path),
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
                "end iterations (Iteration::end, step), or raise transfer.queue",
            ),
            Notice::Late => of(
                Grade::Warning,
                Tier::Device,
                None,
                "an allocation was not served in time",
                "preempt or admit fewer requests, or raise device.blocks or deadline.allocate",
            ),
            Notice::Quota => of(
                Grade::Warning,
                Tier::Device,
                None,
                "a run was cut off at its tenant's quota",
                "ask for shorter runs, or raise the tenant's quota of the device (quota.device, [[tenant]])",
            ),
            Notice::Dropped(tier) => of(
                Grade::Warning,
                tier,
                Some(if tier == Tier::Device { Path::DeviceToHost } else { Path::ToBelow(0) }),
                "blocks are lost: the tier below has no room for them",
                "raise host.blocks or disk.blocks, or the tenant's quota there (quota.host, quota.disk, [[tenant]]); \
                 kvstrata_dropped_blocks_total shows how many",
            ),
            Notice::Slow(path) => of(
                Grade::Warning,
                Tier::Below(path.below().unwrap_or_default()),
                Some(path),
                "the tier does not keep up: blocks that leave host memory are dropped, so that no request waits for their writes; reads go on",
                "use a faster drive or several (disk.paths), write less (disk.admission, disk.write_budget), or let requests wait \
                 (transfer.patience); kvstrata_transfer_failures_total{cause=\"slow\"} counts the blocks, kvstrata_path_dropping shows when it is over",
            ),
            Notice::Recovered(path) => of(
                Grade::Info,
                Tier::Below(path.below().unwrap_or_default()),
                Some(path),
                "the tier keeps up again: no block was dropped for 30 s",
                "nothing is to be done; kvstrata_transfer_failures_total{cause=\"slow\"} has counted the blocks",
            ),
        }
    }
}

/// Whether a failure is of a tier below host memory, whatever moved the bytes.
fn is_of_lower(cause: Cause) -> bool {
    matches!(cause, Cause::Rejected | Cause::Tier | Cause::Lost)
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
        Cause::Rejected => (
            Grade::Error,
            "the disk gave something else than what was written: the block is a miss, and computed anew",
            "see who else writes to what the tier is on, and whether that keeps what it is given",
        ),
        Cause::Tier => (
            Grade::Warning,
            "the disk failed a transfer",
            "see the log of what the tier is on; its blocks are misses meanwhile",
        ),
        Cause::Away => (
            Grade::Warning,
            "a disk does not answer just now, or takes no writes: what it holds are misses until it does",
            "see the disk's own log; it is asked again by itself",
        ),
        Cause::Lost => (
            Grade::Error,
            "a disk, or a part of it, is out of service: its blocks are misses, and the tier is smaller",
            "see the log of what the tier is on; start again with one that works, or without it",
        ),
        // Nobody is to act on these, or it is said otherwise.
        Cause::Cancelled | Cause::Quota | Cause::Slow => return None,
    };
    Some((grade, what, remedy))
}

/// The word of a condition's bit, and the bit in it.
fn place(bit: u32) -> (usize, u64) {
    ((bit / u64::BITS) as usize, 1 << (bit % u64::BITS))
}

/// What has been raised, and what of it said.
#[derive(Debug)]
pub(crate) struct Notices {
    raised: [AtomicU64; WORDS],
    said: [AtomicU64; WORDS],
    /// By condition: whose it was.
    whose: [AtomicU32; ALL as usize],
    /// By group, and tier below host memory: it says by itself what fails.
    tells: Box<[Vec<bool>]>,
    names: TierNames,
}

impl Default for Notices {
    fn default() -> Notices {
        Notices::new(Box::default(), TierNames::default())
    }
}

impl Notices {
    /// Of groups, whose tiers below host memory say by themselves what fails, or do not.
    pub(crate) fn new(tells: Box<[Vec<bool>]>, names: TierNames) -> Notices {
        let whose = std::array::from_fn(|_| AtomicU32::new(0));
        let (raised, said) = Default::default();
        Notices { raised, said, whose, tells, names }
    }

    /// A condition is met, perhaps not for the first time.
    pub(crate) fn raise(&self, notice: Notice, whose: About) {
        if let Notice::Failed(path, cause) = notice
            && is_of_lower(cause)
            && self.tells_itself(whose.group, path)
        {
            return;
        }
        let bit = notice.bit();
        let (word, mask) = place(bit);
        let both = self.said[word].load(Relaxed) | self.raised[word].load(Relaxed);
        if both & mask == 0 {
            // Two at once may both be the first: either is one that has met it.
            self.whose[bit as usize].store(whose.packed(), Relaxed);
            self.raised[word].fetch_or(mask, Release);
        }
    }

    /// Whether the tier at the lower end of a path says by itself what fails.
    fn tells_itself(&self, group: Option<GroupId>, path: Path) -> bool {
        let tiers = group.and_then(|group| self.tells.get(group.index()));
        let number = usize::from(path.below().unwrap_or_default());
        tiers.and_then(|tiers| tiers.get(number)) == Some(&true)
    }

    /// One that comes and goes is met again: it is said once more.
    pub(crate) fn raise_anew(&self, notice: Notice, whose: About) {
        let (word, mask) = place(notice.bit());
        self.said[word].fetch_and(!mask, Relaxed);
        self.raise(notice, whose);
    }

    /// A tenant's number may be another's from now on: what is not said yet is said without it.
    pub(crate) fn forget(&self, tenant: TenantId) {
        for whose in &self.whose {
            let without = |word| {
                let about = About::unpacked(word);
                (about.tenant == tenant).then(|| About { tenant: TenantId::NOBODY, ..about }.packed())
            };
            // Relaxed, as all of these words: another notice's words may have come meanwhile.
            let _ = whose.fetch_update(Relaxed, Relaxed, without);
        }
    }

    /// Says what has been raised and was not said before (I2), of those whose names are asked for. To be
    /// called without the lock (I1).
    #[inline]
    pub(crate) fn say(&self, names: impl Fn(About) -> [Option<String>; 2]) {
        if self.raised.iter().any(|word| word.load(Relaxed) != 0) {
            contained(|| self.say_all(&names));
        }
    }

    #[cold]
    fn say_all(&self, names: &dyn Fn(About) -> [Option<String>; 2]) {
        let news: [u64; WORDS] = std::array::from_fn(|word| {
            let raised = self.raised[word].swap(0, Acquire);
            raised & !self.said[word].fetch_or(raised, Relaxed)
        });
        let is_new = |bit: &u32| {
            let (word, mask) = place(*bit);
            news[word] & mask != 0
        };
        for bit in (0..ALL).filter(is_new) {
            let Some(Words { grade, tier, path, what, remedy }) = Notice::at(bit).words() else { continue };
            let [group, tenant] = names(About::unpacked(self.whose[bit as usize].load(Relaxed)))
                .map(|name| name.map(|name| shown(name).to_string()));
            let (tier, path) = (self.names.tier(tier), path.map(|path| self.names.path(path)));
            // Each by itself: one that panics keeps no other from being said.
            contained(|| match grade {
                Grade::Error => error!(tier, path, group, tenant, remedy, "{what}"),
                Grade::Warning => warn!(tier, path, group, tenant, remedy, "{what}"),
                Grade::Info => info!(tier, path, group, tenant, remedy, "{what}"),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_has_a_bit_of_its_own() {
        for bit in 0..ALL {
            assert_eq!(Notice::at(bit).bit(), bit);
        }
        let last = Notice::Failed(Path::FromBelow(MOST_BELOW as u8 - 1), Cause::Slow);
        assert_eq!(Notice::at(FAILURES - 1), last);
    }

    #[test]
    fn whose_it_was_is_told_as_it_was_raised() {
        for whose in [
            About::default(),
            About::of_group(GroupId::FIRST),
            About::of(GroupId::new(65534), TenantId(4095)),
        ] {
            assert_eq!(About::unpacked(whose.packed()), whose);
        }
        let (notices, told) = (Notices::default(), std::cell::RefCell::new(Vec::new()));
        let whose = [About::of(GroupId::new(2), TenantId(7)), About::of(GroupId::new(3), TenantId(8))];
        whose.iter().for_each(|of| notices.raise(Notice::Quota, *of));
        let note = |of| {
            told.borrow_mut().push(of);
            [None, None]
        };
        notices.say(note);
        notices.raise(Notice::Quota, whose[1]);
        notices.say(note);
        assert_eq!(told.into_inner(), whose[..1], "once, of the first");
    }

    #[test]
    fn what_is_said_has_a_remedy_and_what_a_disk_says_itself_is_not_said_twice() {
        let said: Vec<Words> = (0..ALL).filter_map(|bit| Notice::at(bit).words()).collect();
        assert!(said.iter().all(|words| !words.remedy.is_empty() && !words.what.is_empty()));
        for path in Path::all(MOST_BELOW) {
            for cause in [Cause::Cancelled, Cause::Quota, Cause::Slow] {
                assert!(Notice::Failed(path, cause).words().is_none(), "{path} {cause:?}");
            }
        }
        for cause in [Cause::Rejected, Cause::Tier, Cause::Lost] {
            let notices = Notices::new(Box::new([vec![true], vec![false]]), TierNames::default());
            let raised = |group| {
                notices.raise(Notice::Failed(Path::FromBelow(0), cause), About::of_group(group));
                notices.raised.iter().any(|word| word.load(Relaxed) != 0)
            };
            assert_eq!([0, 1].map(GroupId::new).map(raised), [false, true], "{cause:?}");
        }
    }
}
