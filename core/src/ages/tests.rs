//! Stamps against a plain list of each block's state; the search against a sort of all.

use super::{Ages, ITERATION, Search};
use crate::id::{BlockId, BlockRef};
use crate::sync::{AtomicU32, Relaxed};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn block(id: u32, generation: u32) -> BlockRef {
    BlockRef { id: BlockId(id), generation }
}

fn candidates(ages: &Ages, now: u64, min_age: u32, limit: usize) -> Vec<BlockRef> {
    let mut out = Vec::new();
    ages.candidates(now, min_age, limit, &mut out);
    out
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Released { id: u32, generation: u32 },
    SetClean { id: u32, generation: u32 },
    SecondUse { id: u32, generation: u32 },
    Forget { id: u32, generation: u32 },
    Later(u64),
    Search { min_age: u32, limit: usize },
}

const BLOCKS: u32 = 12;

fn operation() -> impl Strategy<Value = Operation> {
    // One beyond the last, too.
    let block = || (0..BLOCKS + 1, 0u32..3);
    prop_oneof![
        6 => block().prop_map(|(id, generation)| Operation::Released { id, generation }),
        1 => block().prop_map(|(id, generation)| Operation::SetClean { id, generation }),
        2 => block().prop_map(|(id, generation)| Operation::SecondUse { id, generation }),
        1 => block().prop_map(|(id, generation)| Operation::Forget { id, generation }),
        4 => (0u64..5).prop_map(Operation::Later),
        2 => (0u32..20, 0usize..8).prop_map(|(min_age, limit)| Operation::Search { min_age, limit }),
    ]
}

#[derive(Clone, Copy)]
struct Naive {
    generation: u32,
    clean: bool,
    again: bool,
    used: u64,
}

proptest! {
    #[test]
    fn ages_under_random_operations_match_a_plain_list(
        // Iterations and generations begin before they wrap.
        first in prop_oneof![Just(0), ITERATION - 20..ITERATION + 20],
        oldest in prop_oneof![Just(0), Just(u32::MAX - 1), Just(u32::MAX)],
        operations in prop::collection::vec(operation(), 0..200),
    ) {
        let ages = Ages::new(BLOCKS);
        let mut naive: Vec<Option<Naive>> = vec![None; BLOCKS as usize];
        let mut now = first;
        for operation in operations {
            if let Operation::Released { id, generation }
            | Operation::SetClean { id, generation }
            | Operation::SecondUse { id, generation }
            | Operation::Forget { id, generation } = operation
            {
                let block = block(id, oldest.wrapping_add(generation));
                // A block beyond the last does not exist.
                let mut none = None;
                let known = naive.get_mut(id as usize);
                let there = known.is_some();
                let known = known.unwrap_or(&mut none);
                let late = known.is_some_and(|known| known.generation > generation);
                let same = known.filter(|known| known.generation == generation);
                let new = same.unwrap_or(Naive { generation, clean: false, again: false, used: now });
                match operation {
                    Operation::Released { .. } => {
                        ages.released(block, now);
                        if !late {
                            *known = Some(Naive { used: now, ..new });
                        }
                    }
                    Operation::SetClean { .. } => {
                        ages.set_clean(block);
                        if !late {
                            *known = Some(Naive { clean: true, ..new });
                        }
                    }
                    Operation::Forget { .. } => {
                        ages.forget(block);
                        if same.is_some() {
                            *known = None;
                        }
                    }
                    _ => {
                        let first = there && !late && !new.again;
                        prop_assert_eq!(ages.second_use(block, now), first);
                        if first {
                            *known = Some(Naive { again: true, used: now, ..new });
                        }
                    }
                }
            }
            match operation {
                Operation::Later(iterations) => now += iterations,
                Operation::Search { min_age, limit } => {
                    let dirty = |known: &Naive| !known.clean && now - known.used >= u64::from(min_age);
                    let mut expected: Vec<(u64, u32, u32)> = (0..BLOCKS)
                        .filter_map(|id| naive[id as usize].filter(dirty).map(|known| (known.used, id, known.generation)))
                        .collect();
                    expected.sort_unstable();
                    let expected = expected.iter().take(limit).map(|&(_, id, of)| block(id, oldest.wrapping_add(of)));
                    prop_assert_eq!(candidates(&ages, now, min_age, limit), expected.collect::<Vec<_>>());
                }
                _ => {}
            }
            for id in 0..BLOCKS {
                // A stamp by a mark alone has no use.
                if let Some(known) = naive[id as usize].filter(|known| !known.clean) {
                    prop_assert_eq!(ages.used(BlockId(id), now), known.used);
                }
                for generation in 0..3 {
                    let known = naive[id as usize].filter(|known| known.generation == generation);
                    let clean = known.is_some_and(|known| known.clean);
                    prop_assert_eq!(ages.is_clean(block(id, oldest.wrapping_add(generation))), clean);
                }
            }
        }
    }
}

/// More blocks than a chunk, in parts, with a search given up in between.
#[test]
fn search_after_a_pause_continues_where_it_stopped() {
    let blocks = 2 * Search::CHUNK as u32 + 5;
    let ages = Ages::new(blocks);
    let mut used: Vec<(u64, u32)> =
        (0..blocks).map(|id| (u64::from(id.wrapping_mul(2_654_435_761) >> 12), id)).collect();
    for &(iteration, id) in &used {
        ages.released(block(id, 7), iteration);
    }
    used.sort_unstable();
    let (mut search, mut out) = (Search::new(), Vec::new());
    assert!(search.go_on(&Ages::new(9), &mut out), "nothing to do");
    search.start(2 << 20, 0, 10);
    assert!(!search.go_on(&ages, &mut out));
    let (now, min_age) = (2 << 20, 3 << 19);
    for limit in [1, 100, 5000, blocks as usize] {
        search.start(now, min_age, limit);
        out.clear();
        let mut parts = 1;
        while !search.go_on(&ages, &mut out) {
            assert!(out.is_empty());
            parts += 1;
        }
        assert_eq!(parts, 3);
        let old = used.iter().take_while(|&&(iteration, _)| now - iteration >= u64::from(min_age));
        let expected: Vec<_> = old.take(limit).map(|&(_, id)| block(id, 7)).collect();
        assert_eq!(out, expected);
        assert!(out.len() < blocks as usize && !out.is_empty());
        assert!(search.kept.capacity() <= 4 * limit.max(10), "no more is kept than twice what is wanted");
    }
    assert!(search.go_on(&ages, &mut out), "it has ended");
}

/// The one stamp that would equal the stamp of no block.
#[test]
fn stamp_of_all_ones_differs_from_no_block() {
    let ages = Ages::new(1);
    let block = block(0, u32::MAX);
    assert!(!ages.is_clean(block) && ages.second_use(block, ITERATION));
    ages.set_clean(block);
    assert!(ages.is_clean(block) && !ages.second_use(block, ITERATION));
}

/// Two threads mark the same generation at the same time: one of them is the first.
#[test]
fn marks_from_two_threads_have_one_first_and_none_lost() {
    const ROUNDS: u32 = if cfg!(miri) { 50 } else { 20_000 };
    let (ages, begun) = (Ages::new(1), AtomicU32::new(0));
    let firsts: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let firsts = (0..ROUNDS).filter(|&of| {
                        ages.released(block(0, of), 1);
                        begun.fetch_add(1, Relaxed);
                        for spins in 1.. {
                            if begun.load(Relaxed) >= 2 * (of + 1) {
                                break;
                            }
                            match spins % 1000 {
                                0 => std::thread::yield_now(),
                                _ => std::hint::spin_loop(),
                            }
                        }
                        ages.second_use(block(0, of), 2)
                    });
                    firsts.count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(firsts, ROUNDS as usize);
}
