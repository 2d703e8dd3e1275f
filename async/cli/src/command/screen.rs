//! How wide the terminal is, and which characters it has.

use std::io::IsTerminal;

/// What a picture is drawn on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Screen {
    pub(super) width: usize,
    ascii: bool,
}

/// The width where nobody looks: of a pipe, a file.
const WIDTH: usize = 80;
/// Below, boxes have no room for their names; above, lines are hard to follow.
const WIDTHS: [usize; 2] = [60, 120];

/// Each character that is not ASCII, one for one, so that columns stay.
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
    // Bars, and what is drawn of heights.
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

    /// The text in characters that it has.
    pub(super) fn spell(self, text: String) -> String {
        if self.ascii { plain(&text) } else { text }
    }
}

/// Whether it has nothing but ASCII: so it was asked for, or the locale says so.
pub(super) fn is_ascii(asked: bool) -> bool {
    asked || !speaks_utf8(|name: &str| std::env::var(name).ok())
}

/// The text in ASCII, as long as it was.
pub(super) fn plain(text: &str) -> String {
    let plain = |c: char| PLAIN.into_iter().find(|(from, _)| *from == c).map_or(c, |(_, to)| to);
    text.chars().map(plain).collect()
}

/// As POSIX has it: the first of the three that says something decides.
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
    fn the_locale_decides() {
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
    fn ascii_keeps_columns() {
        let all: String = PLAIN.map(|(from, _)| from).iter().collect();
        let screen = Screen { width: 80, ascii: true };
        let plain = screen.spell(all.clone());
        assert!(plain.is_ascii() && plain.len() == all.chars().count(), "{plain}");
        assert_eq!(Screen { ascii: false, ..screen }.spell(all.clone()), all);
    }
}
