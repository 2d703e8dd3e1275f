//! `kvstrata config`, end to end: the reference in its forms, what a file and the environment come to, completion.

use kvstrata::config;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs with these variables, and none of ours besides.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvstrata"));
    let ours = std::env::vars_os().map(|(name, _)| name);
    for name in ours.filter(|name| name.to_string_lossy().starts_with("KVSTRATA_")) {
        command.env_remove(name);
    }
    let variables = variables.iter().copied();
    command
        .arg("config")
        .args(arguments)
        .envs(variables)
        .stdin(Stdio::null())
        .output()
        .expect("the command runs")
}

fn printed(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let output = run(arguments, variables);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), message.as_ref()), (Some(0), ""), "{arguments:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn refused(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let output = run(arguments, variables);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).expect("UTF-8")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn the_reference_has_each_setting_in_each_form() {
    let all = config::reference(&[]);
    assert!(all.len() > 60, "{}", all.len());
    let text = printed(&[], &[]);
    let json: Vec<serde_json::Value> = serde_json::from_str(&printed(&["--json"], &[])).expect("JSON");
    assert_eq!(json.len(), all.len());
    for (entry, json) in all.iter().zip(&json) {
        let shown = format!("{} = {}", entry.key, entry.default);
        assert!(text.lines().any(|line| line.starts_with(&shown)), "{shown}");
        let field = |name: &str| json[name].as_str();
        assert_eq!(field("key"), Some(entry.key));
        assert_eq!(field("variable"), entry.variable.as_deref());
        let fields = ["type", "unit", "default", "allowed", "words"].map(field);
        let expected = [entry.kind, entry.unit, &entry.default, &entry.allowed, entry.words].map(Some);
        assert_eq!(fields, expected, "{}", entry.key);
    }
    assert_eq!(printed(&["--markdown"], &[]), config::markdown());
    // A section, a key, both; and nothing that is neither.
    let section = printed(&["quota", "idle.disk_after"], &[]);
    let keys: Vec<_> = section.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(keys.len(), 5, "{section}");
    assert!(refused(&["quotas"], &[]).contains("'quota'"));
    assert!(refused(&["--json", "--toml"], &[]).contains("cannot be used with"));
    assert!(refused(&["quota", "--toml"], &[]).contains("cannot be used with"));
}

#[test]
fn a_file_with_all_defaults_changes_nothing() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("k.toml");
    std::fs::write(&file, printed(&["--toml"], &[])).expect("written");
    let shown = printed(&["--check", path(&file)], &[]);
    assert!(shown.contains("  device.blocks ") && !shown.contains('*'), "{shown}");
}

#[test]
fn a_check_says_what_a_file_and_the_environment_come_to() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("k.toml");
    std::fs::write(&file, "[device]\nblocks = 10\n[host]\nblocks = 20\n").expect("written");
    let shown = printed(&["--check", path(&file)], &[("KVSTRATA_HOST_BLOCKS", "30"), ("KVSTRATA_SEED", "1")]);
    let marked: Vec<Vec<&str>> = shown
        .lines()
        .filter(|line| line.starts_with('*'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let place = format!("{}:2;", path(&file));
    assert_eq!(marked[0], ["*", "device.blocks", "10", &place, "default", "2048"]);
    assert_eq!(marked[1], ["*", "host.blocks", "30", "variable", "KVSTRATA_HOST_BLOCKS;", "default", "8192"]);
    // In two parts: a test compares the names in sources with those that there are.
    let wrong = concat!("KVSTRATA_", "DEVICE_BLOKS");
    let message = refused(&["--check", path(&file)], &[(wrong, "1"), ("KVSTRATA_HOST_BLOCKS", "x")]);
    let lines: Vec<_> = message.lines().collect();
    assert_eq!(lines.len(), 2, "{message}");
    assert!(
        lines[0].starts_with("kvstrata: host.blocks = x (variable KVSTRATA_HOST_BLOCKS): must be "),
        "{message}"
    );
    assert!(lines[1].starts_with(wrong) && lines[1].contains("KVSTRATA_DEVICE_BLOCKS"), "{message}");
    let message = refused(&["--check", path(&folder.path().join("no.toml"))], &[]);
    assert!(message.contains("no.toml: cannot be read: "), "{message}");
}

/// What a file comes to, below its settings: the columns of each row.
fn tiers(shown: &str) -> Vec<Vec<&str>> {
    let table =
        shown.lines().skip_while(|line| !line.starts_with("tier ")).take_while(|line| !line.is_empty());
    table.skip(1).map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn a_check_prints_bytes_and_tokens_of_each_group_and_tier() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("k.toml");
    let hybrid = include_str!("../../config/src/settings/tests/hybrid-bytes.toml");
    std::fs::write(&file, hybrid.replace("bytes = \"256M\"", "blocks = 2048")).expect("written");
    let shown = printed(&["--check", path(&file)], &[]);
    let rows = tiers(&shown);
    assert_eq!(rows.len(), 2 * 5, "{shown}");
    assert_eq!(rows[0], ["device", "full-0", "4", "256", "KiB", "64"]);
    assert_eq!(rows[5], ["host", "full-0", "2,048", "128", "MiB", "32,768"]);
    assert_eq!(rows[6][..6], ["host", "window-1", "520", "32.5", "MiB", "8,320"]);
    assert_eq!(rows[6][6..], ["8", "windows", "of", "1,024"]);
    assert_eq!(rows[8], ["host", "state-3", "32", "61.1", "MiB", "32,768"]);
    assert_eq!(rows[9][..2], ["host", "total"]);
    // The default: one group, no disk.
    std::fs::write(&file, "").expect("written");
    let shown = printed(&["--check", path(&file)], &[]);
    assert_eq!(
        tiers(&shown),
        [
            ["device", "all", "2,048", "128", "MiB", "32,768"],
            ["host", "all", "8,192", "512", "MiB", "131,072"]
        ]
    );
}

/// What no machine has is possible elsewhere, and refused here, by its setting.
#[test]
fn here_refuses_what_this_machine_has_not() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("k.toml");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").to_string();
    let nowhere = folder.path().join("none/volume");
    let small = "[device]\nblocks = 4\n[host]\nblocks = 4\n";
    let cases = [
        (
            "[host]\nbytes = \"900T\"\n".to_owned(),
            "host.bytes = 900T (".to_owned(),
            "use fewer or smaller blocks",
        ),
        (
            format!(
                "device.kind = \"cuda\"\ndevice.ordinal = 1000\n{}",
                small.replace("[device]\n", "device.")
            ),
            "device.kind = cuda (".to_owned(),
            "see `kvstrata doctor`; device.kind may also be auto or sim",
        ),
        (
            format!("{small}[metrics]\nlisten = \"{port}\"\n"),
            format!("metrics.listen = {port} ("),
            "choose another address or port",
        ),
        (
            format!("{small}[disk]\nblocks = 4\npaths = [{:?}]\n", path(&nowhere)),
            format!("disk.paths = {} (", path(&nowhere)),
            "name an existing folder",
        ),
        (
            format!(
                "geometry.block_bytes = \"64M\"\n[device]\nblocks = 1\n[host]\nblocks = 1\n[disk]\nstaging = 2\nblocks = 1048576\n\
                 paths = [{:?}]\n",
                path(folder.path())
            ),
            "disk.blocks = 1048576 (".to_owned(),
            "needs 64.0 TiB more, and ",
        ),
        (
            format!("{small}[disk]\nblocks = 4\npaths = [\"/proc/volume\"]\n"),
            "disk.paths = /proc/volume (".to_owned(),
            "choose another path or backend",
        ),
        (
            format!("{small}[disk]\nblocks = 4\nkey_file = {:?}\n", path(&nowhere)),
            "disk.key_file".to_owned(),
            "",
        ),
    ];
    for (text, begins, remedy) in cases {
        std::fs::write(&file, &text).expect("written");
        printed(&["--check", path(&file)], &[]);
        let output = run(&["--check", path(&file), "--here"], &[]);
        let message = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{text}: {message}");
        let line = message.strip_prefix("kvstrata: ").expect("ours");
        assert!(
            line.lines().any(|line| line.starts_with(&begins) && line.contains(remedy)),
            "{text}: {message}"
        );
        // What there is, is said all the same.
        let shown = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(shown.contains("not found  ") && shown.contains("memory: needs "), "{shown}");
    }
    drop(taken);
    // What it has: nothing refused, and nothing left behind.
    let volumes = folder.path().join("volumes");
    std::fs::create_dir(&volumes).expect("made");
    let text = format!(
        "{small}[disk]\nblocks = 4\npaths = [{:?}]\n[metrics]\nlisten = \"127.0.0.1:0\"\n",
        path(&volumes)
    );
    std::fs::write(&file, text).expect("written");
    let shown = printed(&["--check", path(&file), "--here"], &[]);
    for fact in
        ["device: simulated", "memory: needs ", "memory-lock limit: ", "disk room: ", "O_DIRECT: ", "port: "]
    {
        assert!(shown.contains(fact), "{fact} in {shown}");
    }
    assert_eq!(std::fs::read_dir(&volumes).expect("there").count(), 0);
    assert!(refused(&["--here"], &[]).contains("--check"));
}

#[test]
fn shells_complete_each_setting() {
    // Clap completes no values of arguments without a name in fish.
    for shell in ["bash", "zsh"] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_kvstrata")).args(["completions", shell]).output().expect("runs");
        let script = String::from_utf8(output.stdout).expect("UTF-8");
        for key in config::keys() {
            assert!(script.contains(key), "{shell} does not complete {key}");
        }
    }
}
