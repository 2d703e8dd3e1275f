//! `DiskMover` over a volume: its ground, and requests whose runtime has gone.

use crate::ground::{BYTES, Faults, Ground, HOST_BLOCKS, PATIENCE, SLOTS, hash, name};
use kvstrata::backend::disk::{AdmissionPolicy, DiskMover, DiskTier, RecoveryReport, TierOptions};
use kvstrata::backend::transfer::{
    Cause, Failure, HostMemory, Landed, Landing, Lands, Reserve, TierPort, TierWrite, Token,
};
use kvstrata_core::{BlockId, PoolConfig};
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::disk::{Pending, Urgency, VolumeOptions};
use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc;

/// A folder for volumes.
pub fn folder() -> TempDir {
    let place = std::env::var_os("KVSTRATA_DISK_DIR").map(PathBuf::from);
    let place = place.unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")));
    tempfile::tempdir_in(place).expect("a directory")
}

pub fn open(folder: &Path, slots: u32, options: TierOptions) -> (DiskTier, RecoveryReport) {
    let volume = VolumeOptions::new(folder.join("volume"), slots, BYTES).keep(true);
    DiskTier::open(vec![volume], PoolConfig::new(slots), options).expect("a tier")
}

struct Breaks {
    file: File,
    origin: u64,
    stride: u64,
    length: u64,
    /// Takes the volume out of service.
    retire: Box<dyn Fn() + Send>,
}

impl Faults for Breaks {
    fn rot(&self, slot: BlockId) {
        let offset = self.origin + u64::from(slot.0) * self.stride + 1234;
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, offset).expect("within the file");
        self.file.write_all_at(&[byte[0] ^ 4], offset).expect("within the file");
    }

    fn fail_reads(&self, fail: bool) {
        self.file.set_len(if fail { 4096 } else { self.length }).expect("truncated, or as long as it was");
    }

    fn lose(&self) {
        (self.retire)();
    }
}

/// Faults of a disk that a test does not break.
pub struct Nothing;

impl Faults for Nothing {
    fn rot(&self, _slot: BlockId) {}

    fn fail_reads(&self, _fail: bool) {}

    fn lose(&self) {}
}

/// A port over a tier, answered on `runtime`.
pub fn ground_on(folder: TempDir, tier: &Arc<DiskTier>, runtime: &Handle) -> Ground {
    let slots = u64::from(tier.volumes().slots());
    let stride = tier.volumes().descriptions().next().expect("a volume").stride as u64;
    let file = File::options().read(true).write(true).open(folder.path().join("volume")).expect("there");
    let weak = Arc::downgrade(tier);
    let retire = move || {
        // The folder stays as long as the ground does.
        let _ = &folder;
        weak.upgrade().expect("open").volumes().volumes()[0].retire();
    };
    let length = file.metadata().expect("there").len();
    let origin = 4096 + (slots * 64).next_multiple_of(4096);
    let faults = Breaks { file, origin, stride, length, retire: Box::new(retire) };
    let memory = HostMemory::new(HOST_BLOCKS, &[4096, BYTES - 4096]).expect("memory");
    Ground::new(Arc::new(DiskMover::new(Arc::clone(tier), runtime)), memory, Box::new(faults))
}

pub fn ground(slots: u32) -> Ground {
    let folder = folder();
    let (tier, _) = open(folder.path(), slots, TierOptions::default());
    ground_on(folder, &Arc::new(tier), &Handle::current())
}

/// A waker that blocks the waking thread until it is told to go on.
struct Keeps {
    entered: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Wake for Keeps {
    fn wake(self: Arc<Self>) {
        let _ = self.entered.send(());
        let _ = self.go_on.lock().expect("no panic").recv();
    }
}

/// Stops the ring thread: nothing is answered until the returned sender is dropped.
pub fn stall(tier: &DiskTier) -> Sender<()> {
    let arena = HostArena::new(1, BYTES).expect("memory");
    loop {
        let (entered, inside) = channel();
        let (let_go, go_on) = channel();
        let waker = Waker::from(Arc::new(Keeps { entered, go_on: Mutex::new(go_on) }));
        let nobody: Pending<_> =
            tier.volumes().read(0, hash(u64::MAX), Urgency::Urgent, arena.write(0).expect("idle"));
        // Unless it has been answered already.
        if nobody.tell(&waker) {
            inside.recv().expect("the ring thread wakes");
            return let_go;
        }
        drop(nobody);
    }
}

/// Waits until the volume has ended so many writes, and the callers of all of them can know.
fn let_end(tier: &DiskTier, writes: u64, ground: &Ground) {
    while tier.volumes().stats().writes < writes {
        std::thread::yield_now();
    }
    // A write is counted shortly before its caller is told. A read behind it is answered after that.
    let buffer = ground.memory.write(100).expect("idle");
    let _ = tier.volumes().read(SLOTS - 1, hash(u64::MAX), Urgency::Urgent, buffer).wait();
}

pub fn one_thread() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// The answers that are there.
fn answers(ground: &mut Ground, count: usize) -> Vec<Landed> {
    let there = |ground: &mut Ground| {
        let mut next = pin!(ground.next());
        match next.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            std::task::Poll::Ready(landed) => landed,
            std::task::Poll::Pending => panic!("not answered"),
        }
    };
    let runtime = one_thread();
    let _within = runtime.enter();
    (0..count).map(|_| there(ground)).collect()
}

#[test]
fn unanswered_requests_at_runtime_end_are_abandoned() {
    let (folder, runtime) = (folder(), one_thread());
    let (tier, _) = open(folder.path(), SLOTS, TierOptions::default());
    let tier = Arc::new(tier);
    let mut ground = ground_on(folder, &tier, runtime.handle());
    runtime.block_on(ground.store(0..3));
    let stalled = stall(&tier);
    let (held, _) = ground.read(1, 0).expect("found");
    let (slot, _) = ground.write(7, 1);
    assert!(tier.lookup(hash(7)).is_none(), "not before its bytes are down");
    // Nothing has run on that thread since.
    drop(runtime);
    for landed in answers(&mut ground, 2) {
        let outcome = match landed {
            Landed::Read(_, outcome) => outcome.map(drop),
            Landed::Write(_, outcome) => outcome.map(drop),
            Landed::Copies(_) => unreachable!("token() has looked"),
        };
        assert_eq!(outcome, Err(Failure::of(Cause::Abandoned)));
    }
    assert!(ground.memory.write(0).is_err() && ground.memory.write(1).is_err(), "the device has them");
    assert_eq!((tier.stats().abandoned, tier.pool().census().owned), (1, 1));
    assert!(ground.take(SLOTS as usize).iter().all(|taken| *taken != slot), "nobody gets the slot");
    // Later requests are answered, too.
    let bytes = ground.filled(2, 8);
    ground.write_to(BlockId(0), 8, bytes);
    answers(&mut ground, 1);
    drop(stalled);
    let_end(&tier, 5, &ground);
    assert!(ground.memory.write(1).is_ok(), "the device has answered");
    assert!(tier.lookup(hash(7)).is_none());
    ground.release(held);
}

#[test]
fn answered_requests_at_runtime_end_are_not_abandoned() {
    let (folder, runtime) = (folder(), one_thread());
    let (tier, _) = open(folder.path(), SLOTS, TierOptions::default());
    let tier = Arc::new(tier);
    let mut ground = ground_on(folder, &tier, runtime.handle());
    (0..20).for_each(|number| _ = ground.write(number, number as u32));
    let_end(&tier, 20, &ground);
    drop(runtime);
    for landed in answers(&mut ground, 20) {
        assert!(matches!(landed, Landed::Write(_, Ok(_))), "{landed:?}");
    }
    assert!((0..20).all(|number| tier.lookup(hash(number)).is_some()));
    assert_eq!((tier.stats().abandoned, tier.stats().written), (0, 20));
}

#[test]
fn requests_ending_together_wake_the_task_once() {
    let (folder, runtime) = (folder(), one_thread());
    let (tier, _) = open(folder.path(), SLOTS, TierOptions::default());
    let tier = Arc::new(tier);
    let mut ground = ground_on(folder, &tier, runtime.handle());
    runtime.block_on(ground.store(0..1));
    let waking = || runtime.metrics().global_queue_depth();
    let stalled = stall(&tier);
    for block in 0..16 {
        ground.write(10 + u64::from(block), block);
    }
    assert_eq!(waking(), 0, "the ring thread will wake it");
    let slot = ground.take(1).pop().expect("a slot");
    let longer = HostMemory::new(1, &[BYTES + 1]).expect("memory");
    ground.write_to(slot, 9, longer.read(0).expect("idle"));
    assert_eq!(waking(), 1, "nobody else would, for what has failed already");
    runtime.block_on(async {
        assert_eq!(ground.written().await.map(drop), Err(Failure::of(Cause::Buffer)));
    });
    assert_eq!(waking(), 0);
    drop(stalled);
    let_end(&tier, 17, &ground);
    assert_eq!(waking(), 1, "all of them have ended");
    runtime.block_on(async {
        for _ in 0..16 {
            ground.written().await.expect("written");
        }
    });
}

#[test]
fn volume_is_closed_after_the_last_answer() {
    let folder = folder();
    let place = folder.path().to_owned();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("a runtime");
    for round in 0..8 {
        runtime.block_on(async {
            let (tier, report) = open(&place, SLOTS, TierOptions::default());
            assert_eq!(
                (report.recovered_blocks, report.clean, report.created),
                (8 * round, round > 0, round == 0)
            );
            let (tier, memory) = (Arc::new(tier), HostMemory::new(8, &[BYTES]).expect("memory"));
            let port = Arc::new(DiskMover::new(Arc::clone(&tier), &Handle::current()));
            drop(tier);
            let mut ground = Ground::new(port, memory, Box::new(Nothing));
            (0..8).for_each(|block| _ = ground.write(8 * round + block, block as u32));
            assert_eq!(ground.close().await.len(), 8);
            let gone = async {
                while Handle::current().metrics().num_alive_tasks() > 0 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, gone).await.expect("the task ends with its work");
        });
    }
}

/// Reports at each answer how many owners keep the tier open.
struct Keepers(Weak<DiskTier>, mpsc::UnboundedSender<usize>);

impl Lands for Keepers {
    fn landed(&self, _landed: Landed) {
        self.1.send(self.0.strong_count()).expect("heard");
    }
}

#[test]
fn last_answer_comes_when_the_tier_is_unowned() {
    let (folder, runtime) = (folder(), one_thread());
    let (tier, _) = open(folder.path(), SLOTS, TierOptions::default());
    let (tier, arena) = (Arc::new(tier), HostArena::new(8, BYTES).expect("memory"));
    let (heard, mut keepers) = mpsc::unbounded_channel();
    let ear: Arc<dyn Lands> = Arc::new(Keepers(Arc::downgrade(&tier), heard));
    let stalled = stall(&tier);
    let mover = DiskMover::new(tier, runtime.handle());
    let mut slots = Vec::new();
    mover.reserve(Reserve::Some(8), &mut slots);
    for (slot, number) in slots.into_iter().zip(0..) {
        let bytes = arena.read(number as usize).expect("idle");
        let (token, landing) = (Token(number), Landing::new(Arc::clone(&ear)));
        mover.write(TierWrite { token, slot, name: name(number), bytes, sum: None, landing });
    }
    drop((mover, ear));
    drop(stalled);
    let mut counts = Vec::new();
    runtime.block_on(async {
        while let Some(count) = tokio::time::timeout(PATIENCE, keepers.recv()).await.expect("answered") {
            counts.push(count);
        }
    });
    assert_eq!(counts, [7, 6, 5, 4, 3, 2, 1, 0]);
}

#[test]
fn failed_read_is_counted_and_its_record_ended() {
    let (folder, runtime) = (folder(), one_thread());
    let place = folder.path().to_owned();
    let (tier, _) = open(&place, SLOTS, TierOptions::default());
    let tier = Arc::new(tier);
    runtime.block_on(async {
        let mut ground = ground_on(folder, &tier, &Handle::current());
        let slots = ground.store(0..4).await;
        ground.faults.rot(slots[1]);
        assert_eq!(ground.fetch(1).await, Some(Err(Failure::of(Cause::Rejected))));
        assert_eq!(tier.stats().rejected.payload, 1);
        ground.faults.fail_reads(true);
        assert_eq!(ground.fetch(2).await, Some(Err(Failure::of(Cause::Tier))));
        ground.faults.fail_reads(false);
        let (tier, faults) = (tier, std::mem::replace(&mut ground.faults, Box::new(Nothing)));
        assert!(ground.close().await.is_empty());
        drop(tier);
        assert_eq!(open(&place, SLOTS, TierOptions::default()).1.recovered_blocks, 2);
        drop(faults);
    });
}

#[test]
fn port_applies_admission_and_budget_of_its_tier() {
    let folder = folder();
    let options = TierOptions::default()
        .admission(AdmissionPolicy::SecondUse)
        .write_budget(144 * 3 * BYTES as u64)
        .linked(true);
    let runtime = one_thread();
    let (tier, _) = open(folder.path(), SLOTS, options);
    let mover = DiskMover::new(Arc::new(tier), runtime.handle());
    let port: &dyn TierPort = &mover;
    (0..10).for_each(|number| port.used(hash(number)));
    assert!((0..10).all(|number| !port.admits(hash(number), Duration::ZERO)), "used once");
    (0..10).for_each(|number| port.used(hash(number)));
    assert_eq!((0..10).filter(|number| port.admits(hash(*number), Duration::ZERO)).count(), 3);
    let stats = mover.tier().stats();
    assert_eq!((stats.offered, stats.refused_by_admission, stats.refused_by_budget), (20, 10, 7));
    assert!(port.facts().description.contains("64 slots"), "{}", port.facts().description);
    assert_eq!(port.pool().free(), SLOTS as usize);
}

#[test]
fn write_to_an_unreserved_slot_is_refused() {
    let runtime = one_thread();
    runtime.block_on(async {
        let mut ground = ground(4);
        let slots = ground.store(0..1).await;
        let bytes = ground.filled(1, 9);
        ground.write_to(slots[0], 9, bytes);
        assert_eq!(ground.written().await.map(drop), Err(Failure::of(Cause::Busy)));
        assert!(ground.port.find(hash(9), true).is_none());
        assert_eq!(
            ground.fetch(0).await,
            Some(Err(Failure::of(Cause::Rejected))),
            "its bytes are gone: a miss"
        );
        ground.port.release(slots[0]);
        assert_eq!(ground.port.pool().free(), 4);
    });
}
