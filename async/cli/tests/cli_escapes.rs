//! Control characters from outside never reach a terminal, in any output or error of the command.

use kvstrata_ffi::shown::is_shown;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Sets the title of a terminal.
const EVIL: &str = "\u{1b}]0;x\u{7}";
/// `EVIL`, escaped.
const SHOWN: &str = "\\u{1b}]0;x\\u{7}";

fn run(folder: &Path, arguments: &[OsString], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvstrata"))
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("the command runs")
}

/// The output of a run. Fails if it contains a control character.
fn printed(output: &Output, of: &dyn std::fmt::Debug) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(text).expect("UTF-8");
    assert!(text.chars().all(|c| c == '\n' || is_shown(c)), "{of:?}: {text:?}");
    text
}

/// Arguments in which `@` stands for `EVIL`.
fn arguments(of: &str) -> Vec<OsString> {
    of.split(' ').map(|word| word.replace('@', EVIL).into()).collect()
}

/// Every kind of error that repeats a value, a path, a variable or the content of a file.
#[test]
fn errors_escape_control_characters() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let line = "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1]}\n";
    let files: [(&str, String); 9] = [
        ("good.jsonl", line.to_owned()),
        ("@.jsonl", format!("{line}@")),
        ("kind.jsonl", line.replace("[1]", "[\"@\"]")),
        ("syntax.toml", "device = @".to_owned()),
        ("value.toml", "device.blocks = \"\\u001b]0;x\\u0007\"\n\"\\u001b]0;x\\u0007\" = 1\n".to_owned()),
        ("clash.toml", "[disk]\nblocks = 3\npaths = [\"a\\u001b]0;x\\u0007\", \"b\"]\n".to_owned()),
        (
            "twice.toml",
            "[[tenant]]\nname = \"\\u001b]0;x\\u0007\"\n[[tenant]]\nname = \"\\u001b]0;x\\u0007\"\n"
                .to_owned(),
        ),
        ("@.toml", "device.blocks = 0\n".to_owned()),
        ("@.key", "short".to_owned()),
    ];
    for (name, text) in files {
        std::fs::write(folder.path().join(name.replace('@', EVIL)), text.replace('@', EVIL))
            .expect("written");
    }
    std::fs::create_dir(folder.path().join(format!("{EVIL}folder"))).expect("a folder");
    for of in [
        // Errors of clap, and its suggestions.
        "@",
        "replay --@",
        "replay --policy @",
        "replay --block-bytes @",
        "replay --metrics @:1",
        "replay --metrics @",
        "replay --trace-time @",
        "layout --preset @",
        "config @",
        "top @:1",
        "completions @",
        // Paths that do not exist, or have another type than expected.
        "replay --trace no@.jsonl",
        "policies --trace no@.jsonl",
        "replay --trace @.jsonl --disk-blocks 0",
        "policies --trace @.jsonl",
        "replay --trace kind.jsonl --disk-blocks 0",
        "policies --trace kind.jsonl",
        "replay --json no@/r.json",
        "replay --json @folder",
        "replay --plot @folder/x@.gif",
        "replay --plot no@/x.svg",
        "policies --json r@.json --plot r@.json",
        "replay --disk no@/x",
        "replay --disk @a,@b,c --disk-blocks 4",
        "replay --disk @ --disk-blocks 0",
        "replay --disk good.jsonl/@ --disk-blocks 8",
        "replay --disk @.key --disk-blocks 8",
        "replay --disk-key-file no@.key",
        "replay --disk-key-file @.key",
        "replay --disk-key-file @folder",
        "replay --disk-key-env NO@KEY",
        "config --check no@.toml",
        "config --check syntax.toml",
        "config --check value.toml",
        "config --check clash.toml",
        "config --check twice.toml",
        "config --check @.toml",
        "doctor --path no@",
        "tune --output no@/x",
        "--log @=loud metrics",
        "--log @ metrics",
    ] {
        let output = run(folder.path(), &arguments(of), &[]);
        let text = printed(&output, &of);
        assert_eq!(output.status.code(), Some(2), "{of}: {text}");
    }
    for (variable, value) in [
        ("KVSTRATA_DEVICE_BLOCKS", EVIL),
        ("KVSTRATA_\u{1b}]0;x\u{7}", "1"),
        ("KVSTRATA_DISK_PATHS", EVIL),
        ("KVSTRATA_LOG", EVIL),
        ("KVSTRATA_METRICS_LISTEN", EVIL),
    ] {
        let output = run(folder.path(), &arguments("config --check @.toml"), &[(variable, value)]);
        assert_eq!(output.status.code(), Some(2), "{variable:?}");
        printed(&output, &variable);
    }
    let not_utf8 = OsString::from_vec(b"no\x1b]0;x\x07\xff".to_vec());
    for before in
        [&["replay", "--trace"][..], &["policies", "--trace"], &["doctor", "--path"], &["replay", "--policy"]]
    {
        let all: Vec<OsString> = before.iter().map(OsString::from).chain([not_utf8.clone()]).collect();
        let output = run(folder.path(), &all, &[]);
        assert_eq!(output.status.code(), Some(2), "{all:?}");
        printed(&output, &all);
    }
}

/// Outputs of successful runs: tables, warnings and logs repeat paths and names too.
#[test]
fn tables_and_logs_escape_control_characters() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let line = "{\"timestamp\": 0, \"input_length\": 5000, \"output_length\": 1, \"hash_ids\": [1]}\n";
    std::fs::write(folder.path().join(format!("{EVIL}.jsonl")), line).expect("written");
    let tenants = "[[tenant]]\nname = \"\\u001b]0;x\\u0007\"\n[[group]]\nname = \"\\u001b]0;x\\u0007\"\nlayers = \"0-3\"\nkv_heads = 2\nhead_size = 64\n";
    std::fs::write(folder.path().join(format!("{EVIL}.toml")), tenants).expect("written");
    std::fs::create_dir(folder.path().join(format!("{EVIL}folder"))).expect("a folder");
    for of in [
        "policies --trace @.jsonl --capacities 4",
        "replay --trace @.jsonl --block-bytes 4K --host-blocks 0 --disk-blocks 0",
        "replay --log debug --trace @.jsonl --block-bytes 4K --device-blocks 8 --host-blocks 8 --disk-blocks 8 --disk-backend uring-buffered --disk @folder/a",
        "replay --log debug --trace @.jsonl --block-bytes 4K --device-blocks 8 --host-blocks 8 --disk-blocks 8 --disk-backend threads --disk @folder/b",
        "config --check @.toml",
        "doctor --path @folder",
    ] {
        let output = run(folder.path(), &arguments(of), &[]);
        let text = printed(&output, &of);
        if of.contains("uring") && text.contains("refuses io_uring") {
            println!("SKIP io_uring: {text}");
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{of}: {text}");
        assert!(text.contains(SHOWN) || of.starts_with("config"), "{of}: {text}");
    }
}
