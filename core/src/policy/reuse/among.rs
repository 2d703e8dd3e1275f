//! The next victims among a caller's blocks: a merge of these blocks' order in each list.
//!
//! A list's head is the first of these blocks there. The youngest segments are left out.

use super::Reuse;
use super::classes::{HIGH, LISTS, LOW};
use super::orders::{Choice, Head, NO_YOUNGS};
use crate::id::{BlockId, BlockRef};
use crate::policy::turns::may_leave;
use crate::slot::{NO_TICKET, Slot};
use crate::timeline::Timeline;
use alloc::vec::Vec;

impl Reuse {
    /// Appends the next victims for which `is_one` is true, as
    /// [`look_among`](crate::policy::Ordered::look_among) says.
    pub(super) fn next_among(
        &self,
        timeline: &Timeline,
        slots: &[Slot],
        places: &mut [u64],
        end: usize,
        is_one: &mut impl FnMut(BlockRef) -> bool,
        out: &mut Vec<BlockRef>,
    ) {
        if out.len() >= end {
            return;
        }
        let mut own_head = |list, place| self.own_head(timeline, slots, list, place, is_one);
        let (mut heads, mut next) = ([None; LISTS], [None; LISTS]);
        for (list, place) in places.iter_mut().enumerate() {
            let young_end = timeline.young_end();
            (heads[list], next[list]) = own_head(list, *place);
            *place = match heads[list] {
                Some(Head { place: NO_TICKET, .. }) => *place,
                Some(head) => head.place,
                None => young_end,
            };
        }
        while out.len() < end
            && let Some(list) = self.first_of(&heads)
            && let Some((block, place)) = next[list]
        {
            out.push(block);
            if out.len() == end {
                // The next one may be far, and is not needed.
                return;
            }
            (heads[list], next[list]) = own_head(list, place);
        }
    }

    /// The first of these blocks in a list, from a place on, and the place where the list continues.
    fn own_head(
        &self,
        timeline: &Timeline,
        slots: &[Slot],
        list: usize,
        place: u64,
        is_one: &mut impl FnMut(BlockRef) -> bool,
    ) -> (Option<Head>, Option<(BlockRef, u64)>) {
        let now = timeline.clock() as u32;
        let mut found = None;
        let go_on = timeline.peek(slots, list, place, |slot, number| {
            let word = slot.word();
            let block = BlockRef { id: BlockId(number), generation: word.generation() };
            let is_it = may_leave(word) && word.leases() == 0 && is_one(block);
            if is_it {
                found = Some((self.head(list, slot.ticket(), slot, now), block));
            }
            !is_it
        });
        found.zip(go_on).map(|((head, block), place)| (head, (block, place))).unzip()
    }

    /// The list whose head goes first, as an evictor would choose now; the youngest segments are left out.
    fn first_of(&self, heads: &[Option<Head>; LISTS]) -> Option<usize> {
        let normal = core::array::from_fn(|list| heads[list].unwrap_or(Head::NONE));
        let chosen = || match self.orders.choose(&normal, &NO_YOUNGS, self.orders.leave(0))? {
            Choice::Oldest(list) | Choice::Youngest(list) => Some(list),
        };
        let low = heads[LOW].is_some().then_some(LOW);
        low.or_else(chosen).or(heads[HIGH].is_some().then_some(HIGH))
    }
}
