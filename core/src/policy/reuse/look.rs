//! A look at the next victims: shows the blocks that a search would take, in its order, and takes none.
//!
//! As a search goes from head to head, so does a look, behind the blocks that it has shown. For each
//! block that LRU has it lowers the number of ghosts still allowed, as that block's eviction would. It
//! shows youngest segments where a search would take them.
//!
//! ```text
//!   timeline, in order of release    leaf │ its parent │ the next one up │ …     (each in its class's list)
//!   block with one child                      child shown: shown where it stands
//!                                             child not shown: passed, and shown behind the child
//! ```
//!
//! As in a search a parent waits for its child, then. The child was released before its parent,
//! one place further on the old side. A parent of several children is passed: some of them will be
//! here when the others are gone.
//!
//! I1. Only cursors change, which move over empty words as a search moves them.
//! I2. A look that continues from another's state shows no block again: each list continues at its place,
//!     and passes the shown part of its youngest segment. A parent is shown behind its child if the list
//!     has passed the parent by then, or it waits in no list; otherwise it is shown where it stands. For
//!     each list a look remembers one parent that waits for its child, and one whose child was shown.
//!     Where there are more of them, or blocks are evicted or held between the parts of a look, a block
//!     may be left out or shown twice. The shown blocks are hints, to be checked before use.
//! I3. Behind a block of a list a look walks `FAR` places to the next one, and then does without the
//!     list until the other lists are exhausted. So its cost is in proportion to the blocks that it
//!     shows and to the parents that it passes, each once. An empty list costs a look at its cursor.

use super::Reuse;
use super::ages::not_before;
use super::classes::{CLASSES, HIGH, LISTS, LOW, YOUNG_LISTS};
use super::evict::{FAR, OLDER};
use super::looked::Looked;
use super::orders::{Choice, Head, Heads, NO_YOUNGS, Youngs};
use crate::id::BlockRef;
use crate::policy::carried::Cursor;
use crate::policy::order::Ordered;
use crate::policy::turns::may_leave;
use crate::slot::{NIL, NO_TICKET, Slot, Word};
use crate::sync::Relaxed;
use crate::timeline::Timeline;
use alloc::vec::Vec;

struct Look<'l> {
    policy: &'l Reuse,
    timeline: &'l Timeline,
    slots: &'l [Slot],
    now: u32,
    looked: &'l mut Looked,
    heads: Heads,
    /// Slot of each head, and the place where its list continues.
    next: [(u32, u64); CLASSES],
    youngs: Youngs,
    /// Lists whose next block is far away, a bit each.
    far: u32,
}

impl Ordered for Reuse {
    fn look(
        &self,
        timeline: &Timeline,
        slots: &[Slot],
        cursor: &mut Cursor,
        n: usize,
        mut show: impl FnMut(u32, &Slot, Word),
    ) {
        let looked = &mut cursor.reuse;
        let mut left = n - Look::all_of(timeline, slots, looked, LOW, n, &mut show);
        if left > 0 {
            let mut look = Look::new(self, timeline, slots, looked);
            left -= look.merge(left, &mut show);
        }
        if left > 0 {
            Look::all_of(timeline, slots, looked, HIGH, left, &mut show);
        }
    }

    fn look_among(
        &self,
        timeline: &Timeline,
        slots: &[Slot],
        places: &mut [u64],
        end: usize,
        is_one: &mut impl FnMut(BlockRef) -> bool,
        out: &mut Vec<BlockRef>,
    ) {
        self.next_among(timeline, slots, places, end, is_one, out);
    }
}

/// A block as its children's slots name it.
fn packed(number: u32, word: Word) -> u64 {
    (u64::from(word.generation()) << 32) | u64::from(number)
}

impl<'l> Look<'l> {
    fn new(policy: &'l Reuse, timeline: &'l Timeline, slots: &'l [Slot], looked: &'l mut Looked) -> Look<'l> {
        let mut look = Look {
            policy,
            timeline,
            slots,
            now: timeline.clock() as u32,
            looked,
            heads: [Head::NONE; CLASSES],
            next: [(NIL, 0); CLASSES],
            youngs: NO_YOUNGS,
            far: 0,
        };
        look.find_youngs();
        (0..CLASSES).for_each(|list| look.go_on(list));
        look
    }

    /// Finds the youngest segments, except those that began since the look did.
    fn find_youngs(&mut self) {
        self.youngs = self.policy.youngs(self.timeline, self.now);
        for list in 0..YOUNG_LISTS {
            // Relaxed: as in `place`.
            let place = self.policy.young[list].load(Relaxed);
            let (began, shown) = (&mut self.looked.began[list], &mut self.looked.shown[list]);
            if *began == 0 {
                (*began, *shown) = (place, place);
            } else if !(*began..=*shown).contains(&place) {
                self.youngs[list] = f32::INFINITY;
            }
        }
    }

    /// Finds the next head of a list, from its place on.
    fn go_on(&mut self, list: usize) {
        let from = match self.looked.places[list] {
            0 => self.timeline.first_word(list),
            // Evictions may have moved the cursor further.
            place => place.max(self.timeline.first_word(list)),
        };
        let to = self.timeline.word_behind(from, FAR);
        let (policy, now) = (self.policy, self.now);
        let shown = if list < YOUNG_LISTS { self.looked.began[list]..self.looked.shown[list] } else { 0..0 };
        let since = self.timeline.number(shown.start) as u32;
        let (mut head, mut number) = (Head::NONE, NIL);
        let next = self.timeline.peek_until(self.slots, list, from, to, |slot, of| {
            let place = slot.ticket();
            let of_list = policy.head(list, place, slot, now);
            if !may_leave(slot.word())
                || place == NO_TICKET
                || (shown.contains(&place) && not_before(of_list.stamp, since))
            {
                return true;
            }
            (head, number) = (of_list, of);
            false
        });
        self.far &= !(1 << list);
        (self.heads[list], self.next[list]) = (head, (number, next.unwrap_or(0)));
        // Passed blocks stay passed (I2).
        self.looked.places[list] = head.place;
        if next.is_none() {
            let end = self.timeline.young_end();
            self.looked.places[list] = to.min(end);
            self.far |= u32::from(to < end) << list;
        }
    }

    /// Returns whether a block has no children, or only one that was shown.
    fn waits_for_nobody(&self, slot: &Slot, block: u64, place: u64) -> bool {
        if !slot.has_children() {
            return true;
        }
        slot.has_one_child()
            && (self.looked.parent == Some(block)
                || self.looked.behind.contains(&!block)
                || self.timeline.slot_before(self.slots, place).is_some_and(|number| {
                    let child = &self.slots[number as usize];
                    let word = child.word();
                    // A child in use was passed, not shown.
                    child.parent() == block
                        && may_leave(word)
                        && !self.is_left_to_wait(child, word)
                        && self.has_passed(child)
                        && !self.looked.waiting.contains(&!packed(number, word))
                }))
    }

    /// Returns whether the look has passed a block in its list.
    fn has_passed(&self, slot: &Slot) -> bool {
        // Relaxed: a hint.
        let (place, list) = (slot.ticket(), usize::from(slot.list.load(Relaxed)));
        let is_shown =
            || list < YOUNG_LISTS && (self.looked.began[list]..self.looked.shown[list]).contains(&place);
        place != NO_TICKET && list < LISTS && (place < self.looked.places[list] || is_shown())
    }

    /// Returns whether a block is in no list, since a search has deferred it: a look reaches it behind
    /// its child only. A holder's release has put it back into its list.
    fn is_left_to_wait(&self, slot: &Slot, word: Word) -> bool {
        // Relaxed: a hint.
        let (place, list) = (slot.ticket(), usize::from(slot.list.load(Relaxed)));
        slot.is_deferred(word.generation()) && !(place == NO_TICKET || self.timeline.is_listed(list, place))
    }

    /// Shows the parents that waited for the block shown last, one behind the other. Returns their number.
    fn show_waiting(&mut self, n: usize, show: &mut impl FnMut(u32, &Slot, Word)) -> usize {
        let mut count = 0;
        while count < n
            && let Some(parent) = self.looked.parent
            && parent as u32 != NIL
        {
            let number = parent as u32;
            let slot = &self.slots[number as usize];
            let word = slot.word();
            let generation = (parent >> 32) as u32;
            // Relaxed: a hint.
            let list = usize::from(slot.list.load(Relaxed));
            let is_it = word.generation() == generation && may_leave(word) && slot.has_one_child();
            let waits =
                is_it && list < CLASSES && (self.has_passed(slot) || self.is_left_to_wait(slot, word));
            if !waits {
                if is_it && list < CLASSES {
                    self.looked.behind[list] = !parent;
                }
                break;
            }
            if self.looked.waiting[list] == !parent {
                self.looked.waiting[list] = 0;
            }
            // Relaxed: a hint.
            self.show(number, slot, word, slot.stamp.load(Relaxed), show);
            count += 1;
        }
        count
    }

    /// Shows the merge of all lists of `Normal`. Returns the number shown.
    fn merge(&mut self, n: usize, show: &mut impl FnMut(u32, &Slot, Word)) -> usize {
        let orders = &self.policy.orders;
        let mut count = 0;
        while count < n {
            count += self.show_waiting(n - count, show);
            if count == n {
                break;
            }
            let leave = orders.leave(self.looked.risked);
            match orders.choose(&self.heads, &self.youngs, leave) {
                Some(Choice::Oldest(list)) => count += self.run(list, n - count, show),
                Some(Choice::Youngest(list)) => count += self.youngest(list, n - count, show),
                None if self.far != 0 => {
                    let far = self.far;
                    (0..CLASSES).filter(|list| far & (1 << list) != 0).for_each(|list| self.go_on(list));
                }
                None => break,
            }
        }
        count
    }

    /// Shows a list's blocks as long as they are the choice. Returns the number shown.
    fn run(&mut self, list: usize, n: usize, show: &mut impl FnMut(u32, &Slot, Word)) -> usize {
        let orders = &self.policy.orders;
        let leave = orders.leave(self.looked.risked);
        let mut rivals = None;
        let mut count = 0;
        loop {
            let (number, place) = self.next[list];
            let (slot, head) = (&self.slots[number as usize], self.heads[list]);
            let word = slot.word();
            self.looked.places[list] = place;
            if !self.waits_for_nobody(slot, packed(number, word), head.place) {
                self.looked.waiting[list] = !packed(number, word);
            } else {
                self.show(number, slot, word, head.stamp, show);
                count += 1;
                count += self.show_waiting(n - count, show);
            }
            self.go_on(list);
            if count == n || self.heads[list].is_none() || orders.leave(self.looked.risked) != leave {
                return count;
            }
            let rivals = rivals.get_or_insert_with(|| orders.rivals(&self.heads, &self.youngs, list, leave));
            if !orders.goes_on(rivals, self.heads[list]) {
                return count;
            }
        }
    }

    /// Shows the rest of a list's youngest segment, until a block has children that were not
    /// shown. Returns the number shown.
    fn youngest(&mut self, list: usize, n: usize, show: &mut impl FnMut(u32, &Slot, Word)) -> usize {
        let (orders, timeline, slots) = (&self.policy.orders, self.timeline, self.slots);
        let since = timeline.number(self.looked.began[list]) as u32;
        // Blocks that the old end has reached were shown there.
        let from = self.looked.shown[list].max(self.looked.places[list]);
        let to = timeline.word_behind(from, FAR).min(timeline.young_end());
        let (mut count, mut older, mut is_over) = (0, 0, false);
        let next = timeline.peek_until(slots, list, from, to, |slot, number| {
            let (word, stamp) = (slot.word(), slot.stamp.load(Relaxed));
            if !not_before(stamp, since) {
                older += 1;
                is_over = older == OLDER;
                return !is_over;
            }
            if !may_leave(word) || (slot.has_children() && self.looked.parent != Some(packed(number, word))) {
                is_over = true;
                return false;
            }
            self.show(number, slot, word, stamp, show);
            count += 1;
            count < n && orders.leave(self.looked.risked).takes_young()
        });
        // If the segment is over, the block before it was the last.
        let end = next.map_or(to, |place| if is_over { timeline.before(place) } else { place });
        self.looked.shown[list] = if count > 0 { end } else { from };
        if is_over || next.is_none() {
            self.youngs[list] = f32::INFINITY;
        }
        if (self.looked.began[list]..self.looked.shown[list]).contains(&self.heads[list].place) {
            self.go_on(list);
        }
        count
    }

    #[inline]
    fn show(
        &mut self,
        number: u32,
        slot: &Slot,
        word: Word,
        stamp: u32,
        show: &mut impl FnMut(u32, &Slot, Word),
    ) {
        self.looked.risked += u32::from(self.policy.orders.lru_has(stamp));
        self.looked.parent = Some(slot.parent());
        show(number, slot, word);
    }

    /// Shows the blocks of a list of another priority. Returns the number shown.
    fn all_of(
        timeline: &Timeline,
        slots: &[Slot],
        looked: &mut Looked,
        list: usize,
        n: usize,
        show: &mut impl FnMut(u32, &Slot, Word),
    ) -> usize {
        let from = match looked.places[list] {
            0 => timeline.first_word(list),
            place => place,
        };
        let mut count = 0;
        if n == 0 {
            return 0;
        }
        let next = timeline.peek(slots, list, from, |slot, number| {
            let word = slot.word();
            if may_leave(word) {
                show(number, slot, word);
                count += 1;
            }
            count < n
        });
        looked.places[list] = next.unwrap_or_else(|| timeline.young_end());
        count
    }
}
