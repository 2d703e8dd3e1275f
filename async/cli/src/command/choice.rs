//! Options that take one value of a list.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use kvstrata_core::Policy;

/// Parses a name of one of `all`. `words` describes each for the help.
pub(super) fn choice<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
    words: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let value = move |of: &T| match words(*of) {
        "" => PossibleValue::new(name(*of)),
        words => PossibleValue::new(name(*of)).help(words),
    };
    PossibleValuesParser::new(all.iter().map(value)).try_map(move |given: String| {
        all.iter().copied().find(|of| name(*of) == given).ok_or("none of the possible values")
    })
}

/// Eviction policies.
pub(super) fn policies() -> impl TypedValueParser<Value = Policy> {
    choice(&Policy::ALL, Policy::name, |policy| match policy {
        Policy::Lru => "The least recently released block, exactly",
        Policy::Lfu => "The least frequently used block, with ageing (LFU-DA)",
        Policy::Sieve => "The first block not used since the hand last passed it (SIEVE, NSDI '24)",
        Policy::S3Fifo => "Blocks used once, before all others (S3-FIFO, SOSP '23)",
        Policy::Arc => "Blocks used once or blocks used again; recent misses set the balance (ARC, FAST '03)",
        Policy::TwoQ => {
            "New blocks while they exceed a quarter of the tier, else returned blocks by LRU (2Q, VLDB '94)"
        }
        Policy::Reuse => {
            "The block with the fewest expected hits per time of residence, learned from conversation turns"
        }
    })
}
