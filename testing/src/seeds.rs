//! The seeds of a simulation, and their run: each core takes the next seed, until none is left or many
//! have failed.
//!
//! | variable | seeds |
//! |---|---|
//! | `KVSTRATA_SEED=17` | this one, with a log of its steps |
//! | `KVSTRATA_SEEDS=100000` | the first so many |
//! | `KVSTRATA_SEEDS=500..900` | this range |
//! | `KVSTRATA_COMMIT=058ae75…` | the simulation's own range, and [`NEW`] others for each commit (CI) |
//! | none | the simulation's own range |

use std::env;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// So many failed seeds of a thread are enough for a report.
const ENOUGH: usize = 20;

/// The number of a commit's seeds.
pub const NEW: u64 = 2000;

/// The seeds to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seeds {
    /// The range.
    pub seeds: Range<u64>,
    /// Those of the commit; none if it is not known, or if the environment requests others.
    pub new: Range<u64>,
    /// Whether each seed logs its steps.
    pub tell: bool,
}

impl Seeds {
    /// Reads the seeds that the environment requests; `usual` if it requests none.
    ///
    /// # Panics
    /// If it requests something that is no number.
    #[must_use]
    pub fn asked(usual: Range<u64>) -> Seeds {
        let variable = |name| env::var(name).ok();
        let asked = [variable("KVSTRATA_SEED"), variable("KVSTRATA_SEEDS"), variable("KVSTRATA_COMMIT")];
        let [one, several, commit] = asked.each_ref().map(Option::as_deref);
        Seeds::of(one, several, commit, usual)
    }

    fn of(one: Option<&str>, several: Option<&str>, commit: Option<&str>, usual: Range<u64>) -> Seeds {
        let number = |text: &str| {
            text.trim().parse::<u64>().expect("KVSTRATA_SEED and KVSTRATA_SEEDS are numbers, or A..B")
        };
        if let Some(seed) = one.map(number) {
            return Seeds { seeds: seed..seed + 1, new: 0..0, tell: true };
        }
        let (seeds, new) = match several {
            None => (usual, commit.map_or(0..0, new)),
            Some(text) => match text.split_once("..") {
                Some((first, end)) => (number(first)..number(end), 0..0),
                None => (0..number(text), 0..0),
            },
        };
        Seeds { seeds, new, tell: false }
    }

    /// Runs the seeds on all cores. `one` gets a seed and whether it is to log its steps, and returns an
    /// error with the fault that it found. Prints the number of seeds, or those that failed, in order,
    /// each with the `command` that runs it again.
    ///
    /// # Panics
    /// If a seed failed, or there was none to run.
    pub fn run(self, command: &str, one: impl Fn(u64, bool) -> Result<(), String> + Sync) {
        let Seeds { seeds, new, tell } = self;
        assert!(!seeds.is_empty(), "KVSTRATA_SEEDS {seeds:?}: no seed; the first is to be below the end");
        if !new.is_empty() {
            println!("new seeds of KVSTRATA_COMMIT: KVSTRATA_SEEDS={}..{}", new.start, new.end);
        }
        let all = seeds.end - seeds.start + (new.end - new.start);
        let seed_of = |place: u64| match seeds.start + place {
            seed if seed < seeds.end => seed,
            beyond => new.start + (beyond - seeds.end),
        };
        let next = AtomicU64::new(0);
        let work = || {
            let mut failed = Vec::new();
            while failed.len() <= ENOUGH {
                // Relaxed: it hands out numbers and publishes nothing.
                let place = next.fetch_add(1, Ordering::Relaxed);
                if place >= all {
                    break;
                }
                let seed = seed_of(place);
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
        println!("{all} seeds");
    }
}

/// Returns the seeds of a commit, by its hash or any prefix of ten or more hexadecimal digits.
fn new(commit: &str) -> Range<u64> {
    let digits = commit.trim().get(..10).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let hash = digits.expect("KVSTRATA_COMMIT is a commit's hash, of ten hexadecimal digits or more");
    // 40 bits, by 2,000: above the simulations' own ranges, and far below the end of all seeds.
    let first = (hash + 1) * NEW;
    first..first + NEW
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn environment_names_one_seed_the_first_or_a_range() {
        let of = |one, several| Seeds::of(one, several, None, 0..7);
        let only = |seeds, tell| Seeds { seeds, new: 0..0, tell };
        assert_eq!(of(None, None), only(0..7, false));
        assert_eq!(of(Some(" 17 "), Some("9")), only(17..18, true));
        assert_eq!(of(None, Some("9")), only(0..9, false));
        assert_eq!(of(None, Some("5..9")), only(5..9, false));
        for wrong in ["", "a", "5..", "-1"] {
            assert!(catch_unwind(|| of(None, Some(wrong))).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn commit_adds_seeds_of_its_own() {
        let of = |commit| Seeds::of(None, None, Some(commit), 0..7);
        let first = of("058ae75d21f3c0ffee");
        assert_eq!((first.seeds.clone(), first.new.end - first.new.start), (0..7, NEW));
        assert!(first.new.start >= NEW, "none of the usual ones");
        assert_eq!(first, of("058ae75d21"));
        let next = of("058ae75d22");
        assert_eq!(next.new.start, first.new.end, "no seed is another commit's");
        assert_eq!(Seeds::of(Some("3"), None, Some("058ae75d21"), 0..7).new, 0..0);
        for wrong in ["", "058ae", "HEAD-of-main"] {
            assert!(catch_unwind(|| of(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn new_seeds_run_behind_the_usual_ones() {
        let seen = std::sync::Mutex::new(Vec::new());
        let one = |seed, _| {
            seen.lock().expect("no panic").push(seed);
            Ok(())
        };
        Seeds { seeds: 3..5, new: 70..72, tell: false }.run("again", one);
        let mut seen = seen.into_inner().expect("no panic");
        seen.sort_unstable();
        assert_eq!(seen, [3, 4, 70, 71]);
    }

    #[test]
    fn each_seed_runs_once_and_a_failing_one_is_named() {
        let seen: Vec<AtomicU64> = (0..100).map(|_| AtomicU64::new(0)).collect();
        let run = |bad: u64| {
            let one = |seed: u64, tell: bool| {
                seen[seed as usize].fetch_add(1, Ordering::Relaxed);
                assert!(!tell);
                if seed == bad { Err("as a test".to_owned()) } else { Ok(()) }
            };
            catch_unwind(AssertUnwindSafe(|| {
                Seeds { seeds: 10..100, new: 0..0, tell: false }.run("again", one)
            }))
        };
        run(1000).expect("all are well");
        let counts = || seen.iter().map(|seen| seen.load(Ordering::Relaxed)).collect::<Vec<_>>();
        assert!(
            counts()[..10].iter().all(|count| *count == 0) && counts()[10..].iter().all(|count| *count == 1)
        );
        let panic = run(42).expect_err("one is not");
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("1 seeds failed, 42 the first"));
        let none = Seeds { seeds: 7..7, new: 0..0, tell: false };
        assert!(catch_unwind(|| none.run("again", |_, _| Ok(()))).is_err());
    }
}
