//! Which seeds a simulation runs, and how: all cores take the next one, until there are none left or many have failed.
//!
//! | variable | seeds |
//! |---|---|
//! | `KVSTRATA_SEED=17` | that one, and it tells what it does |
//! | `KVSTRATA_SEEDS=100000` | the first so many |
//! | `KVSTRATA_SEEDS=500..900` | those |
//! | none | the simulation's own range |

use std::env;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// So many failed seeds of a thread are enough to look at.
const ENOUGH: usize = 20;

/// What is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seeds {
    /// Which.
    pub seeds: Range<u64>,
    /// Whether each tells what it does.
    pub tell: bool,
}

impl Seeds {
    /// What the environment asks for; `usual` if it asks for nothing.
    ///
    /// # Panics
    /// Where it asks for something that is no number.
    #[must_use]
    pub fn asked(usual: Range<u64>) -> Seeds {
        let variable = |name| env::var(name).ok();
        Seeds::of(variable("KVSTRATA_SEED").as_deref(), variable("KVSTRATA_SEEDS").as_deref(), usual)
    }

    fn of(one: Option<&str>, several: Option<&str>, usual: Range<u64>) -> Seeds {
        let number = |text: &str| {
            text.trim().parse::<u64>().expect("KVSTRATA_SEED and KVSTRATA_SEEDS are numbers, or A..B")
        };
        if let Some(seed) = one.map(number) {
            return Seeds { seeds: seed..seed + 1, tell: true };
        }
        let seeds = match several {
            None => usual,
            Some(text) => match text.split_once("..") {
                Some((first, end)) => number(first)..number(end),
                None => 0..number(text),
            },
        };
        Seeds { seeds, tell: false }
    }

    /// Runs them on all cores: `one` is given a seed and whether it is to tell, and gives what was wrong with it. Prints how many there
    /// were, or those that failed, in order, each with the `command` that runs it again.
    ///
    /// # Panics
    /// Where a seed failed, or none was asked for.
    pub fn run(self, command: &str, one: impl Fn(u64, bool) -> Result<(), String> + Sync) {
        let Seeds { seeds, tell } = self;
        assert!(!seeds.is_empty(), "KVSTRATA_SEEDS {seeds:?}: no seed; the first is to be below the end");
        let next = AtomicU64::new(seeds.start);
        let work = || {
            let mut failed = Vec::new();
            while failed.len() <= ENOUGH {
                // Relaxed: a number for each thread, no more.
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    break;
                }
                if let Err(what) = one(seed, tell) {
                    failed.push((seed, what));
                }
            }
            failed
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let mut failed: Vec<(u64, String)> = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
        });
        failed.sort();
        for (seed, what) in &failed {
            println!("KVSTRATA_SEED={seed} {command}\n    {what}");
        }
        assert!(failed.is_empty(), "{} seeds failed, {} the first", failed.len(), failed[0].0);
        println!("{} seeds", seeds.end - seeds.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn the_environment_names_one_the_first_or_a_range() {
        let of = |one, several| Seeds::of(one, several, 0..7);
        assert_eq!(of(None, None), Seeds { seeds: 0..7, tell: false });
        assert_eq!(of(Some(" 17 "), Some("9")), Seeds { seeds: 17..18, tell: true });
        assert_eq!(of(None, Some("9")), Seeds { seeds: 0..9, tell: false });
        assert_eq!(of(None, Some("5..9")), Seeds { seeds: 5..9, tell: false });
        for wrong in ["", "a", "5..", "-1"] {
            assert!(catch_unwind(|| of(None, Some(wrong))).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn each_seed_runs_once_and_one_that_fails_is_told() {
        let seen: Vec<AtomicU64> = (0..100).map(|_| AtomicU64::new(0)).collect();
        let run = |bad: u64| {
            let one = |seed: u64, tell: bool| {
                seen[seed as usize].fetch_add(1, Ordering::Relaxed);
                assert!(!tell);
                if seed == bad { Err("as a test".to_owned()) } else { Ok(()) }
            };
            catch_unwind(AssertUnwindSafe(|| Seeds { seeds: 10..100, tell: false }.run("again", one)))
        };
        run(1000).expect("all are well");
        let counts = || seen.iter().map(|seen| seen.load(Ordering::Relaxed)).collect::<Vec<_>>();
        assert!(
            counts()[..10].iter().all(|count| *count == 0) && counts()[10..].iter().all(|count| *count == 1)
        );
        let panic = run(42).expect_err("one is not");
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("1 seeds failed, 42 the first"));
        let none = Seeds { seeds: 7..7, tell: false };
        assert!(catch_unwind(|| none.run("again", |_, _| Ok(()))).is_err());
    }
}
