//! The live view: one thread fetches metrics, this one draws and reads keys.
//!
//! Invariants
//! - I1: [`live`] restores the terminal and its cursor, however it ends. After a panic, ratatui's hook
//!   does it. A signal then ends the process by its default action, so that its sender sees the usual
//!   exit status. Reads of a terminal that has gone never return; then another thread ends the process.
//! - I2: the manager cannot delay a key: another thread waits for its answers.
//!
//! # Orderings
//! `signal` and `done` are Relaxed: they publish nothing, and are polled each [`TICK`].

use super::draw::Look;
use super::fetch::Target;
use super::watch::Watch;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, IsTerminal};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time from an answer to its drawing.
const TICK: Duration = Duration::from_millis(100);

/// The time that the drawing thread has to end after a signal.
const GRACE: Duration = Duration::from_millis(500);

type Answer = (Range<Instant>, Result<String, String>);

/// Shows a manager until a key or a signal ends it.
pub(super) fn live(target: &Target, interval: Duration, look: Look) -> Result<(), String> {
    let (tell, answers) = sync_channel(1);
    let asked = target.clone();
    let ask = move || {
        let mut next = Instant::now();
        while tell.send(asked.fetch()).is_ok() {
            // After an answer that took longer than the interval, the next question follows at once.
            next = (next + interval).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    };
    let spawned = thread::Builder::new().name("kvstrata-top".to_owned()).spawn(ask);
    spawned.map_err(|error| format!("cannot start the thread that fetches metrics: {error}"))?;
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register_usize(number, Arc::clone(&signal), number as usize).map_err(refused)?;
    }
    let done = end_without_terminal(&signal)?;
    // A failed try_init may have changed the terminal already.
    let terminal = ratatui::try_init().inspect_err(|_| _ = ratatui::try_restore());
    let mut terminal = terminal.map_err(refused)?;
    let watch = Watch::new(target.place(), interval, Instant::now());
    let shown = show(&mut terminal, watch, &answers, look, &signal);
    // The cursor is shown even if the first step fails. If a signal ends the process,
    // `terminal` is never dropped.
    let restored = ratatui::try_restore().and(terminal.show_cursor());
    done.store(true, Relaxed);
    match signal.load(Relaxed) {
        0 => shown.and(restored.map_err(refused)),
        // A signal takes precedence over errors: drawing on a terminal that has gone fails.
        number => signal_hook::low_level::emulate_default_handler(number as i32).map_err(refused),
    }
}

/// Starts a thread that ends the process by its signal, or by SIGHUP if the terminal has gone, unless the
/// drawing thread ends first. It is needed because crossterm's `poll` never returns on a terminal that
/// has gone. Returns the flag that the drawing thread sets when it is done.
fn end_without_terminal(signal: &Arc<AtomicUsize>) -> Result<Arc<AtomicBool>, String> {
    let done = Arc::new(AtomicBool::new(false));
    let (signal, is_done) = (Arc::clone(signal), Arc::clone(&done));
    let wait = move || {
        while !is_done.load(Relaxed) && signal.load(Relaxed) == 0 {
            thread::sleep(TICK);
            // A terminal that was hung up is no longer one.
            if !io::stdout().is_terminal() {
                _ = signal.compare_exchange(0, SIGHUP as usize, Relaxed, Relaxed);
            }
        }
        thread::sleep(GRACE);
        if !is_done.load(Relaxed) {
            // Restores as much as is left of the terminal.
            _ = ratatui::try_restore();
            _ = signal_hook::low_level::emulate_default_handler(signal.load(Relaxed) as i32);
        }
    };
    let spawned = thread::Builder::new().name("kvstrata-end".to_owned()).spawn(wait);
    spawned
        .map(|_| done)
        .map_err(|error| format!("cannot start the thread that watches the terminal: {error}"))
}

fn refused(error: io::Error) -> String {
    format!("top: cannot draw on the terminal: {error}; use --once for one view as text")
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    mut watch: Watch,
    answers: &Receiver<Answer>,
    look: Look,
    signal: &AtomicUsize,
) -> Result<(), String> {
    while signal.load(Relaxed) == 0 {
        match answers.try_recv() {
            // A text that cannot be read is shown in the view.
            Ok((at, Ok(text))) => _ = watch.take(&text, at),
            Ok((_, Err(why))) => watch.missed(why),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err("top: the thread that fetches metrics has ended; start top again".to_owned());
            }
        }
        terminal.draw(|frame| watch.view(Instant::now()).draw(look, frame)).map_err(refused)?;
        if event::poll(TICK).map_err(refused)? && ends(&event::read().map_err(refused)?) {
            break;
        }
    }
    Ok(())
}

/// Whether an event ends the view: q, Escape, Ctrl-C. A new size is drawn in the next round.
fn ends(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press
        && match key.code {
            KeyCode::Char('c') => control,
            KeyCode::Char('q') | KeyCode::Esc => true,
            _ => false,
        }
}
