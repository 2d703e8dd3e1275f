//! The seeds, and that each does the same twice.

use crate::world::run;
use kvstrata_testing::seeds::Seeds;
use std::cell::RefCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const REPLAY: &str = "cargo test -p kvstrata-store --test simulation seeds -- --nocapture";
/// The seeds of CI.
const SEEDS: Range<u64> = 0..3000;

thread_local! {
    /// The message of this thread's first panic: a task of the simulated hardware ends silently with it.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn listen_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANIC.with(|panic| panic.borrow_mut().get_or_insert_with(|| info.to_string()).len());
            usual(info);
        }));
    });
}

/// Runs a seed. A panic is an error, too.
fn outcome(seed: u64, tell: bool) -> Result<(Vec<String>, u64), String> {
    listen_for_panics();
    PANIC.with(|panic| panic.borrow_mut().take());
    let ran = catch_unwind(AssertUnwindSafe(|| run(seed, tell)));
    match PANIC.with(|panic| panic.borrow_mut().take()) {
        Some(panic) => Err(panic),
        None => ran.map_err(|_| "a panic".to_owned()),
    }
}

#[test]
fn no_seed_loads_a_wrong_byte_or_keeps_memory() {
    let (loaded, seeds) = (AtomicU64::new(0), Seeds::asked(SEEDS));
    let several = seeds.seeds.clone().count() >= 1000;
    seeds.run(REPLAY, |seed, tell| {
        let (_, of) = outcome(seed, tell)?;
        loaded.fetch_add(of, Relaxed);
        Ok(())
    });
    assert!(!several || loaded.into_inner() > 10_000, "the callers hardly loaded anything");
}

#[test]
fn seed_does_the_same_twice() {
    for seed in [1, 7, 42] {
        assert_eq!(outcome(seed, false), outcome(seed, false));
    }
}
