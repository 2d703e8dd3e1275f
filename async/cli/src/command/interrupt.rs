//! SIGINT and SIGTERM while a replay is at work: the first ends it in order, the second at once.
//!
//! Invariants
//! - I1: whatever hangs, a signal behind the first one ends the process as if nobody had listened, so that
//!   who sent it sees that.
//! - I2: the first one is said at once, not when a request has ended: by a thread that its handler wakes
//!   through a pipe.
//!
//! # Orderings
//! A handler notes the number before it sets `stop`, which the replay reads with Acquire: who has seen that
//! it stopped sees why, so that Relaxed will do here. `filling` is Relaxed too: it publishes nothing.

use super::progress::Bar;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread;

/// What a shell adds to the number of the signal that has ended a command.
const OF_A_SIGNAL: u8 = 128;

/// What the signals are to do, and have done.
pub(super) struct Interrupt {
    /// Set by the first.
    stop: Arc<AtomicBool>,
    /// Its number.
    number: Arc<AtomicUsize>,
    filling: Arc<AtomicBool>,
    bar: Arc<OnceLock<Bar>>,
}

impl Interrupt {
    /// Listens from now on, for good.
    pub(super) fn listen() -> Result<Interrupt, String> {
        let interrupt = Interrupt {
            stop: Arc::default(),
            number: Arc::default(),
            filling: Arc::default(),
            bar: Arc::default(),
        };
        interrupt.register().map_err(|error| format!("signals cannot be listened to: {error}"))?;
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
                // Nothing is left to be done where even this cannot be written.
                _ = writeln!(
                    io::stderr(),
                    "kvstrata: {name}: ending with what has begun, and a report of it; a second signal kills at once"
                );
            };
            match bar.get() {
                Some(bar) => bar.aside(line),
                None => line(),
            }
        };
        thread::Builder::new().name("kvstrata-signal".to_owned()).spawn(say)?;
        for signal in [SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(*signal)) {
            // They are called in this order: what is set by one is seen by the next one's.
            flag::register_conditional_default(signal, Arc::clone(&self.filling))?;
            flag::register_conditional_default(signal, Arc::clone(&self.stop))?;
            flag::register_usize(signal, Arc::clone(&self.number), signal as usize)?;
            flag::register(signal, Arc::clone(&self.stop))?;
            low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        Ok(())
    }

    /// What the replay is stopped by.
    pub(super) fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// While files are written through, which may take minutes, the first signal kills: nothing has been served, and the next run goes on with them.
    pub(super) fn filling(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.filling)
    }

    /// The bar that is shown from now on, which must not be written into.
    pub(super) fn beside(&self, bar: Bar) -> &Bar {
        self.bar.get_or_init(|| bar)
    }

    /// The exit code of a replay that has stopped, as a shell has it.
    pub(super) fn exit_code(&self) -> u8 {
        OF_A_SIGNAL + self.number.load(Relaxed) as u8
    }
}

/// Whether who began the process has it ignore a signal, as `nohup` and a shell's `&` do: then that stays so.
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
    fn what_is_ignored_is_read_off_the_mask() {
        let status = "Name:\tkvstrata\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001002\nSigCgt:\t0000000000004000\n";
        assert_eq!([SIGINT, SIGTERM].map(|signal| is_ignored_by(status, signal)), [true, false]);
        assert!(!is_ignored_by("", SIGINT) && !is_ignored_by("SigIgn:\tx", SIGINT));
    }
}
