//! A reader of the exposition text that takes only what the format allows, and the text of a manager.

use crate::figures::busy;
use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

/// A line of the text.
#[derive(Debug)]
pub struct Sample {
    pub name: String,
    pub labels: Labels,
    pub value: f64,
}

/// A metric: its type, and its samples in the order of the text.
#[derive(Debug)]
pub struct Family {
    pub kind: String,
    pub samples: Vec<Sample>,
}

/// Reads the metrics by name. Panics at text that breaks the format, or is there twice.
pub fn read(text: &str) -> BTreeMap<String, Family> {
    assert!(text.ends_with('\n'), "the last line has an end");
    let (mut families, mut seen) = (BTreeMap::<String, Family>::new(), BTreeSet::new());
    let (mut helped, mut current) = (None, String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert!(!help.is_empty(), "{line}");
            helped = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert_eq!(helped.take().as_deref(), Some(name), "help comes before the type: {line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            let family = Family { kind: kind.to_owned(), samples: Vec::new() };
            assert!(
                families.insert(name.to_owned(), family).is_none(),
                "all of a metric is together: {line}"
            );
            current = name.to_owned();
        } else {
            let sample = sample(line);
            assert!(seen.insert((sample.name.clone(), sample.labels.clone())), "twice: {line}");
            let family = families.get_mut(&current).unwrap_or_else(|| panic!("before any type: {line}"));
            let suffix =
                sample.name.strip_prefix(&current).unwrap_or_else(|| panic!("not {current}: {line}"));
            let suffixes: &[&str] =
                if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.contains(&suffix), "{line}");
            family.samples.push(sample);
        }
    }
    assert!(families.values().all(|family| !family.samples.is_empty()), "a type without samples");
    families
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line}"));
    let (name, mut rest) = line.split_at(end);
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    assert!(!name.is_empty() && name.chars().all(allowed), "{line}");
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            assert!(!label.is_empty() && label.chars().all(allowed), "{line}");
            let (mut value, mut chars) = (String::new(), after.char_indices());
            let end = loop {
                match chars.next().unwrap_or_else(|| panic!("no end of a label: {line}")) {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next() {
                        Some((_, 'n')) => '\n',
                        Some((_, c @ ('\\' | '"'))) => c,
                        other => panic!("{other:?} behind \\: {line}"),
                    }),
                    (_, c) => value.push(c),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "a label twice: {line}");
            rest = &after[end + 1..];
            match rest.split_at(1) {
                (",", more) => rest = more,
                ("}", more) => {
                    rest = more;
                    break;
                }
                _ => panic!("{line}"),
            }
        }
    }
    let value = rest.strip_prefix(' ').and_then(|value| value.parse().ok());
    Sample { name: name.to_owned(), labels, value: value.unwrap_or_else(|| panic!("no value: {line}")) }
}

/// The value of the sample with these labels and no others.
pub fn value(families: &BTreeMap<String, Family>, name: &str, labels: &[(&str, &str)]) -> f64 {
    let labels: Labels = labels.iter().map(|(label, value)| ((*label).into(), (*value).into())).collect();
    let mut samples = families.values().flat_map(|family| &family.samples);
    let found = samples.find(|sample| sample.name == name && sample.labels == labels);
    found.unwrap_or_else(|| panic!("no {name} {labels:?}")).value
}

#[test]
fn escaped_names_and_help_are_read_back() {
    let text = "# HELP a_total b \\\\ c\n# TYPE a_total counter\na_total{x=\"1\\\"2\\\\3\\n\",y=\"\"} 0.5\n";
    let families = read(text);
    let labels = &families["a_total"].samples[0].labels;
    assert_eq!((labels["x"].as_str(), labels["y"].as_str()), ("1\"2\\3\n", ""));
}

#[tokio::test]
async fn text_of_a_busy_manager_keeps_the_format() {
    let manager = busy().await;
    let families = read(&manager.metrics().to_prometheus());
    for (name, family) in &families {
        if family.kind == "histogram" {
            check_histogram(name, family);
        }
    }
    // All of the table, with the labels that it says.
    for entry in kvstrata::metrics::reference() {
        let family = families.get(entry.name).unwrap_or_else(|| panic!("{} has no sample", entry.name));
        assert_eq!(family.kind, entry.kind, "{}", entry.name);
        for sample in &family.samples {
            let labels: BTreeSet<&str> =
                sample.labels.keys().map(String::as_str).filter(|label| *label != "le").collect();
            assert_eq!(labels, entry.labels.iter().copied().collect(), "{}", entry.name);
        }
    }
    assert_eq!(families.len(), kvstrata::metrics::reference().len());
    manager.shutdown().await;
}

/// For each set of labels without `le`: buckets that grow up to `+Inf`, which is the count.
fn check_histogram(name: &str, family: &Family) {
    let mut by_labels: BTreeMap<Labels, Vec<&Sample>> = BTreeMap::new();
    for sample in &family.samples {
        let mut labels = sample.labels.clone();
        labels.remove("le");
        by_labels.entry(labels).or_default().push(sample);
    }
    for samples in by_labels.values() {
        let buckets: Vec<(f64, f64)> = samples
            .iter()
            .filter(|sample| sample.name.ends_with("_bucket"))
            .map(|sample| (sample.labels["le"].parse().expect("a number"), sample.value))
            .collect();
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name}: {buckets:?}");
        let (end, all) = buckets[buckets.len() - 1];
        let of = |suffix: &str| {
            samples.iter().find(|sample| sample.name.ends_with(suffix)).map(|sample| sample.value)
        };
        assert_eq!((end, Some(all)), (f64::INFINITY, of("_count")), "{name}");
        let sum = of("_sum").unwrap_or_else(|| panic!("{name} has no sum"));
        // A transfer that starts in the change that queued it has not waited.
        let may_be_nothing = name == "kvstrata_transfer_wait_seconds";
        assert!(if all > 0.0 { sum > 0.0 || may_be_nothing && sum == 0.0 } else { sum == 0.0 }, "{name}");
    }
}
