//! The reference of metrics: the file equals the table's output.

use kvstrata::metrics;
use kvstrata::store::metrics_markdown;
use std::path::Path;

#[test]
fn metrics_file_equals_the_table() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md"));
    let there = std::fs::read_to_string(path).expect("docs/metrics.md");
    assert!(
        there == metrics::markdown() + &metrics_markdown(),
        "docs/metrics.md is out of date: kvstrata metrics --markdown > docs/metrics.md"
    );
}
