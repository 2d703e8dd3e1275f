//! A watchdog in real time: in an endless loop virtual time stands still, and no deadline comes.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// A world takes milliseconds, some of them a second; on a busy machine with sanitizers a hundred times that.
const LONG: Duration = Duration::from_secs(120);
const LIMIT: &str = "KVSTRATA_WORLD_MS";

type Watched = BTreeMap<u64, (String, Instant)>;

static WATCHED: Mutex<Watched> = Mutex::new(BTreeMap::new());

/// A watched world. Dropped, it has ended.
pub struct Watch(u64);

/// Watches from now on: if the world takes too long, the process ends, and names it.
pub fn watch(what: &str) -> Watch {
    static STARTED: Once = Once::new();
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    STARTED.call_once(|| _ = std::thread::spawn(look));
    // Relaxed: only that the numbers differ.
    let number = NUMBER.fetch_add(1, Relaxed);
    lock().insert(number, (what.to_owned(), Instant::now()));
    Watch(number)
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock().remove(&self.0);
    }
}

fn lock() -> std::sync::MutexGuard<'static, Watched> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of the running test.
pub fn test() -> String {
    std::thread::current().name().unwrap_or("a thread without a name").to_owned()
}

fn look() {
    let limit = std::env::var(LIMIT).ok().and_then(|text| text.parse().ok());
    let limit = limit.map_or(LONG, Duration::from_millis);
    let (_never, told) = mpsc::channel::<()>();
    while told.recv_timeout(limit / 10) == Err(RecvTimeoutError::Timeout) {
        let watched = lock();
        if let Some((what, _)) = watched.values().find(|(_, began)| began.elapsed() > limit) {
            // Past the macros: their output is kept for the test's end, which does not come.
            let _ = writeln!(std::io::stderr(), "does not end, and virtual time stands still:\n    {what}");
            std::process::exit(101);
        }
    }
}

#[test]
fn endless_loop_ends_the_process_with_its_name() {
    if std::env::var(LIMIT).is_ok() {
        let _watch = watch("KVSTRATA_SEED=17");
        loop {
            std::hint::spin_loop();
        }
    }
    let itself = std::env::current_exe().expect("a test");
    let mut child = std::process::Command::new(itself);
    let child = child.args(["--exact", &test()]).env(LIMIT, "50");
    let ended = child.output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(101) && said.contains("KVSTRATA_SEED=17"), "{ended:?}");
}
