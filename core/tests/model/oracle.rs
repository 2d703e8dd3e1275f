//! The oracle: a map of registrations, a set of owned blocks, and the events that the
//! sink must have received.
//!
//! It knows everything except the order in which policies other than LRU evict within a class. There it
//! checks that a victim was allowed to go (unreferenced, unpinned, no registered child, no block of a
//! lower class left), and records it.

use kvstrata_core::*;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// An event of a sink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    Stored(BlockRef, SequenceHash, Option<BlockRef>),
    Removed(BlockRef, SequenceHash),
}

/// One registration.
pub struct Known {
    pub number: u64,
    pub weak: BlockRef,
    pub references: u32,
    /// Number of copies of its bytes.
    pub leases: u32,
    /// Its last scope ended while it was held or leased: it cannot be found, and it
    /// goes with the last of both.
    pub withdrawn: bool,
    /// Handles of its registration; none: it was registered without one, too.
    scopes: Option<u32>,
    pub priority: Priority,
    parent: Option<BlockRef>,
    children: u32,
    /// When it became inactive last.
    stamp: u64,
}

/// The owner of a block that is neither free nor registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    Handle,
    /// The same, and the block is `Partial`.
    Filling,
    Victim,
    Request(u64),
}

/// The counts before an operation that allocates.
pub struct Before {
    free: usize,
    available: usize,
    evictable: usize,
}

pub struct Oracle {
    policy: Policy,
    unique: bool,
    capacity: usize,
    clock: u64,
    /// By block: a block has one registration at a time.
    pub known: BTreeMap<u32, Known>,
    pub owned: BTreeMap<u32, Owner>,
    /// Blocks of a hash that lookups may find, the newest last.
    found: BTreeMap<u64, Vec<u32>>,
    /// Every registration that ever was: none may come twice.
    ever: HashSet<BlockRef>,
    pub stats: Stats,
    /// The events that the sink must have received since it was last read.
    pub expected: Vec<Event>,
}

pub fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

impl Oracle {
    pub fn new(policy: Policy, unique: bool, capacity: usize) -> Oracle {
        Oracle {
            policy,
            unique,
            capacity,
            clock: 0,
            known: BTreeMap::new(),
            owned: BTreeMap::new(),
            found: BTreeMap::new(),
            ever: HashSet::new(),
            stats: Stats::default(),
            expected: vec![],
        }
    }

    /// The state of all blocks.
    pub fn census(&self) -> Census {
        let inactive = self.known.values().filter(|known| known.references == 0).count();
        let (active, owned) = (self.known.len() - inactive, self.owned.len());
        Census { free: self.capacity - active - inactive - owned, inactive, active, owned }
    }

    pub fn available(&self) -> usize {
        let pinned = |known: &&Known| known.references == 0 && known.priority == Priority::Pinned;
        let census = self.census();
        census.free + census.inactive - self.known.values().filter(pinned).count()
    }

    /// The registration that a lookup finds: the newest that was not withdrawn.
    pub fn find(&self, number: u64) -> Option<&Known> {
        self.found.get(&number)?.last().map(|block| &self.known[block])
    }

    /// A block's state between operations, when none is `Complete`.
    pub fn state(&self, block: BlockId) -> State {
        match self.owned.get(&block.0) {
            _ if self.known.contains_key(&block.0) => State::Registered,
            Some(Owner::Filling) => State::Partial,
            _ => State::Reset,
        }
    }

    /// The registration that a weak reference names.
    pub fn alive(&self, weak: BlockRef) -> Option<&Known> {
        self.known.get(&weak.id.0).filter(|known| known.weak == weak)
    }

    /// Blocks that may be evicted now, in LRU's order.
    fn evictable(&self) -> BTreeMap<(Priority, u64), u32> {
        let may_go = |known: &&Known| {
            known.references + known.leases + known.children == 0 && known.priority != Priority::Pinned
        };
        let key = |known: &Known| ((known.priority, known.stamp), known.weak.id.0);
        self.known.values().filter(may_go).map(key).collect()
    }

    /// The number of blocks that can be evicted one after another: all inactive ones that are neither
    /// pinned nor leased, except ancestors of others.
    pub fn evictable_in_turn(&self) -> usize {
        let mut staying = BTreeSet::new();
        for known in self.known.values() {
            let mut at = Some(known)
                .filter(|known| known.references + known.leases > 0 || known.priority == Priority::Pinned);
            while let Some(stays) = at.filter(|stays| staying.insert(stays.weak.id.0)) {
                at = stays.parent.and_then(|parent| self.alive(parent));
            }
        }
        self.known.len() - staying.len()
    }

    /// Checks a victim, in the pool's order: may it go, is it its class's turn, and, under LRU, its own?
    pub fn evicted(&mut self, event: Event) {
        let Event::Removed(weak, told) = event else { panic!("{event:?}: eviction stores nothing") };
        let known = self.alive(weak).unwrap_or_else(|| panic!("{weak:?} is not registered"));
        assert_eq!(told, hash(known.number), "a victim is told with its hash");
        let evictable = self.evictable();
        let place = evictable.iter().find(|(_, block)| **block == weak.id.0);
        let ((class, _), _) = place.unwrap_or_else(|| panic!("hash {} was not evictable", known.number));
        let ((lowest, _), first) = evictable.first_key_value().expect("the victim, at least");
        assert_eq!(class, lowest, "{}: a lower class has a block to give", self.policy);
        assert!(self.policy != Policy::Lru || *first == weak.id.0, "LRU order");
        self.stats.evicted += 1;
        self.forget(weak.id.0);
    }

    /// A registration ends.
    pub fn forget(&mut self, block: u32) {
        let gone = self.known.remove(&block).expect("it was registered");
        self.hide(gone.number, block);
        if let Some(parent) = gone.parent.filter(|parent| self.alive(*parent).is_some()) {
            self.known.get_mut(&parent.id.0).expect("just seen").children -= 1;
        }
        self.stats.removed += 1;
    }

    /// As `forget`, with an event for the sink.
    pub fn removed(&mut self, block: u32) {
        let known = &self.known[&block];
        self.expected.push(Event::Removed(known.weak, hash(known.number)));
        self.forget(block);
    }

    fn hide(&mut self, number: u64, block: u32) {
        self.found.get_mut(&number).expect("a hash that was registered").retain(|other| *other != block);
    }

    pub fn before(&self) -> Before {
        let evictable = self.evictable_in_turn();
        Before { free: self.census().free, available: self.available(), evictable }
    }

    /// Checks an allocation of `count` blocks that evicted `evicted` and returned `result`.
    pub fn allocated(&self, count: usize, before: &Before, evicted: usize, result: Result<(), OutOfBlocks>) {
        let within_reach = before.free + before.evictable;
        assert_eq!(result.is_ok(), count <= within_reach, "{count} asked for, {within_reach} within reach");
        match result {
            Ok(()) => {
                assert_eq!(evicted, count.saturating_sub(before.free), "as many victims as are needed");
            }
            // Nothing was touched.
            Err(error) if before.available < count => {
                assert_eq!(error, OutOfBlocks { requested: count, available: before.available });
                assert_eq!(evicted, 0, "a refusal evicts nothing");
            }
            // Parents wait for children that are in use: all evictable blocks went, in vain.
            Err(error) => {
                assert_eq!(error, OutOfBlocks { requested: count, available: within_reach });
                assert_eq!(evicted, before.evictable);
            }
        }
    }

    /// A block comes out of the pool: it must have been free.
    pub fn taken(&mut self, block: BlockId, owner: Owner) {
        assert!(block.index() < self.capacity && !self.known.contains_key(&block.0), "{block} is registered");
        assert_eq!(self.owned.insert(block.0, owner), None, "{block} has two owners");
    }

    /// An owned block goes back, or on to another state.
    pub fn left(&mut self, block: BlockId, owner: Owner) {
        assert_eq!(self.owned.remove(&block.0), Some(owner), "{block} was given back twice, or never taken");
    }

    /// Block `own` was registered, and the caller got `weak` for it.
    pub fn registered(
        &mut self,
        number: u64,
        own: BlockId,
        parent: Option<BlockRef>,
        weak: BlockRef,
        scoped: bool,
    ) -> bool {
        self.left(own, Owner::Handle);
        let present = self.find(number).filter(|_| self.unique).map(|known| known.weak);
        if let Some(present) = present {
            assert_eq!(weak, present, "a copy gives way to the block that is there");
            self.stats.deduplicated += 1;
            self.acquired(present.id.0);
            let scopes = &mut self.known.get_mut(&present.id.0).expect("just found").scopes;
            *scopes = scopes.filter(|_| scoped).map(|scopes| scopes + 1);
            self.adopt_orphan(present, parent);
            return false;
        }
        assert_eq!(weak.id, own, "a new hash gets the caller's block");
        assert!(self.ever.insert(weak), "{weak:?} names two registrations");
        if let Some(parent) = parent {
            self.known.get_mut(&parent.id.0).expect("held").children += 1;
        }
        let (references, leases, children, stamp) = (1, 0, 0, 0);
        let (priority, withdrawn) = (Priority::Normal, false);
        let scopes = scoped.then_some(1);
        self.known.insert(
            own.0,
            Known { number, weak, references, leases, withdrawn, scopes, priority, parent, children, stamp },
        );
        self.found.entry(number).or_default().push(own.0);
        self.stats.stored += 1;
        self.expected.push(Event::Stored(weak, hash(number), parent));
        true
    }

    /// Gives a block that outlived its parent its sequence's present parent.
    fn adopt_orphan(&mut self, child: BlockRef, parent: Option<BlockRef>) {
        let orphaned = self.known[&child.id.0].parent.is_some_and(|old| self.alive(old).is_none());
        if let Some(parent) = parent.filter(|parent| orphaned && *parent != child) {
            self.known.get_mut(&parent.id.0).expect("held").children += 1;
            self.known.get_mut(&child.id.0).expect("held").parent = Some(parent);
        }
    }

    pub fn acquired(&mut self, block: u32) {
        self.known.get_mut(&block).expect("registered").references += 1;
    }

    pub fn released(&mut self, block: u32) {
        self.clock += 1;
        let known = self.known.get_mut(&block).expect("held");
        known.references -= 1;
        known.stamp = self.clock;
        self.settle(block);
    }

    /// A lease ended.
    pub fn lease_ended(&mut self, block: u32) {
        self.known.get_mut(&block).expect("a leased block stays").leases -= 1;
        self.settle(block);
    }

    /// Ends a withdrawn registration without references or leases.
    fn settle(&mut self, block: u32) {
        let known = &self.known[&block];
        if known.withdrawn && known.references + known.leases == 0 {
            self.removed(block);
        }
    }

    /// A handle of a registration was dropped.
    pub fn scope_ended(&mut self, weak: BlockRef) {
        let Some(known) = self.known.get_mut(&weak.id.0).filter(|known| known.weak == weak) else { return };
        known.scopes = known.scopes.map(|scopes| scopes - 1);
        if known.scopes != Some(0) {
            return;
        }
        known.withdrawn = true;
        let number = known.number;
        self.hide(number, weak.id.0);
        self.settle(weak.id.0);
    }
}
