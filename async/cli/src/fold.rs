//! Prose in lines: what every table, message and note of the command is wrapped with.
//! `--help` is wrapped by clap.

/// Columns of prose in a table.
pub(crate) const COLUMNS: usize = 80;

/// Appends `words` after `head`, broken at spaces so that no line has more than `columns` if that can be
/// avoided. Further lines are indented by the length of `head`.
pub(crate) fn paragraph(text: &mut String, head: &str, words: &str, columns: usize) {
    let indent = head.chars().count();
    text.push_str(head);
    let mut column = indent;
    for (nth, word) in words.split([' ', '\n']).enumerate() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > columns {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            column = indent;
        } else if nth > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(head: &str, words: &str, columns: usize) -> String {
        let mut text = String::new();
        paragraph(&mut text, head, words, columns);
        text
    }

    #[test]
    fn long_word_is_not_broken() {
        let long = "y".repeat(90);
        assert_eq!(folded("x  ", &format!("a {long} b"), 80), format!("x  a\n   {long}\n   b\n"));
    }

    #[test]
    fn line_has_at_most_the_columns() {
        assert_eq!(folded("x ", "aa bb cc", 7), "x aa bb\n  cc\n");
        assert_eq!(folded("x ", "aa bb cc", 6), "x aa\n  bb\n  cc\n");
    }

    #[test]
    fn two_spaces_in_a_path_stay() {
        assert_eq!(folded("", "a  b: not found", 80), "a  b: not found\n");
    }
}
