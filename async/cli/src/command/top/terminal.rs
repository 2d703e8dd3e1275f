//! The live view: one thread asks, this one draws and listens to keys.
//!
//! Invariants
//! - I1: the terminal is as it was behind [`live`], its cursor too, however that ends: by a panic too
//!   (ratatui's hook), and by a signal that would end the process, which it then does, so that who sent it
//!   sees that. Of a terminal that has gone reads never come back: then another thread ends it.
//! - I2: nothing that the other side does keeps a key waiting: it is another thread that waits for it.
//!
//! # Orderings
//! `signal` and `done` are Relaxed: they publish nothing, and are looked at each [`TICK`].

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

/// How long a figure may wait to be drawn.
const TICK: Duration = Duration::from_millis(100);

/// How long the thread that draws has to end, once it is to.
const GRACE: Duration = Duration::from_millis(500);

type Answer = (Range<Instant>, Result<String, String>);

/// Shows a manager until somebody has seen enough.
pub(super) fn live(target: &Target, interval: Duration, look: Look) -> Result<(), String> {
    let (tell, answers) = sync_channel(1);
    let asked = target.clone();
    let ask = move || {
        let mut next = Instant::now();
        while tell.send(asked.fetch()).is_ok() {
            // An answer that took longer than that is followed by the next question at once.
            next = (next + interval).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    };
    let spawned = thread::Builder::new().name("kvstrata-top".to_owned()).spawn(ask);
    spawned.map_err(|error| format!("no thread to ask {} by: {error}", target.place()))?;
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register_usize(number, Arc::clone(&signal), number as usize).map_err(refused)?;
    }
    let done = end_without_terminal(&signal)?;
    // Half of what it does may be done where it fails.
    let terminal = ratatui::try_init().inspect_err(|_| _ = ratatui::try_restore());
    let mut terminal = terminal.map_err(refused)?;
    let watch = Watch::new(target.place(), interval, Instant::now());
    let shown = show(&mut terminal, watch, &answers, look, &signal);
    // Both, whatever comes of the first. `terminal` itself is never dropped where a signal ends the process.
    let restored = ratatui::try_restore().and(terminal.show_cursor());
    done.store(true, Relaxed);
    match signal.load(Relaxed) {
        0 => shown.and(restored.map_err(refused)),
        // Whatever else has failed: of a terminal that has gone, nothing can be drawn.
        number => signal_hook::low_level::emulate_default_handler(number as i32).map_err(refused),
    }
}

/// A thread that ends the process by its signal, or by SIGHUP where the terminal has gone, unless the other one is told to and does: crossterm reads a
/// terminal that has gone again and again, and its `poll` never comes back. Gives what says that it is done.
fn end_without_terminal(signal: &Arc<AtomicUsize>) -> Result<Arc<AtomicBool>, String> {
    let done = Arc::new(AtomicBool::new(false));
    let (signal, is_done) = (Arc::clone(signal), Arc::clone(&done));
    let wait = move || {
        while !is_done.load(Relaxed) && signal.load(Relaxed) == 0 {
            thread::sleep(TICK);
            // Of one that was hung up nothing can be asked any more.
            if !io::stdout().is_terminal() {
                _ = signal.compare_exchange(0, SIGHUP as usize, Relaxed, Relaxed);
            }
        }
        thread::sleep(GRACE);
        if !is_done.load(Relaxed) {
            // As much of it as there is left.
            _ = ratatui::try_restore();
            _ = signal_hook::low_level::emulate_default_handler(signal.load(Relaxed) as i32);
        }
    };
    let spawned = thread::Builder::new().name("kvstrata-end".to_owned()).spawn(wait);
    spawned.map(|_| done).map_err(|error| format!("no thread to watch the terminal by: {error}"))
}

fn refused(error: io::Error) -> String {
    format!("the terminal cannot be drawn on: {error}; --once prints one view as text")
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
            // What cannot be read is in the view.
            Ok((at, Ok(text))) => _ = watch.take(&text, at),
            Ok((_, Err(why))) => watch.missed(why),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err("top: the thread that asks has ended; begin anew".to_owned());
            }
        }
        terminal.draw(|frame| watch.view(Instant::now()).draw(look, frame)).map_err(refused)?;
        if event::poll(TICK).map_err(refused)? && ends(&event::read().map_err(refused)?) {
            break;
        }
    }
    Ok(())
}

/// q, Escape, Ctrl-C. Another size is drawn by the next round.
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
