//! Costs of copies: stored costs are found again, and other costs come with a note. `kvstrata tune` runs
//! over the test double of libcuda, whose times are not those of a device.
#![cfg(target_os = "linux")]

use kvstrata::backend::costs::{CostStore, CostStoreError, Note, uuid, write};
use kvstrata_cuda_double::Double;
use kvstrata_ffi::cuda::{CopyCosts, CudaDriver, DeviceDescription, Direction, DirectionCosts, Route};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// The descriptions of the double's two devices.
fn devices() -> [DeviceDescription; 2] {
    let double = Double::new();
    let driver = CudaDriver::load().expect("the double");
    let devices = [0, 1].map(|ordinal| driver.describe_device(ordinal).expect("a device"));
    drop(driver);
    double.finish();
    devices
}

/// Costs with a value in each field.
fn costs(device: &DeviceDescription) -> CopyCosts {
    let mut directions = [(); 3].map(|()| DirectionCosts::default());
    for (direction, costs) in directions.iter_mut().enumerate() {
        let mut time = 1000 + direction as u64;
        for cell in costs.cells.iter_mut().flatten().flatten() {
            time += 17;
            // Some cells were not measured.
            *cell = (!time.is_multiple_of(5)).then_some(time);
        }
        costs.ctas = [Some(16), Some(64), None][direction];
        costs.narrow = [1.0, 1.5, 2.25, 1.0 / 3.0 + 7.0];
    }
    CopyCosts::measured(&device.name, (13, 0), "2026-01-31T23:59:59Z", directions).expect("they can be")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).expect("there").flatten().map(|entry| entry.path()).collect()
}

#[test]
fn stored_costs_are_found_again() {
    let [device, other] = devices();
    let folder = folder();
    let store = CostStore::new(folder.path().join("made/here"));
    let measured = costs(&device);
    assert!(store.load(&device).expect("nothing is no error").is_none());
    let path = store.save(&device, &measured).expect("stored");
    assert_eq!((&path, entries(path.parent().expect("some"))), (&store.path(&device), vec![path.clone()]));
    assert!(path.ends_with(format!("copy-costs-{}.json", uuid(&device))), "{}", path.display());
    assert_eq!(uuid(&device).len(), "GPU-00000000-0000-0000-0000-000000000000".len());
    assert_eq!(store.load(&device).expect("readable"), Some(measured.clone()));
    let (found, note) = store.costs_for(&device, (13, 0));
    assert!(found == measured && note.is_none(), "{note:?}");
    // With another driver, the costs are used, with a note.
    let (found, note) = store.costs_for(&device, (13, 1));
    assert_eq!(found, measured);
    let note = note.expect("a note");
    assert!(
        matches!(note, Note::OtherDriver { cuda: (13, 0) }) && note.to_string().contains("tune"),
        "{note}"
    );
    // Costs of another device are never used.
    let (found, note) = store.costs_for(&other, (13, 0));
    assert_eq!(found, CopyCosts::reasoned(&other.name));
    assert!(matches!(note, Some(Note::NeverMeasured)), "{note:?}");
    // Only measured costs can be stored.
    let refused = store.save(&device, &CopyCosts::default()).expect_err("reasoned");
    assert!(matches!(refused, CostStoreError::NotMeasured { .. }), "{refused}");
    assert_eq!(store.load(&device).expect("as it was"), Some(measured));
}

#[test]
fn unreadable_costs_give_a_note() {
    let [device, other] = devices();
    let folder = folder();
    let store = CostStore::new(folder.path());
    let path = store.save(&device, &costs(&device)).expect("stored");
    let good: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).expect("there")).expect("JSON");
    let edited = |edit: &dyn Fn(&mut serde_json::Value)| {
        let mut value = good.clone();
        edit(&mut value);
        value.to_string()
    };
    let up = "/costs/directions/host to device";
    let at = |value: &mut serde_json::Value, place: &str, new: serde_json::Value| {
        *value.pointer_mut(&format!("{up}{place}")).expect("there") = new;
    };
    let cases: [(String, &str); 11] = [
        (String::new(), "is damaged: EOF"),
        (good.to_string()[..1000].to_owned(), "is damaged: EOF"),
        ("{}".to_owned(), "is not a file of copy costs"),
        (edited(&|value| value["version"] = 2.into()), "has version 2, but this program reads version 1"),
        (edited(&|value| value["uuid"] = uuid(&other).into()), "belongs to device GPU-"),
        (edited(&|value| value["costs"]["pieces"][0] = 2.into()), "other sizes or counts"),
        (edited(&|value| at(value, "/nanoseconds/batch", [0; 0].into())), "the table of times of \"batch\""),
        (
            edited(&|value| at(value, "/nanoseconds/batch/3", [1].as_slice().into())),
            "the table of times of \"batch\"",
        ),
        (
            edited(&|value| at(value, "/nanoseconds/batch/3/2", 0.into())),
            "a time of copies host to device is 0",
        ),
        (edited(&|value| at(value, "/narrow/4", 0.5.into())), "must be from 1 to 1000"),
        (edited(&|value| at(value, "/narrow", serde_json::json!({}))), "lacks the width 8"),
    ];
    for (text, wanted) in cases {
        std::fs::write(&path, text).expect("written");
        let message = store.load(&device).expect_err(wanted).to_string();
        assert!(
            message.starts_with(&format!("{}: ", path.display())) && message.contains(wanted),
            "{message}"
        );
        assert!(message.contains("run `kvstrata tune`"), "{message}");
        let (found, note) = store.costs_for(&device, (13, 0));
        assert_eq!(found, CopyCosts::reasoned(&device.name));
        assert!(matches!(note, Some(Note::Unusable(_))), "{note:?}");
    }
    // The path of the folder is that of a file.
    let store = CostStore::new(path.join("below"));
    let refused = store.save(&device, &costs(&device)).expect_err("a file").to_string();
    assert!(refused.contains("cannot be made") && refused.contains("KVSTRATA_CONFIG_DIR"), "{refused}");
    assert!(write(folder.path(), &device, &costs(&device)).is_err(), "a directory");
}

/// The command, with the double as its driver and its store in the folder.
fn tune(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvstrata"));
    command.env("KVSTRATA_CONFIG_DIR", folder.join("store")).args(arguments);
    Double::lend(folder, &mut command).expect("a link");
    command
}

/// The output of the command. Fails if it misused the driver.
fn ran(folder: &Path, arguments: &[&str]) -> Output {
    let output = tune(folder, arguments).output().expect("the command runs");
    Double::verdict(folder);
    output
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

const BRIEF: [&str; 5] = ["tune", "--seconds", "1", "--most", "64K"];

#[test]
fn tune_measures_a_device_and_stores_its_costs() {
    let folder = folder();
    let output = ran(folder.path(), &["tune", "--show"]);
    let table = text(&output.stdout);
    assert!(table.contains("costs    reasoned for an unknown device, not measured\n"), "{table}");
    assert!(table.contains("note     this device was never measured: run `kvstrata tune`\n"), "{table}");
    assert!(!folder.path().join("store").exists(), "looking makes nothing");

    let output = ran(folder.path(), &BRIEF);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "no bar where there is no terminal: {}", text(&output.stderr));
    let table = text(&output.stdout);
    for part in [
        "costs    measured on kvstrata test double 0 with CUDA 13.0, 20",
        "\nhost to device, GB/s\n",
        "\nstored   ",
    ] {
        assert!(table.contains(part), "{part:?} in {table}");
    }
    for line in table.lines().filter(|line| line.starts_with(" ") && line.contains("iB")) {
        assert_eq!(line.chars().count(), 78, "{line}");
    }
    let [stored] = &entries(&folder.path().join("store"))[..] else { panic!("one file") };

    let output = ran(folder.path(), &["tune", "--show", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let source = shown["source"].as_str().expect("words");
    assert!(source.starts_with("measured on kvstrata test double 0 "), "{source}");
    assert!(shown["note"].is_null() && shown["stored"].is_null());
    for direction in Direction::ALL.map(Direction::name) {
        assert!(shown["costs"]["directions"][direction]["nanoseconds"]["single"][0][0].is_u64());
        let chosen = shown["chosen"][direction].as_array().expect("rows");
        assert_eq!((chosen.len(), chosen[0].as_array().map(Vec::len)), (13, Some(7)));
        let known = Route::ALL.map(Route::name);
        assert!(
            chosen
                .iter()
                .flat_map(|row| row.as_array().expect("a row"))
                .all(|route| known.contains(&route.as_str().expect("a name")))
        );
    }

    // `doctor` reports the costs of both devices.
    let output = ran(folder.path(), &["doctor", "--json"]);
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let fact =
        facts.as_array().expect("a list").iter().find(|fact| fact["name"] == "copy costs").expect("a fact");
    assert_eq!(fact["status"], "limited");
    let detail = fact["detail"].as_str().expect("words");
    assert!(
        detail.contains("device 0: measured on ") && detail.contains("device 1: reasoned for "),
        "{detail}"
    );
    assert_eq!(fact["remedy"], "while the device is idle, run `kvstrata tune --device 1`");

    // A damaged file is reported, and replaced by the next run.
    std::fs::write(stored, "{").expect("written");
    let output = ran(folder.path(), &["tune", "--show"]);
    let table = text(&output.stdout);
    assert!(table.contains("costs    reasoned ") && table.contains(&stored.display().to_string()), "{table}");
    assert_eq!(ran(folder.path(), &BRIEF).status.code(), Some(0));
    assert!(text(&ran(folder.path(), &["tune", "--show"]).stdout).contains("costs    measured "));
}

#[test]
fn tune_output_writes_another_file() {
    let folder = folder();
    let file = folder.path().join("costs.json");
    let path = file.to_str().expect("UTF-8");
    let output = ran(folder.path(), &[&BRIEF[..], &["--output", path, "--json", "--device", "1"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(shown["stored"], path);
    let stored: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).expect("there")).expect("JSON");
    assert_eq!((&stored["uuid"], &stored["costs"]), (&shown["uuid"], &shown["costs"]));
    assert_eq!(stored["device"], "kvstrata test double 1");
    assert!(!folder.path().join("store").exists());
}

#[test]
fn tune_refuses_impossible_options_by_name_and_value() {
    let folder = folder();
    let message = |arguments: &[&str]| {
        let output = tune(folder.path(), arguments).output().expect("the command runs");
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        text(&output.stderr).to_owned()
    };
    let found = message(&["tune", "--device", "7"]);
    assert!(found.contains("--device 7: CUDA device 7 is not among the 2 visible from 0 on"), "{found}");
    let found = message(&["tune", "--output", "/nonexistent/costs.json"]);
    assert!(found.contains("--output /nonexistent/costs.json: its directory does not exist"), "{found}");
    assert!(message(&["tune", "--seconds", "0"]).contains("--seconds"));
    assert!(message(&["tune", "--show", "--seconds", "3"]).contains("cannot be used with"));
    // Costs that cannot be stored are printed.
    let mut command = tune(folder.path(), &BRIEF);
    let output = command.env("KVSTRATA_CONFIG_DIR", "/dev/null/store").output().expect("the command runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stdout).contains("host to device, GB/s"), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("/dev/null/store: cannot be made: "), "{}", text(&output.stderr));
}

#[test]
fn tune_without_libcuda_gives_the_reason() {
    let folder = folder();
    // In another process, because the double may be loaded in this one.
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvstrata"));
        command.args(arguments).env("KVSTRATA_CONFIG_DIR", folder.path()).output().expect("the command runs")
    };
    let output = run(&["tune"]);
    let message = text(&output.stderr);
    if !message.contains("libcuda does not load") {
        return println!("SKIP no-cuda: libcuda is installed here");
    }
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{message}");
    assert!(message.starts_with("kvstrata: --device 0: libcuda does not load"), "{message}");
    assert!(message.contains("install NVIDIA's driver"), "{message}");
    let facts: serde_json::Value = serde_json::from_slice(&run(&["doctor", "--json"]).stdout).expect("JSON");
    let facts = facts.as_array().expect("a list");
    assert!(facts.iter().all(|fact| fact["name"] != "copy costs"), "there is nothing to be measured");
    assert!(entries(folder.path()).is_empty());
}

#[test]
fn tune_help_has_examples_and_exit_codes() {
    let folder = folder();
    let output = tune(folder.path(), &["tune", "--help"]).output().expect("the command runs");
    let help = text(&output.stdout);
    for part in ["Examples:", "Exit codes:", "--show", "KVSTRATA_CONFIG_DIR", "256 MiB", "[default: 8]"] {
        assert!(help.contains(part), "{part}");
    }
}
