//! Thousands of seeds, or those that the environment names.

use crate::world::{Outcome, run};
use std::cell::RefCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// In CI.
const SEEDS: Range<u64> = 0..2000;

thread_local! {
    /// What the last panic of this thread said: a mover's task ends silently with it.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn listen_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let first = PANIC.with(|panic| {
                let first = panic.borrow().is_none();
                panic.borrow_mut().get_or_insert_with(|| info.to_string());
                first
            });
            if first {
                usual(info);
            }
        }));
    });
}

/// What a seed does, panics included.
pub fn outcome(seed: u64, tell: bool) -> Result<Outcome, String> {
    listen_for_panics();
    PANIC.with(|panic| panic.borrow_mut().take());
    let ran = catch_unwind(AssertUnwindSafe(|| run(seed, tell)));
    if let Some(panic) = PANIC.with(|panic| panic.borrow_mut().take()) {
        return Err(panic);
    }
    let outcome = ran.map_err(|_| "a panic".to_owned())?;
    match outcome.violation {
        Some(what) => Err(what),
        None => Ok(outcome),
    }
}

/// One seed, or a range of them.
fn seeds() -> (Range<u64>, bool) {
    let number = |text: &str| {
        text.trim().parse::<u64>().expect("KVSTRATA_SEED and KVSTRATA_SEEDS are numbers, or A..B")
    };
    if let Ok(seed) = std::env::var("KVSTRATA_SEED") {
        let seed = number(&seed);
        return (seed..seed + 1, true);
    }
    match std::env::var("KVSTRATA_SEEDS") {
        Err(_) => (SEEDS, false),
        Ok(text) => match text.split_once("..") {
            Some((first, end)) => (number(first)..number(end), false),
            None => (0..number(&text), false),
        },
    }
}

#[test]
fn no_seed_serves_a_wrong_byte_loses_a_block_or_hangs() {
    let (seeds, tell) = seeds();
    let next = AtomicU64::new(seeds.start);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut moved = [0; 4];
    let mut failed: Vec<(u64, String)> = std::thread::scope(|scope| {
        let work = || {
            let (mut failed, mut moved) = (Vec::new(), [0; 4]);
            loop {
                // Relaxed: a number for each thread, no more.
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end || failed.len() > 20 {
                    return (failed, moved);
                }
                match outcome(seed, tell) {
                    Ok(of) => moved.iter_mut().zip(of.counts).for_each(|(moved, of)| *moved += of),
                    Err(what) => failed.push((seed, what)),
                }
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().map(|worker| worker.join().expect("no panic"));
        ended
            .flat_map(|(failed, of)| {
                moved.iter_mut().zip(of).for_each(|(moved, of)| *moved += of);
                failed
            })
            .collect()
    });
    failed.sort();
    for (seed, what) in &failed {
        println!(
            "KVSTRATA_SEED={seed} cargo test -p kvstrata --test simulation seeds -- --nocapture\n    {what}"
        );
    }
    assert!(failed.is_empty(), "{} seeds failed", failed.len());
    println!("{} seeds; transfers by path {moved:?}", seeds.end - seeds.start);
}

#[test]
fn a_seed_does_the_same_each_time_on_any_thread() {
    for seed in 0..100 {
        let once = outcome(seed, false);
        let again =
            std::thread::scope(|scope| scope.spawn(|| outcome(seed, false)).join().expect("no panic"));
        assert_eq!(once, again, "seed {seed}");
    }
}
