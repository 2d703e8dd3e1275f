//! The whole state under the lock.

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

/// The whole state under the lock.
pub(crate) struct Traffic {
    pub(crate) queues: Queues,
    /// Transfers up that have their device block, and wait beside a full queue.
    pub(crate) waiting_for_queue: WaitingForQueue,
    pub(crate) ups: Transfers<Up>,
    pub(crate) downs: Transfers<Down>,
    pub(crate) onboardings: Onboardings,
    pub(crate) offloadings: Offloadings,
    /// Transfers up that wait for their parents' transfers, in a list for each parent.
    pub(crate) waiting_for_parent: WaitingForParent,
    /// Names that were forgotten while a transfer has them: a block that lands under one leaves at once.
    pub(crate) forgotten: HashSet<(GroupId, SequenceHash), Places>,
    pub(crate) groups: Groups,
    /// Requests that wait for credits, and are in no queue yet.
    pub(crate) waiting_for_quota: WaitingForQuota,
    pub(crate) deadlines: Deadlines,
    pub(crate) effects: Effects,
    pub(crate) guesses: Guesses,
    pub(crate) scratch: Scratch,
    /// How far the model is, and the waiters at its gates.
    pub(crate) iterations: Iterations,
    /// Blocks of devices that are registered and not written yet.
    pub(crate) unwritten: Unwritten,
    /// Copies ahead of need: how far looks have come, by group, for device and host; and copies that
    /// queues have refused.
    pub(crate) looks: Box<[[Looks; 2]]>,
    pub(crate) deferred: DeferredCopies,
    /// Whether calls are refused.
    phase: Phase,
    /// Tenants that are being purged.
    pub(crate) purges: Purges,
    /// Blocks that are never used again.
    pub(crate) quarantine: Quarantine,
    serial: u64,
    /// The time of the change under way, once it was asked for.
    pub(crate) when: Option<Since>,
    /// The same by the manager's clock.
    pub(crate) moment: Option<Duration>,
    /// By path: whether it keeps up.
    pub(crate) paces: Box<[Pace]>,
    /// A transfer failed to begin, and freed its blocks: serve the waiters again.
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

    /// Returns the number that [`serial`](Traffic::serial) will give next.
    pub(crate) fn next_serial(&self) -> u64 {
        self.serial + 1
    }

    /// Returns a value that changes when a transfer has begun, or a guess may begin.
    pub(crate) fn begun(&self) -> (u64, u64) {
        (self.serial, self.guesses.noted())
    }

    pub(crate) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Whether nothing is under way and no caller waits. Transfers that wait for the engine, which may
    /// never go on, do not count.
    pub(crate) fn is_idle(&self) -> bool {
        let mut downs = self.downs.iter().map(|(_, down)| down.at());
        self.ups.is_empty() && downs.all(|at| matches!(at, At::Gated(_))) && self.none_waits()
    }

    /// Whether no request waits for blocks or credits.
    pub(crate) fn none_waits(&self) -> bool {
        self.waiting_for_quota.is_empty() && self.groups.iter().all(|of| of.queue.is_empty())
    }

    /// Whether calls begin nothing any more.
    pub(crate) fn refuses(&self) -> bool {
        self.phase.refuses()
    }

    /// Whether nothing begins any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.phase.is_closed()
    }

    /// Moves to a later phase. Returns whether the phase was earlier.
    pub(crate) fn reach(&mut self, phase: Phase) -> bool {
        self.phase.reach(phase)
    }

    /// Whether one more transfer of a class may wait in a queue. Less urgent transfers take none of its
    /// room. Transfers that wait for host memory are on their way to the queue, and count; those that
    /// wait for the engine do not (`waiting_for_host.rs` I2).
    pub(crate) fn has_room(&self, path: Path, class: Class) -> bool {
        self.has_room_in(path, 0, class)
    }

    /// The same for a lane. Only reads from tiers below have several: groups take no room of each other's.
    pub(crate) fn has_room_in(&self, path: Path, lane: u16, class: Class) -> bool {
        let to_come = |class| match path {
            Path::DeviceToHost => self.groups.iter().map(|of| of.waiting_for_host.chosen_of(class)).sum(),
            _ => 0,
        };
        self.queues.has_room(path, lane, class, to_come) && !self.is_shut(path)
    }

    /// Whether a slow path takes no more for now; the transfers under way will tell.
    pub(crate) fn is_shut(&self, path: Path) -> bool {
        let queue = &self.queues[path];
        self.paces[path.index()].is_open() && queue.in_flight() + queue.waiting() > 0
    }
}
