//! Numbers as text: with `_` between digits, and K, M, G or T after them.

/// Parses a number of blocks or bytes; `K`, `M`, `G` and `T` are powers of 1024.
///
/// # Errors
/// The text is no such number, or it exceeds 64 bits.
pub fn scaled(text: &str) -> Result<u64, String> {
    let usage = "a whole number, optionally with K, M, G or T (powers of 1024): 65536, 64K, 64KiB";
    let lower = text.trim().to_ascii_lowercase();
    let digits_end = lower.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(lower.len());
    let (digits, unit) = lower.split_at(digits_end);
    let shift = match unit.trim() {
        "" | "b" => 0,
        "k" | "kb" | "ki" | "kib" => 10,
        "m" | "mb" | "mi" | "mib" => 20,
        "g" | "gb" | "gi" | "gib" => 30,
        "t" | "tb" | "ti" | "tib" => 40,
        _ => return Err(format!("not {usage}")),
    };
    let number: u64 = digits.replace('_', "").parse().map_err(|_| format!("not {usage}"))?;
    number.checked_mul(1 << shift).ok_or_else(|| "exceeds 64 bits".to_owned())
}

/// Parses a number of blocks.
///
/// # Errors
/// As [`scaled`], or the number exceeds 32 bits.
pub fn blocks(text: &str) -> Result<u32, String> {
    u32::try_from(scaled(text)?)
        .map_err(|_| format!("a tier has at most {} blocks", kvstrata_core::pool::MAX_CAPACITY))
}

/// Parses a number that fits 32 bits.
///
/// # Errors
/// As [`scaled`], or the number exceeds 32 bits.
pub fn count(text: &str) -> Result<u32, String> {
    u32::try_from(scaled(text)?).map_err(|_| "must be at most 4,294,967,295".to_owned())
}

/// Parses a number of bytes that fits the address space.
///
/// # Errors
/// As [`scaled`], or the number exceeds the address space.
pub fn bytes(text: &str) -> Result<usize, String> {
    usize::try_from(scaled(text)?).map_err(|_| "exceeds the address space".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_suffixes_are_powers_of_1024() {
        assert_eq!(scaled("65536"), Ok(65_536));
        for text in ["64K", "64k", "64KB", "64KiB", "64 kib", "65_536", "65536B"] {
            assert_eq!(scaled(text), Ok(65_536), "{text}");
        }
        assert_eq!((scaled("3M"), scaled("2G"), scaled("1T")), (Ok(3 << 20), Ok(2 << 30), Ok(1 << 40)));
    }

    #[test]
    fn wrong_number_is_refused_with_an_example() {
        for text in ["", "K", "-1", "1.5M", "12Q", "1e6", "0x10"] {
            assert!(scaled(text).expect_err(text).contains("64KiB"), "{text}");
        }
        assert_eq!(scaled("16777216T"), Err("exceeds 64 bits".to_owned()));
        assert!(blocks("4G").is_err() && count("4G").is_err());
        assert_eq!(count("1K"), Ok(1024));
    }
}
