//! The next victims of a policy that takes from many lists by turns: a merge of the lists, in the order in which it would take their heads.
//!
//! What is seen is a hint, as with all looks at victims. What the policy would do with a parent that has children, and with what is
//! youngest, is left aside.

use super::BlockPool;
use crate::hash::SequenceHash;
use crate::id::{BlockId, BlockRef};
use crate::policy::reuse::{Head, LISTS, Reuse};
use crate::policy::{AnyPolicy, Eviction};
use crate::slot::Priority;
use alloc::vec::Vec;

/// A list's next block, and where to go on behind it.
type Next = Option<((BlockRef, SequenceHash), u64)>;

impl BlockPool {
    /// Appends up to `n` victims behind those at `places`, which move on.
    pub(super) fn victims_in_order(
        &self,
        policy: &Reuse,
        places: &mut [u64; LISTS],
        n: usize,
        out: &mut Vec<(BlockRef, SequenceHash)>,
    ) {
        let end = out.len().saturating_add(n);
        let mut heads: [Option<Head>; LISTS] = [None; LISTS];
        let mut next: [Next; LISTS] = [None; LISTS];
        for list in 0..LISTS {
            (heads[list], next[list]) = self.head_behind(policy, list, places[list]);
        }
        while out.len() < end
            && let Some(list) = policy.first_of(&heads)
            && let Some((victim, place)) = next[list]
        {
            out.push(victim);
            places[list] = place;
            (heads[list], next[list]) = self.head_behind(policy, list, place);
        }
    }

    /// The first block of a list that may be evicted, from a place on; 0: from its beginning.
    fn head_behind(&self, policy: &Reuse, list: usize, place: u64) -> (Option<Head>, Next) {
        let now = self.timeline.clock() as u32;
        let mut found = None;
        let go_on = self.timeline.peek(&self.slots, list, place, |slot, number| {
            let word = slot.word();
            let may_leave = word.inactive() && word.priority() != Priority::Pinned;
            if may_leave {
                // Another's, if the block is recycled meanwhile: then its generation is another, too.
                let block = BlockRef { id: BlockId(number), generation: word.generation() };
                found = Some((policy.head(list, slot.ticket(), slot, now), (block, slot.key())));
            }
            !may_leave
        });
        match found.zip(go_on) {
            Some(((head, victim), place)) => (Some(head), Some((victim, place))),
            None => (None, None),
        }
    }

    /// The policy's lists, each once, those first that are evicted from first.
    pub(super) fn lists_in_order(&self) -> impl Iterator<Item = usize> + use<> {
        let (mut lists, mut count, mut added) = ([0u8; 64], 0, 0u64);
        // A list that has several turns comes with its first. No policy has more lists than bits.
        let mut add = |list: usize| {
            if added & (1 << list) == 0 {
                added |= 1 << list;
                lists[count] = list as u8;
                count += 1;
            }
        };
        match &self.policy {
            AnyPolicy::Reuse(policy) => {
                let mut heads = core::array::from_fn(|list| self.head_behind(policy, list, 0).0);
                while let Some(list) = policy.first_of(&heads) {
                    heads[list] = None;
                    add(list);
                }
                (0..LISTS).for_each(add);
            }
            policy => {
                let outset = policy.outset();
                let turns = (0..).map_while(|nth| policy.turn(nth, &outset));
                turns.filter(|turn| turn.most > 0).for_each(|turn| add(turn.list));
            }
        }
        lists.into_iter().take(count).map(usize::from)
    }
}
