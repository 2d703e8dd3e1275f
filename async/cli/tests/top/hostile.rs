//! Texts that violate the format, and valid texts that no manager would send.

use crate::{PLAIN, SECOND, screen, texts, watched};
use kvstrata_cli::top::{Exposition, Look, Watch};
use proptest::prelude::*;
use std::time::Instant;

#[test]
fn invalid_text_is_refused_by_line() {
    let line = |text: &str| Exposition::parse(text).map_err(|refused| refused.to_string());
    for (text, refusal) in [
        ("a 1\nb", "line 2: is cut off: it has no line end"),
        ("\n# x\n 1 1\n", "line 3: does not begin with the name of a metric"),
        ("9a 1\n", "line 1: does not begin with the name of a metric"),
        ("a\n", "line 1: has no value"),
        ("a one\n", "line 1: has a value that is not a number"),
        ("a 1 2 3\n", "line 1: has more than a value and a time"),
        ("a 1 soon\n", "line 1: has more than a value and a time"),
        ("a{\n", "line 1: has a label without a name, or labels without an end"),
        ("a{b} 1\n", "line 1: has a label without a value in quotes"),
        ("a{b=c} 1\n", "line 1: has a label without a value in quotes"),
        ("a{b=\"c} 1\n", "line 1: has a label value without an end, or with an invalid escape"),
        ("a{b=\"\\t\"} 1\n", "line 1: has a label value without an end, or with an invalid escape"),
        ("a{b=\"c\" d=\"e\"} 1\n", "line 1: has neither , nor } after a label"),
    ] {
        assert_eq!(line(text), Err(refusal.to_owned()), "{text:?}");
    }
    let labels: String = (0..17).map(|label| format!("l{label}=\"\",")).collect();
    assert_eq!(line(&format!("a{{{labels}}} 1\n")), Err("line 1: has more than 16 labels".to_owned()));
    assert_eq!(
        line(&"a 1\n".repeat(50_001)),
        Err("line 50001: exceeds the limit of 50,000 samples".to_owned())
    );
    assert!(line(&"#".repeat(9 << 20)).is_err_and(|refused| refused.contains("8 MiB")));

    let text = "kvstrata_a{ b = \"1\\\"2\\\\3\\n\" , c=\"d\", }\t 2.5e0 1700000000000\r\nkvstrata_a{c=\"e\"} +Inf\nother 1\n\n";
    let read = Exposition::parse(text).expect("of the format");
    assert_eq!(read.sum("kvstrata_a", &[("b", "1\"2\\3\n"), ("c", "d")]), Some(2.5));
    assert_eq!((read.sum("kvstrata_a", &[("c", "e")]), read.sum("other", &[])), (Some(0.0), None));
    assert_eq!(read.values("kvstrata_a", "c"), ["d", "e"]);

    let now = Instant::now();
    let mut watch = Watch::new("here", SECOND, now);
    let refused = watch.take("kvstrata_a{\n", now..now).expect_err("no text");
    assert_eq!(
        refused,
        "its answer cannot be read: line 1: has a label without a name, or labels without an end"
    );
    let refused = watch.take("go_threads 1\n", now..now);
    assert_eq!(refused, Err("it serves no metrics of a kvstrata manager".to_owned()));
    assert!(watch.view(Instant::now()).gone.is_some_and(|gone| gone.why.contains("no metrics")));
}

/// With as many buckets as there may be samples, drawing the view again and again stays fast.
#[test]
fn histogram_of_many_buckets_is_read_quickly() {
    let buckets: String = (1..40_000)
        .map(|end| {
            format!("kvstrata_transfer_seconds_bucket{{path=\"host_to_device\",le=\"{end}\"}} {end}\n")
        })
        .collect();
    let text = texts()[1].clone() + &buckets;
    let (watch, now) = watched(&[text.clone(), text]);
    let began = Instant::now();
    for _ in 0..40 {
        assert!(!watch.view(now).paths.is_empty());
    }
    assert!(began.elapsed() < 5 * SECOND, "{:?}", began.elapsed());
}

/// Pieces of valid and of invalid texts.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => proptest::sample::select(vec![
            "kvstrata_", "tier", "{", "}", "=", "\"", "\\", ",", " ", "\n", "1", "-1", "NaN", "+Inf", "1e999", "le", "#", "\r", "\u{1b}[2J", "é",
        ]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

/// A label value with characters that need escapes.
fn special() -> impl Strategy<Value = String> {
    let chars = proptest::sample::select(vec!['\\', '"', '\n', 'n', 'a', '}', ',', '=', ' ', 'é']);
    proptest::collection::vec(chars, 0..8).prop_map(|chars| chars.into_iter().collect())
}

/// A value that no manager sends.
fn number() -> impl Strategy<Value = String> {
    proptest::sample::select(vec![
        "NaN",
        "-1",
        "+Inf",
        "-Inf",
        "1e308",
        "1e999",
        "18446744073709551615",
        "0.5",
        "0",
        "-0",
        "7",
    ])
    .prop_map(str::to_owned)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_text_makes_the_reader_panic(pieces in proptest::collection::vec(piece(), 0..64)) {
        let text: String = pieces.concat();
        if let Err(refused) = Exposition::parse(&text) {
            let lines = text.split_inclusive('\n').count();
            prop_assert!((1..=lines.max(1)).contains(&refused.line), "{} of {}", refused.line, lines);
        }
    }

        /// Labels escaped by the rules of the format are read back unchanged.
    #[test]
    fn escaped_labels_are_read_back(values in proptest::collection::vec(special(), 0..8), number in any::<u32>()) {
        let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<String> =
            values.iter().enumerate().map(|(index, value)| format!("l{index}=\"{}\"", escaped(value))).collect();
        let text = format!("kvstrata_x{{{}}} {number}\n", labels.join(","));
        let read = Exposition::parse(&text).expect("of the format");
        let names: Vec<String> = (0..values.len()).map(|index| format!("l{index}")).collect();
        let wanted: Vec<(&str, &str)> = names.iter().zip(&values).map(|(name, value)| (name.as_str(), value.as_str())).collect();
        prop_assert_eq!(read.sum("kvstrata_x", &wanted), Some(f64::from(number)));
    }

        /// A manager's text with other numbers and with names that contain control characters.
    #[test]
    fn hostile_figures_are_shown_within_bounds(
        numbers in proptest::collection::vec(number(), 64),
        name in any::<String>(),
        columns in 0_u16..200,
        rows in 0_u16..60,
    ) {
        let quoted = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let mut numbers = numbers.iter().cycle();
        let mut hostile = |text: &str| -> String {
            let odd = |line: &str| match line.rsplit_once(' ') {
                Some((front, _)) if !line.starts_with('#') => format!("{front} {}\n", numbers.next().expect("for ever")),
                _ => format!("{line}\n"),
            };
            text.lines().map(odd).collect::<String>().replace("\"device\"", &format!("\"{quoted}\"")).replace("acme", "\\n\u{1b}[2J")
        };
        let [before, after] = texts();
        let (watch, now) = watched(&[hostile(before), hostile(after)]);
        let view = watch.view(now);
        let parts = view.hits.iter().flat_map(|hit| [hit.now, hit.overall]).flatten();
        prop_assert!(parts.into_iter().all(|part| (0.0..=1.0).contains(&part)));
        let rates = view.paths.iter().flat_map(|path| [path.bytes_per_second, path.transfers_per_second]);
        let rates: Vec<f64> = rates.chain(view.tiers.iter().map(|tier| tier.evicted_per_second)).flatten().collect();
        prop_assert!(rates.iter().all(|rate| rate.is_finite() && *rate >= 0.0), "{:?}", rates);
        for look in [PLAIN, Look { colour: true, ascii: true, keys: true }] {
            let text: Vec<String> = view.lines(look, columns, rows).iter().map(ToString::to_string).collect();
            prop_assert!(text.len() <= usize::from(rows));
            prop_assert!(text.iter().all(|row| !row.chars().any(char::is_control)), "{:?}", text);
            prop_assert!(text.iter().all(|row| !row.contains("NaN") && !row.contains("inf ")), "{:?}", text);
            let _ = screen(&view, look, columns, rows);
        }
    }
}
