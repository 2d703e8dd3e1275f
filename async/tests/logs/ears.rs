//! A subscriber that records log lines and spans. Managers work on many threads, so one subscriber hears
//! the whole process, and tests that listen run one at a time.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::MutexGuard as Turn;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::prelude::*;

pub type Fields = BTreeMap<String, String>;

/// A log line or a span: its level, its message or name, its fields.
#[derive(Debug, Clone)]
pub struct Heard {
    pub level: Level,
    pub what: String,
    pub fields: Fields,
}

impl Heard {
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

#[derive(Debug, Default)]
struct All {
    lines: Vec<Heard>,
    open: HashMap<u64, Heard>,
    closed: Vec<Heard>,
    /// If set, the subscriber panics at each line of this level.
    panics_at: Option<Level>,
    panicked: usize,
}

/// Records lines at info and above, and spans at debug and above.
#[derive(Clone, Default)]
pub struct Ears(Arc<Mutex<All>>);

struct Into<'f>(&'f mut Fields);

impl Visit for Into<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl Ears {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn lines(&self) -> Vec<Heard> {
        self.all().lines.clone()
    }

    /// Lines that contain these words.
    pub fn said(&self, words: &str) -> Vec<Heard> {
        self.lines().into_iter().filter(|line| line.what.contains(words)).collect()
    }

    /// Lines at warn and above, except those about what this machine or its file system lacks.
    pub fn complaints(&self) -> Vec<Heard> {
        let lacks = [OF_FILE_SYSTEMS, "served without io_uring"];
        let of_machine = |line: &Heard| lacks.iter().any(|words| line.what.contains(words));
        let wrong = |line: &Heard| line.level <= Level::WARN && !of_machine(line);
        self.lines().into_iter().filter(wrong).collect()
    }

    /// From now on the subscriber panics at each line of this level.
    pub fn panic_at(&self, level: Level) {
        self.all().panics_at = Some(level);
    }

    pub fn panicked(&self) -> usize {
        self.all().panicked
    }

    pub fn spans(&self, name: &str) -> Vec<Heard> {
        self.all().closed.iter().filter(|span| span.what == name).cloned().collect()
    }
}

impl<S: Subscriber> Layer<S> for Ears {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::new();
        event.record(&mut Into(&mut fields));
        let what = fields.remove("message").unwrap_or_default();
        let mut all = self.all();
        let level = *event.metadata().level();
        all.lines.push(Heard { level, what, fields });
        if all.panics_at == Some(level) {
            all.panicked += 1;
            drop(all);
            panic!("a subscriber of a test panics");
        }
    }

    fn on_new_span(&self, of: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        let mut fields = Fields::new();
        of.record(&mut Into(&mut fields));
        let (level, what) = (*of.metadata().level(), of.metadata().name().to_owned());
        self.all().open.insert(id.into_u64(), Heard { level, what, fields });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        if let Some(span) = self.all().open.get_mut(&id.into_u64()) {
            values.record(&mut Into(&mut span.fields));
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let mut all = self.all();
        if let Some(span) = all.open.remove(&id.into_u64()) {
            all.closed.push(span);
        }
    }
}

/// Words of the line about a volume in an unsuitable place.
pub const OF_FILE_SYSTEMS: &str = "file system does not suit a disk tier";

/// Returns the process's subscriber, emptied, and the turn that keeps other listening tests out.
pub async fn listen() -> (Ears, Turn<'static, ()>) {
    static EARS: OnceLock<Ears> = OnceLock::new();
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let turn = TURN.lock().await;
    let ears = EARS.get_or_init(|| {
        let ears = Ears::default();
        let quiet = tracing_subscriber::filter::filter_fn(|what| {
            *what.level() <= if what.is_span() { Level::DEBUG } else { Level::INFO }
        });
        tracing_subscriber::registry().with(ears.clone().with_filter(quiet)).init();
        ears
    });
    *ears.all() = All::default();
    (ears.clone(), turn)
}

/// Checks that no two complaints are equal, and that each names its place and a remedy.
pub fn check_complaints(ears: &Ears) {
    let mut said: Vec<_> = Vec::new();
    for line in ears.complaints() {
        let [tier, remedy] = ["tier", "remedy"].map(|field| line.field(field).to_owned());
        // A file or a transfer's path; for a line about neither, the group.
        let place = ["file", "path", "group"].map(|field| line.field(field).to_owned()).concat();
        assert!(!tier.is_empty() && !place.is_empty() && !remedy.is_empty(), "{line:?}");
        let what = (line.what, line.fields.get("cause").cloned(), tier, place);
        assert!(!said.contains(&what), "twice: {what:?}");
        said.push(what);
    }
}
