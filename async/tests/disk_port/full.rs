//! A volume with a full queue of writes, or one that hangs. Callers go on, and so do other volumes and
//! the end of the runtime: requests that have to wait do so elsewhere. The blocks of slots given back are
//! forgotten before the slots are given out again, before a purge ends, and before the volume is closed.

use crate::common::volume;
use crate::ground::{BYTES, Ground, PATIENCE, SLOTS, hash, name, token};
use crate::volume::{Nothing, folder, ground_on, one_thread, stall};
use kvstrata::disk::{DiskMover, DiskTier, TierOptions};
use kvstrata::transfer::{Cause, Failure, HostMemory, Landed};
use kvstrata_core::{BlockId, PoolConfig};
use kvstrata_ffi::arena::BlockRead;
use kvstrata_ffi::disk::{Pending, VolumeOptions};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::yield_now;

/// Requests of a class that may wait for the ring thread.
const QUEUE: u64 = 4;
/// Far more than a call takes that does not wait for the device.
const SOON: Duration = Duration::from_secs(10);

struct Full {
    /// While it is there, the first volume takes nothing out of its queues. It drops first: the ends of
    /// the other fields wait for the volume.
    stalled: Option<Sender<()>>,
    ground: Ground,
    tier: Arc<DiskTier>,
    runtime: Runtime,
    place: PathBuf,
}

/// A ground knows the first volume's file.
const FILES: [&str; 2] = ["volume", "other"];

fn open(folder: &Path, volumes: usize) -> DiskTier {
    let slots = SLOTS / volumes as u32;
    let volume = |file| VolumeOptions::new(folder.join(file), slots, BYTES).keep(true).queue(QUEUE as usize);
    let volumes = FILES[..volumes].iter().map(volume).collect();
    DiskTier::open(volumes, PoolConfig::new(SLOTS), TierOptions::default()).expect("a tier").0
}

/// Whether a slot is of the first of two volumes.
fn of_the_first(slot: &BlockId) -> bool {
    slot.0.is_multiple_of(2)
}

/// Runs `body`, which must end soon though a device hangs until it is told to go on.
fn soon<R: Send>(stalled: &mut Option<Sender<()>>, body: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let (done, is_done) = channel();
        scope.spawn(move || done.send(body()));
        is_done.recv_timeout(SOON).unwrap_or_else(|_| {
            // Ends the wait, so that the scope ends.
            drop(stalled.take());
            panic!("it waits for the device")
        })
    })
}

/// Gives other tasks of the runtime their turn.
async fn turns() {
    for _ in 0..8 {
        yield_now().await;
    }
}

impl Full {
    fn new() -> Full {
        Full::over(1)
    }

    fn over(volumes: usize) -> Full {
        let (folder, runtime) = (folder(), one_thread());
        let place = folder.path().to_owned();
        let tier = Arc::new(open(&place, volumes));
        let ground = ground_on(folder, &tier, runtime.handle());
        Full { stalled: None, ground, tier, runtime, place }
    }

    /// Fills every place of the queue with a write, of blocks from 100 on.
    fn fill(&mut self) {
        self.stalled = Some(stall(&self.tier));
        (0..QUEUE).for_each(|number| _ = self.ground.write(100 + number, 200 + number as u32));
    }

    /// The same for the first volume, by a caller that knows nothing of the port.
    fn fill_from_elsewhere(&mut self) -> Vec<Pending<BlockRead>> {
        let volumes = self.tier.volumes().volumes().len() as u32;
        let free = self.ground.take(self.ground.port.pool().free()).into_iter();
        let (slots, others): (Vec<BlockId>, Vec<BlockId>) = free.partition(|slot| slot.0 % volumes == 0);
        let (filled, free) = slots.split_at(QUEUE as usize);
        self.ground.give_back(free.iter().chain(&others).copied());
        self.stalled = Some(stall(&self.tier));
        let write = |(slot, number): (&BlockId, u64)| {
            let bytes = self.ground.filled(200 + number as u32, 100 + number);
            self.tier.write_slot(*slot, name(100 + number), bytes)
        };
        filled.iter().zip(0..).map(write).collect()
    }

    /// Runs a call that must not wait for the device.
    fn at_once<R: Send>(&mut self, body: impl FnOnce(&mut Ground, &Runtime) -> R + Send) -> R {
        let Full { ground, runtime, stalled, .. } = self;
        soon(stalled, || body(ground, runtime))
    }

    /// Takes the slot of a block.
    fn take(&self, number: u64) -> BlockId {
        let block = self.ground.port.find(hash(number), true).expect("stored").downgrade();
        self.ground.port.reserve_this(block).expect("nobody holds it")
    }

    fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await }).expect("in time")
    }

    /// The tier that the next opening finds.
    fn reopened(self) -> DiskTier {
        let Full { mut ground, tier, runtime, place, .. } = self;
        let volumes = tier.volumes().volumes().len();
        // The folder stays as long as this.
        let faults = std::mem::replace(&mut ground.faults, Box::new(Nothing));
        runtime.block_on(ground.close());
        drop((tier, runtime));
        let tier = open(&place, volumes);
        drop(faults);
        tier
    }
}

#[test]
fn released_slot_at_a_full_queue_is_unowned_until_forgotten() {
    let mut full = Full::new();
    let at_once = (full.ground.port.facts().reads_at_once, full.ground.port.facts().writes_at_once);
    assert_eq!(at_once, (4, 3), "some room is for what is forgotten");
    let stored = full.runtime.block_on(full.ground.store(0..4));
    full.fill();
    let mut slots = full.ground.take(SLOTS as usize);
    slots.retain(|slot| !stored.contains(slot));
    let last = slots.pop().expect("a free one");
    full.at_once(|ground, _| {
        let bytes = ground.filled(0, 104);
        ground.write_to(last, 104, bytes);
        ground.give_back(stored[..2].iter().copied());
        ground.give_back(stored[2..3].iter().copied());
    });
    assert!(full.ground.take(1).is_empty(), "a write of one would be forgotten");
    full.ground.give_back(slots);
    let free = SLOTS as usize - 5 - 1;
    assert_eq!(full.ground.port.pool().free(), free - 3);
    drop(full.stalled.take());
    let (ground, runtime) = (&mut full.ground, &full.runtime);
    runtime.block_on(async {
        for _ in 0..5 {
            ground.written().await.expect("written");
        }
    });
    full.wait(async {
        while full.ground.port.pool().free() < free {
            yield_now().await;
        }
    });
    assert!(full.ground.take(free).contains(&stored[0]));
    let bytes = full.ground.filled(0, 9);
    full.ground.write_to(stored[0], 9, bytes);
    full.runtime.block_on(full.ground.written()).expect("written");
    let tier = full.reopened();
    // Block 3 was neither written nor given back.
    let found: Vec<u64> = (0..200).filter(|number| tier.lookup(hash(*number)).is_some()).collect();
    assert_eq!(found, [3, 9, 100, 101, 102, 103, 104]);
}

#[test]
fn failed_read_at_a_full_queue_is_answered_after_its_record() {
    let mut full = Full::new();
    full.runtime.block_on(full.ground.store(0..1));
    full.ground.faults.fail_reads(true);
    let (held, _) = full.ground.read(0, 0).expect("found");
    let since = Instant::now();
    while full.tier.volumes().stats().failures == 0 {
        assert!(since.elapsed() < PATIENCE, "reads do not fail");
        thread::yield_now();
    }
    full.ground.faults.fail_reads(false);
    full.fill();
    // The task looks at requests that have ended, and other tasks have their turn.
    let answered = full.at_once(|ground, runtime| {
        runtime.block_on(async {
            turns().await;
            pin!(ground.next()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
        })
    });
    assert!(!answered, "its record is to end first: a later one of the slot's would");
    drop(full.stalled.take());
    let (ground, runtime) = (&mut full.ground, &full.runtime);
    let mut failures = Vec::new();
    runtime.block_on(async {
        for _ in 0..=QUEUE {
            match ground.next().await {
                Landed::Read(_, outcome) => failures.push(outcome.map(drop)),
                other => drop(other),
            }
        }
    });
    assert_eq!(failures, [Err(Failure::of(Cause::Tier))]);
    ground.release(held);
    ground.port.forget(held);
    let tier = full.reopened();
    assert!(tier.lookup(hash(0)).is_none(), "its record has ended");
    assert_eq!(tier.pool().census().inactive, QUEUE as usize);
}

#[test]
fn purge_at_a_full_queue_delays_no_task() {
    let mut full = Full::new();
    full.runtime.block_on(full.ground.store(0..4));
    let taken: Vec<BlockId> = (0..4).map(|number| full.take(number)).collect();
    full.fill();
    let (over, erasing) = full.at_once(|ground, runtime| {
        runtime.block_on(async {
            let erasing = tokio::spawn(ground.port.erase(taken, false));
            turns().await;
            (erasing.is_finished(), erasing)
        })
    });
    assert!(!over, "the volume is stalled");
    drop(full.stalled.take());
    assert_eq!(full.wait(erasing).expect("no panic"), []);
}

/// The blocks among these that the next opening of a volume would find.
fn in_file(file: &Path, numbers: std::ops::Range<u64>) -> Vec<u64> {
    let there = volume::read(file).expect("a superblock").blocks;
    numbers.filter(|number| there.contains_key(&hash(*number).to_u128())).collect()
}

#[test]
fn released_blocks_forgotten_for_good_survive_no_restart() {
    let mut full = Full::new();
    let file = full.place.join("volume");
    full.runtime.block_on(full.ground.store(0..4));
    full.tier.volumes().flush().into_iter().for_each(|flush| flush.wait().expect("flushed"));
    assert_eq!(in_file(&file, 0..4), [0, 1, 2, 3]);
    let (back, erased) = (full.take(1), full.take(2));
    full.ground.port.release(back);
    assert!(full.wait(full.ground.port.forget_for_good()));
    assert_eq!(in_file(&file, 0..4), [0, 2, 3]);
    full.ground.port.release(full.take(0));
    assert_eq!(full.wait(full.ground.port.erase(vec![erased], false)), []);
    assert_eq!(in_file(&file, 0..4), [3]);
    // Its block is forgotten already, so it is free at once.
    full.ground.port.release(erased);
    assert_eq!(full.ground.port.pool().free(), SLOTS as usize - 1);
}

/// Each volume has a list of its own, and a number of its own for a slot.
#[test]
fn hanging_volume_delays_neither_slots_nor_end_of_another() {
    let mut full = Full::over(2);
    let stored = &full.runtime.block_on(full.ground.store(0..16));
    let numbers = |first| (0..16).filter(move |number| of_the_first(&stored[*number as usize]) == first);
    let gone: Vec<u64> = numbers(true).take(1).chain(numbers(false).skip(1).take(3)).collect();
    let slots: Vec<BlockId> = gone.iter().map(|number| full.take(*number)).collect();
    let ([first, other @ ..], 4) = (&slots[..], slots.len()) else { panic!("blocks of both") };
    let pending = full.fill_from_elsewhere();
    let free = full.ground.port.pool().free();
    // A release waits for room in the first volume.
    full.at_once(|ground, _| ground.give_back([*first]));
    full.at_once(|ground, _| {
        ground.give_back(other[..2].iter().copied());
        assert_eq!(ground.port.pool().free(), free + 2, "the other volume has room");
    });
    // A write to the other volume and an erasure there do not wait either.
    let mut free = full.ground.take(full.ground.port.pool().free());
    let at = free.iter().position(|slot| !of_the_first(slot)).expect("one of the other");
    let slot = free.swap_remove(at);
    full.ground.give_back(free);
    full.at_once(|ground, runtime| {
        let bytes = ground.filled(0, 50);
        ground.write_to(slot, 50, bytes);
        runtime.block_on(ground.written()).expect("written");
    });
    let erased = other[2];
    full.at_once(|ground, runtime| {
        assert_eq!(runtime.block_on(ground.port.erase(vec![erased], true)), [], "overwritten");
    });
    let close = full.ground.port.close().expect("volumes to be closed");
    let closing = thread::spawn(close);
    let since = Instant::now();
    let file = full.place.join(FILES[1]);
    while !volume::read(&file).expect("a superblock").clean {
        assert!(since.elapsed() < SOON, "it waits for the first");
        thread::yield_now();
    }
    assert!(!volume::read(&full.place.join(FILES[0])).expect("a superblock").clean);
    drop(full.stalled.take());
    closing.join().expect("no panic");
    pending.into_iter().for_each(|pending| drop(pending.wait().expect("written")));
    let left: Vec<u64> = (0..16).filter(|number| !gone.contains(number)).collect();
    let tier = full.reopened();
    let found: Vec<u64> = (0..100).filter(|number| tier.lookup(hash(*number)).is_some()).collect();
    assert_eq!(found, [left, vec![50]].concat());
}

/// Requests that wait for the device do so on threads that no runtime joins.
#[test]
fn runtime_ends_with_requests_on_a_hanging_volume() {
    let mut full = Full::new();
    full.runtime.block_on(full.ground.store(0..4));
    let taken: Vec<BlockId> = (0..4).map(|number| full.take(number)).collect();
    full.fill();
    full.at_once(|ground, runtime| {
        runtime.block_on(async {
            drop(tokio::spawn(ground.port.erase(taken, false)));
            let (slot, bytes) = (ground.take(1)[0], ground.filled(0, 104));
            ground.write_to(slot, 104, bytes);
            turns().await;
        });
    });
    let Full { mut stalled, mut ground, tier, runtime, .. } = full;
    soon(&mut stalled, move || drop(runtime));
    drop(stalled);
    one_thread().block_on(async {
        for _ in 0..=QUEUE {
            let _ = ground.written().await;
        }
    });
    drop((ground, tier));
}

#[test]
fn writes_after_runtime_end_do_not_wait_for_room() {
    let mut full = Full::new();
    full.runtime.block_on(full.ground.store(0..1));
    full.fill();
    let (held, _) = full.ground.read(0, 100).expect("found");
    let Full { mut stalled, mut ground, tier, runtime, .. } = full;
    drop(runtime);
    let slots = ground.take(6);
    soon(&mut stalled, || {
        for (slot, number) in slots.iter().zip(0..) {
            let bytes = ground.filled(number, 104 + u64::from(number));
            ground.write_to(*slot, 104 + u64::from(number), bytes);
        }
    });
    assert_eq!(ground.outstanding(), 4 + 1 + 6);
    drop(stalled);
    one_thread().block_on(async {
        for _ in 0..4 + 1 + 6 {
            drop(ground.next().await);
        }
    });
    ground.release(held);
    drop(tier);
}

/// A thread has still to hand a write over when the port ends. The write is answered by its own outcome.
#[test]
fn write_awaiting_room_at_the_port_drop_is_answered_written() {
    let mut full = Full::new();
    let pending = full.fill_from_elsewhere();
    let (slot, bytes) = (full.ground.take(1)[0], full.ground.filled(0, 5));
    full.at_once(|ground, _| ground.write_to(slot, 5, bytes));
    let Full { mut stalled, ground, tier, runtime, .. } = full;
    let last = runtime.block_on(async {
        let mut closing = pin!(ground.close());
        assert!(closing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        // The task has seen that no more requests will come.
        turns().await;
        drop(stalled.take());
        closing.await
    });
    assert!(matches!(last[..], [Landed::Write(_, Ok(_))]), "{last:?}");
    drop((pending, tier));
}

/// One write waits for room in its volume, and the next, to another volume, does not.
#[test]
fn writes_in_order_end_in_order_past_a_full_queue() {
    let mut full = Full::over(2);
    let pending = full.fill_from_elsewhere();
    let mover = DiskMover::new(Arc::clone(&full.tier), full.runtime.handle()).in_order();
    let memory = HostMemory::new(8, &[BYTES]).expect("memory");
    let mut ground = Ground::new(Arc::new(mover), memory, Box::new(Nothing));
    let slots = ground.take(8);
    let (of_first, other): (Vec<BlockId>, Vec<BlockId>) = slots.into_iter().partition(of_the_first);
    let written = full.tier.volumes().stats().writes + 2;
    let asked = [(of_first[0], 0), (other[0], 1), (of_first[1], 2), (other[1], 3)].map(|(slot, number)| {
        let bytes = ground.filled(number as u32, number);
        ground.write_to(slot, number, bytes).0
    });
    let since = Instant::now();
    while full.tier.volumes().stats().writes < written {
        assert!(since.elapsed() < PATIENCE, "the other volume has room");
        thread::yield_now();
    }
    full.runtime.block_on(turns());
    drop(full.stalled.take());
    let mut ended = Vec::new();
    full.runtime.block_on(async {
        for _ in asked {
            ended.push(token(&ground.next().await));
        }
    });
    assert_eq!(ended, asked);
    drop(pending);
}

#[test]
fn blocks_released_before_close_survive_no_restart() {
    let full = Full::new();
    let Full { mut ground, tier, runtime, place, .. } = full;
    runtime.block_on(ground.store(0..4));
    let block = ground.port.find(hash(1), true).expect("stored").downgrade();
    ground.port.release(ground.port.reserve_this(block).expect("nobody holds it"));
    ground.port.close().expect("a volume to be closed")();
    let found = volume::read(&place.join("volume")).expect("a superblock");
    assert!(found.clean && !found.blocks.contains_key(&hash(1).to_u128()) && found.blocks.len() == 3);
    drop(tier);
}
