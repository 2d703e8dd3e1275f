//! Reuse: evicts the block of least expected hits for time of residence, as learned online; never far behind LRU.
//!
//! ```text
//!   release ─► class (turn × growth, trunk × gap, leaf) ─► its FIFO          evict: the FIFO whose head has the least index
//!   touch   ─► panel (sampled keys): age and class at the last touch ─► hits, time at risk ─► index by class and age
//!   guard   ─► shadow LRU (counts by age, ghosts of what it has and we have not) ─► bank ─► how many ghosts are allowed
//! ```
//!
//! | file | what |
//! |---|---|
//! | `node.rs` | what is kept for a slot |
//! | `lists.rs` | the FIFOs, and the values of their heads |
//! | `panel.rs` | sampled keys: what waits |
//! | `curve.rs` | hits and time at risk, and the index |
//! | `shadow.rs` | what LRU would have |
//! | `guard.rs` | how much may be risked |
//!
//! The clock counts released blocks; it is 32 bits, and not wrapped.
//!
//! I1. A block with children is never evicted: it is deferred, and back with its last child's eviction.
//! I2. Nothing is allocated after construction.

mod curve;
mod guard;
mod lists;
mod node;
mod panel;
mod shadow;

pub use node::NIL;

use curve::Curve;
use guard::Guard;
use lists::Lists;
use node::{ACTIVE, BELOW, CHILDREN, DEFERRED, GAP, IS_TRUNK, LENGTH, LIST, MUCH, NEW, Node, PHASE, TURNS};
use panel::Panel;
use shadow::Shadow;

/// What the pool knows of a slot.
pub trait Host {
    /// The name of its block, well mixed.
    fn key(&self, slot: u32) -> u64;
    /// The slot of the block before it, or [`NIL`].
    fn parent(&self, slot: u32) -> u32;
    /// Resident blocks behind it.
    fn children(&self, slot: u32) -> u32;
}

/// First turn × length.
const FIRST: usize = 0;
/// Later turns that grew by little.
const TURN: usize = 4;
/// Later turns that grew by much.
const GREW: usize = 9;
/// Shared prefixes × gap before the last touch.
const TRUNK: usize = 12;
/// The last block of a request.
const LEAF: usize = 15;
const CLASSES: usize = 16;

/// Children ever that make a trunk.
const TRUNK_CHILDREN: u32 = 5;
/// Blocks that a turn may add and still be a plain turn.
const LITTLE: u32 = 4;
/// One block of 2^n of a path is in the panel.
const SAMPLE_SHIFT: u32 = 4;
/// Releases between the refreshes of one class's index.
const REFRESH: u32 = 64;
/// The oldest block goes unless another's index is below so much of its own; 1 once the lead over LRU is `PROOF` capacities.
const MARGIN: f32 = 0.4;
const PROOF: f32 = 0.05;
/// The youngest segment of a list goes before its oldest, once that lead is there, if its index is less by this.
const YOUNG: f32 = 0.9;

/// The policy's whole state.
pub struct Reuse {
    capacity: u32,
    clock: u32,
    lists: Lists,
    panel: Panel,
    /// Conversations that were evicted wholly: tag:20 | below:8 | turn:4.
    gone: Box<[u32]>,
    shadow: Shadow,
    guard: Guard,
    curve: Curve,
    due: u32,
    next_class: usize,
    /// Mean blocks a request.
    length: f32,
    /// Of the batch that is being released.
    much: bool,
    /// Classes that it has blocks of.
    batch: u32,
}

impl Reuse {
    /// For a pool of so many blocks.
    #[must_use]
    pub fn new(capacity: usize) -> Reuse {
        Reuse {
            capacity: capacity as u32,
            clock: 1,
            lists: Lists::new(capacity),
            panel: Panel::new(capacity),
            gone: vec![0; (capacity / 3).max(16)].into(),
            shadow: Shadow::new(capacity),
            guard: Guard::default(),
            curve: Curve::new(capacity as u32),
            due: 0,
            next_class: 0,
            length: 1.0,
            much: false,
            batch: 0,
        }
    }

    /// Bytes of all that it owns.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let nodes = self.lists.nodes.len() * size_of::<Node>();
        size_of::<Reuse>()
            + nodes
            + self.panel.memory_bytes()
            + self.gone.len() * 4
            + self.shadow.memory_bytes()
    }

    /// A block is registered, as the first of `run` new ones that are registered together. The caller holds it.
    pub fn on_register(&mut self, host: &impl Host, slot: u32, run: u32) {
        let (key, parent) = (host.key(slot), host.parent(slot));
        self.shadow.missed(key);
        let mut node = Node::new(self.clock);
        node.set(NEW, 1);
        node.set(TURNS, 1);
        let length = match run {
            0..=4 => 0,
            5..=16 => 1,
            17..=64 => 2,
            _ => 3,
        };
        node.set(LENGTH, length);
        node.set_phase((key >> 20) as u32);
        let mut first = true;
        if parent != NIL {
            let above = self.lists.node(parent);
            above.set(CHILDREN, above.get(CHILDREN) + 1);
            let above = *above;
            node.set_phase(above.get(PHASE) + 1);
            if above.get(IS_TRUNK) == 0 {
                first = false;
                node.set(TURNS, above.get(TURNS));
                if above.get(NEW) == 1 {
                    // Inside of a run: as the block before it.
                    node.set(MUCH, above.get(MUCH));
                    node.set(LENGTH, above.get(LENGTH));
                } else {
                    node.set(MUCH, grew_much(run, above.get(BELOW), above.get(BELOW)));
                }
                if above.get(CHILDREN) >= TRUNK_CHILDREN {
                    self.mark_trunk(host, parent);
                }
            }
        }
        if first {
            let at = place(key, self.gone.len());
            let gone = self.gone[at];
            if gone != 0 && gone >> 12 == (key as u32) >> 12 {
                // The conversation was here before.
                self.gone[at] = 0;
                let below = (gone >> 4) & 255;
                node.set(TURNS, (gone & 15) + 1);
                node.set(MUCH, grew_much(run, below + 1, below));
            }
        }
        *self.lists.node(slot) = node;
        self.observe(key, node);
    }

    /// A block that is registered is acquired, and was inactive.
    pub fn on_hit(&mut self, host: &impl Host, slot: u32) {
        self.lists.unlink(slot);
        let node = self.lists.node(slot);
        let gap = self.clock - node.stamp;
        let gap = if gap < self.capacity / 2 {
            0
        } else if gap < 4 * self.capacity {
            1
        } else {
            2
        };
        node.set(LIST, ACTIVE);
        node.set(DEFERRED, 0);
        node.set(GAP, gap);
        node.set(TURNS, node.get(TURNS) + 1);
        let node = *node;
        self.shadow.hit(node.stamp);
        self.observe(host.key(slot), node);
    }

    /// The last holder lets go; `at` is the block's place in the batch, tail first.
    pub fn on_release(&mut self, host: &impl Host, slot: u32, at: u32) {
        if at == 0 {
            let tail = self.lists.node(slot);
            self.much = tail.get(NEW) == 1 && tail.get(MUCH) == 1;
            self.batch = 0;
        }
        self.clock += 1;
        let class = self.class(host, slot);
        let node = self.lists.node(slot);
        node.stamp = self.clock;
        node.set(NEW, 0);
        node.set(BELOW, at);
        let sampled = node.is_sampled();
        self.lists.push_back(slot, class);
        if self.batch & (1 << class) == 0 {
            self.batch |= 1 << class;
            self.lists.begin_segment(class, slot, self.clock);
        }
        self.shadow.released(self.clock);
        if sampled {
            self.panel.note(host.key(slot), class, self.clock, &mut self.curve);
        }
        self.panel.scan(2, self.clock, &mut self.curve);
        self.due += 1;
        if self.due == REFRESH {
            self.due = 0;
            self.next_class += 1;
            if self.next_class == CLASSES {
                self.next_class = 0;
                self.curve.decay(REFRESH * CLASSES as u32);
                self.curve.share();
            }
            self.curve.refresh(self.next_class, self.length);
        }
        // One of so many releases begins a batch: their mean length, without a count of requests.
        if at == 0 {
            self.length -= self.length * 0.01;
        }
        self.length += 0.01;
    }

    /// The last child of a block is gone: if it was deferred, it is the oldest of its list again.
    pub fn on_childless(&mut self, slot: u32) {
        if self.lists.node(slot).get(DEFERRED) == 1 {
            self.lists.push_front(slot);
        }
    }

    /// The block that goes next; none if none is inactive.
    pub fn evict(&mut self, host: &impl Host) -> Option<u32> {
        let tight = self.guard.is_tight(&self.shadow, u64::from(self.clock), self.capacity, self.length);
        let lead = (-self.shadow.deficit).max(0) as f32;
        let margin = MARGIN + (1.0 - MARGIN) * (lead / (self.capacity as f32 * PROOF)).min(1.0);
        loop {
            self.lists.revalue(self.clock, &self.curve);
            let slot = self.candidate(host, tight, margin)?;
            self.lists.unlink(slot);
            if host.children(slot) > 0 {
                // Its last child brings it back.
                self.lists.node(slot).set(DEFERRED, 1);
                continue;
            }
            let node = *self.lists.node(slot);
            let key = host.key(slot);
            self.shadow.evicted(key, node.stamp);
            let parent = host.parent(slot);
            let top = parent == NIL || self.lists.node(parent).get(IS_TRUNK) == 1;
            if top && node.get(IS_TRUNK) == 0 {
                let at = place(key, self.gone.len());
                self.gone[at] = (key as u32 & !0xfff) | (node.get(BELOW) << 4) | node.get(TURNS).max(1);
            }
            self.lists.node(slot).set(LIST, ACTIVE);
            return Some(slot);
        }
    }

    /// The block of the least index, among those that the guard allows. It may have children.
    fn candidate(&mut self, host: &impl Host, tight: bool, margin: f32) -> Option<u32> {
        let horizon = self.shadow.horizon();
        let (first, oldest) = self.lists.oldest()?;
        let mut slot = self.lists.of[first].head;
        // What LRU does not have costs nothing against it: those first, if the guard says so. If LRU has all, the oldest goes.
        if tight && oldest >= horizon {
            return Some(slot);
        }
        let mut least = self.lists.of[first].value * margin;
        for list in &self.lists.of {
            if list.value < least && list.head != NIL && !(tight && list.stamp >= horizon) {
                (least, slot) = (list.value, list.head);
            }
        }
        if !tight && margin == 1.0 {
            for list in &mut self.lists.of[..TRUNK] {
                if list.young_value * YOUNG < least && list.young != NIL {
                    if host.children(list.young) > 0 {
                        list.young = NIL;
                    } else {
                        (least, slot) = (list.young_value * YOUNG, list.young);
                    }
                }
            }
        }
        Some(slot)
    }

    fn class(&mut self, host: &impl Host, slot: u32) -> usize {
        let node = *self.lists.node(slot);
        if node.get(IS_TRUNK) == 1 {
            return TRUNK + node.get(GAP) as usize;
        }
        if host.children(slot) == 0 {
            return LEAF;
        }
        match node.get(TURNS) as usize {
            0 | 1 => FIRST + node.get(LENGTH) as usize,
            turn if self.much => GREW + turn.min(4) - 2,
            turn => TURN + turn.min(6) - 2,
        }
    }

    fn mark_trunk(&mut self, host: &impl Host, mut slot: u32) {
        while slot != NIL && self.lists.node(slot).get(IS_TRUNK) == 0 {
            self.lists.node(slot).set(IS_TRUNK, 1);
            slot = host.parent(slot);
        }
    }

    fn observe(&mut self, key: u64, node: Node) {
        if node.is_sampled() {
            self.panel.observe(key, self.clock, &mut self.curve);
        }
    }
}

/// Whether a run of new blocks is more than `LITTLE` above the `before` that were there and came back; unknown if `below` is saturated.
fn grew_much(run: u32, before: u32, below: u32) -> u32 {
    u32::from(run.saturating_sub(before) > LITTLE && below < 255)
}

/// Where a key belongs in a table of so many places.
#[inline]
fn place(key: u64, len: usize) -> usize {
    (((key >> 32) * len as u64) >> 32) as usize
}
