//! Everything under the lock.

use crate::places::Places;
use crate::scheduler::{Clock, Gated};
use crate::state::{
    Aside, At, Behind, Deadlines, Down, Guesses, Held, Id, Line, Looks, Offloading, Onboarding, Out, Owed,
    Pace, Phase, Purges, Quarantine, Since, Transfers, Unwritten, Up, Waiter,
};
use crate::transfer::{Allowance, Breaker, Class, Copy, Limits, Path, Queue};
use kvstrata_core::{BlockId, BlockRef, SequenceHash};
use slab::Slab;
use std::collections::HashSet;
use std::time::Duration;

/// Everything under the lock.
pub(crate) struct Traffic {
    pub(crate) queues: [Queue<Id>; 4],
    /// Flights up that have their block, and wait beside a full queue.
    pub(crate) aside: Aside,
    pub(crate) allowance: Allowance,
    /// The path that is asked first.
    pub(crate) first_path: usize,
    pub(crate) ups: Transfers<Up>,
    pub(crate) downs: Transfers<Down>,
    pub(crate) onboardings: Slab<Onboarding>,
    pub(crate) offloadings: Slab<Offloading>,
    /// Flights up that wait behind their parents', a list for each parent's.
    pub(crate) waiting_behind: Slab<Behind>,
    /// Those that do no more: key and serial.
    pub(crate) behind: Vec<(u32, u64)>,
    /// Names that nobody knows any more, of flights: what has landed under them goes at once.
    pub(crate) forgotten: HashSet<(u16, SequenceHash), Places>,
    /// One a stack.
    pub(crate) lines: Box<[Line]>,
    /// Who waits for credits, and is in no line yet.
    pub(crate) held: Held,
    pub(crate) deadlines: Deadlines,
    pub(crate) out: Out,
    /// What has been performed, and is empty: to be used again.
    pub(crate) performed: Vec<Out>,
    /// Lists of copies that have landed, to be used again.
    pub(crate) spare: Vec<Vec<Copy>>,
    pub(crate) guesses: Guesses,
    /// Scratch.
    pub(crate) slots: Vec<BlockId>,
    pub(crate) victims: Vec<(BlockId, SequenceHash)>,
    pub(crate) one_victim: Vec<(BlockId, SequenceHash)>,
    /// How far the model is, and what waits for it.
    pub(crate) clock: Clock,
    pub(crate) gated: Gated<Waiter>,
    pub(crate) opened: Vec<Waiter>,
    /// When the engine last said how far it is.
    pub(crate) went_on: Duration,
    /// Blocks of devices that are registered and not written yet.
    pub(crate) unwritten: Unwritten,
    /// Somebody will look for those that have waited too long.
    pub(crate) gates_watched: bool,
    /// The iteration after which another is waited for, for its bytes; and whether it ran when that began.
    pub(crate) expected_after: Option<(u64, bool)>,
    /// Scratch: the next victims.
    pub(crate) next: Vec<(BlockRef, SequenceHash)>,
    /// Copies ahead of need: how far looks have come, of each stack's device and host; and what queues have refused.
    pub(crate) looks: Box<[[Looks; 2]]>,
    pub(crate) owed: Owed,
    /// Whether it takes more.
    pub(crate) phase: Phase,
    /// Tenants that are being purged.
    pub(crate) purges: Purges,
    /// Blocks that are never used again.
    pub(crate) quarantine: Quarantine,
    /// Of each path: transfers that may wait (`transfer.queue`).
    pub(crate) bound: u32,
    pub(crate) serial: u64,
    /// When the change under way was, once somebody has asked.
    pub(crate) when: Option<Since>,
    /// The same by the manager's clock.
    pub(crate) moment: Option<Duration>,
    /// By path: whether it keeps up.
    pub(crate) paces: [Pace; Path::ALL.len()],
    /// Something could not even begin, and what it had is free: who waits for that is served.
    pub(crate) again: bool,
}

impl Traffic {
    pub(crate) fn new(
        limits: [Limits; 4],
        bound: u32,
        (budget, breaker): (Option<u64>, Breaker),
        layers: u32,
        lines: Box<[Line]>,
        places: Places,
    ) -> Traffic {
        Traffic {
            queues: std::array::from_fn(|path| Queue::new(limits[path])),
            aside: Aside::default(),
            allowance: Allowance::new(budget),
            first_path: 0,
            ups: Transfers::new(places),
            downs: Transfers::new(places),
            onboardings: Slab::new(),
            offloadings: Slab::new(),
            waiting_behind: Slab::new(),
            behind: Vec::new(),
            forgotten: HashSet::with_hasher(places),
            looks: lines.iter().map(|_| Default::default()).collect(),
            owed: Owed::default(),
            lines,
            held: Held::default(),
            deadlines: Deadlines::default(),
            out: Out::default(),
            performed: Vec::new(),
            spare: Vec::new(),
            guesses: Guesses::default(),
            slots: Vec::new(),
            victims: Vec::new(),
            one_victim: Vec::new(),
            clock: Clock::new(layers),
            gated: Gated::new(bound),
            opened: Vec::new(),
            went_on: Duration::ZERO,
            unwritten: Unwritten::default(),
            gates_watched: false,
            expected_after: None,
            next: Vec::new(),
            phase: Phase::Open,
            purges: Purges::default(),
            quarantine: Quarantine::default(),
            bound,
            serial: 0,
            when: None,
            moment: None,
            paces: std::array::from_fn(|_| Pace::new(breaker.clone())),
            again: false,
        }
    }

    /// What [`serial`](Traffic::serial) will give next.
    pub(crate) fn next_serial(&self) -> u64 {
        self.serial + 1
    }

    /// Other when a flight has begun since, or a guess may.
    pub(crate) fn begun(&self) -> (u64, u64) {
        (self.serial, self.guesses.noted)
    }

    pub(crate) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Whether nothing is under way, and nobody waits; but for the engine, which may go on or not.
    pub(crate) fn is_idle(&self) -> bool {
        let mut downs = self.downs.iter().map(|(_, down)| down.at);
        self.ups.is_empty() && downs.all(|at| matches!(at, At::Gated(_))) && self.nobody_waits()
    }

    /// Whether nobody waits for blocks, nor for credits.
    pub(crate) fn nobody_waits(&self) -> bool {
        self.held.is_empty() && self.lines.iter().all(Line::is_empty)
    }

    /// An iteration begins: its bytes are anew, and the next path is asked first.
    pub(crate) fn refill(&mut self) {
        self.allowance.refill();
        self.first_path = (self.first_path + 1) % Path::ALL.len();
    }

    /// Whether one more of a class may wait in a queue. What is less urgent takes none of its room; what waits for host memory is to come to it,
    /// and is counted. What waits for the engine is not (`waiting_for_host.rs` I2).
    pub(crate) fn has_room(&self, path: Path, class: Class) -> bool {
        self.has_room_in(path, 0, class)
    }

    /// The same for a lane, of which there is one but for reads from the disk: those of one group take no room of another's.
    pub(crate) fn has_room_in(&self, path: Path, lane: u16, class: Class) -> bool {
        let (queue, down) = (&self.queues[path as usize], path == Path::DeviceToHost);
        let grounded = |other| {
            let of = if down { &self.lines[..] } else { &[] };
            of.iter().map(|line| line.grounded.chosen_of(other)).sum::<usize>()
        };
        let before = Class::ALL.into_iter().take_while(|other| *other <= class);
        let waiting =
            before.map(|other| queue.waiting_in(other, lane) as usize + grounded(other)).sum::<usize>();
        waiting < self.bound as usize && !self.is_shut(path)
    }
}
