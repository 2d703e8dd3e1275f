//! Each failure, each refusal and each late call is counted, by its cause.

use crate::flying::look;
use crate::gated::Ground;
use crate::ground::{BYTES, build, compute, hashes, rest, settings, stepping};
use crate::sim::{Plan, SimDisk};
use kvstrata::OriginalNames;
use kvstrata::config::ManagerConfigBuilder;
use kvstrata::manager::{
    KvBlockManager, Needs, OffloadOptions, Offloaded, OnboardOptions, Parts, Purge, Refusal, StackParts,
    TierParts, Tiers,
};
use kvstrata::metrics::PathMetrics;
use kvstrata::movers::ThreadsMover;
use kvstrata::scheduler::Gate;
use kvstrata::tier::Tier;
use kvstrata::transfer::{Cause, Copies, DeviceMover, Failure, HostMemory, Path, TierPort};
use kvstrata_core::{DevicePort, PoolConfig};
use kvstrata_ffi::device::SimDevice;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

/// A mover that answers as the test tells it.
#[derive(Debug)]
struct Told {
    inner: ThreadsMover,
    fails: Mutex<Option<Failure>>,
    /// Copies that wait for their answer, if any are to wait.
    waits: Mutex<Option<Vec<Copies>>>,
}

impl DeviceMover for Told {
    fn start(&self, copies: Copies) {
        if let Some(waits) = &mut *self.waits.lock().expect("no panic") {
            return waits.push(copies);
        }
        match *self.fails.lock().expect("no panic") {
            Some(failure) => copies.end(Err(failure)),
            None => self.inner.start(copies),
        }
    }

    fn blocks_at_once(&self) -> usize {
        1
    }

    fn describe(&self) -> String {
        "told".to_owned()
    }
}

fn told() -> (KvBlockManager, Arc<Told>) {
    told_of(settings(4, 16), None)
}

/// The same with these settings, and with a disk if there is one.
fn told_of(settings: ManagerConfigBuilder, disk: Option<Arc<dyn TierPort>>) -> (KvBlockManager, Arc<Told>) {
    let config = settings.build().expect("a configuration");
    let layers = [BYTES];
    let memory = HostMemory::new(18, &layers).expect("memory");
    let sim = Arc::new(SimDevice::with_layers(0, 4, &layers).expect("memory"));
    let inner = ThreadsMover::new(Arc::clone(&sim), Arc::clone(&memory), 1).expect("a thread");
    let mover = Arc::new(Told { inner, fails: Mutex::new(None), waits: Mutex::new(None) });
    let parts = StackParts {
        name: "told".to_owned(),
        device: PoolConfig::new(4),
        port: Some(Arc::<SimDevice>::clone(&sim) as Arc<dyn DevicePort>),
        mover: Arc::<Told>::clone(&mover),
        memory: Some(memory),
        host: Some(PoolConfig::new(16)),
        below: disk.map(|disk| TierParts::new("disk", disk)).into_iter().collect(),
        block_bytes: BYTES as u64,
        layers: 1,
        needs: Needs::All { page: 1 },
        linked: [false; 2],
        ahead_first: [false; 2],
    };
    let runtime = tokio::runtime::Handle::current();
    let manager =
        KvBlockManager::of_parts(&config, Parts { stacks: vec![parts], runtime, own: None, names: None });
    (manager.expect("a manager"), mover)
}

/// Computes a sequence of so many blocks, and leaves it in the host alone.
async fn below(manager: &Tiers, blocks: u64) {
    drop(compute(manager, &hashes(1, blocks), None).await);
    drop(manager.default_group().allocate(4).await.expect("blocks"));
    rest(manager).await;
}

#[tokio::test]
async fn mover_failure_counts_once_per_block_by_cause_and_path() {
    for cause in Cause::ALL {
        let (manager, mover) = told();
        below(&manager, 2).await;
        *mover.fails.lock().expect("no panic") = Some(Failure::of(cause));
        let up = manager.default_group().restore_to_gpu(&hashes(1, 2)).await.expect("fits");
        assert_eq!((up.blocks.len(), up.missed), (0, Some(cause)));
        rest(&manager).await;
        let stats = manager.stats();
        assert_eq!(stats.path(Path::HostToDevice).failed_by(cause), 2, "{cause:?}");
        assert_eq!(stats.path(Path::HostToDevice).failed.iter().sum::<u64>(), 2, "{cause:?}");
        assert_eq!((stats.missed_by(cause), stats.missed.iter().sum::<u64>()), (1, 1), "{cause:?}");
        let unverified = manager.metrics().verification_failures;
        let unverified: Vec<_> = unverified.iter().filter(|of| of.count > 0).collect();
        match cause {
            Cause::Mismatch => assert_eq!((unverified[0].tier, unverified[0].count), (Tier::Host, 2)),
            _ => assert!(unverified.is_empty(), "{cause:?}: {unverified:?}"),
        }
        let blocks = compute(&manager, &hashes(2, 2), None).await;
        let down = manager.default_group().offload(&blocks, OffloadOptions::default()).await;
        assert_eq!((down.failed, down.cause), (2, Some(cause)));
        assert_eq!(manager.stats().path(Path::DeviceToHost).failed_by(cause), 2, "{cause:?}");
    }
}

#[tokio::test]
async fn host_memory_in_use_counts_as_busy() {
    let ground = Ground::new(4, 16);
    below(&ground.manager, 1).await;
    let all: Vec<_> = (0..16).map(|block| ground.memory.write(block).expect("nobody has it")).collect();
    let before = ground.manager.stats();
    let up = ground.manager.default_group().restore_to_gpu(&hashes(1, 1)).await.expect("fits");
    assert_eq!(up.missed, Some(Cause::Busy));
    let blocks = compute(&ground.manager, &hashes(2, 1), None).await;
    assert_eq!(
        ground.manager.default_group().offload(&blocks, OffloadOptions::default()).await.cause,
        Some(Cause::Busy)
    );
    drop(all);
    let metrics = ground.manager.metrics();
    for path in [Path::HostToDevice, Path::DeviceToHost] {
        let (of, before) = (metrics.stats.path(path), before.path(path));
        // A failed copy was a transfer, here as in the histograms.
        let more = (of.transfers - before.transfers, of.bytes - before.bytes, of.failed_by(Cause::Busy));
        assert_eq!(more, (1, 0, 1), "{path}");
        let PathMetrics { wait, transfer, .. } = metrics.paths[path.index()];
        for times in [wait, transfer] {
            assert_eq!(times.expect("counted").count(), of.transfers, "{path}");
        }
    }
}

/// A victim in flight that is purged, or whose manager is shut down, is not dropped for want of room.
#[tokio::test]
async fn victim_cancelled_in_flight_is_not_counted_as_dropped() {
    for purged in [true, false] {
        // One copy moves, and three wait for their turn.
        let one_at_a_time = settings(4, 16).transfer_in_flight(BYTES as u64);
        let ground = Ground::of(one_at_a_time.deadline_shutdown(Duration::from_millis(5)), 4, 16);
        let acme = ground.manager.tenant("acme").expect("a name");
        drop(compute(&acme, &hashes(1, 4), None).await);
        ground.mover.close();
        let late = ground.manager.default_group().allocate(4).deadline(Duration::from_millis(5)).await;
        assert!(late.is_err(), "its victims are on their way");
        match purged {
            true => {
                let mut purge = pin!(acme.purge(Purge::default()));
                let begun = poll_fn(|context| Poll::Ready(purge.as_mut().poll(context).is_pending()));
                assert!(begun.await, "a copy moves");
                ground.mover.open();
                assert!(purge.await.expect("none is under way").complete);
            }
            false => assert!(!ground.manager.shutdown().await),
        }
        ground.mover.open();
        let stats = ground.manager.stats();
        assert!(stats.path(Path::DeviceToHost).failed_by(Cause::Cancelled) >= 3, "{stats:?}");
        assert_eq!(stats.dropped, [0, 0], "purged {purged}");
    }
}

#[tokio::test]
async fn late_and_cancelled_calls_are_counted() {
    let ground = Ground::new(4, 16);
    let group = ground.manager.default_group();
    below(&ground.manager, 4).await;
    ground.mover.close();
    let found = || group.match_prefix(&hashes(1, 4));
    let options = OnboardOptions::default().deadline(Duration::from_millis(10));
    let up = group.onboard(found(), options).expect("fits").await;
    assert_eq!(up.missed, Some(Cause::Deadline));
    let stats = ground.manager.stats();
    assert_eq!(stats.missed_by(Cause::Deadline), 1);
    assert_eq!(stats.path(Path::HostToDevice).failed_by(Cause::Deadline), 4);
    drop(group.onboard(found(), OnboardOptions::default()).expect("fits"));
    assert_eq!(ground.manager.stats().missed_by(Cause::Cancelled), 1);
    let late = group.allocate(4).deadline(Duration::from_millis(10)).await;
    assert!(late.is_err());
    assert_eq!(ground.manager.stats().late, 1);
    ground.mover.open();
    rest(&ground.manager).await;

    // A transfer that waits for a device block has not begun to move.
    let held = group.allocate(4).await.expect("blocks");
    drop(group.onboard(found(), OnboardOptions::default()).expect("fits"));
    let stats = ground.manager.stats();
    assert_eq!(stats.path(Path::HostToDevice).failed_by(Cause::Cancelled), 4);
    drop(held);
}

#[tokio::test]
async fn late_onboard_counts_once_by_deadline_in_any_state() {
    let late = |layers| OnboardOptions::default().layers(layers).deadline(Duration::from_millis(10));
    let failed = |ground: &Ground| {
        let stats = ground.manager.stats();
        let all = stats.paths.iter().flat_map(|path| path.failed);
        (stats.path(Path::HostToDevice).failed_by(Cause::Deadline), all.sum::<u64>())
    };
    // Waiting for a device block; in its queue; with the mover, which has one layer of two.
    for (held, layers) in [(4, None), (0, None), (0, Some(1))] {
        let in_flight = if layers.is_none() { BYTES } else { 4 * BYTES };
        let ground = Ground::of(settings(4, 16).transfer_in_flight(in_flight as u64), 4, 16);
        below(&ground.manager, 4).await;
        let held = ground.manager.default_group().allocate(held).await.expect("free ones");
        ground.mover.close();
        let found = ground.manager.default_group().match_prefix(&hashes(1, 4));
        let up = ground.manager.default_group().onboard(found, late(layers)).expect("fits").await;
        assert_eq!(up.missed, Some(Cause::Deadline));
        assert_eq!(failed(&ground), (4, 4), "{} are held, layers {layers:?}", held.len());
        ground.mover.open();
        rest(&ground.manager).await;
        assert_eq!(failed(&ground), (4, 4), "{} are held, layers {layers:?}", held.len());
    }

    // The other onboarding of the same blocks is dropped, and cancels them.
    let ground = Ground::new(4, 16);
    below(&ground.manager, 4).await;
    let held = ground.manager.default_group().allocate(4).await.expect("free ones");
    let found = || ground.manager.default_group().match_prefix(&hashes(1, 4));
    let other = ground.manager.default_group().onboard(found(), OnboardOptions::default()).expect("fits");
    let up = ground.manager.default_group().onboard(found(), late(None)).expect("fits").await;
    assert_eq!((up.missed, failed(&ground)), (Some(Cause::Deadline), (4, 4)));
    drop(other);
    assert_eq!(failed(&ground), (4, 8));
    assert_eq!(ground.manager.stats().path(Path::HostToDevice).failed_by(Cause::Cancelled), 4);
    drop(held);
}

#[tokio::test]
async fn late_offload_counts_once_by_deadline_in_any_state() {
    let late = OffloadOptions::default().deadline(Duration::from_millis(10));
    let gated = late.gate(Gate::Iteration(1));
    let by_deadline = |ground: &Ground| {
        let stats = ground.manager.stats();
        let all = stats.paths.iter().flat_map(|path| path.failed);
        (stats.path(Path::DeviceToHost).failed_by(Cause::Deadline), all.sum::<u64>())
    };
    // With the mover; one of them there, and the others in the queue; at a gate.
    for (in_flight, options) in [(4, late), (1, late), (4, gated)] {
        let settings = settings(8, 16).transfer_in_flight(in_flight * BYTES as u64);
        let ground = Ground::of(settings.deadline_offload(Duration::from_millis(20)), 8, 16);
        let manager = &ground.manager;
        let group = manager.default_group();
        let blocks = compute(manager, &hashes(1, 4), None).await;
        ground.mover.close();
        let down = group.offload(&blocks, options).await;
        assert_eq!((down.failed, down.cause), (4, Some(Cause::Deadline)));
        assert_eq!(by_deadline(&ground), (4, 4), "{in_flight} in flight");
        // A copy that goes on, or that its gate gives up, does not count again.
        ground.mover.open();
        rest(manager).await;
        assert_eq!(by_deadline(&ground), (4, 4), "{in_flight} in flight");
        // No caller waits for this one.
        ground.mover.close();
        drop(group.offload(&compute(manager, &hashes(2, 2), None).await, late));
        let other = compute(manager, &hashes(3, 1), None).await;
        assert_eq!(group.offload(&other, late).await.failed, 1);
        assert_eq!(by_deadline(&ground), (5, 5), "{in_flight} in flight");
        ground.mover.open();
        rest(manager).await;
    }
}

#[tokio::test]
async fn refused_offload_counts_by_reason() {
    let refused = |down: Offloaded, blocks| assert_eq!((down.refused, down.there), (blocks, 0));
    // There is no tier below.
    let manager = build(settings(8, 0));
    let blocks = compute(&manager, &hashes(1, 4), None).await;
    refused(manager.default_group().offload(&blocks, OffloadOptions::default()).await, 4);
    assert_eq!(manager.stats().refused_by(Refusal::Tier), 4);

    // A full queue. A list that found room in it goes whole.
    let manager = build(settings(8, 16).transfer_queue(2).iteration_bytes(Some(BYTES as u64)));
    let [first, second] =
        [compute(&manager, &hashes(1, 4), None).await, compute(&manager, &hashes(2, 4), None).await];
    let whole = manager.default_group().offload(&first, OffloadOptions::default());
    refused(manager.default_group().offload(&second, OffloadOptions::default()).await, 4);
    assert_eq!(manager.stats().refused_by(Refusal::Queue), 4);
    let whole = stepping(&manager, whole).await;
    assert_eq!((whole.copied, whole.refused), (4, 0));

    // The limit of copies that wait for gates.
    let gated = OffloadOptions::default().gate(Gate::Iteration(1));
    let manager = build(settings(8, 16).transfer_queue(2));
    let blocks = compute(&manager, &hashes(1, 8), None).await;
    let offload = manager.default_group().offload(&blocks, gated);
    assert_eq!(manager.stats().refused_by(Refusal::Gates), 6);
    // The manager is shut down.
    manager.shutdown().await;
    refused(offload.await, 8);
    assert_eq!(manager.stats().refused_by(Refusal::Closed), 2);

    // The tier below has no room: requests hold all of it.
    let manager = build(settings(4, 4));
    below(&manager, 4).await;
    let found = manager.default_group().match_prefix(&hashes(1, 4));
    assert_eq!(found.in_tier(Tier::Host), 4);
    let blocks = compute(&manager, &hashes(2, 4), None).await;
    refused(manager.default_group().offload(&blocks, OffloadOptions::default()).await, 4);
    assert_eq!(manager.stats().refused_by(Refusal::Room), 4);
    drop(found);
}

#[tokio::test]
async fn persist_puts_each_block_in_one_count() {
    let directory = tempfile::tempdir().expect("a directory");
    let volume = vec![directory.path().join("volume")];
    let settings = settings(8, 8).disk_paths(volume).disk_bytes(Some(4 << 20));
    let manager = build(settings);
    let all = hashes(1, 4);
    let held = compute(&manager, &all[..2], None).await;
    let down = manager.default_group().persist(&all).await;
    assert_eq!((down.copied, down.refused), (2, 2), "two are nowhere");
    assert_eq!(manager.default_group().persist(&all[..2]).await.there, 2);
    drop(held);
}

/// The copy to the host fails, but another caller's copy brings the block there. Then it counts by the
/// outcome at the disk.
#[tokio::test]
async fn persist_with_failed_copy_counts_the_last_outcome() {
    let disk = Arc::new(SimDisk::new(1, BYTES, Plan::calm(1)));
    let (manager, mover) = told_of(settings(4, 16), Some(disk));
    let all = hashes(1, 3);
    let held = compute(&manager, &all[..2], None).await;
    *mover.waits.lock().expect("no panic") = Some(Vec::new());
    let mut persist = pin!(manager.default_group().persist(&all));
    assert!(look(persist.as_mut()).is_pending());
    let mut both = mover.waits.lock().expect("no panic").take().expect("they wait");
    assert_eq!(both.len(), 2);
    both.remove(0).end(Err(Failure::of(Cause::Device)));
    let again = manager.default_group().offload(&held, OffloadOptions::default());
    mover.start(both.remove(0));
    assert_eq!(again.await.copied, 2);
    let down = persist.await;
    assert_eq!(
        (down.copied, down.refused, down.failed, down.cause),
        (1, 2, 0, None),
        "the disk has one slot"
    );
}

/// A copy that is to be tried again much later holds nothing that the next opener of the same files needs.
#[tokio::test]
async fn pause_before_a_retry_keeps_no_manager() {
    let patient = settings(4, 16).transfer_retries(3).transfer_retry_after(Duration::from_secs(3600));
    let (manager, mover) = told_of(patient, None);
    let blocks = compute(&manager, &hashes(1, 4), None).await;
    *mover.fails.lock().expect("no panic") = Some(Failure::passing(Cause::Busy));
    let offload = manager.default_group().offload(&blocks, OffloadOptions::default());
    assert_eq!((manager.census().down, manager.census().moving), (4, 0), "they pause");
    drop((blocks, offload, manager));
    assert_eq!(Arc::strong_count(&mover), 1, "nobody has it any more");
}
