//! What is logged: what an operator can act on, once, with the tier, the path and the remedy; spans with requests and counts; nothing by the block.
//!
//! Managers work on many threads, so one subscriber hears all of the process: a test at a time. Past 500 lines because they all share it.

#[expect(dead_code, reason = "this test uses some of it")]
#[path = "tenants/gated.rs"]
mod gated;
#[expect(dead_code, reason = "this test uses some of it")]
#[path = "manager/ground.rs"]
mod ground;

use gated::Ground;
use ground::{BYTES, compute, hashes, rest, settings};
use kvstrata::core::{BlockId, PoolConfig};
use kvstrata::disk::{DiskMover, DiskTier, TierOptions};
use kvstrata::ffi::disk::{Direction, FailureCause, IoFailure, Urgency, VolumeOptions};
use kvstrata::manager::{OffloadOptions, OnboardOptions};
use kvstrata::transfer::Cause;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::MutexGuard as Turn;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::prelude::*;

type Fields = BTreeMap<String, String>;

/// A line, or a span: its level or none, its name or message, its fields.
#[derive(Debug, Clone)]
struct Heard {
    level: Level,
    what: String,
    fields: Fields,
}

impl Heard {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

#[derive(Debug, Default)]
struct All {
    lines: Vec<Heard>,
    open: HashMap<u64, Heard>,
    closed: Vec<Heard>,
    /// Each line at this level ends in a panic.
    panics_at: Option<Level>,
    panicked: usize,
}

/// Hears all at info and above.
#[derive(Clone, Default)]
struct Ears(Arc<Mutex<All>>);

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

    fn lines(&self) -> Vec<Heard> {
        self.all().lines.clone()
    }

    /// Those that say that something is wrong.
    fn complaints(&self) -> Vec<Heard> {
        self.lines().into_iter().filter(|line| line.level <= Level::WARN).collect()
    }

    /// From now on each line at a level ends in a panic.
    fn panic_at(&self, level: Level) {
        self.all().panics_at = Some(level);
    }

    fn panicked(&self) -> usize {
        self.all().panicked
    }

    fn spans(&self, name: &str) -> Vec<Heard> {
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

/// The process's ears, for one test at a time, which has heard nothing yet.
async fn listen() -> (Ears, Turn<'static, ()>) {
    static EARS: OnceLock<Ears> = OnceLock::new();
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let turn = TURN.lock().await;
    let ears = EARS.get_or_init(|| {
        let ears = Ears::default();
        let quiet = tracing_subscriber::filter::LevelFilter::INFO;
        tracing_subscriber::registry().with(ears.clone().with_filter(quiet)).init();
        ears
    });
    *ears.all() = All::default();
    (ears.clone(), turn)
}

/// A manager whose blocks go to one volume, and the volume's tier.
fn over_a_volume(folder: &Path) -> (Ground, Arc<DiskTier>) {
    let volume = VolumeOptions::new(folder.join("volume"), 32, BYTES).keep(true);
    let (tier, _) =
        DiskTier::open(vec![volume], PoolConfig::new(32), TierOptions::default()).expect("a tier");
    let tier = Arc::new(tier);
    let disk = Arc::new(DiskMover::new(Arc::clone(&tier), &tokio::runtime::Handle::current()));
    (Ground::over(settings(4, 4).disk_blocks(32), 4, 4, Some(disk)), tier)
}

/// Sequences of 4 blocks each, all that there is of the first on the disk alone.
async fn fill(ground: &Ground, sequences: u64) {
    for sequence in 1..=sequences {
        drop(compute(&ground.manager, &hashes(sequence, 4), None).await);
        rest(&ground.manager).await;
    }
}

/// No two lines say the same, and each that complains says where and what to do.
fn check_complaints(ears: &Ears) {
    let mut said: Vec<_> = Vec::new();
    for line in ears.complaints() {
        let [tier, remedy] = ["tier", "remedy"].map(|field| line.field(field).to_owned());
        // A file, or a transfer's path; a group, of what does not move.
        let place = ["file", "path", "group"].map(|field| line.field(field).to_owned()).concat();
        assert!(!tier.is_empty() && !place.is_empty() && !remedy.is_empty(), "{line:?}");
        let what = (line.what, line.fields.get("cause").cloned(), tier, place);
        assert!(!said.contains(&what), "twice: {what:?}");
        said.push(what);
    }
}

#[tokio::test]
async fn a_volume_that_goes_out_of_service_is_said_once_with_its_file() {
    let (ears, _turn) = listen().await;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (ground, tier) = over_a_volume(folder.path());
    fill(&ground, 5).await;
    assert!(tier.pool().inactive() > 0, "something is on the disk");
    assert!(ears.complaints().is_empty(), "{:?}", ears.complaints());
    tier.volumes().volumes()[0].retire();
    // Reads, and writes, until it is known, and after that.
    for sequence in [1, 2, 1, 2] {
        drop(ground.manager.restore_to_gpu(&hashes(sequence, 4)).await.expect("it fits"));
        rest(&ground.manager).await;
    }
    for sequence in 10..14 {
        drop(compute(&ground.manager, &hashes(sequence, 4), None).await);
        rest(&ground.manager).await;
    }
    assert_eq!(tier.stats().lost_volumes, 1);
    let lost: Vec<Heard> =
        ears.complaints().into_iter().filter(|line| line.what.contains("out of service")).collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!((lost[0].level, lost[0].field("tier")), (Level::ERROR, "disk"));
    assert_eq!(Path::new(lost[0].field("file")), folder.path().join("volume"));
    check_complaints(&ears);
}

#[tokio::test]
async fn a_shutdown_is_no_loss() {
    let (ears, _turn) = listen().await;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (ground, tier) = over_a_volume(folder.path());
    fill(&ground, 5).await;
    assert!(ground.manager.shutdown().await);
    // Who comes late is told that it is out of service, and nobody is to see to that.
    let buffer = ground.memory.write(0).expect("nobody has it");
    let late = tier.read_slot(BlockId(0), hashes(1, 1)[0], Urgency::Ordinary, buffer).wait();
    tier.rejected_slot(BlockId(0), &late.map(drop).expect_err("closed"));
    drop((ground, tier));
    assert!(ears.complaints().is_empty(), "{:?}", ears.complaints());
    let spans = ears.spans("shutdown");
    assert_eq!((spans.len(), spans[0].field("clean")), (1, "true"));
    // Found again: said with its counts.
    let (_ground, _tier) = over_a_volume(folder.path());
    let open: Vec<Heard> =
        ears.lines().into_iter().filter(|line| line.what.contains("tier is open")).collect();
    assert_eq!(open.len(), 2);
    assert!(
        open[0].field("blocks") == "0"
            && open[1].field("blocks").parse::<u64>().is_ok_and(|blocks| blocks > 0)
    );
    assert_eq!(ears.spans("recover").len(), 2);
}

#[tokio::test]
async fn what_rots_on_a_disk_is_said_once_however_many_blocks() {
    let (ears, _turn) = listen().await;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (ground, tier) = over_a_volume(folder.path());
    fill(&ground, 5).await;
    let file = std::fs::File::options().write(true).open(folder.path().join("volume")).expect("there");
    let stride = tier.volumes().descriptions().next().expect("a volume").stride as u64;
    // All of the slots: see docs/disk-format.md.
    (0..32).for_each(|slot| file.write_all_at(b"rot", 8192 + slot * stride + 99).expect("within the file"));
    for sequence in [1, 2] {
        drop(ground.manager.restore_to_gpu(&hashes(sequence, 4)).await.expect("it fits"));
        rest(&ground.manager).await;
    }
    assert!(tier.stats().rejected.payload > 1, "{:?}", tier.stats());
    let complaints = ears.complaints();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert_eq!((complaints[0].level, complaints[0].field("tier")), (Level::ERROR, "disk"));
    check_complaints(&ears);
}

#[tokio::test]
async fn what_an_opening_has_lost_is_said_with_its_file() {
    let (ears, _turn) = listen().await;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let files = ["a", "b", "c", "d"].map(|name| folder.path().join(name));
    let open = || {
        let volumes = files.iter().map(|file| VolumeOptions::new(file.clone(), 8, BYTES).keep(true));
        let opened = DiskTier::open(volumes.collect(), PoolConfig::new(32), TierOptions::default());
        opened.expect("a tier").0
    };
    drop(open());
    drop(open());
    assert!(ears.complaints().is_empty(), "{:?}", ears.complaints());
    std::fs::remove_file(&files[0]).expect("there");
    let [last, both] = [&files[1], &files[2]].map(|path| {
        let file = std::fs::File::options().write(true).open(path).expect("there");
        let end = file.metadata().expect("a length").len();
        (file, end)
    });
    last.0.write_all_at(&[0xff; 4096], last.1 - 4096).expect("within the file");
    both.0.write_all_at(&[0xff; 4096], 0).expect("within the file");
    both.0.write_all_at(&[0xff; 4096], both.1 - 4096).expect("within the file");
    drop(open());
    let complaints = ears.complaints();
    let told = |index: usize, what: &str| {
        let path = files[index].display().to_string();
        let of = complaints.iter().filter(|line| line.field("file") == path);
        let causes: Vec<&str> = of.map(|line| line.field("cause")).collect();
        assert!(causes.len() == 1 && causes[0].contains(what), "{what}: {complaints:?}");
    };
    told(0, "gone");
    told(1, "one superblock");
    told(2, "neither superblock");
    assert_eq!(complaints.len(), 3, "{complaints:?}");
    check_complaints(&ears);
    let opened: Vec<Heard> =
        ears.lines().into_iter().filter(|line| line.what.contains("tier is open")).collect();
    assert_eq!((opened.len(), opened[2].field("superblock")), (3, "3"));
}

#[tokio::test]
async fn a_full_file_system_does_not_keep_a_broken_drive_from_being_said() {
    let (ears, _turn) = listen().await;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (_ground, tier) = over_a_volume(folder.path());
    // ENOSPC, EDQUOT, EIO, and each again.
    for errno in [28, 122, 5, 28, 5] {
        let (path, cause) = (Arc::from(folder.path()), FailureCause::Os { errno });
        let failure = IoFailure { path, slot: 0, direction: Direction::Read, cause };
        tier.rejected_slot(BlockId(0), &failure);
    }
    let complaints = ears.complaints();
    let remedies: Vec<&str> = complaints.iter().map(|line| line.field("remedy")).collect();
    assert_eq!(remedies.len(), 2, "{complaints:?}");
    assert!(remedies[0].contains("make room") && remedies[1].contains("smartctl"), "{remedies:?}");
}

#[tokio::test]
async fn a_subscriber_that_panics_takes_nothing_along() {
    let (ears, _turn) = listen().await;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (ground, tier) = over_a_volume(folder.path());
    fill(&ground, 5).await;
    tier.volumes().volumes()[0].retire();
    ears.panic_at(Level::ERROR);
    // A loss is found out by the task that serves the disk: it goes on, and so does the manager.
    for sequence in [1, 2, 1, 2] {
        drop(ground.manager.restore_to_gpu(&hashes(sequence, 4)).await.expect("it fits"));
        rest(&ground.manager).await;
    }
    for sequence in 10..14 {
        drop(compute(&ground.manager, &hashes(sequence, 4), None).await);
        rest(&ground.manager).await;
    }
    assert!(ears.panicked() > 0, "it was called");
    let stats = ground.manager.stats();
    let up = stats.path(kvstrata::transfer::Path::DiskToDevice);
    assert_eq!(up.failed_by(Cause::Abandoned), 0, "the task that answers is there");
    // Slots that were taken are free, or parked with their volume, or of blocks: none is lost.
    let stats = tier.stats();
    assert_eq!(stats.lost_volumes, 1);
    let pool = tier.pool();
    assert_eq!(pool.free() as u64 + pool.inactive() as u64 + stats.parked, 32, "{stats:?}");
}

#[tokio::test]
async fn copies_that_fail_are_said_once_a_path() {
    let (ears, _turn) = listen().await;
    let ground = Ground::new(4, 16);
    fill(&ground, 2).await;
    drop(ground.manager.allocate(4).await.expect("blocks"));
    rest(&ground.manager).await;
    for _ in 0..2 {
        // What fails is tried again, and comes.
        ground.mover.close();
        let found = ground.manager.match_prefix(&hashes(1, 4));
        let up = ground.manager.onboard(found, OnboardOptions { request: 7, ..OnboardOptions::default() });
        ground.mover.fail();
        assert_eq!(up.expect("it fits").await.blocks.len(), 4);
        rest(&ground.manager).await;
        drop(ground.manager.allocate(4).await.expect("blocks"));
        rest(&ground.manager).await;
    }
    let complaints = ears.complaints();
    let at = |line: &Heard| (line.field("tier").to_owned(), line.field("path").to_owned());
    let places: Vec<_> = complaints.iter().map(at).collect();
    assert_eq!(places, [("host".to_owned(), "host_to_device".to_owned())], "{complaints:?}");
    let group = ground.manager.metrics().tiers[0].group.clone();
    assert_eq!((complaints[0].field("group"), complaints[0].field("tenant")), (group.as_str(), ""));
    check_complaints(&ears);
    // Each request, with its number and its counts.
    let spans = ears.spans("onboard");
    assert_eq!(spans.len(), 2);
    for span in spans {
        let fields =
            ["request", "blocks", "host", "disk", "came", "missed"].map(|field| span.field(field).to_owned());
        assert_eq!(fields, ["7", "4", "4", "0", "4", ""].map(str::to_owned));
    }
}

#[tokio::test]
async fn offloads_and_waits_in_line_have_spans_and_full_queues_are_said() {
    let (ears, _turn) = listen().await;
    let one_at_a_time = settings(4, 16).transfer_queue(1).transfer_in_flight(BYTES as u64);
    let ground = Ground::of(one_at_a_time, 4, 16);
    let [first, second] = [1, 2].map(|sequence| hashes(sequence, 2));
    let first = compute(&ground.manager, &first, None).await;
    let second = compute(&ground.manager, &second, None).await;
    ground.mover.close();
    let asked = OffloadOptions { request: 9, ..OffloadOptions::default() };
    let under_way = ground.manager.offload(&first, asked);
    // One is under way and one waits: there is no room for more.
    for _ in 0..2 {
        assert_eq!(ground.manager.offload(&second, asked).await.refused, 2);
    }
    ground.mover.open();
    assert_eq!(under_way.await.copied, 2);
    let spans = ears.spans("offload");
    let fields = |span: &Heard| {
        ["request", "blocks", "copied", "refused"].map(|field| span.field(field).to_owned()).join(" ")
    };
    assert_eq!(spans.iter().map(fields).collect::<Vec<_>>(), ["9 2 0 2", "9 2 0 2", "9 2 2 0"]);
    let more = ground.manager.allocate_within(1, Duration::from_millis(5)).await;
    assert!(more.is_err(), "all are held");
    assert_eq!(ears.spans("allocate")[0].field("blocks"), "1");
    let complaints = ears.complaints();
    for what in ["a queue is full", "not served in time"] {
        assert_eq!(
            complaints.iter().filter(|line| line.what.contains(what)).count(),
            1,
            "{what}: {complaints:?}"
        );
    }
    check_complaints(&ears);
}

/// What the command logs at a level, by lines, of so many requests.
fn replayed(level: &str, requests: &str) -> Vec<String> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_kvstrata"))
        .args([
            "replay",
            "--requests",
            requests,
            "--block-bytes",
            "4K",
            "--disk-blocks",
            "16K",
            "--log",
            level,
        ])
        .args(["--device-blocks", "512", "--host-blocks", "1K"])
        .env_remove("KVSTRATA_LOG")
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("the command runs");
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(0), "{text}");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_replay_at_info_says_nothing_by_the_block() {
    let requests = 300;
    let lines = replayed("info", "300");
    let of_requests = lines.iter().filter(|line| line.contains("request=")).count();
    assert!(of_requests > 0 && of_requests <= requests, "{of_requests}");
    // Beside that the opening and the end; 300 requests have 8,000 blocks.
    assert!(lines.len() <= 3 * requests, "{} lines", lines.len());
    assert!(lines.iter().all(|line| line.contains(" INFO ") && !line.contains("blocks=[")), "{lines:#?}");
    assert!(
        replayed("debug", "30").iter().any(|line| line.contains("blocks=[")),
        "at debug there are numbers"
    );
    assert_eq!(replayed("warn", "30"), Vec::<String>::new());
}

#[test]
fn a_level_that_is_none_is_refused_by_its_name() {
    let command =
        Command::new(env!("CARGO_BIN_EXE_kvstrata")).args(["--log", "kvstrata=loud", "metrics"]).output();
    let output = command.expect("the command runs");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true));
    assert!(
        message.starts_with("kvstrata: --log kvstrata=loud: ") && message.contains("give a level"),
        "{message}"
    );
}

#[cfg(feature = "otel")]
#[test]
fn spans_go_to_a_collector_where_one_is_named() {
    use std::io::{Read, Write};
    // As much of one as takes what it is sent first.
    let collector = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = collector.local_addr().expect("bound");
    let taken = std::thread::spawn(move || {
        let (mut connection, _) = collector.accept().expect("a sender");
        // Half of what it sends is a failure, not a wait for the rest.
        connection.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        let (mut sent, mut part) = (Vec::new(), [0; 4096]);
        let has = |sent: &[u8], what: &[u8]| sent.windows(what.len()).any(|bytes| bytes == what);
        // Requests that waited for blocks, and whose they are.
        while !has(&sent, b"allocate") || !has(&sent, b"service.name") {
            let read = connection.read(&mut part).expect("more of it");
            assert!(read > 0, "{}", String::from_utf8_lossy(&sent));
            sent.extend_from_slice(&part[..read]);
        }
        connection
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        String::from_utf8_lossy(&sent).into_owned()
    });
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_kvstrata"))
        .args(["replay", "--requests", "60", "--block-bytes", "4K", "--disk-blocks", "0"])
        .args(["--device-blocks", "256"])
        .env("NO_PROXY", "*")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("the command runs");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    // If nothing has come, this ends the wait for it.
    drop(std::net::TcpStream::connect(address));
    let sent = taken.join().expect("it is sent");
    assert!(sent.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{sent}");
}
