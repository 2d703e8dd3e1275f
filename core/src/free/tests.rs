use super::*;
use alloc::collections::BTreeSet;
use alloc::vec;

fn allocate(map: &FreeMap, lane: usize, n: u32) -> Option<Vec<u32>> {
    let mut out = vec![];
    map.allocate(lane, n, |first, length| out.extend(first..first + length)).then_some(out)
}

#[test]
fn free_map_until_empty_hands_out_each_slot_once() {
    for capacity in [1, 63, 64, 65, 511, 512, 1000, 5000, 40_000] {
        for stripes in [1, 3, 8, 16] {
            let map = FreeMap::new(capacity, stripes);
            assert_eq!(map.available(), capacity as usize);
            let mut seen = BTreeSet::new();
            let mut lane = 0;
            while let Some(slots) = allocate(&map, lane, 1) {
                seen.extend(slots);
                lane += 1;
            }
            assert_eq!(seen.len(), capacity as usize, "capacity {capacity}, stripes {stripes}");
            assert_eq!(seen.last(), Some(&(capacity - 1)));
            map.free(seen.iter().copied());
            assert_eq!(map.available(), capacity as usize);
            assert!((0..capacity).all(|slot| map.is_free(slot)));
            let all = allocate(&map, 1, capacity).expect("all of it at once");
            assert_eq!(all.iter().copied().collect::<BTreeSet<_>>(), seen);
        }
    }
}

#[test]
fn free_map_asked_for_too_many_changes_nothing() {
    let map = FreeMap::new(100, 4);
    let held = allocate(&map, 0, 60).expect("60 of 100");
    assert!(allocate(&map, 0, 41).is_none());
    assert_eq!(map.available(), 40);
    map.free(held.iter().rev().copied());
    assert_eq!(map.available(), 100);
}

#[test]
fn free_map_with_all_slots_free_gives_whole_runs() {
    let map = FreeMap::new(4096, 1);
    let mut runs = vec![];
    assert!(map.allocate(0, 128, |first, length| runs.push((first, length))));
    assert_eq!(runs, [(0, 64), (64, 64)]);
}
