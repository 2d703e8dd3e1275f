//! As much of PromQL as a dashboard needs, read strictly: which metrics an expression names, how it uses
//! them, and which labels are left.
//!
//! Mistakes that Grafana accepts without an error panic here: a metric or a label that does not exist,
//! or a value that a label never has; a gauge in `rate`, a counter outside of it; a bucket whose `le` is
//! summed away; two sides of an operator with different labels, which match nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;

/// By name, as samples have it (`_bucket`, `_sum` and `_count` included): the type, and the labels with
/// their values.
pub type Known = BTreeMap<String, (String, Labels)>;
pub type Labels = BTreeMap<String, BTreeSet<String>>;

/// Labels that a scrape adds to each sample.
const OF_SCRAPES: [&str; 2] = ["instance", "job"];
const AGGREGATIONS: [&str; 5] = ["sum", "max", "min", "avg", "count"];
const OF_COUNTERS: [&str; 3] = ["rate", "irate", "increase"];
const OPERATORS: [&str; 10] = ["+", "-", "*", "/", ">", "<", ">=", "<=", "==", "!="];

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Number(String),
    Text(String),
    Range,
    Sign(&'static str),
}

fn tokens(text: &str) -> Vec<Token> {
    const SIGNS: [&str; 17] =
        [">=", "<=", "==", "!=", "=~", "!~", "+", "-", "*", "/", ">", "<", "=", "(", ")", "{", "}"];
    let (mut rest, mut tokens) = (text.trim_start(), Vec::new());
    let until = |rest: &str, end: fn(char) -> bool| rest.find(end).unwrap_or(rest.len());
    while let Some(first) = rest.chars().next() {
        let length = if first.is_ascii_alphabetic() || first == '_' {
            let end = until(rest, |c| !c.is_ascii_alphanumeric() && c != '_');
            tokens.push(Token::Word(rest[..end].to_owned()));
            end
        } else if first.is_ascii_digit() {
            let end = until(rest, |c| !c.is_ascii_digit() && c != '.');
            tokens.push(Token::Number(rest[..end].to_owned()));
            end
        } else if first == '"' {
            let end = rest[1..].find('"').unwrap_or_else(|| panic!("a text without an end: {text}")) + 2;
            tokens.push(Token::Text(rest[1..end - 1].to_owned()));
            end
        } else if first == '[' {
            tokens.push(Token::Range);
            rest.find(']').unwrap_or_else(|| panic!("a range without an end: {text}")) + 1
        } else if first == ',' {
            tokens.push(Token::Sign(","));
            1
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
            let sign = sign.unwrap_or_else(|| panic!("{first:?} in {text}"));
            tokens.push(Token::Sign(sign));
            sign.len()
        };
        rest = rest[length..].trim_start();
    }
    tokens
}

/// The result of an expression.
#[derive(Debug, Clone, PartialEq)]
enum Comes {
    Scalar,
    /// Series with these labels, of a metric of this type; `None` behind a function.
    Series(BTreeSet<String>, Option<String>),
    /// The same over a time.
    Over(BTreeSet<String>, String),
}

/// Reads expressions, and notes the metrics that they name.
pub struct Reader<'k> {
    known: &'k Known,
    /// Metrics named so far.
    pub named: BTreeSet<String>,
}

struct Parse<'r, 'k, I: Iterator<Item = Token>> {
    of: &'r mut Reader<'k>,
    text: &'r str,
    tokens: Peekable<I>,
}

impl<'k> Reader<'k> {
    pub fn new(known: &'k Known) -> Reader<'k> {
        Reader { known, named: BTreeSet::new() }
    }

    /// The labels of an expression's series. Panics with the expression at a mistake.
    pub fn read(&mut self, text: &str) -> BTreeSet<String> {
        let mut parse = Parse { of: self, text, tokens: tokens(text).into_iter().peekable() };
        let comes = parse.expression();
        assert_eq!(parse.tokens.next(), None, "behind the end of {text}");
        match comes {
            Comes::Scalar => BTreeSet::new(),
            Comes::Series(labels, kind) => {
                assert_ne!(kind.as_deref(), Some("counter"), "a counter without rate: {text}");
                assert!(!labels.contains("le"), "buckets, not a quantile of them: {text}");
                labels
            }
            Comes::Over(..) => panic!("a range is no series: {text}"),
        }
    }
}

impl<I: Iterator<Item = Token>> Parse<'_, '_, I> {
    fn next(&mut self) -> Token {
        self.tokens.next().unwrap_or_else(|| panic!("it ends early: {}", self.text))
    }

    fn sign(&mut self, sign: &'static str) {
        assert_eq!(self.next(), Token::Sign(sign), "in {}", self.text);
    }

    fn is(&mut self, sign: &'static str) -> bool {
        self.tokens.next_if_eq(&Token::Sign(sign)).is_some()
    }

    fn word(&mut self) -> String {
        match self.next() {
            Token::Word(word) => word,
            other => panic!("{other:?} in {}", self.text),
        }
    }

    /// Operators of all kinds, which bind alike: enough to see their operands.
    fn expression(&mut self) -> Comes {
        let mut left = self.operand();
        while let Some(Token::Sign(sign)) = self.tokens.peek().cloned()
            && OPERATORS.contains(&sign)
        {
            self.next();
            let on = self.labels_of("on");
            let many = self.tokens.next_if_eq(&Token::Word("group_left".to_owned())).is_some();
            let right = self.operand();
            left = match (left, right) {
                (Comes::Scalar, other) | (other, Comes::Scalar) if on.is_none() => other,
                // Each series of the left side meets the one of the right side with the same named labels.
                (Comes::Series(left, of), Comes::Series(right, _)) if many => {
                    assert!(
                        on.as_ref() == Some(&right) && right.is_subset(&left),
                        "labels of the sides of {sign} in {}",
                        self.text
                    );
                    Comes::Series(left, of)
                }
                (Comes::Series(left, of), Comes::Series(right, _)) if on.is_none() => {
                    assert_eq!(left, right, "labels of the sides of {sign} in {}", self.text);
                    Comes::Series(left, of)
                }
                other => panic!("{other:?} in {}", self.text),
            };
        }
        left
    }

    fn operand(&mut self) -> Comes {
        match self.next() {
            Token::Number(_) => Comes::Scalar,
            Token::Sign("(") => {
                let inside = self.expression();
                self.sign(")");
                inside
            }
            Token::Word(word) if AGGREGATIONS.contains(&word.as_str()) => self.aggregation(),
            Token::Word(word) if self.is("(") => self.call(&word),
            Token::Word(word) => self.selector(word),
            other => panic!("{other:?} in {}", self.text),
        }
    }

    fn aggregation(&mut self) -> Comes {
        let mut by = self.labels_of("by");
        self.sign("(");
        let Comes::Series(labels, kind) = self.expression() else { panic!("sum of what? {}", self.text) };
        self.sign(")");
        by = by.or_else(|| self.labels_of("by"));
        assert_ne!(kind.as_deref(), Some("counter"), "a counter without rate: {}", self.text);
        let by = by.unwrap_or_default();
        let lacking: Vec<_> =
            by.difference(&labels).filter(|label| !OF_SCRAPES.contains(&label.as_str())).collect();
        assert!(lacking.is_empty(), "by {lacking:?}, which there is not: {}", self.text);
        assert!(by.contains("le") || !labels.contains("le"), "le is summed away: {}", self.text);
        Comes::Series(by, kind)
    }

    /// The labels in brackets behind a word, if the word is there.
    fn labels_of(&mut self, word: &str) -> Option<BTreeSet<String>> {
        self.tokens.next_if_eq(&Token::Word(word.to_owned()))?;
        self.sign("(");
        let mut labels = BTreeSet::new();
        while !self.is(")") {
            labels.insert(self.word());
            self.is(",");
        }
        Some(labels)
    }

    fn call(&mut self, function: &str) -> Comes {
        let comes = match function {
            function if OF_COUNTERS.contains(&function) => {
                let Comes::Over(labels, kind) = self.expression() else {
                    panic!("{function} is over a time: {}", self.text)
                };
                assert_eq!(kind, "counter", "{function} of a gauge: {}", self.text);
                Comes::Series(labels, None)
            }
            "histogram_quantile" => {
                assert!(matches!(self.next(), Token::Number(_)), "{}", self.text);
                self.sign(",");
                let Comes::Series(mut labels, None) = self.expression() else {
                    panic!("a quantile of rates of buckets: {}", self.text)
                };
                assert!(labels.remove("le"), "a quantile without buckets: {}", self.text);
                Comes::Series(labels, None)
            }
            _ => panic!("{function} is not known here: {}", self.text),
        };
        self.sign(")");
        comes
    }

    fn selector(&mut self, name: String) -> Comes {
        let known = self.of.known.get(&name);
        let (kind, values) = known.unwrap_or_else(|| panic!("there is no {name}: {}", self.text)).clone();
        let labels: BTreeSet<String> = values.keys().cloned().collect();
        self.of.named.insert(name);
        if self.is("{") {
            while !self.is("}") {
                let label = self.word();
                let known = labels.contains(&label) || OF_SCRAPES.contains(&label.as_str());
                assert!(known, "no label {label}: {}", self.text);
                let matcher = self.next();
                assert!(
                    ["=", "!=", "=~", "!~"].map(Token::Sign).contains(&matcher),
                    "{matcher:?}: {}",
                    self.text
                );
                let Token::Text(wanted) = self.next() else { panic!("{matcher:?} what? {}", self.text) };
                // A variable has existing values. A regular expression is read as its
                // alternatives, which is enough here.
                let is_regex = ["=~", "!~"].map(Token::Sign).contains(&matcher);
                let all = if is_regex { wanted.split('|').collect() } else { vec![wanted.as_str()] };
                for value in all.into_iter().filter(|value| !value.starts_with('$')) {
                    let there = values.get(&label).is_some_and(|values| values.contains(value));
                    assert!(there, "{label} is never {value:?}: {}", self.text);
                }
                self.is(",");
            }
        }
        match self.tokens.next_if_eq(&Token::Range) {
            Some(_) => Comes::Over(labels, kind),
            None => Comes::Series(labels, Some(kind)),
        }
    }
}

/// The metrics in the tests of this file.
fn some() -> Known {
    let values = || ["device", "host"].map(str::to_owned).into();
    let metric = |name: &str, kind: &str, labels: &[&str]| {
        let labels = labels.iter().map(|label| ((*label).to_owned(), values())).collect();
        (name.to_owned(), (kind.to_owned(), labels))
    };
    Known::from([
        metric("hits_total", "counter", &["tier"]),
        metric("asked_total", "counter", &[]),
        metric("fill", "gauge", &["tier"]),
        metric("took_bucket", "counter", &["path", "le"]),
    ])
}

#[test]
fn valid_expressions_are_read() {
    let known = some();
    let mut reader = Reader::new(&known);
    let of = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect::<BTreeSet<_>>();
    for (text, labels) in [
        ("fill", of(&["tier"])),
        (
            "max by (tier, instance) (fill{tier=~\"$tier\",instance=~\"$instance\"})",
            of(&["tier", "instance"]),
        ),
        ("fill{tier=~\"host|device\"} + fill{tier!=\"device\"}", of(&["tier"])),
        ("sum(rate(hits_total[5m])) / sum(rate(asked_total[$__rate_interval]))", of(&[])),
        (
            "sum by (tier, instance) (fill) / on (instance) group_left sum by (instance) (fill)",
            of(&["tier", "instance"]),
        ),
        ("histogram_quantile(0.99, sum(rate(took_bucket[1m])) by (le, path))", of(&["path"])),
        ("100 * (1 - sum(fill))", of(&[])),
    ] {
        assert_eq!(reader.read(text), labels, "{text}");
    }
    assert_eq!(reader.named, of(&["asked_total", "fill", "hits_total", "took_bucket"]));
}

#[test]
fn wrong_expressions_are_refused() {
    let known = some();
    for (text, why) in [
        ("sum(rate(hit_total[5m]))", "there is no hit_total"),
        ("fill{path=\"x\"}", "no label path"),
        ("fill{tier=\"hosts\"}", "tier is never \"hosts\""),
        ("fill{tier=~\"host|devic\"}", "tier is never \"devic\""),
        ("fill{tier!~\"host.\"}", "tier is never \"host.\""),
        ("fill{instance=\"here\"}", "instance is never"),
        ("sum by (path) (fill)", "which there is not"),
        ("rate(fill[5m])", "rate of a gauge"),
        ("hits_total", "a counter without rate"),
        ("sum(hits_total)", "a counter without rate"),
        ("rate(hits_total[5m]) / rate(asked_total[5m])", "labels of the sides"),
        ("sum by (tier) (fill) / on (tier) group_left sum by (instance) (fill)", "labels of the sides"),
        ("sum by (instance) (fill) / on (tier) group_left sum by (tier) (fill)", "labels of the sides"),
        ("histogram_quantile(0.5, sum by (path) (rate(took_bucket[5m])))", "le is summed away"),
        ("rate(took_bucket[5m])", "buckets, not a quantile"),
        ("scalar(fill)", "scalar is not known here"),
        ("rate(hits_total)", "is over a time"),
        ("sum(fill", "it ends early"),
        ("fill fill", "behind the end"),
    ] {
        let read = || Reader::new(&known).read(text);
        let panic = std::panic::catch_unwind(read).expect_err(text);
        let message = panic.downcast_ref::<String>().map_or("", String::as_str);
        assert!(message.contains(why), "{text}: {message}");
    }
}
