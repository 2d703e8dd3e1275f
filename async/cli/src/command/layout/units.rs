//! Numbers for people. Byte units are powers of ten, as is usual for models and their caches.

pub(super) use kvstrata::shared::figures::count;
use kvstrata::shared::figures::decimal;

/// `1 byte`, `2 bytes`.
pub(super) fn bytes(number: u64) -> String {
    plural(number, "byte")
}

/// `1 layer`, `80 layers`.
pub(super) fn plural(number: u64, word: &str) -> String {
    format!("{} {word}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Three digits and a unit, for a thousand bytes or more.
pub(super) fn rounded(number: u64) -> Option<String> {
    (number >= 1000).then(|| decimal(number))
}

/// All digits, then three digits with a unit: `5,242,880 bytes = 5.24 MB`.
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
    fn large_byte_count_has_a_rounded_form() {
        assert_eq!(both(5_242_880), "5,242,880 bytes = 5.24 MB");
        assert_eq!((both(1), both(256)), ("1 byte".to_owned(), "256 bytes".to_owned()));
        assert_eq!([999, 1000].map(rounded), [None, Some("1.00 kB".to_owned())]);
    }
}
