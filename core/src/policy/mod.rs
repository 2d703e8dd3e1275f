//! Eviction policies: in which list of the timeline a block waits, and from which list the next victim comes.
//!
//! A policy never sees a lock, a queue or a block's bytes. The pool tells it of hits and releases; it answers with a list number;
//! asked for victims, it names lists in its order, and the timeline hands over their oldest. Priority classes come first in every
//! policy: nothing of a higher class goes while a lower class has a block to give. Parents wait for their children
//! (`Verdict::Deferred`).

mod arc;
mod ghosts;
mod lfu;
mod lru;
mod pair;
pub(crate) mod reuse;
mod s3fifo;
mod scan;
mod sieve;
mod two_q;

pub use reuse::ReuseStats;
pub(crate) use scan::Scan;

use crate::hash::Placement;
use crate::slot::{Priority, Slot};
use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

/// Which block goes first when room is needed. Chosen at construction. The classic policies are their papers', block by block, where blocks have no
/// parents; a parent waits for its children, whatever the policy, so over paths they have other hits than on paper.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Policy {
    /// Least recently released, exact.
    #[default]
    Lru,
    /// Least frequently used, with dynamic ageing (LFU-DA: Arlitt et al., 1999); ties by recency. Uses are counted to 15.
    Lfu,
    /// SIEVE (Zhang et al., NSDI 2024): insertion order, a hand, and one bit for "visited".
    Sieve,
    /// S3-FIFO (Yang et al., SOSP 2023): a small and a main FIFO, and a ghost of what was evicted from the small one, as long as main.
    S3Fifo,
    /// ARC (Megiddo and Modha, FAST 2003): used once, and used again, in a balance that ghosts of both teach.
    Arc,
    /// 2Q (Johnson and Shasha, VLDB 1994), the full version: a FIFO of a quarter, then a ghost, and LRU for what comes back.
    TwoQ,
    /// Least expected hits for time of residence, by what was learned of conversations: their turns, growth and trunks; never far behind LRU.
    Reuse,
}

impl Policy {
    /// All of them, for help texts and tests.
    pub const ALL: [Policy; 7] =
        [Policy::Lru, Policy::Lfu, Policy::Sieve, Policy::S3Fifo, Policy::Arc, Policy::TwoQ, Policy::Reuse];

    /// The name as options spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Lru => "lru",
            Policy::Lfu => "lfu",
            Policy::Sieve => "sieve",
            Policy::S3Fifo => "s3fifo",
            Policy::Arc => "arc",
            Policy::TwoQ => "2q",
            Policy::Reuse => "reuse",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No such policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown policy: lru, lfu, sieve, s3fifo, arc, 2q and reuse are known")
    }
}

impl core::error::Error for UnknownPolicy {}

impl FromStr for Policy {
    type Err = UnknownPolicy;
    fn from_str(name: &str) -> Result<Policy, UnknownPolicy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name).ok_or(UnknownPolicy)
    }
}

/// What a policy is to the pool.
pub(crate) trait Eviction {
    /// Lists that it needs on the timeline, 64 at most.
    fn lists(&self) -> usize;
    /// Whether blocks of a list keep their places while they are in use (the FIFO family), or take new ones when they are released.
    fn keeps_place(&self, _list: u8) -> bool {
        false
    }
    /// Whether it tells uses from holds that are none: then a block that is held and not used keeps its place.
    fn tells_uses(&self) -> bool {
        false
    }
    /// Whether a block that was released has not been used since, for a policy that tells so.
    fn waits(&self, _slot: &Slot) -> bool {
        true
    }
    /// The priority that a list is of.
    fn priority_of(&self, list: u8) -> usize {
        usize::from(list) % Priority::EVICTABLE
    }
    /// A block is about to be registered, behind `parent`, which the caller holds.
    fn on_register(&self, _number: u32, _slot: &Slot, _parent: Option<u32>) {}
    /// It is registered now: nobody had it.
    fn on_registered(&self, _number: u32, _slot: &Slot, _uses: &mut reuse::Uses) {}
    /// A block that the caller holds has a child more, beside another.
    fn on_fork(&self, _parent: u32) {}
    /// A block was used: acquired by a lookup, or found by whoever would register it.
    fn on_hit(&self, _slot: &Slot) {}
    /// The same, for policies that want to know more. `clock`: releases so far.
    fn on_use(&self, _number: u32, slot: &Slot, _uses: &mut reuse::Uses, _clock: impl Fn() -> u64) {
        self.on_hit(slot);
    }
    /// A block is taken up to be given a new place, and not used.
    fn on_touch(&self, _slot: &Slot, _uses: &mut reuse::Uses) {}
    /// So ends a call that has used or registered some.
    #[inline]
    fn end_uses(&self, _uses: reuse::Uses) {}
    /// A block leaves the registry.
    fn on_remove(&self, _slot: &Slot) {}
    /// A block that stays registered has lost its place, or was refused the one that it was named a list for: it will be placed again.
    fn on_displaced(&self, slot: &Slot) {
        self.on_remove(slot);
    }
    /// A block is about to be let go of that is pinned, and so gets no place; perhaps told of more than once. The caller holds its only reference.
    fn on_pin(&self, _slot: &Slot) {}
    /// A block is evicted that the policy did not choose, and is the caller's; `parent` if that is registered still. Its removal follows.
    fn on_evict_this(&self, _number: u32, _slot: &Slot, _parent: Option<u32>) {}
    /// The list that a parent which has waited for its children comes back to; none, or its own: to its old place there.
    fn list_of_returning(&self, _priority: Priority) -> Option<u8> {
        None
    }
    /// A batch of blocks is about to be placed.
    fn before_places<'s>(&self, _blocks: impl Iterator<Item = &'s Slot>) {}
    /// The list of a block that takes its place on the timeline now. The caller holds its only reference.
    fn place(&self, slot: &Slot, priority: Priority) -> u8;
    /// A batch of blocks is about to take places, the first of which is the `first` that was ever given: books for it, if the policy has any.
    fn begin_batch(&self, _first: u64) -> Option<reuse::Batch> {
        None
    }
    /// As [`place`](Eviction::place), for a block of such a batch, that takes this position.
    fn place_in(
        &self,
        _batch: &mut reuse::Batch,
        _number: u32,
        slot: &Slot,
        priority: Priority,
        _place: u64,
    ) -> u8 {
        self.place(slot, priority)
    }
    /// All of a batch have places. `free`: how many blocks are.
    fn end_batch(&self, _batch: reuse::Batch, _free: impl Fn() -> usize) {}
    /// What the order of eviction depends on, for a look at it.
    fn outset(&self) -> Outset {
        Outset::default()
    }
    /// The list that victims come from after those of `nth` turns, if nothing happened meanwhile; none: there are no more. A list has several
    /// turns if it is only the last that takes all of it.
    fn turn(&self, nth: usize, _outset: &Outset) -> Option<Turn> {
        (nth < self.lists()).then(|| Turn::whole(nth))
    }
    /// Finds up to `wanted` victims.
    fn evict<'p>(&self, wanted: usize, scan: &impl Scan<'p>) -> usize;
    /// Bytes of its own, beside its lists on the timeline.
    fn memory_bytes(&self) -> usize {
        0
    }
    /// How it stands beside LRU, if it keeps books of that.
    fn reuse_stats(&self) -> Option<ReuseStats> {
        None
    }
}

/// A list's turn in the order of eviction.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) list: usize,
    /// How many blocks at most.
    pub(crate) most: usize,
    /// What it gives is no excess any more (see [`Outset`]).
    pub(crate) of_excess: bool,
}

impl Turn {
    /// All of a list.
    fn whole(list: usize) -> Turn {
        Turn { list, most: usize::MAX, of_excess: false }
    }
}

/// What the order of eviction depends on, as it was when a look began: read once, so that a look in parts comes by each list, whatever is evicted
/// meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outset {
    /// LFU's, of each class.
    ages: [u32; Priority::EVICTABLE],
    /// How many proven blocks go before those on trial, less those that the look has shown.
    pub(crate) excess: usize,
}

/// The policies, dispatched by a predictable branch.
pub(crate) enum AnyPolicy {
    Lru(lru::Lru),
    Lfu(lfu::Lfu),
    Sieve(sieve::Sieve),
    S3Fifo(s3fifo::S3Fifo),
    Arc(arc::Arc),
    TwoQ(two_q::TwoQ),
    Reuse(Box<reuse::Reuse>),
}

macro_rules! each {
    ($self:ident, $policy:ident => $call:expr) => {
        match $self {
            AnyPolicy::Lru($policy) => $call,
            AnyPolicy::Lfu($policy) => $call,
            AnyPolicy::Sieve($policy) => $call,
            AnyPolicy::S3Fifo($policy) => $call,
            AnyPolicy::Arc($policy) => $call,
            AnyPolicy::TwoQ($policy) => $call,
            AnyPolicy::Reuse($policy) => $call,
        }
    };
}

impl AnyPolicy {
    pub(crate) fn new(
        policy: Policy,
        capacity: usize,
        place: Placement,
        lanes: usize,
        lane_of: fn() -> usize,
    ) -> AnyPolicy {
        match policy {
            Policy::Lru => AnyPolicy::Lru(lru::Lru),
            Policy::Lfu => AnyPolicy::Lfu(lfu::Lfu::new()),
            Policy::Sieve => AnyPolicy::Sieve(sieve::Sieve),
            Policy::S3Fifo => AnyPolicy::S3Fifo(s3fifo::S3Fifo::new(capacity, place)),
            Policy::Arc => AnyPolicy::Arc(arc::Arc::new(capacity, place)),
            Policy::TwoQ => AnyPolicy::TwoQ(two_q::TwoQ::new(capacity, place)),
            Policy::Reuse => AnyPolicy::Reuse(Box::new(reuse::Reuse::new(capacity, place, lanes, lane_of))),
        }
    }
}

impl Eviction for AnyPolicy {
    fn lists(&self) -> usize {
        each!(self, policy => policy.lists())
    }
    #[inline]
    fn keeps_place(&self, list: u8) -> bool {
        each!(self, policy => policy.keeps_place(list))
    }
    fn tells_uses(&self) -> bool {
        each!(self, policy => policy.tells_uses())
    }
    #[inline]
    fn waits(&self, slot: &Slot) -> bool {
        each!(self, policy => policy.waits(slot))
    }
    #[inline]
    fn priority_of(&self, list: u8) -> usize {
        each!(self, policy => policy.priority_of(list))
    }
    #[inline]
    fn on_register(&self, number: u32, slot: &Slot, parent: Option<u32>) {
        each!(self, policy => policy.on_register(number, slot, parent));
    }
    #[inline]
    fn on_registered(&self, number: u32, slot: &Slot, uses: &mut reuse::Uses) {
        each!(self, policy => policy.on_registered(number, slot, uses));
    }
    #[inline]
    fn on_fork(&self, parent: u32) {
        each!(self, policy => policy.on_fork(parent));
    }
    #[inline]
    fn on_hit(&self, slot: &Slot) {
        each!(self, policy => policy.on_hit(slot));
    }
    #[inline]
    fn on_use(&self, number: u32, slot: &Slot, uses: &mut reuse::Uses, clock: impl Fn() -> u64) {
        each!(self, policy => policy.on_use(number, slot, uses, clock));
    }
    fn on_touch(&self, slot: &Slot, uses: &mut reuse::Uses) {
        each!(self, policy => policy.on_touch(slot, uses));
    }
    #[inline]
    fn end_uses(&self, uses: reuse::Uses) {
        each!(self, policy => policy.end_uses(uses));
    }
    fn on_evict_this(&self, number: u32, slot: &Slot, parent: Option<u32>) {
        each!(self, policy => policy.on_evict_this(number, slot, parent));
    }
    #[inline]
    fn begin_batch(&self, first: u64) -> Option<reuse::Batch> {
        each!(self, policy => policy.begin_batch(first))
    }
    fn place_in(
        &self,
        batch: &mut reuse::Batch,
        number: u32,
        slot: &Slot,
        priority: Priority,
        place: u64,
    ) -> u8 {
        each!(self, policy => policy.place_in(batch, number, slot, priority, place))
    }
    fn end_batch(&self, batch: reuse::Batch, free: impl Fn() -> usize) {
        each!(self, policy => policy.end_batch(batch, free));
    }
    #[inline]
    fn on_remove(&self, slot: &Slot) {
        each!(self, policy => policy.on_remove(slot));
    }
    fn on_displaced(&self, slot: &Slot) {
        each!(self, policy => policy.on_displaced(slot));
    }
    fn on_pin(&self, slot: &Slot) {
        each!(self, policy => policy.on_pin(slot));
    }
    #[inline]
    fn list_of_returning(&self, priority: Priority) -> Option<u8> {
        each!(self, policy => policy.list_of_returning(priority))
    }
    #[inline]
    fn before_places<'s>(&self, blocks: impl Iterator<Item = &'s Slot>) {
        each!(self, policy => policy.before_places(blocks));
    }
    #[inline]
    fn place(&self, slot: &Slot, priority: Priority) -> u8 {
        each!(self, policy => policy.place(slot, priority))
    }
    fn outset(&self) -> Outset {
        each!(self, policy => policy.outset())
    }
    fn turn(&self, nth: usize, outset: &Outset) -> Option<Turn> {
        each!(self, policy => policy.turn(nth, outset))
    }
    fn memory_bytes(&self) -> usize {
        each!(self, policy => policy.memory_bytes())
    }
    fn reuse_stats(&self) -> Option<ReuseStats> {
        each!(self, policy => policy.reuse_stats())
    }
    fn evict<'p>(&self, wanted: usize, scan: &impl Scan<'p>) -> usize {
        each!(self, policy => policy.evict(wanted, scan))
    }
}
