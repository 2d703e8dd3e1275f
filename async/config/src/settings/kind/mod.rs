//! The kinds of values: how a value is read, which values are allowed, and how a value is written so that
//! reading gives it back.
//!
//! | kind | value | notation |
//! |---|---|---|
//! | [`Number`] | `u32`, `u64` | `65536`, `64K` |
//! | [`Bytes`] | `u64` | `4G`, `64KiB`, `4096` |
//! | [`Sizes`] | a list of `u64` | `["64K", "2M"]`; in variables separated by commas |
//! | [`Fraction`] | `f64` | `0.85`, `"85%"` |
//! | [`Time`] | `Duration` | `"250ms"`, `"1m"` |
//! | [`Flag`] | `bool` | `true`; in variables also `1`, `yes`, `on` |
//! | [`Word`] | a [`Named`] type | `"lru"` |
//! | [`Text`], [`File`] | `String`, `PathBuf` | `"/mnt/a"` |
//! | [`Files`] | a list of `PathBuf` | `["/mnt/a", "/mnt/b"]`; in variables separated by commas |
//! | [`Address`] | `SocketAddr` | `"127.0.0.1:9400"`, `"localhost:9400"` |
//! | [`LayerList`] | layers of a model | `"0-31"`, `"1-35/2"`, `[0, 1, 5]` |
//! | [`Maybe`] | `Option` of another kind | `"none"`, or as the other kind |
//!
//! I1. An allowed value is written as TOML that reads as the same value: `read(toml(value)) == value`.

mod text;

pub(super) use text::{Address, File, Files, LayerList, Named, Text, Word, quoted};

use super::raw::Raw;
use crate::number;
use std::time::Duration;

/// The kind of values that a setting takes.
pub(super) trait Kind<T> {
    /// Reads a value of the right type, which may be outside the allowed range.
    fn read(&self, raw: &Raw<'_>) -> Option<T>;
    /// Whether the value is allowed.
    fn holds(&self, value: &T) -> bool;
    /// The value as TOML.
    fn toml(&self, value: &T) -> String;
    /// The allowed values, in words that follow "must be".
    fn allowed(&self) -> String;
    /// The type's name in the reference.
    fn name(&self) -> &'static str;
    /// The unit of the value; empty if it has none.
    fn unit(&self) -> &'static str {
        ""
    }
    /// An allowed value.
    #[cfg(test)]
    fn sample(&self, random: u64) -> T;
}

/// A whole number of something.
pub(super) struct Number {
    pub(super) least: u64,
    pub(super) most: u64,
    pub(super) unit: &'static str,
}

impl Number {
    fn parse(raw: &Raw<'_>) -> Option<u64> {
        match raw {
            Raw::Integer(number) => u64::try_from(*number).ok(),
            Raw::Text(text) => number::scaled(text).ok(),
            _ => None,
        }
    }
}

impl Kind<u64> for Number {
    fn read(&self, raw: &Raw<'_>) -> Option<u64> {
        Number::parse(raw)
    }
    fn holds(&self, value: &u64) -> bool {
        (self.least..=self.most).contains(value)
    }
    fn toml(&self, value: &u64) -> String {
        value.to_string()
    }
    fn allowed(&self) -> String {
        let Number { least, most, unit } = self;
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        let example = if *most > 65_536 { ", such as 64K" } else { "" };
        format!("a number from {least} to {most}{unit}{example}")
    }
    fn name(&self) -> &'static str {
        "number"
    }
    fn unit(&self) -> &'static str {
        self.unit
    }
    #[cfg(test)]
    fn sample(&self, random: u64) -> u64 {
        self.least + random % (self.most - self.least + 1).min(1 << (random % 31))
    }
}

impl Kind<u32> for Number {
    fn read(&self, raw: &Raw<'_>) -> Option<u32> {
        Number::parse(raw).and_then(|number| u32::try_from(number).ok())
    }
    fn holds(&self, value: &u32) -> bool {
        Kind::<u64>::holds(self, &u64::from(*value))
    }
    fn toml(&self, value: &u32) -> String {
        value.to_string()
    }
    fn allowed(&self) -> String {
        Kind::<u64>::allowed(self)
    }
    fn name(&self) -> &'static str {
        Kind::<u64>::name(self)
    }
    fn unit(&self) -> &'static str {
        self.unit
    }
    #[cfg(test)]
    fn sample(&self, random: u64) -> u32 {
        Kind::<u64>::sample(self, random) as u32
    }
}

/// A number of bytes.
pub(super) struct Bytes {
    pub(super) least: u64,
    pub(super) most: u64,
}

/// A number of bytes in the largest unit that divides it.
pub fn bytes_text(bytes: u64) -> String {
    let unit = [(40, "T"), (30, "G"), (20, "M"), (10, "K")].into_iter();
    let whole = unit.into_iter().find(|(shift, _)| bytes != 0 && bytes.is_multiple_of(1 << shift));
    match whole {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

impl Kind<u64> for Bytes {
    fn read(&self, raw: &Raw<'_>) -> Option<u64> {
        Number::parse(raw)
    }
    fn holds(&self, value: &u64) -> bool {
        (self.least..=self.most).contains(value)
    }
    fn toml(&self, value: &u64) -> String {
        quoted(&bytes_text(*value))
    }
    fn allowed(&self) -> String {
        format!("bytes from {} to {}, such as 4096, 64K or 4G", bytes_text(self.least), bytes_text(self.most))
    }
    fn name(&self) -> &'static str {
        "bytes"
    }
    fn unit(&self) -> &'static str {
        "bytes"
    }
    #[cfg(test)]
    fn sample(&self, random: u64) -> u64 {
        self.least + random % (self.most - self.least + 1).min(1 << (random % 50))
    }
}

/// Different numbers of bytes.
pub(super) struct Sizes {
    pub(super) least: u64,
    pub(super) most: u64,
    pub(super) count: usize,
}

impl Sizes {
    fn bytes(&self) -> Bytes {
        Bytes { least: self.least, most: self.most }
    }
}

impl Kind<Vec<u64>> for Sizes {
    fn read(&self, raw: &Raw<'_>) -> Option<Vec<u64>> {
        match raw {
            Raw::Text(text) => {
                text.split(',').map(|size| self.bytes().read(&Raw::Text(size.trim().into()))).collect()
            }
            Raw::List(sizes) => sizes.iter().map(|size| self.bytes().read(size)).collect(),
            one => self.bytes().read(one).map(|size| vec![size]),
        }
    }
    fn holds(&self, value: &Vec<u64>) -> bool {
        let mut sorted = value.clone();
        sorted.sort_unstable();
        sorted.dedup();
        sorted.len() == value.len()
            && value.len() <= self.count
            && value.iter().all(|size| self.bytes().holds(size))
    }
    fn toml(&self, value: &Vec<u64>) -> String {
        let sizes: Vec<_> = value.iter().map(|size| self.bytes().toml(size)).collect();
        format!("[{}]", sizes.join(", "))
    }
    fn allowed(&self) -> String {
        format!(
            "a list of up to {} different sizes, each {} (in a variable: separated by commas)",
            self.count,
            self.bytes().allowed()
        )
    }
    fn name(&self) -> &'static str {
        "sizes"
    }
    #[cfg(test)]
    fn sample(&self, random: u64) -> Vec<u64> {
        (0..random % 4).map(|i| self.least + random % 4096 + i * 5000).collect()
    }
}

/// A fraction from 0 to 1.
pub(super) struct Fraction;

impl Kind<f64> for Fraction {
    fn read(&self, raw: &Raw<'_>) -> Option<f64> {
        match raw {
            Raw::Float(number) => Some(*number),
            Raw::Integer(number) => Some(*number as f64),
            Raw::Text(text) => match text.trim().strip_suffix('%') {
                Some(percent) => percent.trim().parse::<f64>().ok().map(|percent| percent / 100.0),
                None => text.trim().parse().ok(),
            },
            _ => None,
        }
    }
    fn holds(&self, value: &f64) -> bool {
        (0.0..=1.0).contains(value)
    }
    fn toml(&self, value: &f64) -> String {
        format!("{value:?}")
    }
    fn allowed(&self) -> String {
        "a fraction from 0 to 1, such as 0.85 or 85%".to_owned()
    }
    fn name(&self) -> &'static str {
        "fraction"
    }
    #[cfg(test)]
    fn sample(&self, random: u64) -> f64 {
        (random % 1001) as f64 / 1000.0
    }
}

/// A duration.
pub(super) struct Time {
    pub(super) least: Duration,
    pub(super) most: Duration,
}

const UNITS: [(&str, u64); 7] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ns", 1),
];

/// Parses a duration of a command option. The error names the allowed durations.
pub fn time(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let kind = Time { least, most };
    let time = kind.read(&Raw::Text(text.into())).filter(|time| kind.holds(time));
    time.ok_or_else(|| format!("not {}", kind.allowed()))
}

pub(super) fn time_text(time: Duration) -> String {
    let nanoseconds = time.as_nanos();
    let whole = |unit: &&(&str, u64)| nanoseconds != 0 && nanoseconds.is_multiple_of(u128::from(unit.1));
    match UNITS.iter().find(whole) {
        Some((unit, length)) => format!("{}{unit}", nanoseconds / u128::from(*length)),
        None => "0s".to_owned(),
    }
}

impl Kind<Duration> for Time {
    fn read(&self, raw: &Raw<'_>) -> Option<Duration> {
        let Raw::Text(text) = raw else { return None };
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '_')?;
        let (digits, unit) = text.split_at(end);
        let number: u64 = digits.replace('_', "").parse().ok()?;
        let (_, length) = UNITS.iter().find(|(name, _)| *name == unit.trim())?;
        number.checked_mul(*length).map(Duration::from_nanos)
    }
    fn holds(&self, value: &Duration) -> bool {
        (self.least..=self.most).contains(value)
    }
    fn toml(&self, value: &Duration) -> String {
        quoted(&time_text(*value))
    }
    fn allowed(&self) -> String {
        format!("a time from {} to {}, such as 250ms, 10s or 1m", time_text(self.least), time_text(self.most))
    }
    fn name(&self) -> &'static str {
        "duration"
    }
    #[cfg(test)]
    fn sample(&self, random: u64) -> Duration {
        let range = (self.most - self.least).as_nanos() as u64;
        self.least + Duration::from_nanos(random % range.saturating_add(1) / UNITS[random as usize % 7].1)
    }
}

/// True or false.
pub(super) struct Flag;

impl Kind<bool> for Flag {
    fn read(&self, raw: &Raw<'_>) -> Option<bool> {
        match raw {
            Raw::Flag(flag) => Some(*flag),
            Raw::Text(text) => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => Some(true),
                "false" | "0" | "no" | "off" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }
    fn holds(&self, _: &bool) -> bool {
        true
    }
    fn toml(&self, value: &bool) -> String {
        value.to_string()
    }
    fn allowed(&self) -> String {
        "true or false".to_owned()
    }
    fn name(&self) -> &'static str {
        "flag"
    }
    #[cfg(test)]
    fn sample(&self, random: u64) -> bool {
        random.is_multiple_of(2)
    }
}

/// Another kind, or none.
pub(super) struct Maybe<K>(pub(super) K);

/// The text for none.
const NONE: &str = "none";

impl<T, K: Kind<T>> Kind<Option<T>> for Maybe<K> {
    fn read(&self, raw: &Raw<'_>) -> Option<Option<T>> {
        match raw {
            Raw::Text(text) if text.trim().eq_ignore_ascii_case(NONE) => Some(None),
            raw => self.0.read(raw).map(Some),
        }
    }
    fn holds(&self, value: &Option<T>) -> bool {
        // A value that would be read as none is not allowed (I1).
        let is_none = |value: &T| self.0.toml(value).trim_matches('"').trim().eq_ignore_ascii_case(NONE);
        value.as_ref().is_none_or(|value| self.0.holds(value) && !is_none(value))
    }
    fn toml(&self, value: &Option<T>) -> String {
        value.as_ref().map_or_else(|| quoted(NONE), |value| self.0.toml(value))
    }
    fn allowed(&self) -> String {
        format!("{NONE}, or {}", self.0.allowed())
    }
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn unit(&self) -> &'static str {
        self.0.unit()
    }
    #[cfg(test)]
    fn sample(&self, random: u64) -> Option<T> {
        (!random.is_multiple_of(3)).then(|| self.0.sample(random / 3))
    }
}
