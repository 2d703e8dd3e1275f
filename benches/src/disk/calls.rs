//! System calls a block, counted by strace. It sees calls that the volume's own counters do not:
//! the caller's waits and wake-ups.

use super::Failure;
use std::path::Path;
use std::process::Command;

/// The counted calls: those that drive a ring, and those by which threads wait and wake.
const CALLS: &str = "io_uring_enter,futex,write,read,poll,ppoll,epoll_wait,sched_yield";

/// The counts of a run.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// System calls of those kinds, of all threads.
    pub calls: f64,
    /// Moved blocks, as the run reports them.
    pub blocks: f64,
}

/// Runs this program again under strace, with arguments that make it print how many blocks it moved.
///
/// # Errors
/// There is no strace (with the remedy), or it may not trace here.
pub fn counted(arguments: &[&str], scratch: &Path) -> Result<Counted, Failure> {
    let summary = scratch.join("strace.txt");
    let output = Command::new("strace")
        .args(["-f", "-c", "-qq", "-e", &format!("trace={CALLS}"), "-o"])
        .arg(&summary)
        .arg(std::env::current_exe()?)
        .args(arguments)
        .output()
        .map_err(|error| format!("no strace ({error}): install it with the system's package manager"))?;
    if !output.status.success() {
        return Err(format!("strace: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    let blocks = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    let calls = total(&std::fs::read_to_string(&summary)?).ok_or("strace's summary has no total")?;
    Ok(Counted { calls, blocks })
}

/// Returns the calls column of the summary's last line.
fn total(summary: &str) -> Option<f64> {
    let line = summary.lines().find(|line| line.ends_with(" total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::total;

    #[test]
    fn total_is_found() {
        let summary = "% time     seconds  usecs/call     calls    errors syscall\n\
            ------ ----------- ----------- --------- --------- ------------------\n\
            \u{20}99.94    0.124521         311       400         2 futex\n\
            \u{20} 0.06    0.000078          19         4           write\n\
            ------ ----------- ----------- --------- --------- ------------------\n\
            100.00    0.124599         308       404         2 total\n";
        assert_eq!(total(summary), Some(404.0));
        assert_eq!(total("strace: nothing"), None);
    }
}
