//! The system gives few threads, or none: a manager is refused at once, by an error that names the
//! setting or the part that needs the thread.
//!
//! A child process with a limited number of threads builds a manager. The test raises the limit until
//! one is built. The limit is `RLIMIT_NPROC` of a user without other processes. Only root can become
//! another user, so the test is skipped for anyone else.

use super::ground::settings;
use kvstrata::manager::KvBlockManager;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// The folder of the volume of the process with few threads.
const FOLDER: &str = "KVSTRATA_TEST_FEW_THREADS";
const MOST: u32 = 40;

/// Runs in the process with few threads.
#[test]
fn process_of_few_threads_builds_a_manager_or_is_refused() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let settings = settings(4, 4)
        .runtime_threads(2)
        .disk_blocks(8)
        .disk_paths(vec![Path::new(&folder).join("volume")])
        .metrics_listen(Some("127.0.0.1:0".parse().expect("an address")));
    match KvBlockManager::open(&settings.build().expect("a configuration")) {
        Ok(manager) => {
            println!("ANSWER built");
            drop(manager);
        }
        Err(error) => println!("ANSWER {error}"),
    }
}

/// Runs it in a process that may have so many threads, its first one included. No other process has this
/// user number.
fn with_threads(threads: u32, folder: &Path) -> Output {
    let me = std::env::current_exe().expect("a program");
    let mut command = Command::new("timeout");
    command.args(["60", "setpriv", "--reuid=61234", "--regid=61234", "--clear-groups", "prlimit"]);
    command.arg(format!("--nproc={threads}:{threads}")).arg(me);
    command.args(["few_threads::process_of_few_threads", "--nocapture", "--test-threads=1"]);
    command.env(FOLDER, folder).output().expect("coreutils")
}

#[test]
fn manager_without_threads_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
    let enough = with_threads(MOST, folder.path());
    if !said(&enough).contains("ANSWER built") {
        let why = String::from_utf8_lossy(&enough.stderr).trim().replace('\n', " ");
        assert!(!std::env::var("KVSTRATA_REQUIRE").is_ok_and(|all| all.contains("few_threads")), "{why}");
        return println!("SKIP few_threads: no process of another user can be made ({why})");
    }
    let mut refusals = Vec::new();
    for threads in 1..MOST {
        let output = with_threads(threads, folder.path());
        let (said, panics) = (said(&output), String::from_utf8_lossy(&output.stderr).into_owned());
        assert!(output.status.success(), "{threads} threads, {}: {said}{panics}", output.status);
        assert!(!panics.contains("panicked"), "{threads} threads: {panics}");
        let answer =
            said.lines().find_map(|line| line.split_once("ANSWER ")).map(|(_, answer)| answer.to_owned());
        let answer = answer.unwrap_or_else(|| panic!("{threads} threads, no answer: {said}"));
        if answer == "built" && threads == 1 {
            return println!("SKIP few_threads: the system does not keep to RLIMIT_NPROC");
        }
        if answer == "built" {
            break;
        }
        refusals.push(answer);
    }
    // Each kind of thread was the missing one once.
    let named = |what: &str| refusals.iter().any(|refusal| refusal.contains(what));
    for what in ["runtime.threads", "of a mover", "disk.paths", "metrics.listen"] {
        assert!(named(what), "nothing names {what}: {refusals:#?}");
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
