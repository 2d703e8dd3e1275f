//! The reference of metrics: the file is the table's, and the command prints it.

use kvstrata::metrics;
use std::path::Path;
use std::process::{Command, Stdio};

fn printed(arguments: &[&str]) -> String {
    let command = Command::new(env!("CARGO_BIN_EXE_kvstrata"))
        .arg("metrics")
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let output = command.expect("the command runs");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_file_is_what_the_table_says() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md"));
    let there = std::fs::read_to_string(path).expect("docs/metrics.md");
    assert!(
        there == metrics::markdown(),
        "docs/metrics.md is out of date: kvstrata metrics --markdown > docs/metrics.md"
    );
}

#[test]
fn the_command_prints_each_metric_in_each_form() {
    let (text, markdown) = (printed(&[]), printed(&["--markdown"]));
    let json: Vec<serde_json::Value> = serde_json::from_str(&printed(&["--json"])).expect("JSON");
    assert_eq!((markdown, json.len()), (metrics::markdown(), metrics::reference().len()));
    for (entry, json) in metrics::reference().iter().zip(&json) {
        assert!(text.lines().any(|line| line.starts_with(entry.name)), "{}", entry.name);
        assert_eq!((json["name"].as_str(), json["type"].as_str()), (Some(entry.name), Some(entry.kind)));
    }
}
