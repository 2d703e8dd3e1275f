//! A volume whose queue of writes is full: whoever calls goes on, and what has to wait does so elsewhere. What slots held that were given
//! back is forgotten before they are anybody's, before a purge ends, and before the volume is closed.

use crate::common::volume;
use crate::ground::{BYTES, Ground, PATIENCE, SLOTS, hash};
use crate::volume::{Nothing, folder, ground_on, one_thread, stall};
use kvstrata::core::{BlockId, PoolConfig};
use kvstrata::disk::{DiskTier, TierOptions};
use kvstrata::ffi::disk::VolumeOptions;
use kvstrata::transfer::{Cause, Failure, Landed};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::yield_now;

/// Requests of a class that may wait for the ring thread.
const QUEUE: u64 = 4;
/// Far more than what waits for nobody takes.
const SOON: Duration = Duration::from_secs(10);

struct Full {
    /// While it is there, the volume takes nothing out of its queues. The first to go: the others' ends wait for the volume.
    stalled: Option<Sender<()>>,
    ground: Ground,
    tier: Arc<DiskTier>,
    runtime: Runtime,
    place: PathBuf,
}

fn open(folder: &Path) -> DiskTier {
    let volume = VolumeOptions::new(folder.join("volume"), SLOTS, BYTES).keep(true).queue(QUEUE as usize);
    DiskTier::open(vec![volume], PoolConfig::new(SLOTS), TierOptions::default()).expect("a tier").0
}

impl Full {
    fn new() -> Full {
        let (folder, runtime) = (folder(), one_thread());
        let place = folder.path().to_owned();
        let tier = Arc::new(open(&place));
        let ground = ground_on(folder, &tier, runtime.handle());
        Full { stalled: None, ground, tier, runtime, place }
    }

    /// A write in every place of the queue, of blocks from 100 on.
    fn fill(&mut self) {
        self.stalled = Some(stall(&self.tier));
        (0..QUEUE).for_each(|number| _ = self.ground.write(100 + number, 200 + number as u32));
    }

    /// What must not wait for the device.
    fn at_once<R: Send>(&mut self, body: impl FnOnce(&mut Ground, &Runtime) -> R + Send) -> R {
        let Full { ground, runtime, stalled, .. } = self;
        thread::scope(|scope| {
            let (done, is_done) = channel();
            scope.spawn(move || done.send(body(ground, runtime)));
            is_done.recv_timeout(SOON).unwrap_or_else(|_| {
                // So that it ends.
                drop(stalled.take());
                panic!("it waits for room")
            })
        })
    }

    /// Takes the slot of a block.
    fn take(&self, number: u64) -> BlockId {
        let block = self.ground.port.lookup(hash(number)).expect("stored").downgrade();
        self.ground.port.take_this(block).expect("nobody holds it")
    }

    fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await }).expect("in time")
    }

    /// The next opening's blocks.
    fn reopened(self) -> DiskTier {
        let Full { mut ground, tier, runtime, place, .. } = self;
        // The folder stays as long as this.
        let faults = std::mem::replace(&mut ground.faults, Box::new(Nothing));
        runtime.block_on(ground.close());
        drop((tier, runtime));
        let tier = open(&place);
        drop(faults);
        tier
    }
}

#[test]
fn nobody_waits_for_room_and_a_slot_that_was_given_back_is_nobodys_until_its_block_is_forgotten() {
    let mut full = Full::new();
    let at_once = (full.ground.port.reads_at_once(), full.ground.port.writes_at_once());
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
fn a_read_that_has_failed_is_answered_once_its_record_is_about_to_end_and_keeps_nobody_waiting() {
    let mut full = Full::new();
    full.runtime.block_on(full.ground.store(0..1));
    full.ground.faults.fail_reads(true);
    let (held, _) = full.ground.read(0, 0).expect("found");
    while full.tier.volumes().stats().failures == 0 {
        thread::yield_now();
    }
    full.ground.faults.fail_reads(false);
    full.fill();
    // Its task looks at what has ended, and others have their turn.
    full.at_once(|_, runtime| {
        runtime.block_on(async {
            for _ in 0..8 {
                yield_now().await;
            }
        });
    });
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
    assert_eq!(failures, [Err(Failure::of(Cause::Disk))]);
    ground.release(held);
    ground.port.unregister(held);
    let tier = full.reopened();
    assert!(tier.lookup(hash(0)).is_none(), "its record has ended");
    assert_eq!(tier.pool().census().inactive, QUEUE as usize);
}

#[test]
fn a_purge_keeps_no_task_from_its_turn() {
    let mut full = Full::new();
    full.runtime.block_on(full.ground.store(0..4));
    let taken: Vec<BlockId> = (0..4).map(|number| full.take(number)).collect();
    full.fill();
    let (over, erasing) = full.at_once(|ground, runtime| {
        runtime.block_on(async {
            let erasing = tokio::spawn(ground.port.erase(taken, false));
            for _ in 0..8 {
                yield_now().await;
            }
            (erasing.is_finished(), erasing)
        })
    });
    assert!(!over, "the volume is stalled");
    drop(full.stalled.take());
    assert_eq!(full.wait(erasing).expect("no panic"), []);
}

#[test]
fn what_was_given_back_before_a_purge_is_found_by_no_restart_after_it() {
    let mut full = Full::new();
    full.runtime.block_on(full.ground.store(0..4));
    let (back, erased) = (full.take(1), full.take(2));
    full.ground.port.give_back(back);
    assert_eq!(full.wait(full.ground.port.erase(vec![erased], false)), []);
    let there = volume::read(&full.place.join("volume")).expect("a superblock").blocks;
    let there: Vec<u64> = (0..4).filter(|number| there.contains_key(&hash(*number).to_u128())).collect();
    assert_eq!(there, [0, 3]);
    // The purge has forgotten it, so that it is free at once.
    full.ground.port.give_back(erased);
    assert_eq!(full.ground.port.pool().free(), SLOTS as usize - 2);
}

#[test]
fn what_was_given_back_before_the_end_is_found_by_no_restart() {
    let full = Full::new();
    let Full { mut ground, tier, runtime, place, .. } = full;
    runtime.block_on(ground.store(0..4));
    let block = ground.port.lookup(hash(1)).expect("stored").downgrade();
    ground.port.give_back(ground.port.take_this(block).expect("nobody holds it"));
    ground.port.close().expect("a volume to be closed")();
    let found = volume::read(&place.join("volume")).expect("a superblock");
    assert!(found.clean && !found.blocks.contains_key(&hash(1).to_u128()) && found.blocks.len() == 3);
    drop(tier);
}
