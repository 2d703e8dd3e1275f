//! Numbers for people. Bytes are counted in powers of ten here: models and their caches are.

use indicatif::HumanCount;

/// A whole number, in groups of three digits.
pub(super) fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// `1 byte`, `2 bytes`.
pub(super) fn bytes(number: u64) -> String {
    plural(number, "byte")
}

/// `1 layer`, `80 layers`.
pub(super) fn plural(number: u64, word: &str) -> String {
    format!("{} {word}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Three digits and a unit, from a thousand bytes on.
pub(super) fn rounded(number: u64) -> Option<String> {
    let mut value = number as f64;
    let mut units = ["kB", "MB", "GB", "TB", "PB", "EB"].into_iter();
    let mut unit = None;
    while value >= 999.5 {
        value /= 1000.0;
        unit = Some(units.next()?);
    }
    let digits = match value {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    unit.map(|unit| format!("{value:.digits$} {unit}"))
}

/// All digits, and three of them: `5,242,880 bytes = 5.24 MB`.
pub(super) fn both(number: u64) -> String {
    match rounded(number) {
        Some(rounded) => format!("{} = {rounded}", bytes(number)),
        None => bytes(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_rounded() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(both(5_242_880), "5,242,880 bytes = 5.24 MB");
        assert_eq!((both(1), both(256)), ("1 byte".to_owned(), "256 bytes".to_owned()));
        assert_eq!(rounded(u64::MAX).as_deref(), Some("18.4 EB"));
        assert_eq!([81_920, 999_999].map(rounded), [Some("81.9 kB".to_owned()), Some("1.00 MB".to_owned())]);
    }
}
