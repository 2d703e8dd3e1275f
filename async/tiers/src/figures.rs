//! Numbers as people read them.

/// Formats a whole number in groups of three digits.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a value in three digits and the unit that fits; each unit is `step` times the one before. The
/// first unit has no decimals.
pub fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", units[unit])
}

/// Formats bytes in powers of 1024, as for memory and disks.
pub fn binary(bytes: f64) -> String {
    scaled(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// Formats bytes in powers of ten, as for models and their caches.
pub fn decimal(bytes: u64) -> String {
    scaled(bytes as f64, 1000.0, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped() {
        let counts = [0, 999, 1000, 288_500, 12_345_678].map(count);
        assert_eq!(counts, ["0", "999", "1,000", "288,500", "12,345,678"]);
    }

    #[test]
    fn bytes_have_three_digits() {
        let printed = [0.0, 999.0, 1000.0, 65_536.0, 1e6, 1.5e9, 1e30].map(binary);
        assert_eq!(printed[..6], ["0 B", "999 B", "0.98 KiB", "64.0 KiB", "977 KiB", "1.40 GiB"]);
        assert!(printed[6].ends_with(" EiB"));
        let printed = [999, 1000, 81_920, 999_999, u64::MAX].map(decimal);
        assert_eq!(printed, ["999 B", "1.00 kB", "81.9 kB", "1.00 MB", "18.4 EB"]);
    }
}
