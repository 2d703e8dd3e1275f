//! SIGINT and SIGTERM during a replay: the first signal ends it in order, the second at once.
//!
//! Invariants
//! - I1: a second signal ends the process by the signal's default action, even if a request hangs. The
//!   sender sees the usual exit status.
//! - I2: the first signal is announced at once, before any request has ended: its handler
//!   wakes a thread through a pipe.
//!
//! # Orderings
//! A handler stores the number before it sets `stop`, which the replay reads with Acquire. A reader
//! that has seen `stop` therefore sees the number, so Relaxed suffices here. `filling` is Relaxed
//! too: it publishes nothing.

use super::progress::Bar;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread;

/// A shell adds this to the number of a signal that ended a command.
const OF_A_SIGNAL: u8 = 128;

/// The flags that signals set, and the flags that change their effect.
pub(super) struct Interrupt {
    /// Set by the first signal.
    stop: Arc<AtomicBool>,
    /// Number of the first signal.
    number: Arc<AtomicUsize>,
    /// While set, a signal kills the process.
    filling: Arc<AtomicBool>,
    bar: Arc<OnceLock<Bar>>,
}

impl Interrupt {
    /// Registers the handlers for the rest of the process.
    pub(super) fn listen() -> Result<Interrupt, String> {
        let interrupt = Interrupt {
            stop: Arc::default(),
            number: Arc::default(),
            filling: Arc::default(),
            bar: Arc::default(),
        };
        interrupt.register().map_err(|error| format!("cannot handle SIGINT and SIGTERM: {error}"))?;
        Ok(interrupt)
    }

    fn register(&self) -> io::Result<()> {
        let (mut woken, wake) = io::pipe()?;
        let (number, bar) = (Arc::clone(&self.number), Arc::clone(&self.bar));
        let say = move || {
            while let Err(error) = woken.read_exact(&mut [0]) {
                if error.kind() != io::ErrorKind::Interrupted {
                    return;
                }
            }
            let name = if number.load(Relaxed) == SIGINT as usize { "SIGINT" } else { "SIGTERM" };
            let line = || {
                // If standard error cannot be written, the notice is lost.
                _ = writeln!(
                    io::stderr(),
                    "kvstrata: {name}: finishing the requests in progress, then reporting; a second signal kills the process"
                );
            };
            match bar.get() {
                Some(bar) => bar.aside(line),
                None => line(),
            }
        };
        thread::Builder::new().name("kvstrata-signal".to_owned()).spawn(say)?;
        for signal in [SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(*signal)) {
            // The handlers run in this order. So the defaults act only on flags that an earlier event
            // set, and the number is stored before `stop` is set.
            flag::register_conditional_default(signal, Arc::clone(&self.filling))?;
            flag::register_conditional_default(signal, Arc::clone(&self.stop))?;
            flag::register_usize(signal, Arc::clone(&self.number), signal as usize)?;
            flag::register(signal, Arc::clone(&self.stop))?;
            low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        Ok(())
    }

    /// The flag that stops the replay.
    pub(super) fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// The flag that makes the first signal kill. It is set while files are filled, which may take
    /// minutes: no request has been served, and the next run continues to fill them.
    pub(super) fn filling(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.filling)
    }

    /// Shows `bar` from now on, and hides it while the notice is written.
    pub(super) fn beside(&self, bar: Bar) -> &Bar {
        self.bar.get_or_init(|| bar)
    }

    /// The exit code of a stopped replay, by the convention of shells.
    pub(super) fn exit_code(&self) -> u8 {
        OF_A_SIGNAL + self.number.load(Relaxed) as u8
    }
}

/// Whether the parent process has set a signal to be ignored, as `nohup` and a shell's `&`
/// do. It then stays ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_ignored_by(&status, signal)
}

fn is_ignored_by(status: &str, signal: i32) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\tkvstrata\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001002\nSigCgt:\t0000000000004000\n";
        assert_eq!([SIGINT, SIGTERM].map(|signal| is_ignored_by(status, signal)), [true, false]);
        assert!(!is_ignored_by("", SIGINT) && !is_ignored_by("SigIgn:\tx", SIGINT));
    }
}
