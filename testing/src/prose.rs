//! Counts words that make English hard to read. `ci/steps/prose` compares the figures with `ci/prose.txt`.
//!
//! English that avoids nouns is hard to read: a relative clause instead of "the caller", a pronoun instead of
//! "the transfer". Words of such turns are counted for 1,000 words of text, for each crate and kind of text.
//! The columns:
//!
//! ```text
//!   who        who, whom, whose, whoever
//!   what       what, whatever
//!   nobody     nobody, somebody
//!   turns      "but for", "is had" in any tense, "of which", "of whom"
//!   longest    characters: of a comment's line, of a message's line, of a test's name
//! ```
//!
//! The budget of a text may be lowered, never raised.

use crate::rust_text::{RustText, Words};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs;
use std::path::Path;

/// The columns of a budget, in their order.
pub const COLUMNS: [&str; 5] = ["who", "what", "nobody", "turns", "longest"];

/// A literal with fewer words is a name or a unit.
const MESSAGE_WORDS: usize = 4;

/// One place in a text that a column counts.
#[derive(Clone, Debug)]
pub struct Place {
    /// File and line.
    pub at: String,
    /// The column.
    pub column: &'static str,
    /// The line's text.
    pub text: String,
}

/// The figures of one text.
#[derive(Clone, Default, Debug)]
pub struct Figures {
    /// Its words.
    pub words: usize,
    counts: [usize; 4],
    longest: usize,
    places: Vec<Place>,
}

impl Figures {
    /// The figure of a column, in the unit of the budget: tenths for rates, characters for the longest.
    #[must_use]
    pub fn of(&self, column: usize) -> usize {
        match self.counts.get(column) {
            Some(count) => (count * 10_000 + self.words / 2).checked_div(self.words).unwrap_or(0),
            None => self.longest,
        }
    }

    /// Returns the places of the counted words.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    fn read(&mut self, path: &str, words: &Words) {
        let lower = words.text.to_lowercase();
        let all: Vec<&str> =
            lower.split(|of: char| !of.is_alphabetic() && of != '\'').filter(|of| !of.is_empty()).collect();
        self.words += all.len();
        let mut note = |column: usize| {
            self.counts[column] += 1;
            let (at, text) = (format!("{path}:{}", words.line), words.text.trim().to_owned());
            self.places.push(Place { at, column: COLUMNS[column], text });
        };
        for word in &all {
            match *word {
                "who" | "whom" | "whose" | "whoever" | "who's" => note(0),
                "what" | "whatever" | "what's" => note(1),
                "nobody" | "somebody" | "nobody's" | "somebody's" => note(2),
                _ => {}
            }
        }
        for pair in all.windows(2) {
            match pair {
                ["but", "for"] | ["of", "which" | "whom"] | ["is" | "are" | "was" | "were" | "be", "had"] => {
                    note(3)
                }
                _ => {}
            }
        }
    }

    fn measure(&mut self, line: &str) {
        self.longest = self.longest.max(line.chars().count());
    }

    fn add(&mut self, other: Figures) {
        self.words += other.words;
        self.counts.iter_mut().zip(other.counts).for_each(|(all, of)| *all += of);
        self.longest = self.longest.max(other.longest);
        self.places.extend(other.places);
    }
}

/// A budget: the maximum of each column.
pub type Budget = [usize; 5];

/// A figure of a column, as the table shows it.
#[must_use]
pub fn show(column: usize, figure: usize) -> impl Display {
    struct Shown(usize, usize);
    impl Display for Shown {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0 {
                0..4 => f.pad(&format!("{}.{}", self.1 / 10, self.1 % 10)),
                _ => f.pad(&self.1.to_string()),
            }
        }
    }
    Shown(column, figure)
}

/// Returns the folders of crates. `ci` has sources beside its crates.
fn crates<'p>(paths: &[&'p str]) -> Vec<&'p str> {
    let manifests = paths.iter().filter_map(|path| path.strip_suffix("/Cargo.toml"));
    manifests.chain(["ci"]).collect()
}

/// The texts of the repository, by name: `core comments`, `core messages`, `core tests`, `README.md`, `docs`.
///
/// # Panics
/// If a file cannot be read.
#[must_use]
pub fn texts<'p>(root: &Path, paths: impl Iterator<Item = &'p str>) -> BTreeMap<String, Figures> {
    let paths: Vec<&str> = paths.collect();
    let crates = crates(&paths);
    let mut texts: BTreeMap<String, Figures> = BTreeMap::new();
    for path in paths {
        let read = || fs::read_to_string(root.join(path)).expect("a text");
        if path.ends_with(".md") {
            document(path, &read(), texts.entry(document_group(path).to_owned()).or_default());
        } else if path.ends_with(".rs")
            && let Some(name) =
                crates.iter().filter(|of| path.starts_with(&format!("{of}/"))).max_by_key(|of| of.len())
        {
            for (kind, figures) in source(path, &read()) {
                texts.entry(format!("{name} {kind}")).or_default().add(figures);
            }
        }
    }
    texts
}

fn document_group(path: &str) -> &str {
    match path {
        "README.md" | "ARCHITECTURE.md" | "CONTRIBUTING.md" | "SECURITY.md" | "CHANGELOG.md" => path,
        _ if path.starts_with("docs/decisions/") => "docs/decisions",
        _ if path.starts_with("docs/") => "docs",
        _ => "other documents",
    }
}

/// Reads a document without its code blocks, its spans of code and the targets of its links.
fn document(path: &str, text: &str, into: &mut Figures) {
    for words in prose(text) {
        into.read(path, &words);
    }
}

/// Returns the lines of a document that are prose or cells of tables.
fn prose(text: &str) -> Vec<Words> {
    let mut is_fenced = false;
    let lines = text.lines().enumerate().filter(|(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fence && !is_fenced && !line.starts_with("    ")
    });
    lines.map(|(at, line)| Words { line: at + 1, text: without_code(line) }).collect()
}

fn without_code(line: &str) -> String {
    let spoken = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let mut parts = spoken.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    text
}

/// Returns the lines of a document, and the number of its words outside of tables and code.
#[must_use]
pub fn size(text: &str) -> (usize, usize) {
    let words =
        |of: &Words| of.text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    let all = prose(text).iter().filter(|of| !of.text.starts_with('|')).map(words).sum();
    (text.lines().count(), all)
}

/// Reads a source: its comments, its messages and the names of its tests are separate texts.
fn source(path: &str, text: &str) -> Vec<(&'static str, Figures)> {
    let found = RustText::of(text);
    let (mut comments, mut messages, mut tests) =
        (Figures::default(), Figures::default(), Figures::default());
    for words in &found.comments {
        comments.read(path, words);
    }
    let lines = text.lines().filter(|line| line.trim_start().starts_with("//"));
    lines.for_each(|line| comments.measure(line));
    found.tests.iter().for_each(|name| tests.measure(&name.text));
    if !path.contains("src/") || path.contains("tests") {
        return vec![("comments", comments), ("tests", tests)];
    }
    for words in found.literals.iter().filter(|of| of.text.split_whitespace().count() >= MESSAGE_WORDS) {
        messages.read(path, words);
        words.text.lines().for_each(|line| messages.measure(line));
    }
    vec![("comments", comments), ("messages", messages), ("tests", tests)]
}

/// Returns the budgets that a file lists, by text.
///
/// # Errors
/// A line that is no budget.
pub fn budgets(file: &str) -> Result<BTreeMap<String, Budget>, String> {
    let lines = file.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(budget).collect()
}

/// Reads a rate with one digit behind its point, in tenths, or a whole number.
fn tenths(figure: &str) -> Option<usize> {
    let digits = match figure.split_once('.') {
        Some((whole, tenth)) if tenth.len() == 1 => format!("{whole}{tenth}"),
        Some(_) => return None,
        None => figure.to_owned(),
    };
    digits.parse().ok()
}

fn budget(line: &str) -> Result<(String, Budget), String> {
    let wrong = || format!("{line:?}: a text, then figures for {}", COLUMNS.join(", "));
    let (name, figures) = line.split_once(':').ok_or_else(wrong)?;
    let mut budget = Budget::default();
    let mut figures = figures.split_whitespace();
    for figure in &mut budget {
        *figure = figures.next().and_then(tenths).ok_or_else(wrong)?;
    }
    Ok((name.to_owned(), budget))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(text: &str) -> Figures {
        let mut figures = Figures::default();
        figures.read("a.rs", &Words { line: 7, text: text.to_owned() });
        figures
    }

    #[test]
    fn each_column_counts_its_words() {
        let figures = figures("Nobody knows what waits, but for whoever is had of which");
        assert_eq!((figures.words, figures.counts), (11, [1, 1, 1, 3]));
        assert_eq!(figures.of(0), 909, "90.9 for 1,000 words");
        assert_eq!(figures.places()[0].at, "a.rs:7");
        assert_eq!(show(0, 909).to_string(), "90.9");
    }

    #[test]
    fn documents_are_read_without_code_and_links() {
        let text = "# A title\n\n| what | b |\n```sh\nwho\n```\nRun `what` [here](what.md) now.\n";
        assert_eq!(size(text), (7, 5));
        let mut figures = Figures::default();
        document("a.md", text, &mut figures);
        assert_eq!(figures.counts, [0, 1, 0, 0]);
    }

    #[test]
    fn budget_is_one_line() {
        let all = budgets("# text\ncore comments: 4.6 11.0 1.4 0.3 110\n").expect("a budget");
        assert_eq!(all["core comments"], [46, 110, 14, 3, 110]);
        assert!(budgets("core comments 1").is_err());
        assert!(budgets("core comments: 4.65 11.0 1.4 0.3 110").is_err());
    }
}
