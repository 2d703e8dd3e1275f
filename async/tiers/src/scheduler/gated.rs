//! Items that wait for gates. Their number is bounded, except for work that has begun. Items go in the
//! order of their gates; at one gate, in the order of arrival.
//!
//! ```text
//!   heap    [ the first due │ … │ … ]        by (due, number), in an array: 2i + 1 and 2i + 2 come after i
//!               │ ▲
//!   waiting [ item, due, number, place in the heap ]        a slab: keys stay while the heap moves
//! ```
//!
//! Invariants
//! - I1: each entry of the slab is in the heap once, and knows its place there: its removal is a walk up
//!   or down, not a search.
//! - I2: an item leaves once: released when the clock has passed its gate, or removed before, by its key
//!   or because it is late.
//! - I3: a key is good while its item waits, however often its place is used again: it has the item's number.
//! - I4: no allocation until more items wait than ever before.

use super::clock::{Clock, Due, Gate};
use slab::Slab;

/// Refused, since as many items wait as may. The item is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue of waiting items is full ({waiting} of {limit}); retry when one has left")]
pub struct Full<T> {
    /// Items that wait.
    pub waiting: u32,
    /// Items that may wait.
    pub limit: u32,
    /// The refused item.
    pub item: T,
}

/// The key of an item that waits for a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    slot: u32,
    number: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    due: Due,
    number: u64,
    place: usize,
    /// Whether it counts towards the limit.
    counted: bool,
}

/// Items that wait for gates.
#[derive(Debug)]
pub struct Gated<T> {
    limit: u32,
    waiting: Slab<Waiting<T>>,
    heap: Vec<u32>,
    counted: u32,
    /// The number of the next item.
    number: u64,
}

impl<T> Gated<T> {
    /// Returns an empty set of items, in which at most `limit` may wait.
    #[must_use]
    pub fn new(limit: u32) -> Gated<T> {
        Gated { limit, waiting: Slab::new(), heap: Vec::new(), counted: 0, number: 0 }
    }

    /// Adds an item beyond the limit: for work that has begun, since refusing it would make no room.
    pub fn hold_beyond(&mut self, gate: Gate, item: T) -> Key {
        self.insert(Due::of(gate), item, false)
    }

    /// Adds an item. If its gate is open already, the next [`released`](Gated::released) hands it out.
    pub fn hold(&mut self, gate: Gate, item: T) -> Result<Key, Full<T>> {
        if self.counted >= self.limit {
            return Err(Full { waiting: self.counted, limit: self.limit, item });
        }
        self.counted += 1;
        Ok(self.insert(Due::of(gate), item, true))
    }

    /// Hands out all items whose gates the clock has passed. Returns how many.
    pub fn released(&mut self, clock: &Clock, mut release: impl FnMut(T)) -> u32 {
        let mut count = 0;
        while let Some(&first) = self.heap.first() {
            if self.waiting[first as usize].due > clock.due() {
                break;
            }
            release(self.take(first));
            count += 1;
        }
        count
    }

    /// Takes out the items that `is_late` selects, in no order; it looks at all items. Returns how many.
    pub fn give_up(&mut self, is_late: impl Fn(&T) -> bool, mut late: impl FnMut(T)) -> u32 {
        let late_ones = self.waiting.iter().filter(|(_, waiting)| is_late(&waiting.item));
        let slots: Vec<u32> = late_ones.map(|(slot, _)| slot as u32).collect();
        for slot in &slots {
            late(self.take(*slot));
        }
        slots.len() as u32
    }

    /// Returns all waiting items, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> + '_ {
        self.waiting.iter().map(|(_, waiting)| &waiting.item)
    }

    /// Takes out a waiting item. None if it has left.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let waiting = self.waiting.get(key.slot as usize)?;
        (waiting.number == key.number).then(|| self.take(key.slot))
    }

    /// Returns a waiting item. None if it has left.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let waiting = self.waiting.get_mut(key.slot as usize)?;
        (waiting.number == key.number).then_some(&mut waiting.item)
    }

    /// Takes out the first item, whether its gate is open or not.
    pub fn pop(&mut self) -> Option<T> {
        let first = *self.heap.first()?;
        Some(self.take(first))
    }

    /// Returns how many items wait.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.heap.len() as u32
    }

    fn insert(&mut self, due: Due, item: T, counted: bool) -> Key {
        let number = self.number;
        self.number += 1;
        let place = self.heap.len();
        let slot = self.waiting.insert(Waiting { item, due, number, place, counted }) as u32;
        self.heap.push(slot);
        self.up(place);
        Key { slot, number }
    }

    fn take(&mut self, slot: u32) -> T {
        let Waiting { item, place, counted, .. } = self.waiting.remove(slot as usize);
        self.counted -= u32::from(counted);
        self.heap.swap_remove(place);
        if let Some(&moved) = self.heap.get(place) {
            self.waiting[moved as usize].place = place;
            // The moved entry comes from another branch, so it may be due before its new parent.
            let place = self.up(place);
            self.down(place);
        }
        item
    }

    fn order(&self, place: usize) -> (Due, u64) {
        let waiting = &self.waiting[self.heap[place] as usize];
        (waiting.due, waiting.number)
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for place in [a, b] {
            self.waiting[self.heap[place] as usize].place = place;
        }
    }

    fn up(&mut self, mut place: usize) -> usize {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.order(above) <= self.order(place) {
                break;
            }
            self.swap(above, place);
            place = above;
        }
        place
    }

    fn down(&mut self, mut place: usize) {
        loop {
            let below = (2 * place + 1..(2 * place + 3).min(self.heap.len())).min_by_key(|&i| self.order(i));
            let Some(below) = below.filter(|&below| self.order(below) < self.order(place)) else { return };
            self.swap(below, place);
            place = below;
        }
    }
}
