//! The order of a policy whose lists give victims by turns: list after list, each from its oldest block.
//!
//! ```text
//!   turn   0: list 3, at most 2     1: list 0, all     2: list 3, all     3: list 4, at most 2 …
//! ```
//!
//! A list may have several turns: the last one takes all of it, and each goes on
//! where the one before stopped.

use crate::id::{BlockId, BlockRef};
use crate::slot::{NO_TICKET, Priority, Slot, Word};
use crate::timeline::Timeline;
use alloc::vec::Vec;

/// A policy that names the next list.
pub(crate) trait ByTurns {
    /// The figures that the order depends on, read once for a look.
    fn outset(&self) -> Outset {
        Outset::default()
    }

    /// The list that victims come from after those of `nth` turns, if nothing happens
    /// meanwhile. None: there are no more.
    fn turn(&self, nth: usize, outset: &Outset) -> Option<Turn>;
}

/// A list's turn in the order of eviction.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub(super) list: usize,
    /// The most blocks of the turn.
    pub(super) most: usize,
    /// Its blocks no longer count as excess (see [`Outset`]).
    pub(super) of_excess: bool,
}

impl Turn {
    /// All of a list.
    pub(super) fn whole(list: usize) -> Turn {
        Turn { list, most: usize::MAX, of_excess: false }
    }

    /// The order of a policy with one list a class: those lists, each whole.
    pub(super) fn of_class(nth: usize) -> Option<Turn> {
        (nth < Priority::EVICTABLE).then(|| Turn::whole(nth))
    }
}

/// The figures that the order of eviction depends on, as of the beginning of a look. They are read once,
/// so that a look in parts visits each list, whatever is evicted meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outset {
    /// LFU's ages, of each class.
    pub(super) ages: [u32; Priority::EVICTABLE],
    /// Proven blocks that go before those on trial, less those that the look has shown.
    pub(super) excess: usize,
}

/// The position of a look.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// The figures at the beginning of the look, if it has begun.
    outset: Option<Outset>,
    /// The turn, the number of blocks that it has shown, and its place on the timeline, if it has shown any.
    turn: usize,
    count: usize,
    place: u64,
    /// The list that a turn has left, and the place at which a later turn continues.
    left: Option<(usize, u64)>,
}

/// Shows up to `n` blocks behind those that were seen.
pub(super) fn look(
    policy: &impl ByTurns,
    timeline: &Timeline,
    slots: &[Slot],
    seen: &mut Seen,
    n: usize,
    mut show: impl FnMut(u32, &Slot, Word),
) {
    let mut outset = seen.outset.unwrap_or_else(|| policy.outset());
    let mut shown = 0;
    while shown < n
        && let Some(turn) = policy.turn(seen.turn, &outset)
    {
        let before = shown;
        let most = n.min(before.saturating_add(turn.most.saturating_sub(seen.count)));
        let from = match seen.left {
            _ if seen.count > 0 => seen.place,
            Some((list, place)) if list == turn.list => place,
            _ => 0,
        };
        let place = if most == before {
            Some(from)
        } else {
            timeline.peek(slots, turn.list, from, |slot, number| {
                let word = slot.word();
                if may_leave(word) {
                    show(number, slot, word);
                    shown += 1;
                }
                shown < most
            })
        };
        match place {
            Some(place) if shown == n => {
                (seen.place, seen.count) = (place, seen.count + shown - before);
            }
            place => {
                let left = (turn.most < usize::MAX).then(|| (turn.list, place.unwrap_or(u64::MAX)));
                let left = left.or(seen.left);
                if turn.of_excess {
                    outset.excess = outset.excess.saturating_sub(seen.count + shown - before);
                }
                *seen = Seen { turn: seen.turn + 1, count: 0, place: 0, left, ..*seen };
            }
        }
    }
    seen.outset = Some(outset);
}

/// Appends the next blocks for which `is_one` is true, list after list, each whole. A list with a hand,
/// too, is looked through from its oldest block, not from the hand's place.
pub(super) fn look_among(
    policy: &impl ByTurns,
    timeline: &Timeline,
    slots: &[Slot],
    places: &mut [u64],
    end: usize,
    is_one: &mut impl FnMut(BlockRef) -> bool,
    out: &mut Vec<BlockRef>,
) {
    for list in lists_in_order(policy) {
        if out.len() >= end {
            return;
        }
        let place = &mut places[list];
        let mut go_on = timeline.young_end();
        timeline.peek(slots, list, *place, |slot, number| {
            let word = slot.word();
            let block = BlockRef { id: BlockId(number), generation: word.generation() };
            if may_leave(word) && word.leases() == 0 && is_one(block) {
                // Its present place: no earlier than where it was met. If it is gone, it may
                // come back anywhere from here on.
                go_on =
                    go_on.min(Some(slot.ticket()).filter(|ticket| *ticket != NO_TICKET).unwrap_or(*place));
                out.push(block);
            }
            out.len() < end
        });
        *place = go_on;
    }
}

/// The policy's lists, each once, in the order of eviction.
fn lists_in_order<P: ByTurns>(policy: &P) -> impl Iterator<Item = usize> + use<P> {
    let (mut lists, mut count, mut added) = ([0u8; 64], 0, 0u64);
    // A list with several turns comes with its first. No policy has more lists than bits.
    let mut add = |list: usize| {
        if added & (1 << list) == 0 {
            added |= 1 << list;
            lists[count] = list as u8;
            count += 1;
        }
    };
    let outset = policy.outset();
    let turns = (0..).map_while(|nth| policy.turn(nth, &outset));
    turns.filter(|turn| turn.most > 0).for_each(|turn| add(turn.list));
    lists.into_iter().take(count).map(usize::from)
}

/// Returns whether eviction could take a block.
#[inline]
pub(super) fn may_leave(word: Word) -> bool {
    word.inactive() && word.priority() != Priority::Pinned
}
