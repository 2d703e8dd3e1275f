//! A forked child that goes on without `exec`, as the children of `os.fork` and of pre-forking servers do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Longer than any child takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `body` in a child process, which then ends; a child that hangs is killed.
///
/// # Errors
/// The child panicked, was killed, or hung.
///
/// # Panics
/// If no process can be created.
pub fn in_child(body: impl FnOnce()) -> Result<(), String> {
    // SAFETY: the child has this thread only, runs `body`, which must need no other thread, and
    // ends without running other code.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no process can be created");
    if child == 0 {
        let panicked = catch_unwind(AssertUnwindSafe(body)).is_err();
        // SAFETY: ends this process, and leaves its open files to the system.
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
