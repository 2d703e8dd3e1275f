//! `kvstrata policies`, and the pictures of `policies` and `replay`, end to end.

use kvstrata_core::Policy;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn run_in(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvstrata"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("the command runs")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// Standard output and standard error of a run that must succeed.
fn good(output: &Output) -> (&str, &str) {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

fn refused(output: &Output) -> String {
    let message = text(&output.stderr).to_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    message
}

/// Like [`refused`], for a run that must not print a result.
fn refusal(output: &Output) -> String {
    let message = refused(output);
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    message
}

const SHORT: [&str; 5] = ["policies", "--requests", "600", "--capacities", "2K,300"];

fn compare(more: &[&str]) -> (serde_json::Value, String) {
    let output = run_in(folder().path(), &[&SHORT[..], &["--json", "-"], more].concat());
    let (json, table) = good(&output);
    (serde_json::from_str(json).expect("JSON"), table.to_owned())
}

fn hits(curve: &serde_json::Value) -> Vec<u64> {
    let hits = curve["hits"].as_array().expect("a list").iter();
    hits.map(|hits| hits.as_u64().expect("a number")).collect()
}

#[test]
fn every_policy_is_listed_and_below_the_optimum() {
    let (report, table) = compare(&[]);
    assert_eq!(report["capacities"], serde_json::json!([300, 2048]), "ascending");
    let curves = report["policies"].as_array().expect("a list");
    let names: Vec<&str> = curves.iter().filter_map(|curve| curve["name"].as_str()).collect();
    assert_eq!(names, Policy::ALL.map(Policy::name));
    let number = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"));
    assert_eq!(number("requests"), 600);
    assert_eq!(number("repeated_blocks"), number("blocks") - number("distinct_blocks"));
    let best = hits(&report["optimum"]);
    assert_eq!(report["optimum"]["name"], "optimum");
    for curve in curves {
        let hits = hits(curve);
        assert!(hits[0] < hits[1] && hits[0] <= best[0] && hits[1] <= best[1], "{curve}");
        let ratio = curve["hit_ratio"][1].as_f64().expect("a number");
        let blocks = report["blocks"].as_f64().expect("a number");
        assert!((ratio - hits[1] as f64 / blocks).abs() < 1e-12);
    }
    // The table has the same numbers, in the order of the names.
    let heads: Vec<&str> =
        table.lines().find(|line| line.contains(" optimum")).expect("heads").split_whitespace().collect();
    assert_eq!(heads, [&["blocks"][..], &names, &["optimum"]].concat());
    let row: Vec<&str> = table
        .lines()
        .find(|line| line.trim_start().starts_with("2,048 "))
        .expect("a row")
        .split_whitespace()
        .collect();
    for (cell, curve) in row[1..].iter().zip(curves) {
        let percent = format!("{:.2}", 100.0 * curve["hit_ratio"][1].as_f64().expect("a number"));
        assert_eq!(cell.trim_end_matches('*'), percent, "{row:?}");
    }
    assert!(row.iter().any(|cell| cell.ends_with('*')), "the best is marked");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}

#[test]
fn policy_hits_equal_those_of_a_device_only_replay() {
    // The longest prompts have more than 100 blocks: both commands cut off the rest.
    for (capacity, policy) in ["100", "300"].into_iter().flat_map(|of| Policy::ALL.map(|policy| (of, policy)))
    {
        let one = ["policies", "--requests", "600", "--json", "-", "--capacities", capacity, "--policies"];
        let output = run_in(folder().path(), &[&one[..], &[policy.name()]].concat());
        let report: serde_json::Value = serde_json::from_str(good(&output).0).expect("JSON");
        let device = [
            "replay",
            "--requests",
            "600",
            "--host-blocks",
            "0",
            "--disk-blocks",
            "0",
            "--block-bytes",
            "64",
            "--json",
            "-",
            "--device-blocks",
            capacity,
            "--policy",
            policy.name(),
        ];
        let output = run_in(folder().path(), &device);
        let replayed: serde_json::Value = serde_json::from_str(good(&output).0).expect("JSON");
        let [in_table] = hits(&report["policies"][0])[..] else { panic!("one capacity: {report}") };
        assert_eq!(replayed["hits"]["device"].as_u64(), Some(in_table), "{policy}, {capacity} blocks");
    }
}

#[test]
fn policies_are_chosen_by_name() {
    let (report, table) = compare(&["--policies", "2q,lru,2q"]);
    let names: Vec<_> =
        report["policies"].as_array().expect("a list").iter().map(|curve| &curve["name"]).collect();
    assert_eq!(names, ["2q", "lru"]);
    assert!(!table.contains("sieve"), "{table}");
    let message = refusal(&run_in(folder().path(), &["policies", "--policies", "lru,mru"]));
    assert!(message.contains("mru") && message.contains("s3fifo"), "{message}");
    for (capacities, wanted) in
        [("0", "must be from 1 to"), ("1K,", "64KiB"), ("4G", "at most"), ("x", "64KiB")]
    {
        let message = refusal(&run_in(folder().path(), &["policies", "--capacities", capacities]));
        assert!(message.contains("--capacities") && message.contains(wanted), "{capacities}: {message}");
    }
}

#[test]
fn policies_with_0_requests_are_refused_by_the_option() {
    let message = refusal(&run_in(folder().path(), &["policies", "--requests", "0"]));
    assert!(message.contains("--requests 0: ") && message.contains("at least 1"), "{message}");
    assert!(!message.contains("hash_ids"), "the trace is not to blame: {message}");
}

#[test]
fn trace_that_is_no_tree_is_refused_by_line() {
    let folder = folder();
    let line = |ids: &str| {
        format!("{{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": {ids}}}\n")
    };
    for (ids, wanted) in [
        ("[9, 2]", "--trace t.jsonl: line 2: hash_ids has 2 after 9, but an earlier line has it after 1"),
        ("[8, 8]", "--trace t.jsonl: line 2: hash_ids has 8 twice"),
        ("[1, -2]", "--trace t.jsonl: line 2: invalid value"),
    ] {
        std::fs::write(folder.path().join("t.jsonl"), line("[1, 2]") + &line(ids)).expect("written");
        let message = refusal(&run_in(folder.path(), &["policies", "--trace", "t.jsonl", "--plot", "t.svg"]));
        assert!(message.contains(wanted), "{message}");
        assert!(!folder.path().join("t.svg").exists());
    }
    std::fs::write(folder.path().join("t.jsonl"), line("[]")).expect("written");
    let message = refusal(&run_in(folder.path(), &["policies", "--trace", "t.jsonl"]));
    assert!(message.contains("no blocks"), "{message}");
    // Lines that are not read are not checked.
    std::fs::write(folder.path().join("t.jsonl"), line("[1, 2]") + &line("[2]")).expect("written");
    good(&run_in(folder.path(), &["policies", "--trace", "t.jsonl", "--requests", "1"]));
}

/// The text elements of an SVG. Fails unless all elements are closed in order, as a viewer needs.
fn texts(svg: &str) -> Vec<String> {
    let (mut open, mut texts, mut rest) = (Vec::new(), Vec::new(), svg);
    while let Some((before, after)) = rest.split_once('<') {
        if open.last() == Some(&"text") && !before.trim().is_empty() {
            texts.push(before.trim().replace("&gt;", ">").replace("&amp;", "&"));
        }
        let (tag, after) = after.split_once('>').expect("a tag ends");
        rest = after;
        let name = tag.split(|c: char| c.is_whitespace() || c == '/').next().expect("a part");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name.trim()), "closed in order"),
            None if tag.ends_with('/') || tag.starts_with(['?', '!']) => {}
            None => open.push(name),
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} are open, {rest:?} is left");
    texts
}

/// Width and height of a PNG with 8-bit colours. Fails unless all rows are there.
fn size_of_png(bytes: &[u8]) -> (u32, u32) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("small")];
    let info = reader.next_frame(&mut pixels).expect("all rows");
    assert!(pixels.iter().any(|byte| *byte < 64), "something is drawn");
    (info.width, info.height)
}

#[test]
fn curves_are_drawn_with_every_name() {
    let folder = folder();
    for file in ["curves.svg", "curves.PNG"] {
        let arguments = ["policies", "--requests", "600", "--capacities", "64,256,1K", "--plot", file];
        good(&run_in(folder.path(), &arguments));
    }
    let svg = std::fs::read_to_string(folder.path().join("curves.svg")).expect("written");
    let texts = texts(&svg);
    for wanted in
        Policy::ALL.map(Policy::name).into_iter().chain(["optimum", "256", "1K", "hits, % of all blocks"])
    {
        assert!(texts.iter().any(|text| text == wanted), "{wanted}: {texts:?}");
    }
    // Each curve has a mark at each capacity, and one in the legend.
    let marks = ["<circle ", "<polygon ", "<rect "].map(|mark| svg.matches(mark).count());
    let curves = Policy::ALL.len() + 1;
    // One more rectangle is the background.
    assert_eq!(marks.iter().sum::<usize>(), curves * 4 + 1, "{marks:?}");
    let png = std::fs::read(folder.path().join("curves.PNG")).expect("written");
    assert_eq!(size_of_png(&png), (1000, 604));
}

/// A capacity far from any power of two has a label too, and the title has the end of a long path.
#[test]
fn picture_title_names_the_trace() {
    let folder = folder();
    let trace = format!("{}.jsonl", "long".repeat(40));
    let line = "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1, 2]}\n";
    std::fs::write(folder.path().join(&trace), line.repeat(2)).expect("written");
    let arguments = ["policies", "--trace", &trace, "--capacities", "300", "--plot", "one.svg"];
    good(&run_in(folder.path(), &arguments));
    let texts = texts(&std::fs::read_to_string(folder.path().join("one.svg")).expect("written"));
    assert!(texts.iter().any(|text| text == "300"), "{texts:?}");
    let title = texts.iter().find(|text| text.ends_with(" distinct")).expect("a title");
    assert!(title.starts_with("...") && title.contains("long.jsonl: 2 requests"), "{title}");
    assert!((60..130).contains(&title.len()), "{title}");
}

/// A capacity just below a power of two does not get the label of that power.
#[test]
fn single_capacity_has_its_own_tick() {
    let folder = folder();
    for capacity in ["250", "1000"] {
        let arguments = ["policies", "--requests", "600", "--capacities", capacity, "--plot", "one.svg"];
        good(&run_in(folder.path(), &arguments));
        let texts = texts(&std::fs::read_to_string(folder.path().join("one.svg")).expect("written"));
        assert!(texts.iter().any(|text| text == capacity), "{capacity}: {texts:?}");
        assert!(!texts.iter().any(|text| text == "256" || text == "1K"), "{capacity}: {texts:?}");
    }
}

/// Two results in one file would lose the first, and a result must not replace a file
/// that the run reads or keeps.
#[test]
fn outputs_do_not_replace_each_other_or_inputs() {
    let folder = folder();
    let written = ["t.svg", "v.svg"];
    for name in written {
        std::fs::write(folder.path().join(name), "as it was").expect("written");
    }
    std::fs::create_dir(folder.path().join("disk")).expect("a folder");
    let both = &["--json", "run.svg", "--plot", "./run.svg"][..];
    let trace = &["--trace", "t.svg", "--plot", "t.svg"][..];
    for (command, options, wanted) in [
        ("policies", both, ["--json run.svg", "--plot ./run.svg"]),
        ("replay", both, ["--json run.svg", "--plot ./run.svg"]),
        ("policies", trace, ["--plot t.svg", "--trace t.svg"]),
        ("replay", trace, ["--plot t.svg", "--trace t.svg"]),
        ("replay", &["--disk", "v.svg", "--plot", "v.svg"], ["--plot v.svg", "--disk v.svg"]),
        (
            "replay",
            &["--disk", "disk", "--json", "disk/kvstrata.kvs"],
            ["--json disk/kvstrata.kvs", "--disk disk/kvstrata.kvs"],
        ),
        (
            "replay",
            &["--disk-key-file", "t.svg", "--json", "t.svg"],
            ["--json t.svg", "--disk-key-file t.svg"],
        ),
    ] {
        let message = refusal(&run_in(folder.path(), &[&[command], options].concat()));
        for wanted in wanted.into_iter().chain(["the same file", "name two files"]) {
            assert!(message.contains(wanted), "{wanted}: {message}");
        }
    }
    assert!(!folder.path().join("run.svg").exists());
    for name in written {
        assert_eq!(std::fs::read_to_string(folder.path().join(name)).expect("there"), "as it was");
    }
    // A picture never goes to standard output.
    for command in ["policies", "replay"] {
        let message = refusal(&run_in(folder.path(), &[command, "--json", "-", "--plot", "-"]));
        assert!(message.contains("--plot") && message.contains(".svg or .png"), "{message}");
    }
}

/// Makes links to a device that fails each write for lack of space.
fn full(folder: &Path, names: &[&str]) {
    for name in names {
        std::os::unix::fs::symlink("/dev/full", folder.join(name)).expect("a link");
    }
}

#[test]
fn every_failed_output_is_named() {
    let folder = folder();
    full(folder.path(), &["full.json", "full.svg"]);
    let output =
        run_in(folder.path(), &[&SHORT[..], &["--json", "full.json", "--plot", "full.svg"]].concat());
    let message = refused(&output);
    assert!(message.contains("full.json") && message.contains("full.svg"), "{message}");
}

/// A wrong byte is graver than a picture that cannot be written.
#[test]
fn wrong_byte_is_reported_though_the_picture_fails() {
    let folder = folder();
    full(folder.path(), &["full.svg"]);
    let small =
        ["replay", "--requests", "300", "--disk-blocks", "0", "--block-bytes", "4K", "--plot", "full.svg"];
    let output = run_in(folder.path(), &small);
    assert!(refused(&output).contains("cannot be written"));
    let output = run_in(folder.path(), &[&small[..], &["--flip-every", "20"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("cannot be written"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("wrong bytes"));
}

#[test]
fn replay_is_drawn_with_every_tier() {
    let folder = folder();
    let arguments = [
        "replay",
        "--requests",
        "600",
        "--device-blocks",
        "256",
        "--host-blocks",
        "512",
        "--disk-blocks",
        "2K",
        "--block-bytes",
        "4K",
        "--disk-fill",
        "no",
        "--disk",
        "v",
        "--plot",
    ];
    for (file, more) in [("run.svg", &[][..]), ("run.png", &["--concurrency", "3"])] {
        let output = run_in(folder.path(), &[&arguments[..], &[file], more].concat());
        assert!(good(&output).0.ends_with("wrong bytes      0\n"));
    }
    let svg = std::fs::read_to_string(folder.path().join("run.svg")).expect("written");
    let texts = texts(&svg);
    for wanted in ["device (G1)", "host (G2)", "disk (G3)"] {
        assert_eq!(texts.iter().filter(|text| *text == wanted).count(), 2, "{wanted}: {texts:?}");
    }
    for wanted in ["device → host", "host → disk", "disk → host", "host → device", "filled: computed"]
    {
        assert!(texts.iter().any(|text| text == wanted), "{wanted}: {texts:?}");
    }
    for wanted in ["time in the trace, min", "time of this run, s", "% of its capacity"] {
        assert!(texts.iter().any(|text| text == wanted), "{wanted}: {texts:?}");
    }
    let png = std::fs::read(folder.path().join("run.png")).expect("written");
    assert_eq!(size_of_png(&png).0, 1000);
}

/// Requests come, then none for ten seconds, then more: the rate has no gap, and the title
/// explains the gap of the hits.
#[test]
fn pause_in_a_trace_is_no_gap_in_a_rate() {
    let folder = folder();
    let request = |nth: u64| {
        let time = 2 * nth + if nth < 100 { 0 } else { 10_000 };
        format!(
            "{{\"timestamp\": {time}, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [{nth}]}}\n"
        )
    };
    let trace: String = (0..200).map(request).collect();
    std::fs::write(folder.path().join("t.jsonl"), trace).expect("written");
    let small =
        ["replay", "--trace", "t.jsonl", "--disk-blocks", "0", "--block-bytes", "4K", "--speed", "20"];
    good(&run_in(folder.path(), &[&small[..], &["--plot", "run.svg"]].concat()));
    let svg = std::fs::read_to_string(folder.path().join("run.svg")).expect("written");
    // `filled` is the only solid line of its colour; the legend has two pieces of it.
    let lines = svg.matches("<polyline ").count();
    let filled = svg
        .split("<polyline ")
        .filter(|line| line.split('>').next().is_some_and(|tag| tag.contains("#CC79A7")));
    assert_eq!(filled.count(), 3, "of {lines} lines");
    let texts = texts(&svg);
    assert!(texts.iter().any(|text| text.ends_with("(a gap: no request ended)")), "{texts:?}");
}

#[test]
fn invalid_plot_target_is_refused_before_the_run() {
    for command in ["policies", "replay"] {
        for (file, wanted) in [
            ("run.pdf", ".svg or .png"),
            ("run", ".svg or .png"),
            ("/nonexistent/run.svg", "--plot /nonexistent/run.svg: its directory does not exist"),
            // A folder without write permission, and a name too long for a
            // temporary file beside it.
            ("/proc/run.svg", "--plot /proc/run.svg: cannot be written: "),
            (&format!("{}.svg", "x".repeat(251)), "cannot be written: "),
        ] {
            let message =
                refusal(&run_in(folder().path(), &[command, "--trace", "/nonexistent", "--plot", file]));
            assert!(message.contains("--plot") && message.contains(wanted), "{message}");
            assert!(message.contains(file), "{message}");
        }
    }
}
