//! Traces that contradict their assumed units, or are invalid: `replay` and `policies` report the same.

use std::path::Path;
use std::process::{Command, Output, Stdio};

const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces");

/// Short runs of both commands over a file of `tests/traces`.
fn both(trace: &str, more: &[&str]) -> [Output; 2] {
    let trace = Path::new(TRACES).join(trace);
    let small: [&[&str]; 2] = [
        &["replay", "--host-blocks", "0", "--disk-blocks", "0", "--block-bytes", "4K", "--json", "-"],
        &["policies", "--capacities", "16", "--json", "-"],
    ];
    small.map(|command| {
        Command::new(env!("CARGO_BIN_EXE_kvstrata"))
            .args(command)
            .arg("--trace")
            .arg(&trace)
            .args(more)
            .env_remove("KVSTRATA_LOG")
            .stdin(Stdio::null())
            .output()
            .expect("the command runs")
    })
}

/// The warnings of both commands: logged at once, and in their tables and JSON.
fn warnings(trace: &str, more: &[&str]) -> Vec<String> {
    let [replay, policies] = both(trace, more).map(|output| {
        let text = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(0), "{trace}: {text}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let list = report["trace_warnings"].as_array().expect("a list");
        let list: Vec<String> = list.iter().map(|of| of.as_str().expect("text").to_owned()).collect();
        // The table breaks a warning into lines.
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for warning in &list {
            assert!(words.contains(&format!(" warning {warning} ")), "{warning} in {text}");
            let line = warning.split(' ').nth(1).expect("line N:");
            assert!(
                text.lines().any(|row| row.contains(" WARN ") && row.contains(&format!(": line {line} "))),
                "{text}"
            );
        }
        assert_eq!(text.contains(" WARN "), !list.is_empty(), "{text}");
        list
    });
    assert_eq!(replay, policies, "both commands say the same of {trace}");
    replay
}

/// The error of both commands.
fn refusal(trace: &str, more: &[&str]) -> String {
    let [replay, policies] = both(trace, more).map(|output| {
        let text = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{trace}: {text}");
        let refused = text.lines().find(|line| line.starts_with("kvstrata: --trace ")).expect("a message");
        refused.split_once(".jsonl: ").expect("the file").1.to_owned()
    });
    assert_eq!(replay, policies, "both commands say the same of {trace}");
    replay
}

#[test]
fn trace_in_seconds_with_other_blocks_gives_warnings() {
    let list = warnings("qwen-bailian.jsonl", &[]);
    let [length, seconds] = &list[..] else { panic!("{list:?}") };
    assert!(
        length.starts_with(
            "line 1: hash_ids has 5 ids, but input_length = 521 needs 2, at 512 tokens a block; "
        ) && length.contains("--trace-block-tokens")
            && length.ends_with("[2 such lines]"),
        "{length}"
    );
    assert!(
        seconds.starts_with(
            "line 1: timestamps from 61.114 to 62.5 in milliseconds give 722 requests a second; "
        ) && seconds.contains("--trace-time s"),
        "{seconds}"
    );
    assert_eq!(warnings("qwen-bailian.jsonl", &["--trace-time", "s"]), std::slice::from_ref(length));
    assert_eq!(
        warnings("qwen-bailian.jsonl", &["--trace-time", "s", "--trace-block-tokens", "108"]),
        [""; 0]
    );
    assert_eq!(
        refusal("qwen-bailian.jsonl", &["--trace-block-tokens", "16"]),
        "line 1: hash_ids has 5 ids, but input_length = 521 needs 33, at 16 tokens a block; correct --trace-block-tokens 16 or the line"
    );
}

/// Warnings that depend on all lines depend only on the lines read.
#[test]
fn trace_not_read_to_its_end_gives_warnings() {
    assert_eq!(warnings("qwen-bailian.jsonl", &["--requests", "2"]).len(), 2);
    assert_eq!(warnings("qwen-bailian.jsonl", &["--requests", "1"]).len(), 1);
}

#[test]
fn trace_out_of_order_gives_warnings() {
    let list = warnings("unsorted.jsonl", &[]);
    assert!(
        list.len() == 2
            && list[0].starts_with("line 2: timestamp = 100 is before that of line 1, 5000: ")
            && list[1].starts_with(
                "line 3: hash_ids has 1 id, but input_length = 1024 needs 2, at 512 tokens a block; "
            ),
        "{list:?}"
    );
}

#[test]
fn contradicting_length_gives_a_warning() {
    let list = warnings("inconsistent-length.jsonl", &[]);
    assert!(
        list.len() == 1
            && list[0].starts_with("line 1: hash_ids has 1 id, but input_length = 5000 needs 10, "),
        "{list:?}"
    );
    let refused = refusal("inconsistent-length.jsonl", &["--trace-block-tokens", "512"]);
    assert!(
        refused.starts_with(
            "line 1: hash_ids has 1 id, but input_length = 5000 needs 10, at 512 tokens a block; "
        ),
        "{refused}"
    );
}

#[test]
fn trace_with_a_byte_order_mark_is_read() {
    assert_eq!(warnings("bom.jsonl", &[]), [""; 0]);
}

#[test]
fn empty_trace_and_duplicate_block_are_refused() {
    assert_eq!(
        refusal("empty-file.jsonl", &[]),
        "no requests; is the file empty, or was its download cut off?"
    );
    assert_eq!(
        refusal("twice.jsonl", &[]),
        "line 2: hash_ids has 8 twice: a prompt has a block at most once; remove the second"
    );
}

#[test]
fn invalid_trace_units_are_refused_by_name() {
    for (more, wanted) in [
        (["--trace-time", "m"], ["--trace-time", "possible values: s, ms"]),
        (["--trace-block-tokens", "0"], ["--trace-block-tokens", "must be at least 1 token"]),
        (["--trace-block-tokens", "many"], ["--trace-block-tokens", "many"]),
    ] {
        for output in both("bom.jsonl", &more) {
            let text = String::from_utf8(output.stderr).expect("UTF-8");
            assert_eq!(output.status.code(), Some(2), "{text}");
            assert!(wanted.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
