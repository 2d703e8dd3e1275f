//! Options whose value is one of a list.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

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
