//! Blocks that the filters admit, forget and mistake.

use super::*;

fn hash(number: u64) -> SequenceHash {
    // Without any mixing: the worst hashes that a caller can have.
    SequenceHash::from_u128(u128::from(number))
}

fn filter(policy: AdmissionPolicy, blocks: u32) -> Admission {
    Admission::new(policy, blocks, 1)
}

#[test]
fn policies_are_found_by_their_names() {
    for policy in AdmissionPolicy::ALL {
        assert_eq!(policy.name().parse(), Ok(policy));
    }
    let error = "twice".parse::<AdmissionPolicy>().expect_err("none of that name").to_string();
    assert!(error.contains("\"twice\"") && error.contains("use always, second-use or tinylfu"), "{error}");
}

#[test]
fn always_admits_unused_blocks() {
    let filter = filter(AdmissionPolicy::Always, 10);
    assert!(filter.admits(hash(1), true) && filter.admits(hash(2), false));
    assert_eq!(filter.memory_bytes(), 0);
}

#[test]
fn second_use_is_admitted_and_the_first_hardly_ever() {
    let blocks = 20_000;
    let filter = filter(AdmissionPolicy::SecondUse, blocks);
    // As full as a filter gets before it forgets: 2 × blocks insertions each.
    let used = u64::from(2 * blocks) - 1;
    (0..used).for_each(|number| filter.used(hash(number)));
    let mistaken = (0..used).filter(|number| filter.admits(hash(*number), true)).count();
    assert!(mistaken as f64 / (used as f64) < 0.005, "{mistaken} of {used}");
    let twice = 12_345;
    filter.used(hash(twice));
    assert!(filter.admits(hash(twice), true) && filter.admits(hash(twice), false));
    assert!(!filter.admits(hash(used + 1), true), "never used");
}

#[test]
fn second_use_window_is_two_to_four_times_the_blocks() {
    let blocks = 5000;
    let between = |uses: u64| {
        let filter = filter(AdmissionPolicy::SecondUse, blocks);
        (0..3000).for_each(|number| filter.used(hash(number)));
        (0..uses).for_each(|number| filter.used(hash(1 << 40 | number)));
        (0..3000).for_each(|number| filter.used(hash(number)));
        (0..3000).filter(|number| filter.admits(hash(*number), true)).count()
    };
    assert_eq!(between(u64::from(2 * blocks) - 3000), 3000, "the last 2 × blocks uses are remembered");
    // The rest are mistakes: a key that looks known is not inserted, and takes its second place at once.
    assert!(between(u64::from(4 * blocks)) < 60, "and not more than 4 × blocks");
}

#[test]
fn tinylfu_fills_the_tier_and_then_prefers_the_frequent() {
    let filter = filter(AdmissionPolicy::TinyLfu, 1000);
    assert!(filter.admits(hash(1), false), "there is room");
    assert!(filter.admits(hash(1), true), "nobody had to leave yet");
    (0..3).for_each(|_| filter.used(hash(7)));
    filter.evicted(hash(7));
    filter.used(hash(1));
    assert!(!filter.admits(hash(1), true), "used once, the victim three times");
    assert!(filter.admits(hash(1), false), "nothing has to leave");
    (0..2).for_each(|_| filter.used(hash(1)));
    assert!(!filter.admits(hash(1), true), "as often is not more often");
    filter.used(hash(1));
    assert!(filter.admits(hash(1), true), "four times");
}

#[test]
fn frequent_blocks_age() {
    let filter = filter(AdmissionPolicy::TinyLfu, 1024);
    (0..12).for_each(|_| filter.used(hash(7)));
    filter.evicted(hash(7));
    (0..5).for_each(|_| filter.used(hash(8)));
    assert!(!filter.admits(hash(8), true));
    // Others' uses, until all counts have been halved several times; the doorkeeper forgets meanwhile.
    (0..100_000).for_each(|use_| filter.used(hash(1000 + use_ % 50)));
    (0..5).for_each(|_| filter.used(hash(8)));
    assert!(filter.admits(hash(8), true));
}

#[test]
fn filter_memory_is_as_the_table_says() {
    let a_block = |policy, blocks| filter(policy, blocks).memory_bytes() as f64 / f64::from(blocks);
    assert!((7.9..8.1).contains(&a_block(AdmissionPolicy::SecondUse, 100_000)));
    for blocks in [65_536, 65_537, 100_000, 131_072] {
        assert!((15.9..24.1).contains(&a_block(AdmissionPolicy::TinyLfu, blocks)), "{blocks}");
    }
}

#[test]
fn filter_shared_by_threads_loses_no_use() {
    let filter = filter(AdmissionPolicy::SecondUse, 50_000);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let filter = &filter;
            scope.spawn(move || {
                let mine = |number: u64| hash(thread << 32 | number);
                (0..4000).chain(0..4000).for_each(|number| filter.used(mine(number)));
            });
        }
    });
    let admitted = (0..4).flat_map(|thread| (0..4000).map(move |number| hash(thread << 32 | number)));
    assert_eq!(admitted.filter(|hash| filter.admits(*hash, true)).count(), 16_000);
}
