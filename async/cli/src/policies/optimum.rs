//! The offline optimum: Belady's choice with bypass, the deepest block of a prompt first.
//!
//! After each prompt, the cache keeps those of the blocks seen so far that are needed again soonest. Of
//! blocks that the same prompt needs, it keeps those nearer to the beginning of that prompt, since a hit
//! is part of a leading run. A block that never comes again is not kept.
//!
//! I1. The hits of a prompt are counted before it changes the cache, as in a pool.

use std::collections::BinaryHeap;

/// No later prompt has the block.
const NEVER: u32 = u32::MAX;

/// The most blocks of leading runs that a cache of `capacity` blocks can hit if it knows all prompts.
/// Blocks are numbered below `distinct`.
#[must_use]
pub fn optimum<'p>(
    prompts: impl DoubleEndedIterator<Item = &'p [u32]> + ExactSizeIterator + Clone,
    distinct: usize,
    capacity: usize,
) -> u64 {
    // The next prompt of each block of each prompt; prompts and blocks are stored from the last to the first.
    let (mut next_of, mut nexts) = (vec![NEVER; distinct], Vec::new());
    for (number, ids) in prompts.clone().enumerate().rev() {
        for id in ids.iter().rev() {
            nexts.push(next_of[*id as usize]);
        }
        for id in ids {
            next_of[*id as usize] = number as u32;
        }
    }
    // For each block kept: the prompt that needs it next, and its depth there.
    let mut kept: Vec<Option<(u32, u32)>> = vec![None; distinct];
    let mut order: BinaryHeap<(u32, u32, u32)> = BinaryHeap::new();
    let (mut len, mut hits) = (0, 0);
    for ids in prompts {
        hits += ids.iter().take_while(|id| kept[**id as usize].is_some()).count() as u64;
        for (depth, id) in (0..).zip(ids) {
            let was_kept = &mut kept[*id as usize];
            let next = nexts.pop().unwrap_or(NEVER);
            let keep = (next != NEVER).then_some((next, depth));
            len = len + usize::from(keep.is_some()) - usize::from(was_kept.is_some());
            *was_kept = keep;
            order.extend(keep.map(|(next, depth)| (next, depth, *id)));
        }
        while len > capacity
            && let Some((next, depth, id)) = order.pop()
        {
            // The entry is stale if the block has been used since: it then has a newer one.
            if kept[id as usize] == Some((next, depth)) {
                kept[id as usize] = None;
                len -= 1;
            }
        }
    }
    hits
}
