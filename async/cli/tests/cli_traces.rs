//! Traces that are not what they are taken for: `replay` and `policies` say the same of them.

use std::path::Path;
use std::process::{Command, Output, Stdio};

const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces");

/// Both commands over a file of `tests/traces`: quick ones.
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

/// What both warn of: at once on standard error, and in their tables and JSON.
fn warnings(trace: &str, more: &[&str]) -> Vec<String> {
    let [replay, policies] = both(trace, more).map(|output| {
        let text = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(0), "{trace}: {text}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let list = report["trace_warnings"].as_array().expect("a list");
        let list: Vec<String> = list.iter().map(|of| of.as_str().expect("text").to_owned()).collect();
        for warning in &list {
            assert!(text.contains(&format!("\nwarning          {warning}\n")), "{warning} in {text}");
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

/// How both refuse a trace.
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
fn a_trace_in_seconds_of_other_blocks_is_warned_of() {
    let list = warnings("qwen-bailian.jsonl", &[]);
    let [length, seconds] = &list[..] else { panic!("{list:?}") };
    assert!(
        length.starts_with("line 1: hash_ids has 5 block(s), and input_length = 521 makes 2 of 512 tokens; ")
            && length.contains("--trace-block-tokens")
            && length.ends_with("[2 lines in all]"),
        "{length}"
    );
    assert!(
        seconds.starts_with(
            "line 1: timestamps from 61.114 to 62.5 make 722 requests a second if they are milliseconds; "
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
        "line 1: hash_ids has 5 block(s), and input_length = 521 makes 33 of 16 tokens; --trace-block-tokens 16 is not what the trace has"
    );
}

/// What is judged of all lines is judged of those that are read.
#[test]
fn a_trace_that_is_not_read_to_its_end_is_judged() {
    assert_eq!(warnings("qwen-bailian.jsonl", &["--requests", "2"]).len(), 2);
    assert_eq!(warnings("qwen-bailian.jsonl", &["--requests", "1"]).len(), 1);
}

#[test]
fn a_trace_out_of_order_is_warned_of() {
    let list = warnings("unsorted.jsonl", &[]);
    assert!(
        list.len() == 2
            && list[0].starts_with("line 2: timestamp = 100 is before that of line 1, 5000: ")
            && list[1].starts_with(
                "line 3: hash_ids has 1 block(s), and input_length = 1024 makes 2 of 512 tokens; "
            ),
        "{list:?}"
    );
}

#[test]
fn a_length_that_its_blocks_contradict_is_warned_of() {
    let list = warnings("inconsistent-length.jsonl", &[]);
    assert!(
        list.len() == 1
            && list[0].starts_with("line 1: hash_ids has 1 block(s), and input_length = 5000 makes 10 "),
        "{list:?}"
    );
    let refused = refusal("inconsistent-length.jsonl", &["--trace-block-tokens", "512"]);
    assert!(
        refused
            .starts_with("line 1: hash_ids has 1 block(s), and input_length = 5000 makes 10 of 512 tokens; "),
        "{refused}"
    );
}

#[test]
fn a_byte_order_mark_is_no_reason_to_refuse_a_trace() {
    assert_eq!(warnings("bom.jsonl", &[]), [""; 0]);
}

#[test]
fn an_empty_trace_and_a_block_twice_are_refused_by_both() {
    assert_eq!(
        refusal("empty-file.jsonl", &[]),
        "no requests in it; is the file empty, or was its download cut off?"
    );
    assert_eq!(
        refusal("twice.jsonl", &[]),
        "line 2: hash_ids has 8 twice: a prompt has a block once; remove the second"
    );
}

#[test]
fn the_numbers_of_a_trace_are_refused_by_name() {
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
