//! Kinds with values that are text: words, paths, layers.

use super::{Kind, Raw};
use crate::address;
use std::net::SocketAddr;
use std::path::PathBuf;

/// One of several named values.
pub(in crate::settings) struct Word;

/// A type with few values that all have names.
pub(in crate::settings) trait Named: Copy + PartialEq + 'static {
    /// All values.
    fn all() -> Vec<Self>;
    /// The name of the value.
    fn name(self) -> &'static str;
    /// The value with a name; upper and lower case are equal.
    fn find(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|value| value.name().eq_ignore_ascii_case(name))
    }
}

impl<T: Named> Kind<T> for Word {
    fn read(&self, raw: &Raw<'_>) -> Option<T> {
        let Raw::Text(text) = raw else { return None };
        T::find(text.trim())
    }
    fn holds(&self, _: &T) -> bool {
        true
    }
    fn toml(&self, value: &T) -> String {
        quoted(value.name())
    }
    fn allowed(&self) -> String {
        let names: Vec<_> = T::all().into_iter().map(T::name).collect();
        match names.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => String::new(),
        }
    }
    fn name(&self) -> &'static str {
        "word"
    }
    #[cfg(test)]
    fn sample(&self, random: u64) -> T {
        T::all()[random as usize % T::all().len()]
    }
}

/// Text that is not empty.
pub(in crate::settings) struct Text;

impl Kind<String> for Text {
    fn read(&self, raw: &Raw<'_>) -> Option<String> {
        let Raw::Text(text) = raw else { return None };
        Some(text.clone().into_owned())
    }
    fn holds(&self, value: &String) -> bool {
        !value.is_empty()
    }
    fn toml(&self, value: &String) -> String {
        quoted(value)
    }
    fn allowed(&self) -> String {
        "text that is not empty".to_owned()
    }
    fn name(&self) -> &'static str {
        "text"
    }
    #[cfg(test)]
    fn sample(&self, random: u64) -> String {
        format!("a \"{random}\"\\\u{7f}\n é")
    }
}

/// A path.
pub(in crate::settings) struct File;

impl Kind<PathBuf> for File {
    fn read(&self, raw: &Raw<'_>) -> Option<PathBuf> {
        Text.read(raw).map(PathBuf::from)
    }
    fn holds(&self, value: &PathBuf) -> bool {
        value.to_str().is_some_and(|path| !path.is_empty())
    }
    fn toml(&self, value: &PathBuf) -> String {
        quoted(&value.to_string_lossy())
    }
    fn allowed(&self) -> String {
        "a UTF-8 path that is not empty".to_owned()
    }
    fn name(&self) -> &'static str {
        "path"
    }
    #[cfg(test)]
    fn sample(&self, random: u64) -> PathBuf {
        Text.sample(random).into()
    }
}

/// Any number of paths.
pub(in crate::settings) struct Files;

impl Kind<Vec<PathBuf>> for Files {
    fn read(&self, raw: &Raw<'_>) -> Option<Vec<PathBuf>> {
        match raw {
            Raw::Text(text) => Some(text.split(',').map(|path| PathBuf::from(path.trim())).collect()),
            Raw::List(paths) => paths.iter().map(|path| File.read(path)).collect(),
            _ => None,
        }
    }
    fn holds(&self, value: &Vec<PathBuf>) -> bool {
        value.iter().all(|path| File.holds(path))
    }
    fn toml(&self, value: &Vec<PathBuf>) -> String {
        let paths: Vec<_> = value.iter().map(|path| File.toml(path)).collect();
        format!("[{}]", paths.join(", "))
    }
    fn allowed(&self) -> String {
        "a list of UTF-8 paths, none of them empty (in a variable: separated by commas)".to_owned()
    }
    fn name(&self) -> &'static str {
        "paths"
    }
    #[cfg(test)]
    fn sample(&self, random: u64) -> Vec<PathBuf> {
        (0..random % 4).map(|i| File.sample(random + i)).collect()
    }
}

/// An address or a name of this machine, and a port.
pub(in crate::settings) struct Address;

impl Kind<SocketAddr> for Address {
    fn read(&self, raw: &Raw<'_>) -> Option<SocketAddr> {
        let Raw::Text(text) = raw else { return None };
        address::place(text).ok()
    }
    fn holds(&self, _: &SocketAddr) -> bool {
        true
    }
    fn toml(&self, value: &SocketAddr) -> String {
        quoted(&value.to_string())
    }
    fn allowed(&self) -> String {
        address::ALLOWED.to_owned()
    }
    fn name(&self) -> &'static str {
        "address"
    }
    #[cfg(test)]
    fn sample(&self, random: u64) -> SocketAddr {
        let (high, low) = ((random >> 32) as u32, random as u16);
        match random.is_multiple_of(2) {
            true => (std::net::Ipv4Addr::from_bits(high), low).into(),
            false => (std::net::Ipv6Addr::from_bits(u128::from(random) << 40), low).into(),
        }
    }
}

/// Layers of a model, in any order.
pub(in crate::settings) struct LayerList;

/// The most layers that a layout takes.
const MAX_LAYERS: u32 = 65_536;

/// Adds the layers of `7`, `0-31` or `1-35/2`.
fn push_range(layers: &mut Vec<u32>, text: &str) -> Option<()> {
    let (range, step) = text.split_once('/').unwrap_or((text, "1"));
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let [first, last, step] = [first, last, step].map(|number| number.trim().parse::<u32>().ok());
    let (first, last, step) = (first?, last?, step?);
    // Checked before memory is taken for the layers.
    if first > last || last >= MAX_LAYERS || step == 0 || layers.len() > MAX_LAYERS as usize {
        return None;
    }
    layers.extend((first..=last).step_by(step as usize));
    Some(())
}

impl Kind<Vec<u32>> for LayerList {
    fn read(&self, raw: &Raw<'_>) -> Option<Vec<u32>> {
        let mut layers = Vec::new();
        match raw {
            Raw::Integer(layer) => push_range(&mut layers, &layer.to_string())?,
            Raw::Text(text) => {
                text.split(',').try_for_each(|range| push_range(&mut layers, range.trim()))?;
            }
            Raw::List(parts) => {
                parts.iter().try_for_each(|part| match part {
                    Raw::Integer(layer) => push_range(&mut layers, &layer.to_string()),
                    Raw::Text(text) => push_range(&mut layers, text.trim()),
                    _ => None,
                })?;
            }
            _ => return None,
        }
        Some(layers)
    }
    fn holds(&self, value: &Vec<u32>) -> bool {
        !value.is_empty()
            && value.len() <= MAX_LAYERS as usize
            && value.iter().all(|layer| *layer < MAX_LAYERS)
    }
    fn toml(&self, value: &Vec<u32>) -> String {
        let mut parts = Vec::new();
        let mut rest = &value[..];
        while let Some(first) = rest.first() {
            // The longest run with one step. Two layers would be a run of any step: they are written singly.
            let step = rest.get(1).and_then(|second| second.checked_sub(*first)).filter(|step| *step > 0);
            let run = step.map_or(1, |step| {
                1 + rest.windows(2).take_while(|pair| pair[1].checked_sub(pair[0]) == Some(step)).count()
            });
            let count = if run > 2 { run } else { 1 };
            let (part, behind) = rest.split_at(count);
            parts.push(match (part, step) {
                ([.., last], Some(1)) if count > 1 => format!("{first}-{last}"),
                ([.., last], Some(step)) if count > 1 => format!("{first}-{last}/{step}"),
                _ => first.to_string(),
            });
            rest = behind;
        }
        quoted(&parts.join(","))
    }
    fn allowed(&self) -> String {
        format!("layers below {MAX_LAYERS}, at least one, such as \"0-31\", \"1-35/2\" or [0, 5, 7]")
    }
    fn name(&self) -> &'static str {
        "layers"
    }
    #[cfg(test)]
    fn sample(&self, random: u64) -> Vec<u32> {
        let (first, step) = ((random % 5) as u32, (random % 3) as usize + 1);
        (first..first + 1 + (random / 7 % 40) as u32).step_by(step).collect()
    }
}

/// A TOML string.
pub(in crate::settings) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}
