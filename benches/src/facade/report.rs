//! Tables, as Markdown and JSON.

use crate::rounds::Spread;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// A figure or a word.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    json: Value,
}

impl Cell {
    /// Makes an empty cell.
    #[must_use]
    pub fn none() -> Cell {
        Cell { text: String::new(), json: Value::Null }
    }

    /// Makes a cell with a word.
    #[must_use]
    pub fn word(word: impl Into<String>) -> Cell {
        let text = word.into();
        Cell { json: json!(text), text }
    }

    /// Makes a number with so many digits behind the point.
    #[must_use]
    pub fn number(number: f64, digits: usize) -> Cell {
        Cell { text: format!("{number:.digits$}"), json: json!(number) }
    }

    /// Makes a median, and half the distance of the quartiles in per cent of it.
    #[must_use]
    pub fn figure(spread: Spread, digits: usize) -> Cell {
        if spread.high == 0.0 {
            return Cell::number(0.0, 0);
        }
        let off = (spread.high - spread.low) / 2.0 / spread.median.abs() * 100.0;
        Cell { text: format!("{:.digits$} ±{off:.0} %", spread.median), json: spread.json() }
    }

    /// Makes a median with its quartiles: for values that may be near zero.
    #[must_use]
    pub fn range(spread: Spread, digits: usize) -> Cell {
        let Spread { low, median, high } = spread;
        Cell { text: format!("{median:.digits$} ({low:.digits$}–{high:.digits$})"), json: spread.json() }
    }

    /// Makes a ratio: how many times as fast.
    #[must_use]
    pub fn ratio(spread: Spread) -> Cell {
        let Spread { low, median, high } = spread;
        Cell { text: format!("**{median:.2}×** ({low:.2}–{high:.2})"), json: spread.json() }
    }

    /// Makes the reach, and whether it is met.
    #[must_use]
    pub fn reach(reach: &str, met: bool) -> Cell {
        let met_word = if met { "yes" } else { "no" };
        Cell { text: format!("{reach} {met_word}"), json: json!({ "reach": reach, "met": met }) }
    }
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its heading.
    pub title: String,
    /// Headings of the columns; they are also the keys of the JSON.
    pub columns: Vec<&'static str>,
    /// One cell a column.
    pub rows: Vec<Vec<Cell>>,
    /// Notes, a line each.
    pub notes: Vec<String>,
}

impl Table {
    /// Makes an empty table.
    #[must_use]
    pub fn new(title: impl Into<String>, columns: &[&'static str]) -> Table {
        Table { title: title.into(), columns: columns.to_vec(), rows: Vec::new(), notes: Vec::new() }
    }

    /// Formats it as Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = format!("{}\n\n| {} |\n|---|", self.title, self.columns.join(" | "));
        text.push_str(&"---|".repeat(self.columns.len() - 1));
        for row in &self.rows {
            let cells: Vec<&str> = row.iter().map(|cell| cell.text.as_str()).collect();
            // Writing to a `String` cannot fail.
            let _ = write!(text, "\n| {} |", cells.join(" | "));
        }
        text.push('\n');
        for note in &self.notes {
            let _ = write!(text, "\n{note}");
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        text
    }

    /// Formats it as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let row = |row: &Vec<Cell>| {
            let cells = self.columns.iter().zip(row).map(|(column, cell)| ((*column).to_owned(), &cell.json));
            let cells: Map<String, Value> = cells.map(|(column, json)| (column, json.clone())).collect();
            cells
        };
        json!({ "title": self.title, "rows": self.rows.iter().map(row).collect::<Vec<_>>(), "notes": self.notes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_markdown_and_json() {
        let mut table = Table::new("simulated device", &["what", "ns", "reach"]);
        let spread = Spread { low: 9.0, median: 10.0, high: 11.0 };
        table.rows.push(vec![Cell::word("one"), Cell::figure(spread, 1), Cell::reach("≤ 5", false)]);
        table.notes.push("- a note".into());
        assert_eq!(
            table.markdown(),
            "simulated device\n\n| what | ns | reach |\n|---|---|---|\n| one | 10.0 ±10 % | ≤ 5 no |\n\n- a note\n"
        );
        let json = table.json();
        assert_eq!(json["rows"][0]["ns"]["q1"], 9.0);
        assert_eq!(json["rows"][0]["reach"]["met"], false);
    }
}
