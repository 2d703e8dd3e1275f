//! `kvstrata replay` and the command itself, end to end: output, errors, files left behind.

use kvstrata_core::Policy;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const GOOD: &str = "{\"timestamp\": 0, \"input_length\": 1500, \"output_length\": 5, \"hash_ids\": [1, 2, 3]}\n\
                    {\"timestamp\": 5, \"input_length\": 2000, \"output_length\": 7, \"hash_ids\": [1, 2, 4, 5]}\n\
                    {\"timestamp\": 9, \"input_length\": 1500, \"output_length\": 1, \"hash_ids\": [1, 2, 3]}\n";

/// Runs the command in `folder`, and checks that `expected` are the only files there afterwards.
fn run_in(folder: &Path, expected: &[&str], arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_kvstrata"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("the command runs");
    let entries = std::fs::read_dir(folder).expect("there").flatten();
    let mut left: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    left.sort();
    assert_eq!(left, expected, "left behind by {arguments:?}");
    output
}

fn run(arguments: &[&str]) -> Output {
    run_in(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory").path(), &[], arguments)
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// The message of a run that must end with exit code 2 and print nothing else.
fn refusal(output: &Output) -> String {
    let message = text(&output.stderr).to_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    assert!(message.starts_with("kvstrata: ") || message.starts_with("error: "), "{message}");
    message
}

fn json(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes).expect("JSON")
}

#[test]
fn replay_prints_a_table_and_writes_json() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    std::fs::write(folder.path().join("t.jsonl"), GOOD).expect("written");
    let arguments =
        ["replay", "--trace", "t.jsonl", "--disk", ".", "--disk-blocks", "64", "--json", "r.json"];
    let output = run_in(folder.path(), &["kvstrata.kvs", "r.json", "t.jsonl"], &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "no progress bar where there is no terminal: {}", text(&output.stderr));
    let table = text(&output.stdout);
    for line in [
        "requests                    3\n",
        "blocks                     10\n",
        "hit ratio             50.00 %\n",
    ] {
        assert!(table.contains(line), "{line:?} in\n{table}");
    }
    assert!(table.ends_with("blocks verified  5\nwrong bytes      0\n"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80 || line.starts_with("disk  ")), "{table}");
    let report = json(&std::fs::read(folder.path().join("r.json")).expect("written"));
    assert_eq!(
        (&report["requests"], &report["blocks"], &report["hit_blocks"]),
        (&3.into(), &10.into(), &5.into())
    );
}

#[test]
fn replay_json_has_the_stable_keys() {
    let output =
        run(&["replay", "--requests", "500", "--json", "-", "--block-bytes", "4K", "--disk-blocks", "16K"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("wrong bytes      0"), "the table is on standard error");
    let report = json(&output.stdout);
    let pointers = [
        "requests",
        "blocks",
        "hit_blocks",
        "verified_blocks",
        "wrong_bytes",
        "hits/device",
        "hits/host",
        "hits/disk",
        "evicted/device",
        "evicted/host",
        "evicted/disk",
        "bytes/device_to_host",
        "bytes/host_to_disk",
        "bytes/disk_to_host",
        "bytes/host_to_device",
        "peak_memory_bytes",
    ];
    assert_eq!(report["interrupted"], false);
    for pointer in pointers {
        let value = report.pointer(&format!("/{pointer}")).unwrap_or_else(|| panic!("{pointer} is missing"));
        assert!(value.is_u64(), "{pointer} is {value}");
    }
    for operation in ["allocation", "match", "onboard", "release"] {
        for quantile in ["p50", "p99", "p999"] {
            assert!(report["latency_ns"][operation][quantile].is_u64(), "{operation} {quantile}");
        }
    }
    assert!(report["lateness_ns"].is_null() && report["settings"]["speed"] == 0.0, "{report}");
    let backing = report["host_backing"].as_str().expect("what backs the host tier");
    assert!(backing.contains("pages"), "{backing}");
    let line = format!("host memory      {backing}");
    assert!(text(&output.stderr).lines().any(|shown| shown.starts_with(&line)), "{line}");
    assert!(report["wall_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    assert_eq!((number(&report["requests"]), number(&report["blocks"])), (500, 14_162));
    let hits = &report["hits"];
    assert_eq!(
        number(&report["hit_blocks"]),
        ["device", "host", "disk"].iter().map(|tier| number(&hits[tier])).sum::<u64>()
    );
    assert_eq!(report["hit_blocks"], report["verified_blocks"]);
    assert_eq!(report["wrong_bytes"], 0);
    let ratio = report["hit_ratio"].as_f64().expect("a number");
    assert!((ratio - number(&report["hit_blocks"]) as f64 / 14_162.0).abs() < 1e-12);
}

#[test]
fn replay_with_a_wrong_byte_exits_with_1() {
    let output = run(&["replay", "--requests", "300", "--disk-blocks", "0", "--flip-every", "20"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("\nfirst of them    line "), "{}", text(&output.stdout));
}

#[test]
fn compressed_trace_is_read_from_a_pipe() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(GOOD.as_bytes()).expect("in memory");
    let mut xz =
        lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(6)).expect("in memory");
    xz.write_all(GOOD.as_bytes()).expect("in memory");
    let zstd =
        ruzstd::encoding::compress_to_vec(GOOD.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
    let archives =
        [GOOD.as_bytes().to_vec(), gzip.finish().expect("in memory"), xz.finish().expect("in memory"), zstd];
    for archive in archives {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kvstrata"))
            .args(["replay", "--trace", "-", "--disk-blocks", "0", "--json", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command runs");
        child.stdin.take().expect("piped").write_all(&archive).expect("taken");
        let output = child.wait_with_output().expect("ended");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(json(&output.stdout)["hit_blocks"], 5);
    }
}

#[test]
fn bad_trace_is_refused_by_line_and_leaves_no_file() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let cases = [
        (format!("{GOOD}{{\"timestamp\": 1,\n"), "t.jsonl: line 4: EOF while parsing"),
        (
            GOOD.replace("[1, 2, 4, 5]", "[1, -2]"),
            "t.jsonl: line 2: invalid value: integer `-2`, expected u64",
        ),
        (GOOD.replace("\"output_length\": 1, ", ""), "t.jsonl: line 3: missing field `output_length`"),
        (GOOD.replace("[1, 2, 4, 5]", "\"1 2\""), "t.jsonl: line 2: invalid type: string"),
    ];
    for (trace, wanted) in cases {
        std::fs::write(folder.path().join("t.jsonl"), trace).expect("written");
        let arguments = ["replay", "--trace", "t.jsonl", "--disk-blocks", "9", "--json", "r.json"];
        let message = refusal(&run_in(folder.path(), &["t.jsonl"], &arguments));
        assert!(message.contains(wanted), "{message}");
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    gzip.write_all(GOOD.as_bytes()).expect("in memory");
    let archive = gzip.finish().expect("in memory");
    std::fs::write(folder.path().join("t.jsonl"), &archive[..archive.len() - 60]).expect("written");
    let message = refusal(&run_in(
        folder.path(),
        &["t.jsonl"],
        &["replay", "--trace", "t.jsonl", "--disk-blocks", "0"],
    ));
    assert!(message.contains("t.jsonl: gzip input ends or breaks after line 2: "), "{message}");
    let message = refusal(&run(&["replay", "--trace", "/nonexistent.jsonl"]));
    assert!(message.contains("--trace /nonexistent.jsonl: cannot be opened: "), "{message}");
}

#[test]
fn replay_refuses_impossible_options_by_name_and_value() {
    let cases: [(&[&str], &[&str]); 14] = [
        (&["--device-blocks", "0"], &["--device-blocks 0: must be from 1"]),
        (&["--block-bytes", "7"], &["--block-bytes 7: must be from 64"]),
        (&["--block-bytes", "lots"], &["--block-bytes", "lots", "64KiB"]),
        (&["--concurrency", "0"], &["--concurrency 0: must be from 1 to 256"]),
        (&["--speed=-1"], &["--speed -1: must be from 0 to"]),
        (&["--policy", "mru"], &["--policy", "mru", "lru, lfu, sieve, s3fifo, arc, 2q"]),
        (&["--json", "/nonexistent/r.json"], &["--json /nonexistent/r.json", "its directory does not exist"]),
        (&["--host-blocks", "200M", "--block-bytes", "1G"], &["--host-blocks 209715200", "of memory"]),
        (
            &["--disk-blocks", "256M", "--device-blocks", "256M", "--host-blocks", "256M"],
            &["-blocks 268435456", "of memory"],
        ),
        (&["--requests", "many"], &["--requests", "many"]),
        (
            &["--disk", "a,b,c", "--disk-blocks", "100"],
            &["--disk-blocks 100: must be a multiple of the 3 paths of --disk; use 99 or 102"],
        ),
        (&["--disk", "a", "--disk-blocks", "0"], &["--disk a: ", "--disk-blocks 0 leaves the disk tier out"]),
        (&["--disk-admission", "mru"], &["--disk-admission", "mru", "always, second-use, tinylfu"]),
        (&["--disk-write-budget", "much"], &["--disk-write-budget", "much", "64KiB"]),
    ];
    for (options, wanted) in cases {
        let message = refusal(&run(&[&["replay"], options].concat()));
        assert!(wanted.iter().all(|part| message.contains(part)), "{options:?}: {message}");
    }
}

#[test]
fn unusable_disk_is_refused_and_unchanged() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let huge =
        ["replay", "--disk", ".", "--disk-blocks", "4M", "--block-bytes", "64M", "--device-blocks", "1"];
    let message = refusal(&run_in(folder.path(), &[], &[&huge[..], &["--host-blocks", "0"]].concat()));
    assert!(
        message.contains("--disk: volume ./kvstrata.kvs: needs ") && message.contains("256 TiB"),
        "{message}"
    );

    std::fs::write(folder.path().join("precious"), "data").expect("written");
    let message = refusal(&run_in(folder.path(), &["precious"], &["replay", "--disk", "precious"]));
    assert!(
        message.contains("--disk: volume precious: ")
            && message.contains("the file shows no sign of a volume"),
        "{message}"
    );
    assert_eq!(std::fs::read(folder.path().join("precious")).expect("there"), b"data");

    std::os::unix::fs::symlink("precious", folder.path().join("link")).expect("made");
    let message = refusal(&run_in(folder.path(), &["link", "precious"], &["replay", "--disk", "link"]));
    assert!(message.contains("--disk: volume link: ") && message.contains("is a symbolic link"), "{message}");

    let message = refusal(&run(&["replay", "--disk", "/nonexistent/volume"]));
    assert!(message.contains("--disk /nonexistent/volume: its directory does not exist"), "{message}");
}

const SMALL: [&str; 15] = [
    "replay",
    "--patience",
    "1h",
    "--requests",
    "400",
    "--device-blocks",
    "64",
    "--host-blocks",
    "128",
    "--disk-blocks",
    "8K",
    "--block-bytes",
    "4K",
    "--json",
    "-",
];

/// A small replay that must succeed: its JSON and its table.
fn replay_small(folder: &Path, left: &[&str], more: &[&str]) -> (serde_json::Value, String) {
    let output = run_in(folder, left, &[&SMALL[..], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = json(&output.stdout);
    assert_eq!(report["wrong_bytes"], 0);
    (report, text(&output.stderr).to_owned())
}

#[test]
fn second_run_finds_the_blocks_of_the_first() {
    for (disk, files) in [(".", vec!["kvstrata.kvs"]), ("a,b", vec!["a", "b"]), ("v.kvs", vec!["v.kvs"])] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let (first, table) = replay_small(folder.path(), &files, &["--disk", disk]);
        assert_eq!(
            (&first["disk"]["created"], &first["disk"]["recovered_blocks"]),
            (&true.into(), &0.into())
        );
        assert!(!table.contains("recovered"), "{table}");
        let (second, table) = replay_small(folder.path(), &files, &["--disk", disk]);
        let number = |value: &serde_json::Value| value.as_u64().expect("a number");
        // No block was evicted, so all written blocks are there.
        assert_eq!(first["evicted"]["disk"], 0);
        let written = number(&first["disk"]["written_blocks"]);
        assert!(written > 1000, "{first}");
        assert_eq!(number(&second["disk"]["recovered_blocks"]), written);
        assert_eq!(second["disk"]["clean"], true);
        assert_eq!(second["disk"]["volumes"], files.len());
        assert!(number(&second["hits"]["disk"]) > number(&first["hits"]["disk"]) + written / 2, "{second}");
        for (cause, count) in second["disk"]["rejected"].as_object().expect("by cause") {
            assert_eq!(count, 0, "{cause}");
        }
        let line =
            format!("recovered        {},{:03} blocks, clean shutdown\n", written / 1000, written % 1000);
        assert!(table.contains(&line), "{line} in {table}");
    }
}

#[test]
fn volume_of_other_settings_is_refused_by_field() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let disk = ["--disk", "v"];
    replay_small(folder.path(), &["v"], &disk);
    let cases: [(&[&str], &[&str]); 4] = [
        (&["--seed", "1"], &["--disk v: its model_fingerprint is 0", "--seed"]),
        (
            &["--block-bytes", "8K"],
            &["--disk v: its slot_bytes is 4096, but the options ask for 8192", "--block-bytes"],
        ),
        (
            &["--disk-blocks", "4K"],
            &["--disk v: its slots is 8192, but the options ask for 4096", "--disk-blocks"],
        ),
        (&["--disk", "w"], &["--disk v: its slots is 8192, but the options ask for 4096", "number of paths"]),
    ];
    for (change, wanted) in cases {
        let kept = std::fs::read(folder.path().join("v")).expect("there");
        let options = SMALL[1..].chunks(2).filter(|option| option[0] != change[0]).flatten();
        let arguments = [&["replay"], &options.copied().collect::<Vec<_>>()[..], &disk, change].concat();
        let message = refusal(&run_in(folder.path(), &["v"], &arguments));
        assert!(wanted.iter().all(|part| message.contains(part)), "{change:?}: {message}");
        assert!(message.contains("--reinitialize"), "{message}");
        assert!(std::fs::read(folder.path().join("v")).expect("there") == kept, "{change:?}: as it was");
    }
    let (other, _) = replay_small(folder.path(), &["v"], &["--disk", "v", "--seed", "1", "--reinitialize"]);
    assert_eq!((&other["disk"]["created"], &other["disk"]["recovered_blocks"]), (&true.into(), &0.into()));
    let (again, _) = replay_small(folder.path(), &["v"], &["--disk", "v", "--seed", "1"]);
    assert_eq!(again["disk"]["recovered_blocks"], other["disk"]["written_blocks"]);
}

#[test]
fn encrypted_disk_tier_opens_only_with_its_key() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let key = |name: &str, digit: &str, mode| {
        let file = folder.path().join(name);
        std::fs::write(&file, format!("0{}", digit.repeat(63))).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("set");
    };
    key("key", "a", 0o600);
    key("other", "b", 0o600);
    key("open", "c", 0o644);
    let left = ["key", "open", "other", "v"];
    let with = |file| ["--disk", "v", "--disk-fill", "no", "--disk-key-file", file];
    let (first, _) = replay_small(folder.path(), &left, &with("key"));
    let (second, _) = replay_small(folder.path(), &left, &with("key"));
    assert_eq!(second["disk"]["recovered_blocks"], first["disk"]["written_blocks"]);
    assert!(second["hits"]["disk"].as_u64() > Some(0) && second["disk"]["rejected"]["payload"] == 0);
    for (options, wanted) in [
        (&with("other")[..], "its key is"),
        (&["--disk", "v"][..], "its seal_kind is"),
        (&with("open")[..], "--disk-key-file open: "),
        (&with("nothing")[..], "--disk-key-file nothing: "),
        (&["--disk", "v", "--disk-key-env", "KVSTRATA_NO_SUCH"][..], "--disk-key-env KVSTRATA_NO_SUCH: "),
    ] {
        let message = refusal(&run_in(folder.path(), &left, &[&SMALL[..], options].concat()));
        assert!(message.contains(wanted), "{options:?}: {message}");
    }
}

#[test]
fn disk_file_is_filled_as_asked_or_by_the_next_run() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let says = |report: &serde_json::Value, what: &str| report["disk"]["notes"].to_string().contains(what);
    for when in ["first", "background", "no"] {
        let (made, _) = replay_small(folder.path(), &["v"], &["--disk", "v", "--disk-fill", when]);
        assert_eq!(says(&made, "through in the background"), when == "background", "{made}");
        // The default fills the file.
        let (found, _) = replay_small(folder.path(), &["v"], &["--disk", "v"]);
        assert_eq!(found["disk"]["recovered_blocks"], made["disk"]["written_blocks"]);
        if says(&found, "does not list") {
            println!("SKIP fiemap: {}", found["disk"]["notes"]);
        } else if when != "background" {
            assert_eq!(says(&found, "written through now"), when == "no", "{found}");
        }
        std::fs::remove_file(folder.path().join("v")).expect("there");
    }
    let output = run(&["replay", "--disk", "v", "--disk-fill", "never"]);
    assert!(text(&output.stderr).contains("background"), "{}", text(&output.stderr));
}

#[test]
fn backend_admission_and_budget_are_chosen_by_option() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let chosen = |backend| ["--disk", "v", "--trim", "--disk-backend", backend];
    let (first, _) = replay_small(folder.path(), &["v"], &chosen("threads"));
    assert_eq!(first["disk"]["backend"], "pread/pwrite threads");
    let (second, _) = replay_small(folder.path(), &["v"], &chosen("auto"));
    assert_eq!(second["disk"]["direct"], true);
    assert_eq!(second["disk"]["recovered_blocks"], first["disk"]["written_blocks"], "one format for all");
    let (report, table) =
        replay_small(folder.path(), &["v"], &["--disk-admission", "second-use", "--disk-write-budget", "1M"]);
    let disk = &report["disk"];
    let number = |key: &str| disk[key].as_u64().expect("a number");
    assert!(number("refused_by_admission_blocks") > 0 && number("refused_by_budget_blocks") > 0, "{disk}");
    assert_eq!(
        number("offered_blocks"),
        number("written_blocks") + number("refused_by_admission_blocks") + number("refused_by_budget_blocks")
    );
    assert_eq!(report["bytes"]["host_to_disk"].as_u64(), Some(number("written_blocks") * 4096));
    assert!(table.contains(" second-use, ") && table.contains(" over the budget\n"), "{table}");
}

#[test]
fn doctor_reports_each_feature() {
    let output = run(&["doctor"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("io_uring: ") && table.contains(" limited, "), "{table}");
    let output = run(&["doctor", "--path", "/", "--json"]);
    let facts = json(&output.stdout);
    let facts = facts.as_array().expect("a list");
    let names: Vec<_> = facts.iter().filter_map(|fact| fact["name"].as_str()).collect();
    for topic in ["kernel", "io_uring", "O_DIRECT", "memory-lock", "NUMA", "CUDA", "nvcc", "NIXL", "cuFile"] {
        assert!(names.iter().any(|name| name.contains(topic)), "{topic} in {names:?}");
    }
    for fact in facts {
        let status = fact["status"].as_str().expect("a status");
        assert!(["found", "limited", "not_found"].contains(&status));
        assert!(status == "found" || fact["remedy"].is_string(), "{fact}");
    }
    assert!(
        refusal(&run(&["doctor", "--path", "/nonexistent"])).contains("--path /nonexistent: does not exist")
    );
}

#[test]
fn help_has_examples_units_and_exit_codes() {
    let output = run(&["replay", "--help"]);
    let help = text(&output.stdout);
    for part in [
        "Examples:",
        "Units:",
        "Exit codes:",
        "143  ended early by SIGTERM",
        "--concurrency",
        "hash_ids",
        "[default: 2048]",
    ] {
        assert!(help.contains(part), "{part}");
    }
    assert!(!help.contains("flip-every"));
    for command in ["replay", "policies", "doctor", "layout", "tune", "config"] {
        let output = run(&[command, "--help"]);
        for part in ["Examples:", "Exit codes:"] {
            assert!(text(&output.stdout).contains(part), "{command}: {part}");
        }
        assert!(text(&run(&["--help"]).stdout).contains(&format!("\n  {command} ")), "{command}");
    }
    // Each possible value has its own description.
    for policy in Policy::ALL {
        assert!(help.contains(&format!("- {policy}:")), "{policy}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert!(text(&output.stdout).contains("device-blocks"), "{shell}");
    }
    assert_eq!(run(&["--version"]).stdout, format!("kvstrata {}\n", env!("CARGO_PKG_VERSION")).as_bytes());
    assert_eq!(run(&["frobnicate"]).status.code(), Some(2));
}

/// Without a terminal, clap takes the width from COLUMNS.
#[test]
fn help_is_wrapped_at_the_width_but_at_most_110_columns() {
    let help = |command: &str, form: &str, columns: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_kvstrata"))
            .args([command, form].iter().filter(|word| !word.is_empty()))
            .env("COLUMNS", columns)
            .stdin(Stdio::null())
            .output()
            .expect("the command runs");
        assert_eq!(output.status.code(), Some(0), "{command} {form}");
        text(&output.stdout).to_owned()
    };
    let commands =
        ["", "replay", "policies", "doctor", "layout", "tune", "config", "metrics", "top", "completions"];
    for (command, form) in commands.into_iter().flat_map(|command| [(command, "-h"), (command, "--help")]) {
        let [narrow, _, wide] = [("80", 80), ("110", 110), ("200", 110)].map(|(columns, most)| {
            let help = help(command, form, columns);
            let longest = help.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(most), "{command} {form} at {columns} columns: {longest:?}\n{help}");
            help
        });
        for example in wide.lines().filter(|line| line.starts_with("  kvstrata ")) {
            assert!(narrow.lines().any(|line| line == example), "{example} is broken in\n{narrow}");
        }
    }
}
