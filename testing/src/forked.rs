//! A forked child that goes on without `exec`, as `os.fork` and pre-forking servers make them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Longer than anything that a child does.
const PATIENCE: Duration = Duration::from_secs(60);

/// Does this in a child, which ends then, and is killed where it hangs. Says what was wrong: a panic, or that it hung.
///
/// # Errors
/// What was wrong.
///
/// # Panics
/// Where no process is to be had.
pub fn in_child(body: impl FnOnce()) -> Result<(), String> {
    // SAFETY: the child has this thread only, runs `body`, which is to need no other, and ends without running anything else.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no process to be had");
    if child == 0 {
        let panicked = catch_unwind(AssertUnwindSafe(body)).is_err();
        // SAFETY: ends this process, and leaves what it has open to the system.
        unsafe { libc::_exit(i32::from(panicked)) };
    }
    let began = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: `child` is ours, and `status` too.
        let ended = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) };
        if ended == child {
            return match status {
                0 => Ok(()),
                _ => Err(format!("the child panicked, or was killed: status {status:#x}")),
            };
        }
        if began.elapsed() > PATIENCE {
            // SAFETY: `child` is ours, and has not been waited for.
            let _ = unsafe { libc::kill(child, libc::SIGKILL) };
            // SAFETY: as above.
            let _ = unsafe { libc::waitpid(child, &mut status, 0) };
            return Err("the child hung".to_owned());
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_of_a_forked_child_is_reported() {
        assert_eq!(in_child(|| ()), Ok(()));
        assert!(in_child(|| std::process::abort()).is_err());
        assert!(in_child(|| std::panic::resume_unwind(Box::new(()))).is_err());
    }
}
