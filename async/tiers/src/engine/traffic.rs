//! All that is under way, behind one lock: flights, who waits for them, the line for blocks, the queues of the paths.
//!
//! A device hit, an allocation of free blocks and a release do not come here. What does is about to move a block's bytes, which takes
//! longer by orders of magnitude than the lock is held: under it there is no copy, no system call, no waking, no mover ([`Out`]).
//!
//! ```text
//!   a call, or a landing ──► change ──► advance ──► Out
//!
//!   advance: what has landed behind its parent ─► victims that wait for host memory, headroom, other copies ─► who is held for credits ─► the line ─► guesses ─► who waits beside a
//!            queue ─► reads that are pressed ─► the queues, who waits beside them, what is owed: until nothing more begins
//! ```

use super::ahead::{Looks, Owed, PART};
use super::aside::Aside;
use super::deadlines::Deadlines;
use super::down::Down;
use super::inner::Inner;
use super::line::Line;
use super::notices::About;
use super::offload::Offloading;
use super::onboarding::Onboarding;
use super::out::Out;
use super::parked::Quarantine;
use super::phase::Phase;
use super::prefetch::Guesses;
use super::schedule::Waiter;
use super::slow::Pace;
use super::tenants::{Held, Purges};
use super::transfers::{BlockName, ForBlock, Transfers};
use super::unwritten::Unwritten;
use super::up::{Behind, Up};
use super::watch::Since;
use crate::places::Places;
use crate::scheduler::{Clock, Gated, Key};
use crate::transfer::{Allowance, Breaker, Limits, Queue, Ticket};
use crate::transfer::{Cause, Class, Copy, Failure, HostSide, Landed, Path, Token};
use kvstrata_core::{BlockId, BlockRef, SequenceHash};
use slab::Slab;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Lists of copies that are kept for their memory.
const MOST_SPARE: usize = 1024;

/// A flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Id {
    Up(u32),
    Down(u32),
}

impl Id {
    pub(super) fn token(self) -> Token {
        match self {
            Id::Up(key) => Token(u64::from(key) << 1),
            Id::Down(key) => Token(u64::from(key) << 1 | 1),
        }
    }

    fn of(token: Token) -> Id {
        let key = (token.0 >> 1) as u32;
        if token.0 & 1 == 0 { Id::Up(key) } else { Id::Down(key) }
    }
}

/// Where a flight is.
#[derive(Debug, Clone, Copy)]
pub(super) enum At {
    /// Up: for a block of the device, or with one for room in its queue. Down: for one of the host.
    Wants,
    Queued(Path, Ticket),
    /// With a mover, which will answer.
    Moving,
    /// Before another attempt.
    Pausing,
    /// Up: all of it has landed, and its block waits for its parent's.
    Behind,
    /// Down: for a layer of the engine's, with its host block, or without, if somebody needed that more. See `steps.rs`.
    Gated(Key),
}

impl ForBlock for Up {
    fn block(&self) -> BlockName {
        (self.stack, self.name.hash)
    }
}

impl ForBlock for Down {
    fn block(&self) -> BlockName {
        (self.stack, self.name.hash)
    }
}

/// Everything under the lock.
pub(super) struct Traffic {
    pub(super) queues: [Queue<Id>; 4],
    /// Flights up that have their block, and wait beside a full queue.
    pub(super) aside: Aside,
    pub(super) allowance: Allowance,
    /// The path that is asked first.
    first_path: usize,
    pub(super) ups: Transfers<Up>,
    pub(super) downs: Transfers<Down>,
    pub(super) onboardings: Slab<Onboarding>,
    pub(super) offloadings: Slab<Offloading>,
    /// Flights up that wait behind their parents', a list for each parent's.
    pub(super) waiting_behind: Slab<Behind>,
    /// Those that do no more: key and serial.
    pub(super) behind: Vec<(u32, u64)>,
    /// Names that nobody knows any more, of flights: what has landed under them goes at once.
    pub(super) forgotten: HashSet<(u16, SequenceHash), Places>,
    /// One a stack.
    pub(super) lines: Box<[Line]>,
    /// Who waits for credits, and is in no line yet.
    pub(super) held: Held,
    pub(super) deadlines: Deadlines,
    pub(super) out: Out,
    /// What has been performed, and is empty: to be used again.
    pub(super) performed: Vec<Out>,
    /// Lists of copies that have landed, to be used again.
    pub(super) spare: Vec<Vec<Copy>>,
    pub(super) guesses: Guesses,
    /// Scratch.
    pub(super) slots: Vec<BlockId>,
    pub(super) victims: Vec<(BlockId, SequenceHash)>,
    pub(super) one_victim: Vec<(BlockId, SequenceHash)>,
    /// How far the model is, and what waits for it.
    pub(super) clock: Clock,
    pub(super) gated: Gated<Waiter>,
    pub(super) opened: Vec<Waiter>,
    /// When the engine last said how far it is.
    pub(super) went_on: Duration,
    /// Blocks of devices that are registered and not written yet.
    pub(super) unwritten: Unwritten,
    /// Somebody will look for those that have waited too long.
    pub(super) gates_watched: bool,
    /// The iteration after which another is waited for, for its bytes; and whether it ran when that began.
    pub(super) expected_after: Option<(u64, bool)>,
    /// Scratch: the next victims.
    pub(super) next: Vec<(BlockRef, SequenceHash)>,
    /// Copies ahead of need: how far looks have come, of each stack's device and host; and what queues have refused.
    pub(super) looks: Box<[[Looks; 2]]>,
    pub(super) owed: Owed,
    /// Whether it takes more.
    pub(super) phase: Phase,
    /// Tenants that are being purged.
    pub(super) purges: Purges,
    /// Blocks that are never used again.
    pub(super) quarantine: Quarantine,
    /// Of each path: transfers that may wait (`transfer.queue`).
    bound: u32,
    serial: u64,
    /// When the change under way was, once somebody has asked.
    pub(super) when: Option<Since>,
    /// The same by the manager's clock.
    pub(super) moment: Option<Duration>,
    /// By path: whether it keeps up.
    pub(super) paces: [Pace; Path::ALL.len()],
    /// Something could not even begin, and what it had is free: who waits for that is served.
    pub(super) again: bool,
}

impl Traffic {
    pub(super) fn new(
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
    pub(super) fn next_serial(&self) -> u64 {
        self.serial + 1
    }

    /// Other when a flight has begun since, or a guess may.
    pub(super) fn begun(&self) -> (u64, u64) {
        (self.serial, self.guesses.noted)
    }

    pub(super) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Whether nothing is under way, and nobody waits; but for the engine, which may go on or not.
    pub(super) fn is_idle(&self) -> bool {
        let mut downs = self.downs.iter().map(|(_, down)| down.at);
        self.ups.is_empty() && downs.all(|at| matches!(at, At::Gated(_))) && self.nobody_waits()
    }

    /// Whether nobody waits for blocks, nor for credits.
    pub(super) fn nobody_waits(&self) -> bool {
        self.held.is_empty() && self.lines.iter().all(Line::is_empty)
    }

    /// An iteration begins: its bytes are anew, and the next path is asked first.
    pub(super) fn refill(&mut self) {
        self.allowance.refill();
        self.first_path = (self.first_path + 1) % Path::ALL.len();
    }

    /// Whether one more of a class may wait in a queue. What is less urgent takes none of its room; what waits for host memory is to come to it,
    /// and is counted. What waits for the engine is not (`grounded.rs` I2).
    pub(super) fn has_room(&self, path: Path, class: Class) -> bool {
        self.has_room_in(path, 0, class)
    }

    /// The same for a lane, of which there is one but for reads from the disk: those of one group take no room of another's.
    pub(super) fn has_room_in(&self, path: Path, lane: u16, class: Class) -> bool {
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

    /// Puts a flight into a lane of a queue.
    pub(super) fn enqueue(
        &mut self,
        inner: &Inner,
        (path, lane): (Path, u16),
        class: Class,
        request: u64,
        bytes: u64,
        item: Id,
    ) -> At {
        // It owns its ends already: refusing it would not make room. What is bounded is what begins.
        let ticket = self.queues[path as usize].push(class, request, lane, bytes, item);
        self.wanted(inner, item);
        At::Queued(path, ticket)
    }

    /// From now on a flight waits for its next transfer, if it does not already.
    pub(super) fn wanted(&mut self, inner: &Inner, flight: Id) {
        let now = self.when(inner);
        if let Some(since) = self.since(flight) {
            since.begin(now);
        }
    }

    /// A mover has answered.
    pub(super) fn land(&mut self, inner: &Inner, landed: Landed) {
        match landed {
            Landed::Copies(mut list) => {
                for copy in list.drain(..) {
                    let path = if copy.host.is_up() { Path::HostToDevice } else { Path::DeviceToHost };
                    let (token, outcome, layers) = (copy.token, copy.outcome, copy.layers.clone());
                    let kept = matches!(copy.host, HostSide::Kept { .. });
                    // The memory is nobody's while what follows is decided.
                    drop(copy);
                    if kept {
                        self.park(inner, token);
                    }
                    self.land_one(inner, token, path, layers, outcome);
                }
                if self.spare.len() < MOST_SPARE {
                    self.spare.push(list);
                }
            }
            Landed::Read(token, outcome) => {
                self.land_one(inner, token, Path::DiskToDevice, 0..u32::MAX, outcome.map(drop));
            }
            Landed::Write(token, outcome) => {
                if let Id::Down(key) = Id::of(token) {
                    self.ended_below(inner, key, Path::HostToDisk);
                }
                self.land_one(inner, token, Path::HostToDisk, 0..u32::MAX, outcome.map(drop));
            }
        }
    }

    fn land_one(
        &mut self,
        inner: &Inner,
        token: Token,
        path: Path,
        layers: std::ops::Range<u32>,
        outcome: Result<(), Failure>,
    ) {
        let id = Id::of(token);
        let stack = match id {
            Id::Up(key) => self.ups.get(key).map(|up| up.stack),
            Id::Down(key) => self.downs.get(key).map(|down| down.stack),
        };
        let Some(stack) = stack else { return };
        self.transfer_ended(inner, id, path, inner.stack(stack).bytes_of(&layers), outcome);
        match id {
            Id::Up(key) => self.land_up(inner, key, path, outcome),
            Id::Down(key) => self.land_down(inner, key, path, outcome),
        }
    }

    /// Its turn had come, and something else has its memory: it ends where it would have begun. What waits for its room is looked at again.
    pub(super) fn transfer_busy(&mut self, inner: &Inner, id: Id, path: Path, bytes: u64, whose: About) {
        self.transfer_ended(inner, id, path, bytes, Err(Failure::of(Cause::Busy)));
        inner.counts.failed(path, Cause::Busy, whose);
        self.again = true;
    }

    fn transfer_ended(
        &mut self,
        inner: &Inner,
        id: Id,
        path: Path,
        bytes: u64,
        outcome: Result<(), Failure>,
    ) {
        self.queues[path as usize].ended(bytes);
        inner.counts.moved(path, bytes, outcome);
        self.moved(inner, path, if outcome.is_ok() { bytes } else { 0 });
        let now = self.when(inner);
        let started = self.since(id).map(std::mem::take).unwrap_or_default();
        inner.watch.ended(path, started, now);
    }

    /// A device has failed and keeps the memory of a flight: its blocks are nobody's from now on, here and there.
    fn park(&mut self, inner: &Inner, token: Token) {
        match Id::of(token) {
            Id::Up(key) => self.park_up(inner, key),
            Id::Down(key) => self.park_down(inner, key),
        }
    }

    /// A pause is over.
    pub(super) fn resume(&mut self, inner: &Inner, flight: Id, serial: u64) {
        match flight {
            Id::Up(key) => self.resume_up(inner, key, serial),
            Id::Down(key) => self.resume_down(inner, key, serial),
        }
    }

    /// All that can go on goes on. It ends: each round after the first is for a flight that has ended.
    pub(super) fn advance(&mut self, inner: &Arc<Inner>) {
        loop {
            self.again = false;
            self.serve_behind(inner);
            self.advance_once(inner);
            if !self.again && self.behind.is_empty() {
                return;
            }
        }
    }

    fn advance_once(&mut self, inner: &Arc<Inner>) {
        let stacks = self.lines.len() as u16;
        for stack in 0..stacks {
            self.serve_victims(inner, stack);
            self.serve_headroom(inner, stack);
            self.serve_chosen(inner, stack);
        }
        self.serve_held(inner);
        for stack in 0..stacks {
            self.serve_line(inner, stack);
        }
        self.serve_guesses(inner);
        self.serve_aside(inner);
        self.press_for_reads(inner);
        // Whoever is asked first has the most of an iteration's budget: each has its turn.
        let (first, mut part) = (self.first_path, PART);
        loop {
            for turn in 0..Path::ALL.len() {
                let path = Path::ALL[(first + turn) % Path::ALL.len()];
                while let Some(next) = self.next_on(inner, path) {
                    let now = self.when(inner);
                    let wanted = self.since(next.item).map(|since| std::mem::replace(since, now));
                    inner.watch.started(path, wanted.unwrap_or_default(), now);
                    match next.item {
                        Id::Up(key) => self.start_up(inner, key, path, next.bytes),
                        Id::Down(key) => self.start_down(inner, key, path, next.bytes),
                    }
                }
                let busy = self.queues[path as usize].in_flight() > 0;
                inner.counts.busy(path, busy, || inner.elapsed());
                self.busy(inner, path, busy);
            }
            // Who has left made room; if it has failed at once, nothing will land.
            let left = self.serve_aside(inner);
            let begun = self.copy_owed(inner, part);
            part = part.saturating_sub(begun);
            if !left && begun == 0 {
                (0..stacks).for_each(|stack| self.note_below(inner, stack));
                return self.expect_iteration(inner);
            }
        }
    }

    /// When this change is: the clock is read once, however many blocks it is of.
    fn when(&mut self, inner: &Inner) -> Since {
        *self.when.get_or_insert_with(|| inner.watch.now())
    }

    /// Since when a flight waits for its transfer, or when that has started.
    fn since(&mut self, flight: Id) -> Option<&mut Since> {
        match flight {
            Id::Up(key) => self.ups.get_mut(key).map(|up| &mut up.since),
            Id::Down(key) => self.downs.get_mut(key).map(|down| &mut down.since),
        }
    }
}
