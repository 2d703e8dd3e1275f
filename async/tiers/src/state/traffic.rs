//! Everything under the lock.

use crate::places::Places;
use crate::state::{
    At, Deadlines, DeferredCopies, Down, Effects, GroupId, GroupState, Groups, Guesses, Iterations, Looks,
    Offloadings, Onboardings, Pace, Phase, Purges, Quarantine, Queues, Scratch, Since, Transfers, Unwritten,
    Up, WaitingForParent, WaitingForQueue, WaitingForQuota,
};
use crate::transfer::{Breaker, Class, Limits, Path};
use kvstrata_core::SequenceHash;
use std::collections::HashSet;
use std::time::Duration;

/// Everything under the lock.
pub(crate) struct Traffic {
    pub(crate) queues: Queues,
    /// Transfers up that have their block, and wait beside a full queue.
    pub(crate) waiting_for_queue: WaitingForQueue,
    pub(crate) ups: Transfers<Up>,
    pub(crate) downs: Transfers<Down>,
    pub(crate) onboardings: Onboardings,
    pub(crate) offloadings: Offloadings,
    /// Transfers up that wait behind their parents', a list for each parent's.
    pub(crate) waiting_for_parent: WaitingForParent,
    /// Names that nobody knows any more, of transfers: what has landed under them goes at once.
    pub(crate) forgotten: HashSet<(GroupId, SequenceHash), Places>,
    pub(crate) groups: Groups,
    /// Who waits for credits, and is in no queue yet.
    pub(crate) waiting_for_quota: WaitingForQuota,
    pub(crate) deadlines: Deadlines,
    pub(crate) effects: Effects,
    pub(crate) guesses: Guesses,
    pub(crate) scratch: Scratch,
    /// How far the model is, and what waits for it.
    pub(crate) iterations: Iterations,
    /// Blocks of devices that are registered and not written yet.
    pub(crate) unwritten: Unwritten,
    /// Copies ahead of need: how far looks have come, of each group's device and host; and what queues have
    /// refused.
    pub(crate) looks: Box<[[Looks; 2]]>,
    pub(crate) deferred: DeferredCopies,
    /// Whether it takes more.
    phase: Phase,
    /// Tenants that are being purged.
    pub(crate) purges: Purges,
    /// Blocks that are never used again.
    pub(crate) quarantine: Quarantine,
    serial: u64,
    /// When the change under way was, once somebody has asked.
    pub(crate) when: Option<Since>,
    /// The same by the manager's clock.
    pub(crate) moment: Option<Duration>,
    /// By path: whether it keeps up.
    pub(crate) paces: Box<[Pace]>,
    /// Something could not even begin, and what it had is free: who waits for that is served.
    pub(crate) again: bool,
}

impl Traffic {
    pub(crate) fn new(
        limits: Vec<Limits>,
        bound: u32,
        (budget, breaker): (Option<u64>, Breaker),
        layers: u32,
        groups: Box<[GroupState]>,
        places: Places,
    ) -> Traffic {
        Traffic {
            waiting_for_queue: WaitingForQueue::new(limits.len()),
            paces: limits.iter().map(|_| Pace::new(breaker.clone())).collect(),
            queues: Queues::new(limits, bound, budget),
            ups: Transfers::new(places),
            downs: Transfers::new(places),
            onboardings: Onboardings::default(),
            offloadings: Offloadings::default(),
            waiting_for_parent: WaitingForParent::default(),
            forgotten: HashSet::with_hasher(places),
            looks: groups.iter().map(|_| Default::default()).collect(),
            deferred: DeferredCopies::default(),
            groups: Groups::new(groups),
            waiting_for_quota: WaitingForQuota::default(),
            deadlines: Deadlines::default(),
            effects: Effects::default(),
            guesses: Guesses::default(),
            scratch: Scratch::default(),
            iterations: Iterations::new(layers, bound),
            unwritten: Unwritten::default(),
            phase: Phase::Open,
            purges: Purges::default(),
            quarantine: Quarantine::default(),
            serial: 0,
            when: None,
            moment: None,
            again: false,
        }
    }

    /// What [`serial`](Traffic::serial) will give next.
    pub(crate) fn next_serial(&self) -> u64 {
        self.serial + 1
    }

    /// Other when a transfer has begun since, or a guess may.
    pub(crate) fn begun(&self) -> (u64, u64) {
        (self.serial, self.guesses.noted())
    }

    pub(crate) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Whether nothing is under way, and nobody waits; but for the engine, which may go on or not.
    pub(crate) fn is_idle(&self) -> bool {
        let mut downs = self.downs.iter().map(|(_, down)| down.at());
        self.ups.is_empty() && downs.all(|at| matches!(at, At::Gated(_))) && self.none_waits()
    }

    /// Whether nobody waits for blocks, nor for credits.
    pub(crate) fn none_waits(&self) -> bool {
        self.waiting_for_quota.is_empty() && self.groups.iter().all(|of| of.queue.is_empty())
    }

    /// Whether no call begins anything any more.
    pub(crate) fn refuses(&self) -> bool {
        self.phase.refuses()
    }

    /// Whether nothing begins any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.phase.is_closed()
    }

    /// Goes on to a later phase. Whether it was an earlier one.
    pub(crate) fn reach(&mut self, phase: Phase) -> bool {
        self.phase.reach(phase)
    }

    /// Whether one more of a class may wait in a queue. What is less urgent takes none of its room; what
    /// waits for host memory is to come to it, and is counted. What waits for the engine is not
    /// (`waiting_for_host.rs` I2).
    pub(crate) fn has_room(&self, path: Path, class: Class) -> bool {
        self.has_room_in(path, 0, class)
    }

    /// The same for a lane, of which there is one but for reads from tiers below: those of one group take no
    /// room of another's.
    pub(crate) fn has_room_in(&self, path: Path, lane: u16, class: Class) -> bool {
        let to_come = |class| match path {
            Path::DeviceToHost => self.groups.iter().map(|of| of.waiting_for_host.chosen_of(class)).sum(),
            _ => 0,
        };
        self.queues.has_room(path, lane, class, to_come) && !self.is_shut(path)
    }

    /// Whether a path takes nothing more just now, being slow; what is under way will tell.
    pub(crate) fn is_shut(&self, path: Path) -> bool {
        let queue = &self.queues[path];
        self.paces[path.index()].is_open() && queue.in_flight() + queue.waiting() > 0
    }
}
