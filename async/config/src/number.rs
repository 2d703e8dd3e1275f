//! Numbers as people type them: with `_` between digits, and K, M, G or T behind them.

/// Parses a count: `K`, `M`, `G` and `T` are powers of 1024, as blocks and bytes come in.
pub fn scaled(text: &str) -> Result<u64, String> {
    let usage = "a whole number, with K, M, G or T (powers of 1024) behind it if you like: 65536, 64K, 64KiB";
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
    number.checked_mul(1 << shift).ok_or_else(|| "more than 64 bits hold".to_owned())
}

/// A number of blocks.
pub fn blocks(text: &str) -> Result<u32, String> {
    u32::try_from(scaled(text)?)
        .map_err(|_| format!("a tier has {} blocks at most", kvstrata_core::pool::MAX_CAPACITY))
}

/// A number of anything that 32 bits count.
pub fn count(text: &str) -> Result<u32, String> {
    u32::try_from(scaled(text)?).map_err(|_| "must be at most 4,294,967,295".to_owned())
}

/// A number of bytes that memory can hold.
pub fn bytes(text: &str) -> Result<usize, String> {
    usize::try_from(scaled(text)?).map_err(|_| "more than memory can hold".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        assert_eq!(scaled("65536"), Ok(65_536));
        for text in ["64K", "64k", "64KB", "64KiB", "64 kib", "65_536", "65536B"] {
            assert_eq!(scaled(text), Ok(65_536), "{text}");
        }
        assert_eq!((scaled("3M"), scaled("2G"), scaled("1T")), (Ok(3 << 20), Ok(2 << 30), Ok(1 << 40)));
    }

    #[test]
    fn what_is_no_number_is_refused_with_an_example() {
        for text in ["", "K", "-1", "1.5M", "12Q", "1e6", "0x10"] {
            assert!(scaled(text).expect_err(text).contains("64KiB"), "{text}");
        }
        assert_eq!(scaled("16777216T"), Err("more than 64 bits hold".to_owned()));
        assert!(blocks("4G").is_err() && count("4G").is_err());
        assert_eq!(count("1K"), Ok(1024));
    }
}
