//! Cases that seeds find rarely: a disk that hangs or is slow, full queues, keys that are forgotten amid a
//! transfer, rot that the tier below makes good.

use crate::content::{BLANK, assert_same, blank, filled, key};
use crate::settings::Settings;
use crate::sim::Plan;
use crate::world::{World, pass};
use kvstrata_ffi::arena::HostArena;
use kvstrata_store::{Batch, BatchOptions, Kind, Miss, Outcome};
use kvstrata_testing::virtual_time::{self, Handle, timeout};
use kvstrata_tiers::Tier;
use kvstrata_tiers::transfer::Cause;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn settings(host: u32) -> Settings {
    Settings {
        host,
        staging: 2,
        disk: 16,
        at_once: 8,
        plan: Plan::calm(7),
        queue: 100,
        abandon: 0,
        straight: true,
        patience: 5 * SECOND,
        ..Settings::of(4)
    }
}

fn world(host: u32) -> Rc<World> {
    World::new(settings(host), None, false)
}

fn begin(of: &World, kind: Kind, numbers: &[u64], memory: &Arc<HostArena>) -> Batch {
    let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
    let (memory, options) = (Arc::clone(memory), BatchOptions::default());
    let batch = match kind {
        Kind::Store => of.store.store(&keys, memory, options),
        Kind::Load => of.store.load(&keys, memory, options),
        Kind::Forget => of.store.forget(&keys),
    };
    batch.expect("begun")
}

async fn done(of: &World, kind: Kind, numbers: &[u64], memory: &Arc<HostArena>) -> Vec<Outcome> {
    begin(of, kind, numbers, memory).await.expect("an answer").outcomes.into_vec()
}

#[test]
fn memory_lent_to_a_hanging_read_stays_lent() {
    virtual_time::run(async {
        let of = world(0);
        done(&of, Kind::Store, &[0, 1], &filled(&[0, 1], true)).await;
        of.disks[0].gate().hold();
        // Page-aligned, so that the read goes straight into it.
        let memory = blank(&[0], true, 0);
        let mut batch = begin(&of, Kind::Load, &[0], &memory);
        assert!(timeout(60 * SECOND, &mut batch).await.is_err(), "the disk may still write the memory");
        assert!(memory.write(0).is_err());
        // A second load of the key waits no longer than its deadline.
        let (other, began) = (blank(&[0], true, 0), Handle::current().now());
        assert_eq!(done(&of, Kind::Load, &[0], &other).await, [Outcome::Missed(Miss::Late)]);
        assert!(Handle::current().now() - began <= 6 * SECOND && other.write(0).is_ok());
        of.disks[0].gate().open();
        // Late, but the bytes are there, and nothing touches the memory any more.
        assert_eq!(batch.await.expect("an answer").outcomes[..], [Outcome::Loaded(Tier::DISK)]);
        assert_same(&memory.read(0).expect("given back"), 0);
    });
}

#[test]
fn staged_load_of_a_hanging_disk_ends_at_its_deadline() {
    virtual_time::run(async {
        for (host, aligned) in [(0, false), (4, false), (0, true)] {
            let of = World::new(Settings { straight: !aligned, ..settings(host) }, None, false);
            done(&of, Kind::Store, &[2], &filled(&[2], aligned)).await;
            if host > 0 {
                // Out of host memory, so that the disk is needed.
                for number in [8, 14, 20, 1, 7, 13] {
                    done(&of, Kind::Store, &[number], &filled(&[number], false)).await;
                }
            }
            of.disks[0].gate().hold();
            let (memory, began) = (blank(&[2], aligned, 0), Handle::current().now());
            assert_eq!(done(&of, Kind::Load, &[2], &memory).await, [Outcome::Missed(Miss::Late)]);
            assert_eq!(Handle::current().now() - began, 5 * SECOND);
            // The disk still writes to our block, not to the caller's.
            memory.write(0).expect("given back").fill(3);
            of.disks[0].gate().open();
            pass(60 * SECOND).await;
            assert!(memory.read(0).expect("unused").iter().all(|byte| *byte == 3));
            assert_eq!(of.store.stats().classes[0].staging, [2, 2]);
        }
    });
}

#[test]
fn slow_disk_is_spared_and_tried_again() {
    virtual_time::run(async {
        let of = world(0);
        done(&of, Kind::Store, &[0, 1, 6], &filled(&[0, 1, 6], true)).await;
        of.disks[0].gate().hold();
        let memory = blank(&[0], true, 0);
        let hanging = begin(&of, Kind::Load, &[0], &memory);
        pass(61 * SECOND).await;
        // The read has taken longer than `slow_above`: others are not sent behind it.
        let other = blank(&[1], true, 0);
        assert_eq!(done(&of, Kind::Load, &[1], &other).await, [Outcome::Missed(Miss::Slow)]);
        assert!(!of.store.contains(key(1)) && !of.store.contains(key(6)), "so lookups pass it by");
        assert_eq!(done(&of, Kind::Store, &[12], &filled(&[12], true)).await, [Outcome::Missed(Miss::Slow)]);
        of.disks[0].gate().open();
        assert!(hanging.await.expect("an answer").is_done());
        // One lookup each half second lets a load try.
        let mut trials = 0;
        while !of.store.contains(key(1)) {
            pass(SECOND / 4).await;
            let is_done = of.store.contains(key(1)) && done(&of, Kind::Load, &[1], &other).await[0].is_done();
            trials += u32::from(is_done);
            assert!(trials < 1000, "it never recovers");
        }
        assert!(done(&of, Kind::Load, &[1], &other).await[0].is_done());
        assert_same(&other.read(0).expect("given back"), 1);
    });
}

#[test]
fn full_queue_refuses_and_counts() {
    virtual_time::run(async {
        let of = World::new(Settings { queue: 3, at_once: 1, ..settings(0) }, None, false);
        of.disks[0].gate().hold();
        let numbers = [0, 1, 6, 7, 12, 13, 18, 19];
        let memory = filled(&numbers, true);
        let batch = begin(&of, Kind::Store, &numbers, &memory);
        pass(SECOND).await;
        of.disks[0].gate().open();
        let outcomes = batch.await.expect("an answer").outcomes;
        let refused = outcomes.iter().filter(|outcome| **outcome == Outcome::Missed(Miss::Busy)).count();
        assert_eq!((outcomes.len(), refused), (8, 5), "{outcomes:?}");
        assert_eq!(of.store.stats().store_misses.get("busy"), Some(&5));
    });
}

#[test]
fn forget_amid_a_transfer_is_answered_after_it() {
    virtual_time::run(async {
        for host in [0, 2] {
            let of = world(host);
            of.disks[0].gate().hold();
            let memory = filled(&[0], true);
            let storing = begin(&of, Kind::Store, &[0], &memory);
            let forgetting = begin(&of, Kind::Forget, &[0], &memory);
            pass(SECOND).await;
            of.disks[0].gate().open();
            assert!(storing.await.expect("an answer").is_done());
            assert_eq!(forgetting.await.expect("an answer").outcomes[..], [Outcome::Forgotten]);
            assert!(!of.store.contains(key(0)));
            assert_eq!(done(&of, Kind::Load, &[0], &blank(&[0], true, 0)).await, [Outcome::Absent]);

            done(&of, Kind::Store, &[0], &memory).await;
            for number in [6, 12, 18] {
                done(&of, Kind::Store, &[number], &filled(&[number], true)).await;
            }
            of.disks[0].gate().hold();
            let to = blank(&[0], true, 0);
            let loading = begin(&of, Kind::Load, &[0], &to);
            let forgetting = begin(&of, Kind::Forget, &[0], &to);
            pass(SECOND).await;
            of.disks[0].gate().open();
            assert!(loading.await.expect("an answer").is_done(), "it began before");
            assert_same(&to.read(0).expect("given back"), 0);
            assert_eq!(forgetting.await.expect("an answer").outcomes[..], [Outcome::Forgotten]);
            assert!(!of.store.contains(key(0)));
        }
    });
}

#[test]
fn rot_in_host_memory_is_made_good_from_below() {
    virtual_time::run(async {
        let of = world(2);
        done(&of, Kind::Store, &[0], &filled(&[0], true)).await;
        assert_eq!(of.store.find(key(0)).map(|found| found.tier), Some(Tier::Host));
        flip(&of);
        let memory = blank(&[0], true, 0);
        assert_eq!(done(&of, Kind::Load, &[0], &memory).await, [Outcome::Loaded(Tier::DISK)]);
        assert_same(&memory.read(0).expect("given back"), 0);
        assert_eq!(of.store.stats().load_misses.get("mismatch"), Some(&1));

        // Without a tier below it is a miss, and then absent.
        let of = World::new(Settings { disk: 0, ..settings(2) }, None, false);
        done(&of, Kind::Store, &[0], &filled(&[0], true)).await;
        flip(&of);
        let memory = blank(&[0], true, 0);
        let mismatch = Outcome::Missed(Miss::Failed(Cause::Mismatch));
        assert_eq!(done(&of, Kind::Load, &[0], &memory).await, [mismatch]);
        memory.write(0).expect("given back").fill(BLANK);
        assert_eq!(done(&of, Kind::Load, &[0], &memory).await, [Outcome::Absent]);
        assert!(memory.read(0).expect("given back").iter().all(|byte| *byte == BLANK));
    });
}

/// Flips a bit of all blocks of host memory.
fn flip(of: &World) {
    let memory = &of.memory[0];
    (0..memory.blocks()).for_each(|block| memory.write(block).expect("unused")[9] ^= 1);
}

#[test]
fn bytes_that_rot_before_their_write_are_never_served() {
    virtual_time::run(async {
        let of = World::new(Settings { at_once: 1, ..settings(4) }, None, false);
        of.disks[0].gate().hold();
        // One write moves; the other waits in host memory, where it rots.
        let (first, second) = (filled(&[0], true), filled(&[6], true));
        let storing = [begin(&of, Kind::Store, &[0], &first), begin(&of, Kind::Store, &[6], &second)];
        pass(SECOND).await;
        let memory = &of.memory[0];
        for block in 0..memory.blocks() {
            memory.write(block).into_iter().for_each(|mut bytes| bytes[9] ^= 1);
        }
        of.disks[0].gate().open();
        for batch in storing {
            batch.await.expect("an answer");
        }
        let to = blank(&[0, 6], true, 0);
        let outcomes = done(&of, Kind::Load, &[0, 6], &to).await;
        let rotten: Vec<_> = outcomes.iter().filter(|outcome| !outcome.is_done()).collect();
        assert!(matches!(rotten[..], [Outcome::Missed(Miss::Failed(_))]), "{outcomes:?}");
        for (block, number) in [0, 6].into_iter().enumerate().filter(|(block, _)| outcomes[*block].is_done())
        {
            assert_same(&to.read(block).expect("given back"), number);
        }
    });
}
