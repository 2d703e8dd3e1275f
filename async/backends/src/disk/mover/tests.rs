//! Without a thread, requests that would have to wait are given up and answered, no caller
//! waits, and nothing is lost for good.

use super::*;
use crate::disk::TierOptions;
use kvstrata_core::PoolConfig;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::disk::{Name, Urgency, VolumeOptions};
use kvstrata_tiers::transfer::{Cause, Failure, Landed, Landing, Lands, Token};
use std::fs::File;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Wake;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::yield_now;

const BYTES: usize = 4096;
const SLOTS: u32 = 16;
const QUEUE: usize = 4;
const SOON: Duration = Duration::from_secs(20);
const ABANDONED: Failure = Failure::of(Cause::Abandoned);

/// A waker that blocks the ring thread, which wakes it, until it is told to go on.
struct Keeps(Sender<()>, Mutex<Receiver<()>>);

impl Wake for Keeps {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
        let _ = self.1.lock().expect("no panic").recv();
    }
}

fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number) << 64 | 7)
}

/// Landings, in order.
struct Ear(Mutex<Vec<(u64, Option<Failure>)>>);

impl Lands for Ear {
    fn landed(&self, landed: Landed) {
        let heard = match landed {
            Landed::Read(token, outcome) => (token.0, outcome.err()),
            Landed::Write(token, outcome) => (token.0, outcome.err()),
            Landed::Copies(_) => panic!("a disk copies nothing"),
        };
        self.0.lock().expect("no panic").push(heard);
    }
}

struct Ground {
    /// The ring thread goes on when this is dropped: before the mover, which waits for that thread at
    /// its end.
    stalled: Option<Sender<()>>,
    mover: DiskMover,
    arena: Arc<HostArena>,
    ear: Arc<Ear>,
    runtime: Runtime,
    /// A slot that no other request uses.
    spare: BlockId,
    folder: tempfile::TempDir,
}

impl Ground {
    fn port(&self) -> &dyn TierPort {
        &self.mover
    }

    fn new() -> Ground {
        let folder = tempfile::tempdir().expect("a directory");
        let volume = VolumeOptions::new(folder.path().join("volume"), SLOTS, BYTES).keep(true).queue(QUEUE);
        let tier = DiskTier::open(vec![volume], PoolConfig::new(SLOTS), TierOptions::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let mover = DiskMover::new(Arc::new(tier.expect("a tier").0), runtime.handle());
        let (arena, ear) = (HostArena::new(32, BYTES).expect("memory"), Arc::new(Ear(Mutex::default())));
        let mut spare = Vec::new();
        mover.reserve(Reserve::Some(1), &mut spare);
        Ground { stalled: None, mover, arena, ear, runtime, spare: spare[0], folder }
    }

    fn landing(&self) -> Landing {
        Landing::new(Arc::clone(&self.ear) as Arc<dyn Lands>)
    }

    fn take(&self) -> BlockId {
        let mut slots = Vec::new();
        self.mover.reserve(Reserve::Some(1), &mut slots);
        slots.pop().expect("a slot")
    }

    fn write(&self, slot: BlockId, number: u64) {
        let bytes = self.arena.read(number as usize).expect("idle");
        let name = Name { hash: hash(number), parent: None, owner: OwnerId::NONE };
        self.mover.write(TierWrite {
            token: Token(number),
            slot,
            name,
            bytes,
            sum: None,
            landing: self.landing(),
        });
    }

    /// Stops the ring thread, and fills the queue of writes.
    fn fill(&mut self) {
        let tier = self.mover.tier();
        self.stalled = loop {
            let ((entered, inside), (let_go, go_on)) = (channel(), channel());
            let waker = Waker::from(Arc::new(Keeps(entered, Mutex::new(go_on))));
            let buffer = self.arena.write(31).expect("idle");
            let nobody = tier.volumes().read(0, hash(u64::MAX), Urgency::Urgent, buffer);
            // Unless the device has answered already.
            if nobody.tell(&waker) {
                inside.recv().expect("the ring thread wakes");
                break Some(let_go);
            }
        };
        (0..QUEUE).for_each(|_| assert!(tier.volumes().try_forget(self.spare.0)));
        assert!(!tier.volumes().try_forget(self.spare.0), "it is full");
    }

    fn without_threads(&self, without: bool) {
        self.mover.tier().errands[0].without.store(without, Relaxed);
        self.mover.tier().erasures[0].errands.without.store(without, Relaxed);
    }

    /// Waits for so many answers.
    fn answers(&self, count: usize) -> Vec<(u64, Option<Failure>)> {
        let since = Instant::now();
        self.runtime.block_on(async {
            while self.ear.0.lock().expect("no panic").len() < count {
                assert!(since.elapsed() < SOON, "not answered");
                yield_now().await;
            }
        });
        std::mem::take(&mut self.ear.0.lock().expect("no panic"))
    }

    /// Waits until this many slots are free.
    fn free(&self, slots: usize) {
        let since = Instant::now();
        while self.mover.pool().free() < slots {
            assert!(since.elapsed() < SOON, "{} are free", self.mover.pool().free());
            std::thread::yield_now();
        }
    }
}

#[test]
fn requests_that_must_wait_without_a_thread_are_abandoned() {
    let mut ground = Ground::new();
    let kept = ground.take();
    ground.write(kept, 1);
    assert_eq!(ground.answers(1), [(1, None)]);
    let slot = ground.take();
    let free = ground.mover.pool().free();
    ground.fill();
    ground.without_threads(true);
    ground.write(slot, 2);
    assert_eq!(ground.answers(1), [(2, Some(ABANDONED))]);
    assert!(ground.arena.write(2).is_ok(), "nobody uses its bytes");
    assert_eq!(ground.mover.pool().free(), free + 1, "nor its slot, which held nothing");
    assert_eq!(ground.mover.tier().stats().abandoned, 0);
    // A slot that held a block stays taken until a thread can wait.
    let block = ground.mover.find(hash(1), true).expect("stored").downgrade();
    let stale = ground.port().reserve_this(block).expect("nobody holds it");
    ground.mover.release(stale);
    ground.mover.forget_released();
    assert_eq!(ground.mover.pool().free(), free + 1);
    // Requests that would wait for the device are answered as not done.
    let slot = ground.take();
    assert_eq!(ground.runtime.block_on(ground.mover.erase(vec![slot], false)), [slot]);
    assert!(!ground.runtime.block_on(ground.mover.forget_for_good()));
    ground.without_threads(false);
    ground.mover.forget_released();
    drop(ground.stalled.take());
    ground.free(free + 1);
    assert_eq!(ground.runtime.block_on(ground.mover.erase(vec![slot], false)), []);
    assert!(ground.runtime.block_on(ground.mover.forget_for_good()));
}

/// A list has one errand for a full queue, however many slots are put on it meanwhile.
#[test]
fn slots_released_at_a_full_queue_cost_one_errand() {
    let mut ground = Ground::new();
    let slots: Vec<BlockId> = (0..4).map(|_| ground.take()).collect();
    for (slot, number) in slots.iter().zip(1..) {
        ground.write(*slot, number);
    }
    assert_eq!(ground.answers(4).len(), 4);
    let free = ground.mover.pool().free();
    ground.fill();
    let tier = Arc::clone(ground.mover.tier());
    let (go_on, waits) = channel::<()>();
    tier.errands[0].run(Box::new(move |_| _ = waits.recv()));
    for number in 1..=4 {
        let block = ground.mover.find(hash(number), true).expect("stored").downgrade();
        ground.mover.release(ground.port().reserve_this(block).expect("nobody holds it"));
        ground.mover.forget_released();
    }
    // The thread may not have taken the first errand yet.
    let since = Instant::now();
    while tier.errands[0].waiting() > 1 && since.elapsed() < SOON {
        std::thread::yield_now();
    }
    assert_eq!((tier.errands[0].waiting(), ground.mover.pool().free()), (1, free));
    drop(go_on);
    drop(ground.stalled.take());
    ground.free(free + 4);
}

/// Purges, each of which asks each volume to erase its blocks, on a device that hangs.
#[test]
fn erasures_on_a_hanging_volume_share_one_thread_and_turn() {
    let mut ground = Ground::new();
    let slots = [(); 3].map(|()| ground.take());
    ground.fill();
    let mut asked = vec![ground.mover.forget_for_good()];
    let erasures = &ground.mover.tier().erasures[0];
    let since = Instant::now();
    while erasures.waiting() > 0 && since.elapsed() < SOON {
        std::thread::yield_now();
    }
    let erased = slots.map(|slot| ground.mover.erase(vec![slot], true));
    asked.extend((0..5).map(|_| ground.mover.forget_for_good()));
    assert_eq!((erasures.waiting(), erasures.errands.waiting()), (8, 1), "one turn");
    drop(ground.stalled.take());
    for asked in asked {
        assert!(ground.runtime.block_on(asked));
    }
    for erased in erased {
        assert_eq!(ground.runtime.block_on(erased), []);
    }
    assert_eq!(erasures.errands.threads.load(Relaxed), 1);
}

/// It is unknown whether the device will make the write.
#[test]
fn request_with_a_panicking_errand_is_abandoned_alone() {
    let ground = Ground::new();
    let mut ground = Ground { mover: ground.mover.in_order(), ..ground };
    let (slots, free) = ([ground.take(), ground.take()], ground.mover.pool().free());
    ground.fill();
    ground.mover.tier().errands[0].panics.store(true, Relaxed);
    ground.write(slots[0], 1);
    assert_eq!(ground.answers(1), [(1, Some(ABANDONED))]);
    assert_eq!((ground.mover.tier().stats().abandoned, ground.mover.pool().free()), (1, free));
    ground.write(slots[1], 2);
    drop(ground.stalled.take());
    assert_eq!(ground.answers(1), [(2, None)]);
    let Ground { mover, runtime, .. } = ground;
    let desk = Arc::downgrade(&mover.desk);
    drop(mover);
    let since = Instant::now();
    runtime.block_on(async {
        while desk.strong_count() > 0 {
            assert!(since.elapsed() < SOON, "the task waits for one that never comes");
            yield_now().await;
        }
    });
}

/// The read's record has to end before the answer. Where no thread can end it the block stays
/// as it is, and may be read again.
#[test]
fn failed_read_without_a_thread_is_abandoned() {
    for without in [true, false] {
        let mut ground = Ground::new();
        let slot = ground.take();
        ground.write(slot, 1);
        assert_eq!(ground.answers(1), [(1, None)]);
        let file = File::options().write(true).open(ground.folder.path().join("volume")).expect("there");
        let length = file.metadata().expect("there").len();
        file.set_len(4096).expect("truncated");
        let (token, hash, urgency, landing) = (Token(9), hash(1), Urgency::Urgent, ground.landing());
        let buffer = ground.arena.write(1).expect("idle");
        ground.mover.read(TierRead { token, slot, hash, urgency, buffer, landing });
        let since = Instant::now();
        while ground.mover.tier().volumes().stats().failures == 0 {
            assert!(since.elapsed() < SOON, "reads do not fail");
            std::thread::yield_now();
        }
        file.set_len(length).expect("as long as it was");
        ground.fill();
        ground.without_threads(without);
        if without {
            assert_eq!(ground.answers(1), [(9, Some(ABANDONED))]);
            continue;
        }
        ground.runtime.block_on(async {
            for _ in 0..8 {
                yield_now().await;
            }
        });
        assert_eq!(*ground.ear.0.lock().expect("no panic"), [], "its record is still there");
        drop(ground.stalled.take());
        assert_eq!(ground.answers(1), [(9, Some(Failure::of(Cause::Tier)))]);
    }
}

/// The record stays, and the answer waits for no queue.
#[test]
fn read_of_another_length_is_refused_at_a_full_queue() {
    let mut ground = Ground::new();
    let slot = ground.take();
    ground.write(slot, 1);
    assert_eq!(ground.answers(1), [(1, None)]);
    let read = |ground: &Ground, bytes| {
        let (token, hash, urgency, landing) = (Token(9), hash(1), Urgency::Urgent, ground.landing());
        let buffer = ground.arena.write(1).expect("idle").first(bytes);
        ground.mover.read(TierRead { token, slot, hash, urgency, buffer, landing });
    };
    read(&ground, BYTES - 1);
    let since = Instant::now();
    while ground.mover.tier().volumes().stats().failures == 0 {
        assert!(since.elapsed() < SOON, "it is not refused");
        std::thread::yield_now();
    }
    ground.fill();
    ground.without_threads(true);
    assert_eq!(ground.answers(1), [(9, Some(Failure::of(Cause::Buffer)))]);
    drop(ground.stalled.take());
    read(&ground, BYTES);
    assert_eq!((ground.answers(1), ground.port().bytes_of(slot)), (vec![(9, None)], Some(BYTES)));
}
