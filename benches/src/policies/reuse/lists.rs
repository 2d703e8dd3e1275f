//! The inactive blocks: a FIFO a class, with the values of what may be evicted from each.
//!
//! ```text
//!   head (least stamp) ─► … ─► young (the deepest left of the segment released last) ─► … ─► tail
//! ```
//!
//! I1. An inactive block is in exactly one list, or deferred because it has children; an active one is in none.
//! I2. The least stamp of a list is at its head: blocks enter at the tail, in order of release; a deferred parent comes back to the front.
//! I3. A value is of its list's head (or young one) at the clock of the last `revalue`, unless the list is dirty.

use super::CLASSES;
use super::curve::Curve;
use super::node::{ACTIVE, DEFERRED, LIST, NIL, Node};

#[derive(Clone, Copy)]
pub(super) struct List {
    pub(super) head: u32,
    tail: u32,
    /// The head's.
    pub(super) stamp: u32,
    /// The deepest left of the youngest segment, and its stamp.
    pub(super) young: u32,
    young_stamp: u32,
    /// Index of the head, and of the young one; while clean.
    pub(super) value: f32,
    pub(super) young_value: f32,
}

pub(super) struct Lists {
    pub(super) nodes: Box<[Node]>,
    pub(super) of: [List; CLASSES],
    /// Lists whose values are to be computed anew: all, once the clock has gone on from `valued`.
    dirty: u32,
    valued: u32,
}

impl Lists {
    pub(super) fn new(capacity: usize) -> Lists {
        let empty =
            List { head: NIL, tail: NIL, stamp: 0, young: NIL, young_stamp: 0, value: 0.0, young_value: 0.0 };
        Lists { nodes: vec![Node::new(0); capacity].into(), of: [empty; CLASSES], dirty: 0, valued: 0 }
    }

    pub(super) fn node(&mut self, slot: u32) -> &mut Node {
        &mut self.nodes[slot as usize]
    }

    pub(super) fn unlink(&mut self, slot: u32) {
        let node = self.nodes[slot as usize];
        let class = node.get(LIST);
        if class == ACTIVE || node.get(DEFERRED) == 1 {
            return;
        }
        self.dirty |= 1 << class;
        let list = &mut self.of[class as usize];
        if list.young == slot {
            list.young = node.next;
            if node.next != NIL {
                list.young_stamp = self.nodes[node.next as usize].stamp;
            }
        }
        if node.prev == NIL {
            list.head = node.next;
            if node.next != NIL {
                list.stamp = self.nodes[node.next as usize].stamp;
            }
        } else {
            self.nodes[node.prev as usize].next = node.next;
        }
        if node.next == NIL {
            list.tail = node.prev;
        } else {
            self.nodes[node.next as usize].prev = node.prev;
        }
    }

    pub(super) fn push_back(&mut self, slot: u32, class: usize) {
        let list = &mut self.of[class];
        let last = std::mem::replace(&mut list.tail, slot);
        let node = &mut self.nodes[slot as usize];
        node.set(LIST, class as u32);
        (node.prev, node.next) = (last, NIL);
        if last == NIL {
            (list.head, list.stamp) = (slot, node.stamp);
        } else {
            self.nodes[last as usize].next = slot;
        }
    }

    /// A block that was deferred is the oldest of its list again.
    pub(super) fn push_front(&mut self, slot: u32) {
        let node = &mut self.nodes[slot as usize];
        node.set(DEFERRED, 0);
        self.dirty |= 1 << node.get(LIST);
        let list = &mut self.of[node.get(LIST) as usize];
        list.stamp = node.stamp;
        let old = std::mem::replace(&mut list.head, slot);
        (node.prev, node.next) = (NIL, old);
        if old == NIL {
            list.tail = slot;
        } else {
            self.nodes[old as usize].prev = slot;
        }
    }

    /// A batch that is being released has its first, so its deepest, block of this class.
    pub(super) fn begin_segment(&mut self, class: usize, slot: u32, stamp: u32) {
        (self.of[class].young, self.of[class].young_stamp) = (slot, stamp);
    }

    /// Computes the values that have changed.
    pub(super) fn revalue(&mut self, clock: u32, curve: &Curve) {
        if self.valued != clock {
            (self.valued, self.dirty) = (clock, (1 << CLASSES) - 1);
        }
        while self.dirty != 0 {
            let class = self.dirty.trailing_zeros() as usize;
            self.dirty &= self.dirty - 1;
            let list = &mut self.of[class];
            if list.head != NIL {
                list.value = curve.value(class, clock - list.stamp);
            }
            if list.young != NIL {
                list.young_value = curve.value(class, clock - list.young_stamp);
            }
        }
    }

    /// The list whose head is the oldest of all, and that head's stamp.
    pub(super) fn oldest(&self) -> Option<(usize, u32)> {
        let (mut first, mut oldest) = (CLASSES, u32::MAX);
        for (class, list) in self.of.iter().enumerate() {
            if list.head != NIL && list.stamp < oldest {
                (first, oldest) = (class, list.stamp);
            }
        }
        (first < CLASSES).then_some((first, oldest))
    }
}
