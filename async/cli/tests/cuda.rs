//! `--device cuda`: over the test double of libcuda, which the command loads in its
//! place, and without libcuda.
#![cfg(target_os = "linux")]

use kvstrata_cuda_double::Double;
use std::path::Path;
use std::process::{Command, Output};

/// A replay whose volume is in `folder`.
fn replay(folder: &Path, block_bytes: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvstrata"));
    command.args(["replay", "--patience", "1h", "--requests", "300", "--json", "-", "--disk"]).arg(folder);
    command.args(["--device-blocks", "300", "--host-blocks", "300", "--disk-blocks", "4000"]);
    command.args(["--block-bytes", block_bytes]).args(arguments);
    command
}

/// The same over the double. Fails if the command misused the driver, or left something in it.
fn over_the_double(folder: &Path, block_bytes: &str, arguments: &[&str]) -> Output {
    let mut command = replay(folder, block_bytes, arguments);
    Double::lend(folder, &mut command).expect("a link");
    let output = command.output().expect("the command runs");
    Double::verdict(folder);
    output
}

#[test]
fn replay_over_the_double_has_no_wrong_byte() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    for arguments in [&["--device", "cuda"][..], &["--device", "auto", "--concurrency", "4"]] {
        let output = over_the_double(folder.path(), "5000", &[arguments, &["--reinitialize"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["settings"]["device"], "cuda");
        assert_eq!((&report["requests"], &report["wrong_bytes"]), (&300.into(), &0.into()));
        for tier in ["device", "disk"] {
            assert!(report["hits"][tier].as_u64() > Some(0), "{report}");
        }
    }
    // A device that damages a byte is noticed here too.
    let output =
        over_the_double(folder.path(), "5000", &["--device", "cuda", "--reinitialize", "--flip-every", "20"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report["wrong_bytes"].as_u64() > Some(0), "{report}");
}

#[test]
fn too_many_device_blocks_are_refused() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    // The blocks take 1.2 GiB, and the device has 1.
    let output = over_the_double(folder.path(), "4M", &["--device", "cuda"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("--device cuda: device 0 is out of memory"), "{message}");
    assert!(message.contains("or use --device sim"), "{message}");
}

#[test]
fn cuda_replay_without_libcuda_gives_the_reason() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    if kvstrata_ffi::cuda::CudaDriver::load().is_ok() {
        return println!("SKIP no-cuda: libcuda is installed here");
    }
    let output = replay(folder.path(), "5000", &["--device", "cuda"]).output().expect("the command runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("--device cuda: libcuda does not load"), "{message}");
    let output = replay(folder.path(), "5000", &["--device", "auto"]).output().expect("the command runs");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["settings"]["device"], "sim");
}

/// The example for engines, with the copy engine only: a child process over the double has no kernels.
#[test]
fn cuda_example_offloads_and_onboards() {
    let command = Path::new(env!("CARGO_BIN_EXE_kvstrata"));
    let example = command.with_file_name("examples").join("cuda_offload");
    if !example.is_file() {
        return println!("SKIP cuda_offload: `cargo test` builds it, unless told --test");
    }
    let lent = tempfile::tempdir().expect("a temporary folder");
    let mut child = Command::new(example);
    child.env("KVSTRATA_CONFIG_DIR", lent.path());
    Double::lend(lent.path(), &mut child).expect("a link");
    let output = child.output().expect("it runs");
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words}{}", String::from_utf8_lossy(&output.stderr));
    for part in ["costs: reasoned for", "never measured", "64 blocks went up and came back as they were"] {
        assert!(words.contains(part), "{words}");
    }
    Double::verdict(lent.path());
}
