//! Width and character set of the terminal.

use super::MOST_COLUMNS;
use crate::fold::paragraph;
use std::io::{self, IsTerminal};

/// The width and the characters that a picture is drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Screen {
    pub(super) width: usize,
    ascii: bool,
}

/// The width of a pipe or a file.
const WIDTH: usize = 80;
/// The narrowest picture, whose boxes still have room for their names, and the widest, whose
/// lines the eye still follows.
const WIDTHS: [usize; 2] = [60, 120];

/// A message for standard error. On a terminal, lines are wrapped at its width; in a pipe
/// or a file they stay whole.
pub(super) fn folded(prefix: &str, message: &str) -> String {
    let columns = match io::stderr().is_terminal() {
        true => terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| usize::from(width.0)),
        false => None,
    };
    let columns = columns.map_or(usize::MAX, |columns| columns.min(MOST_COLUMNS));
    let mut text = String::new();
    for (nth, line) in message.split('\n').enumerate() {
        let words = line.trim_start_matches(' ');
        let head = if nth == 0 { prefix } else { &line[..line.len() - words.len()] };
        paragraph(&mut text, head, words, columns);
    }
    text
}

/// An ASCII character for each other one, so that columns stay.
const PLAIN: [(char, char); 25] = [
    ('─', '-'),
    ('│', '|'),
    ('┌', '+'),
    ('┐', '+'),
    ('└', '+'),
    ('┘', '+'),
    ('┬', '+'),
    ('┴', '+'),
    ('·', '.'),
    ('×', 'x'),
    ('→', '>'),
    ('–', '-'),
    ('…', '.'),
    ('’', '\''),
    ('≤', '<'),
    ('µ', 'u'),
    // Bars and heights.
    ('▁', '_'),
    ('▂', '.'),
    ('▃', '-'),
    ('▄', '='),
    ('▅', '+'),
    ('▆', '*'),
    ('▇', '%'),
    ('█', '#'),
    ('▒', '='),
];

impl Screen {
    pub(super) fn of_stdout(ascii: bool) -> Screen {
        let columns = match std::io::stdout().is_terminal() {
            true => terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)),
            false => None,
        };
        Screen { width: columns.unwrap_or(WIDTH).clamp(WIDTHS[0], WIDTHS[1]), ascii: is_ascii(ascii) }
    }

    /// Replaces the characters that this screen lacks.
    pub(super) fn spell(self, text: String) -> String {
        if self.ascii { plain(&text) } else { text }
    }
}

/// Whether to print ASCII only: on request, or if the locale is not UTF-8.
pub(super) fn is_ascii(asked: bool) -> bool {
    asked || !speaks_utf8(|name: &str| std::env::var(name).ok())
}

/// The text in ASCII, with as many characters as before.
pub(super) fn plain(text: &str) -> String {
    let plain = |c: char| PLAIN.into_iter().find(|(from, _)| *from == c).map_or(c, |(_, to)| to);
    text.chars().map(plain).collect()
}

/// Whether the locale is UTF-8. As POSIX has it, the first of the three variables that is not empty decides.
fn speaks_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale =
        ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable).find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_variable_that_is_set_decides_the_locale() {
        let with = |set: &[(&str, &str)]| {
            let set: Vec<(String, String)> =
                set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            speaks_utf8(move |name| set.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()))
        };
        assert!(with(&[("LANG", "de_DE.UTF-8")]) && with(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8")]));
        assert!(
            !with(&[("LANG", "de_DE.UTF-8"), ("LC_ALL", "C")]) && !with(&[]) && !with(&[("LANG", "POSIX")])
        );
    }

    #[test]
    fn plain_text_keeps_its_columns() {
        let all: String = PLAIN.map(|(from, _)| from).iter().collect();
        let screen = Screen { width: 80, ascii: true };
        let plain = screen.spell(all.clone());
        assert!(plain.is_ascii() && plain.len() == all.chars().count(), "{plain}");
        assert_eq!(Screen { ascii: false, ..screen }.spell(all.clone()), all);
    }
}
