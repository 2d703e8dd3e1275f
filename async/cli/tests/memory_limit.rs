//! A memory control group above that of the process: settings that exceed its limit are refused by name.
//! The kernel would kill the process without a message.
//!
//! The test makes a real group with a limit, and runs the process in a group below it without a limit.
//! `SKIP cgroup` if no group can be made.
#![cfg(target_os = "linux")]

use kvstrata::config::{ManagerConfig, ManagerConfigBuilder};
use kvstrata::manager::KvBlockManager;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const LIMIT_BYTES: u64 = 64 << 20;
/// Bytes of host memory for the manager in a child of this test.
const VARIABLE: &str = "KVSTRATA_TEST_HOST_BYTES";

/// A group with the limit, and a group below it.
struct Groups {
    limited: PathBuf,
    below: PathBuf,
}

impl Groups {
    /// Makes the groups below the first group that permits it: that of this process, or an ancestor.
    fn new(name: &str) -> Option<Groups> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
            let (mount, limit) = match controllers {
                "" => ("/sys/fs/cgroup", "memory.max"),
                "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                _ => continue,
            };
            let (mount, own) = (Path::new(mount), Path::new(mount).join(path));
            for group in own.ancestors().take_while(|group| group.starts_with(mount)) {
                let limited = group.join(format!("kvstrata-{name}-{}", std::process::id()));
                let groups = Groups { below: limited.join("below"), limited };
                if groups.make(limit).is_ok() {
                    return Some(groups);
                }
            }
        }
        None
    }

    fn make(&self, limit: &str) -> std::io::Result<()> {
        std::fs::create_dir(&self.limited)?;
        // The file exists only if the memory controller is enabled.
        std::fs::metadata(self.limited.join(limit))?;
        std::fs::write(self.limited.join(limit), LIMIT_BYTES.to_string())?;
        std::fs::create_dir(&self.below)?;
        // Version 2 has groups that hold groups but no processes.
        self.run(Command::new("true"))
            .status
            .success()
            .then_some(())
            .ok_or(std::io::ErrorKind::PermissionDenied.into())
    }

    /// Runs a command in the group below.
    fn run(&self, command: Command) -> Output {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.below.join("cgroup.procs"));
        shell.arg(command.get_program()).args(command.get_args());
        let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        shell.envs(variables).stdin(Stdio::null()).output().expect("a shell")
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.below);
        let _ = std::fs::remove_dir(&self.limited);
    }
}

/// Prints why a test is skipped, or fails if `KVSTRATA_REQUIRE` names the missing feature.
fn skip(what: &str, why: &str) {
    let required = std::env::var("KVSTRATA_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name.trim() == what), "{what} is required: {why}");
    println!("SKIP {what}: {why}");
}

fn kvstrata(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvstrata"));
    command.args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asserts that a message names the group and its limit.
fn names_the_group(message: &str, groups: &Groups) {
    let group = groups.limited.display().to_string();
    assert!(message.contains(&group) && message.contains("= 67108864 in "), "{message}");
}

#[test]
fn command_respects_the_limit_of_a_parent_group() {
    let Some(groups) = Groups::new("command") else {
        return skip("cgroup", "no memory control group can be made here");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("k.toml");
    std::fs::write(&file, "host.bytes = \"200M\"\ndevice.blocks = 16\n").expect("written");
    let file = file.to_str().expect("UTF-8");
    // Without --here the settings are valid; with it they are refused.
    let output = groups.run(kvstrata(&["config", "--check", file]));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = groups.run(kvstrata(&["config", "--check", file, "--here"]));
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.starts_with("kvstrata: host.bytes = 200M ("), "{message}");
    assert!(message.contains("use fewer or smaller blocks, or raise that limit"), "{message}");
    names_the_group(&message, &groups);
    let output =
        groups.run(kvstrata(&["replay", "--host-blocks", "3200", "--disk-blocks", "0", "--requests", "10"]));
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.starts_with("kvstrata: --host-blocks 3200: "), "{message}");
    names_the_group(&message, &groups);
    let output = groups.run(kvstrata(&["doctor", "--json"]));
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let facts = facts.as_array().expect("a list");
    let memory = facts.iter().find(|fact| fact["name"] == "memory").expect("a line for memory");
    assert_eq!(memory["status"], "limited");
    names_the_group(memory["detail"].as_str().expect("text"), &groups);
}

fn settings(host_bytes: u64) -> ManagerConfigBuilder {
    ManagerConfig::builder().device_blocks(16).host_bytes(Some(host_bytes)).watermark_host(1.0)
}

/// The child of the next test: makes a manager and writes every block.
fn in_the_group(host_bytes: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let config = settings(host_bytes).build().expect("possible");
        match KvBlockManager::open(&config) {
            Err(error) => println!("refused: {error}"),
            Ok(manager) => {
                let port = manager.default_group().device_port().expect("a simulated device").clone();
                let bytes = vec![7; port.block_bytes()];
                for first in (0..u128::from(config.host.blocks)).step_by(16) {
                    let blocks = manager.default_group().allocate(16).await.expect("blocks");
                    let ids = blocks.ids().to_vec();
                    ids.iter().for_each(|block| port.copy_in(block.0, 0, &bytes).expect("in range"));
                    let hashes: Vec<_> =
                        (first..first + 16).map(kvstrata_core::SequenceHash::from_u128).collect();
                    drop(blocks.register(&hashes, None).expect("registered"));
                }
                println!("served: {}", manager.shutdown().await);
            }
        }
    });
}

#[test]
fn manager_beyond_the_limit_is_refused_not_killed() {
    if let Some(bytes) = std::env::var_os(VARIABLE) {
        return in_the_group(bytes.to_str().and_then(|bytes| bytes.parse().ok()).expect("a number"));
    }
    let Some(groups) = Groups::new("manager") else {
        return skip("cgroup", "no memory control group can be made here");
    };
    let child = |bytes: u64| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "manager_beyond_the_limit_is_refused_not_killed", "--nocapture"]);
        command.env(VARIABLE, bytes.to_string());
        let output = groups.run(command);
        let message = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{message}");
        message
    };
    let message = child(200 << 20);
    assert!(message.contains("refused: host.bytes = 200M (builder): needs 20"), "{message}");
    names_the_group(&message, &groups);
    // A manager within the limit is made, and survives writing all of its blocks.
    let message = child(24 << 20);
    assert!(message.contains("served: true"), "{message}");
}
