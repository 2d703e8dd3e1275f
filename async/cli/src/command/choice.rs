//! Options whose value is one of a list.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use kvstrata_core::Policy;

/// Takes the names of `all`; the help says of each what `words` do.
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
        Policy::Lru => "The least recently released, exactly",
        Policy::Lfu => "The least frequently used, with ageing (LFU-DA)",
        Policy::Sieve => {
            "The first that a hand comes to which was not used since it passed (SIEVE, NSDI '24)"
        }
        Policy::S3Fifo => "Those that were used once, before the others (S3-FIFO, SOSP '23)",
        Policy::Arc => {
            "Those used once or those used again, as what was missed lately teaches (ARC, FAST '03)"
        }
        Policy::TwoQ => "What is new, but for a quarter; what came back after that, by LRU (2Q, VLDB '94)",
        Policy::Reuse => {
            "Of the least expected hits for time of residence, as learned from turns of conversations"
        }
    })
}
