//! The words in a Rust source: its comments, its string literals, and the names of its tests.
//!
//! ```text
//!   /// Frees the block.            a comment of one line
//!   Error::new("no room \           one literal: "no room left"
//!              left")
//!   #[test]
//!   fn frees_a_block() {            a test's name
//! ```
//!
//! It reads characters and knows no macro. A literal inside a macro call counts like any other.

/// Some text and the line where it begins, counted from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Words {
    /// The line.
    pub line: usize,
    /// The text, without the marks around it.
    pub text: String,
}

/// The words of one source.
#[derive(Default, Debug)]
pub struct RustText {
    /// Comments, one entry for each line. Examples between fences are left out.
    pub comments: Vec<Words>,
    /// String literals outside of test modules, with their continued lines joined.
    pub literals: Vec<Words>,
    /// Names of test functions.
    pub tests: Vec<Words>,
}

impl RustText {
    /// Reads a source.
    #[must_use]
    pub fn of(source: &str) -> RustText {
        let mut found = RustText::default();
        let tests_begin = source.find("\n#[cfg(test)]\nmod tests {").unwrap_or(source.len());
        let (mut at, mut line) = (0, 1);
        while let Some(next) = source[at..].chars().next() {
            let rest = &source[at..];
            let length = if rest.starts_with("//") {
                let end = rest.find('\n').unwrap_or(rest.len());
                let text = rest[..end].trim_start_matches(['/', '!']);
                found.comments.push(Words { line, text: text.to_owned() });
                end
            } else if rest.starts_with("/*") {
                rest.find("*/").map_or(rest.len(), |end| end + 2)
            } else if let Some((length, text)) = literal(rest, before(source, at)) {
                if at < tests_begin {
                    found.literals.push(Words { line, text });
                }
                length
            } else if next == '\'' {
                character(rest)
            } else {
                next.len_utf8()
            };
            line += rest[..length].matches('\n').count();
            at += length;
        }
        leave_fences_out(&mut found.comments);
        found.tests = tests(source);
        found
    }
}

fn before(source: &str, at: usize) -> Option<char> {
    source[..at].chars().next_back()
}

/// Returns the length of the string literal that a text begins with, and its contents.
fn literal(rest: &str, before: Option<char>) -> Option<(usize, String)> {
    if before.is_some_and(|of| of.is_alphanumeric() || of == '_') {
        return None;
    }
    let marks = rest.find('"')?;
    let (prefix, hashes) = rest[..marks].split_at(rest[..marks].find('#').unwrap_or(marks));
    if !["", "b", "c", "r", "br", "cr"].contains(&prefix) || hashes.chars().any(|of| of != '#') {
        return None;
    }
    let begin = marks + 1;
    if prefix.ends_with('r') {
        let close = format!("\"{hashes}");
        let end = rest[begin..].find(&close).map_or(rest.len(), |end| begin + end);
        return Some(((end + close.len()).min(rest.len()), rest[begin..end].to_owned()));
    }
    if !hashes.is_empty() {
        return None;
    }
    let (mut text, mut chars) = (String::new(), rest[begin..].char_indices().peekable());
    while let Some((at, one)) = chars.next() {
        match one {
            '"' => return Some((begin + at + 1, text)),
            '\\' => match chars.next().map(|(_, escaped)| escaped) {
                // A continued line: the blanks before the next one are not part of the text.
                Some('\n') => while chars.next_if(|(_, of)| of.is_whitespace()).is_some() {},
                Some('n') => text.push('\n'),
                Some(other) => text.push(other),
                None => {}
            },
            _ => text.push(one),
        }
    }
    Some((rest.len(), text))
}

/// Returns the length of a character literal; of a lifetime, the length of its mark alone.
fn character(rest: &str) -> usize {
    let mut inner = rest[1..].char_indices();
    match inner.next() {
        Some((_, '\\')) => rest[3..].find('\'').map_or(1, |end| end + 4),
        Some((_, _)) => match inner.next() {
            Some((at, '\'')) => at + 2,
            _ => 1,
        },
        None => 1,
    }
}

fn leave_fences_out(comments: &mut Vec<Words>) {
    let mut is_fenced = false;
    comments.retain(|comment| {
        let is_fence = comment.text.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fence && !is_fenced
    });
}

/// Returns the functions behind a `test` attribute, also if other attributes are between them.
fn tests(source: &str) -> Vec<Words> {
    let (mut all, mut is_test) = (Vec::new(), false);
    for (line, text) in source.lines().enumerate() {
        let text = text.trim_start();
        let name =
            text.trim_start_matches("async ").strip_prefix("fn ").and_then(|rest| rest.split('(').next());
        if text.starts_with("#[test]") || text.contains("::test]") || text.contains("::test(") {
            is_test = true;
        } else if let Some(name) = name {
            if is_test {
                all.push(Words { line: line + 1, text: name.to_owned() });
            }
            is_test = false;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(all: &[Words]) -> Vec<(usize, &str)> {
        all.iter().map(|of| (of.line, of.text.as_str())).collect()
    }

    #[test]
    fn comments_literals_and_tests_are_told_apart() {
        let source = "//! Head // of it.\nlet a = \"no // comment \\\n   here\"; // One\nlet b = r#\"raw \"x\"\"#;\n\
                      fn c<'a>(d: &'a str) { '\"'; '\\''; b\"bytes\" }\n#[test]\nfn it_works() {}\n";
        let found = RustText::of(source);
        assert_eq!(words(&found.comments), [(1, " Head // of it."), (3, " One")]);
        assert_eq!(words(&found.literals), [(2, "no // comment here"), (4, "raw \"x\""), (5, "bytes")]);
        assert_eq!(words(&found.tests), [(7, "it_works")]);
    }

    #[test]
    fn examples_and_test_modules_are_left_out() {
        let source =
            "/// ```\n/// what();\n/// ```\n/// Said.\n#[cfg(test)]\nmod tests {\n \"in a test\" }\n";
        let found = RustText::of(source);
        assert_eq!(words(&found.comments), [(4, " Said.")]);
        assert!(found.literals.is_empty());
    }
}
