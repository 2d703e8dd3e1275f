//! Diagnostics for an operator, each logged once. A condition is raised where it is counted, with or
//! without the lock, and logged after the lock is released. The figures say how often it has happened.
//!
//! Volumes log their failures themselves, by file (`disk/said.rs`). A disk's failure is logged here only
//! if its port does not log it
//! ([`TierFacts::logs_failures`](crate::transfer::TierFacts::logs_failures)).
//!
//! Invariants
//! - I1: a subscriber is a caller's code. It never runs under the lock, nor while its thread settles
//!   landings: landings go on, however long it takes.
//! - I2: each condition is logged once in the life of a manager. A path that does not keep up is logged
//!   each time that this begins, and once when it is over, at least half a minute later.
//!
//! # Orderings
//! `raised` is set with Release and taken with Acquire, so that the thread that logs a condition knows
//! its group and tenant. All else is Relaxed: a thread that sees a bit late logs it late.

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

/// A condition that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A transfer failed.
    Failed(Path, Cause),
    /// A failed device keeps blocks.
    Quarantined(Path),
    /// Copies on request are refused because a queue is full.
    QueueFull,
    /// Copies on request are refused because too many wait for gates.
    GatesFull,
    /// An allocation was late.
    Late,
    /// A run was cut off at its tenant's quota.
    Quota,
    /// A victim of the device or of the host is lost, since the tier below has no room.
    Dropped(Tier),
    /// Blocks are dropped since a path to a slower tier does not keep up; `Recovered`: that is over. Both
    /// are logged each time.
    Slow(Path),
    Recovered(Path),
}

/// The group and the tenant for which a condition was met first, as far as they are known.
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
        About::of(group, TenantId::NONE)
    }

    /// Packs both into one word: the group's number plus one, so that 0 means none.
    fn packed(self) -> u32 {
        self.group.map_or(0, |group| group.index() as u32 + 1) << 16 | u32::from(self.tenant.0)
    }

    fn unpacked(word: u32) -> About {
        let group = (word >> 16).checked_sub(1).map(|group| GroupId::new(group as usize));
        About { group, tenant: TenantId(word as u16) }
    }

    pub(crate) fn group(self) -> Option<GroupId> {
        self.group
    }

    /// Returns the tenant; none if the condition concerns no tenant, or an unknown one.
    pub(crate) fn tenant(self) -> Option<TenantId> {
        Some(self.tenant).filter(|tenant| *tenant != TenantId::NONE)
    }
}

/// The severity of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grade {
    /// Something is broken.
    Error,
    /// Something is too small.
    Warning,
    /// Something is over.
    Info,
}

/// The text that is logged for a condition.
struct Words {
    grade: Grade,
    tier: Tier,
    /// The path of the transfers that it concerns.
    path: Option<Path>,
    what: &'static str,
    remedy: &'static str,
}

/// Paths that can have notices.
const PATHS: usize = Path::count(MOST_BELOW);

const FAILURES: u32 = (PATHS * Cause::ALL.len()) as u32;

/// Notices on whether the paths to lower tiers keep up: two a path.
const PACES: u32 = 2 * MOST_BELOW as u32;

const OTHERS: [Notice; 8] = [
    Notice::Quarantined(Path::DeviceToHost),
    Notice::Quarantined(Path::HostToDevice),
    Notice::QueueFull,
    Notice::GatesFull,
    Notice::Late,
    Notice::Quota,
    Notice::Dropped(Tier::Device),
    Notice::Dropped(Tier::Host),
];

const ALL: u32 = FAILURES + PACES + OTHERS.len() as u32;

/// Words of bits, one bit for each condition.
const WORDS: usize = ALL.div_ceil(u64::BITS) as usize;

impl Notice {
    fn bit(self) -> u32 {
        match self {
            Notice::Failed(path, cause) => path.index() as u32 * Cause::ALL.len() as u32 + cause as u32,
            Notice::Slow(path) => FAILURES + 2 * u32::from(path.below().unwrap_or_default()),
            Notice::Recovered(path) => FAILURES + 2 * u32::from(path.below().unwrap_or_default()) + 1,
            // `OTHERS` has all that remain: of paths, those on which a device moves bytes; of tiers,
            // those that have a tier below.
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

    /// Returns the text to log; none if it does not help an operator, or is logged elsewhere.
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
            Notice::Quarantined(path) => of(
                Grade::Error,
                Tier::Device,
                Some(path),
                "a device failed with copies in flight: their blocks are quarantined until the process ends",
                "see the driver's log (dmesg, nvidia-smi -q), then start the process again",
            ),
            Notice::QueueFull => of(
                Grade::Warning,
                Tier::Device,
                down,
                "the offload queue is full: explicit offloads are refused",
                "request fewer offloads at a time, or raise transfer.queue; kvstrata_queue_transfers shows its length",
            ),
            Notice::GatesFull => of(
                Grade::Warning,
                Tier::Device,
                down,
                "too many copies wait for layers and iterations: further ones are refused",
                "end iterations (Iteration::end, step), or raise transfer.queue",
            ),
            Notice::Late => of(
                Grade::Warning,
                Tier::Device,
                None,
                "an allocation timed out",
                "admit fewer requests, preempt some, or raise device.blocks or deadline.allocate",
            ),
            Notice::Quota => of(
                Grade::Warning,
                Tier::Device,
                None,
                "an onboard was cut short at its tenant's device quota",
                "onboard shorter runs, or raise the tenant's device quota (quota.device, [[tenant]])",
            ),
            Notice::Dropped(tier) => of(
                Grade::Warning,
                tier,
                Some(if tier == Tier::Device { Path::DeviceToHost } else { Path::ToBelow(0) }),
                "evicted blocks are lost: the tier below has no room for them",
                "raise host.blocks or disk.blocks, or the tenant's quota (quota.host, quota.disk, [[tenant]]); \
                 kvstrata_dropped_blocks_total counts them",
            ),
            Notice::Slow(path) => of(
                Grade::Warning,
                Tier::Below(path.below().unwrap_or_default()),
                Some(path),
                "the tier does not keep up with writes: blocks evicted from host memory are dropped, so that no request \
                 waits for them; reads continue",
                "use faster or more drives (disk.paths), write less (disk.admission, disk.write_budget), or let requests \
                 wait (transfer.patience); kvstrata_path_dropping is 1 until the tier keeps up",
            ),
            Notice::Recovered(path) => of(
                Grade::Info,
                Tier::Below(path.below().unwrap_or_default()),
                Some(path),
                "the tier keeps up again: no block was dropped for 30 s",
                "none needed; kvstrata_transfer_failures_total{cause=\"slow\"} counts the dropped blocks",
            ),
        }
    }
}

/// Whether a failure lies with a tier below host memory, whichever mover reports it.
fn is_of_lower(cause: Cause) -> bool {
    matches!(cause, Cause::Rejected | Cause::Buffer | Cause::Tier | Cause::Lost)
}

fn of_failure(cause: Cause) -> Option<(Grade, &'static str, &'static str)> {
    let (grade, what, remedy) = match cause {
        Cause::Mismatch => (
            Grade::Error,
            "a block in memory is corrupted (its checksum differs): it is dropped and must be recomputed",
            "test the machine's memory (EDAC counters, memtest)",
        ),
        Cause::Device => (
            Grade::Error,
            "the device or its driver failed a copy",
            "see the driver's log (dmesg, nvidia-smi -q)",
        ),
        Cause::Busy => (
            Grade::Warning,
            "a copy failed: another copy was using its block of host memory",
            "if nothing else uses the manager's memory, report a bug: pool metadata should prevent this",
        ),
        Cause::Abandoned => (
            Grade::Warning,
            "a mover or a tier gave up a transfer without an answer",
            "keep the runtime alive as long as the manager, and shut the manager down first",
        ),
        Cause::Deadline => (
            Grade::Warning,
            "blocks were not transferred before their caller's deadline",
            "request shorter runs, or raise deadline.onboard or deadline.offload; see kvstrata_transfer_wait_seconds",
        ),
        Cause::Rejected => (
            Grade::Error,
            "the tier returned wrong data for a block: it is a miss and must be recomputed",
            "check the tier's storage, and whether another program writes to it",
        ),
        Cause::Buffer => (
            Grade::Warning,
            "a block below is not as long as this group's: it is a miss and must be recomputed",
            "if nothing else writes to the tier, report a bug: pool metadata should prevent this",
        ),
        Cause::Tier => (
            Grade::Warning,
            "the tier failed a transfer",
            "see the log of the tier's storage; its blocks are misses meanwhile",
        ),
        Cause::Away => (
            Grade::Warning,
            "the tier does not answer, or takes no writes, for now: its blocks are misses until it does",
            "see the log of the tier's storage; the tier is retried automatically",
        ),
        Cause::Lost => (
            Grade::Error,
            "the tier, or a part of it, is out of service: its blocks are misses, and the tier is smaller",
            "see the log of the tier's storage; start again with working storage, or without this tier",
        ),
        // An operator cannot act on these, or another notice covers them.
        Cause::Cancelled | Cause::Quota | Cause::Slow => return None,
    };
    Some((grade, what, remedy))
}

/// Returns the index of the word that has a condition's bit, and the bit in that word.
fn place(bit: u32) -> (usize, u64) {
    ((bit / u64::BITS) as usize, 1 << (bit % u64::BITS))
}

/// Conditions that were raised, and those that were logged.
#[derive(Debug)]
pub(crate) struct Notices {
    raised: [AtomicU64; WORDS],
    said: [AtomicU64; WORDS],
    /// Group and tenant, by condition.
    whose: [AtomicU32; ALL as usize],
    /// By group and tier below host memory: whether the tier logs its failures itself.
    tells: Box<[Vec<bool>]>,
    names: TierNames,
}

impl Default for Notices {
    fn default() -> Notices {
        Notices::new(Box::default(), TierNames::default())
    }
}

impl Notices {
    /// `tells`: by group and tier below host memory, whether the tier logs its failures itself.
    pub(crate) fn new(tells: Box<[Vec<bool>]>, names: TierNames) -> Notices {
        let whose = std::array::from_fn(|_| AtomicU32::new(0));
        let (raised, said) = Default::default();
        Notices { raised, said, whose, tells, names }
    }

    /// Raises a condition that was met, perhaps not for the first time.
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
            // Two threads may both see that it is new: each of them has met the condition.
            self.whose[bit as usize].store(whose.packed(), Relaxed);
            self.raised[word].fetch_or(mask, Release);
        }
    }

    /// Whether the tier at the lower end of a path logs its failures itself.
    fn tells_itself(&self, group: Option<GroupId>, path: Path) -> bool {
        let tiers = group.and_then(|group| self.tells.get(group.index()));
        let number = usize::from(path.below().unwrap_or_default());
        tiers.and_then(|tiers| tiers.get(number)) == Some(&true)
    }

    /// Raises a condition that comes and goes: it is logged once more.
    pub(crate) fn raise_anew(&self, notice: Notice, whose: About) {
        let (word, mask) = place(notice.bit());
        self.said[word].fetch_and(!mask, Relaxed);
        self.raise(notice, whose);
    }

    /// Removes a tenant from conditions that are not logged yet: its number may become another tenant's.
    pub(crate) fn forget(&self, tenant: TenantId) {
        for whose in &self.whose {
            let without = |word| {
                let about = About::unpacked(word);
                (about.tenant == tenant).then(|| About { tenant: TenantId::NONE, ..about }.packed())
            };
            // Relaxed, as for all of these words: another group and tenant may be stored meanwhile.
            let _ = whose.fetch_update(Relaxed, Relaxed, without);
        }
    }

    /// Logs the conditions that were raised and not logged before (I2). `names` returns the names of a
    /// group and a tenant. Must be called without the lock (I1).
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
            // Each in isolation: if the subscriber panics for one, the others are logged all the same.
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
    fn condition_has_a_bit_of_its_own() {
        for bit in 0..ALL {
            assert_eq!(Notice::at(bit).bit(), bit);
        }
        let last = Notice::Failed(Path::FromBelow(MOST_BELOW as u8 - 1), Cause::Slow);
        assert_eq!(Notice::at(FAILURES - 1), last);
    }

    #[test]
    fn notice_names_its_group_and_tenant_as_raised() {
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
    fn notices_have_remedies_and_skip_those_of_the_disk() {
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
