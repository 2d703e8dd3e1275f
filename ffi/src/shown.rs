//! Text from outside, made safe to show on a terminal, in a log or in a message.
//!
//! A path, a setting's value, a tenant's name or a line of a trace may hold any characters, and a
//! terminal obeys some of them. Such characters set its title, move its cursor, hide or reorder the text
//! after them, or begin a line that looks like one of ours. [`shown`] writes such a character as Rust
//! does in a string (`\u{1b}`, `\n`) and leaves all others as they are, so a file's name in any language
//! stays readable.
//!
//! Invariants
//! - I1: no character that [`is_shown`] refuses reaches the formatter. A second pass changes nothing.

use core::fmt::{self, Display, Formatter, Write};
use std::path::Path;

/// Whether a character is shown as it is. Refused are characters that a terminal obeys, that have no
/// width, or that change the direction of others.
#[must_use]
pub fn is_shown(c: char) -> bool {
    let invisible = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    !c.is_control() && !invisible
}

/// See [`shown`] and [`shown_lines`].
#[derive(Debug, Clone, Copy)]
pub struct Shown<T> {
    text: T,
    /// Whether ends of lines are kept.
    lines: bool,
}

/// Text from outside on one line: each character that a terminal obeys is written as an escape.
#[must_use]
pub fn shown<T: Display>(text: T) -> Shown<T> {
    Shown { text, lines: false }
}

/// A path. Parts that are not UTF-8 are replaced, as [`Path::display`] does.
#[must_use]
pub fn shown_path(path: &Path) -> Shown<std::path::Display<'_>> {
    shown(path.display())
}

/// A whole message that was put together here: its own ends of lines stay. Inserted text has been
/// [`shown`] before.
#[must_use]
pub fn shown_lines<T: Display>(text: T) -> Shown<T> {
    Shown { text, lines: true }
}

impl<T: Display> Display for Shown<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(Escaping { out: f, lines: self.lines }, "{}", self.text)
    }
}

struct Escaping<'o, 'f> {
    out: &'o mut Formatter<'f>,
    lines: bool,
}

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let kept = |c: char| is_shown(c) || self.lines && c == '\n';
        let mut rest = text;
        while let Some(at) = rest.find(|c| !kept(c)) {
            let (before, from) = rest.split_at(at);
            self.out.write_str(before)?;
            let mut chars = from.chars();
            chars
                .next()
                .into_iter()
                .flat_map(char::escape_default)
                .try_for_each(|c| self.out.write_char(c))?;
            rest = chars.as_str();
        }
        self.out.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        for (text, wanted) in [
            ("plain é 日本 \\ \"q\"", "plain é 日本 \\ \"q\""),
            ("\u{1b}]0;x\u{7}", "\\u{1b}]0;x\\u{7}"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("abc\u{202e}txt\u{2066}", "abc\\u{202e}txt\\u{2066}"),
            ("\u{feff}", "\\u{feff}"),
        ] {
            assert_eq!(shown(text).to_string(), wanted);
        }
        assert_eq!(shown_lines("a\n\u{1b}b\n").to_string(), "a\n\\u{1b}b\n");
        assert_eq!(shown_path(Path::new("a\n/b")).to_string(), "a\\n/b");
    }

    proptest! {
        #[test]
        fn any_text_is_shown_harmless(text in any::<String>(), mixed in "[\u{0}-\u{ff}\u{2000}-\u{2070}]{0,40}") {
            for text in [text, mixed] {
                let once = shown(&text).to_string();
                prop_assert!(once.chars().all(is_shown), "{:?}", once);
                prop_assert_eq!(shown(&once).to_string(), &once[..]);
                if text.chars().all(is_shown) {
                    prop_assert_eq!(once, text);
                }
            }
        }
    }
}
