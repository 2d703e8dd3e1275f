//! Eviction policies in a laboratory: the hits of each over a trace, without a thread, a byte of payload
//! or a second tier.
//!
//! ```text
//!   trace ─► a pool of the core ─► its policies         as they ship; docs/decisions/015-reuse-prediction.md
//!        ├─► classic policies, a block at a time       by their papers
//!        └─► exact LRU, and the offline optimum        the two ends
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `traffic.rs` | a trace, its blocks renumbered |
//! | `pool.rs` | a pool of the core |
//! | `threads.rs` | the same for several threads at once |
//! | `classic.rs` | LRU, LFU, SIEVE, S3-FIFO, ARC, 2Q |
//! | `optimum.rs` | exact LRU, and the optimum |
//! | `told.rs` | the worth of a caller's hints |
//! | `made_up/` | traces on which reuse must not fall behind LRU |
//!
//! I1. The same trace and capacity give the same counts: only `threads.rs` uses the machine's
//!     time, threads or random numbers.

pub mod classic;
pub mod made_up;
pub mod optimum;
pub mod pool;
pub mod threads;
pub mod told;
pub mod traffic;

#[cfg(test)]
mod tests {
    use super::classic::Classic;
    use super::traffic::Trace;
    use super::{made_up, optimum, pool};
    use kvstrata_cli::trace::TraceSource;
    use kvstrata_core::Policy;

    #[test]
    fn bundled_trace_has_the_recorded_counts() {
        let trace = Trace::read(TraceSource::Bundled).expect("the bundled trace");
        let classic = Classic::ALL.map(|(_, classic)| classic.hits(&trace, 1000));
        assert_eq!(classic, [12_847, 12_900, 13_871, 16_041, 15_275, 15_615, 21_803]);
        assert_eq!(optimum::lru(&trace, 1000), 12_847);
        let [lru, reuse] =
            [Policy::Lru, Policy::Reuse].map(|policy| pool::run(&trace, policy, 1000, false).hits);
        assert_eq!((lru, reuse), (12_847, 21_288));
        assert_eq!(optimum::optimum(&trace, 1000), 55_019);
    }

    /// A pool that holds all distinct blocks evicts none, and hits every block that was there before.
    #[test]
    fn pool_for_everything_has_the_hits_of_the_optimum() {
        for trace in made_up::other(0) {
            let all = pool::run(&trace, Policy::Reuse, trace.distinct, false);
            assert_eq!(all.evictions, 0, "{}", trace.name);
            assert_eq!(all.hits, optimum::optimum(&trace, trace.distinct), "{}", trace.name);
        }
    }
}
