//! Cases that seeds find rarely, each made to happen: a block that is there twice, a layer that has
//! rotted, and the ways a shutdown answers.

use crate::content::{self, bytes_of};
use crate::drops::{believe, compute, grounds, sequence};
use crate::settings::Settings;
use crate::world::{World, in_virtual_time};
use kvstrata_core::BlockId;
use kvstrata_core::storage::DevicePort;
use kvstrata_testing::virtual_time::{Instant, timeout};
use kvstrata_tiers::OriginalNames;
use kvstrata_tiers::scheduler::Gate;
use kvstrata_tiers::transfer::{Cause, Path};
use kvstrata_tiers::{OffloadOptions, OnboardOptions, Tiers};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// Six blocks of the device, host and disk below, no faults.
fn ground() -> Settings {
    let mut settings = grounds().last().expect("over both tiers");
    (settings.host, settings.verify) = (16, crate::settings::Verify::All);
    settings
}

pub fn play<F: Future<Output = ()>>(settings: Settings, body: impl FnOnce(Rc<World>, Tiers) -> F) {
    in_virtual_time(async {
        let world = World::new(settings);
        let manager = world.manager();
        body(Rc::clone(&world), manager).await;
        world.rest().await;
        let violations = &world.books.borrow().violations;
        assert!(violations.is_empty(), "{violations:?}");
    });
}

/// One layer after the other.
fn by_layers() -> OnboardOptions {
    OnboardOptions::default().layers(1)
}

#[test]
fn block_there_twice_stays_with_each_of_its_holders() {
    play(ground(), |world, manager| async move {
        let (hashes, others) = (sequence(1, 1), sequence(2, 6));
        drop(compute(&world, &manager, &hashes).await);
        drop(compute(&world, &manager, &others).await);
        let begin = || {
            manager
                .default_group()
                .onboard(manager.default_group().match_prefix(&hashes), by_layers())
                .expect("fits")
        };
        let (one, other) = (begin(), begin());
        one.layer_ready(0).await.expect("nothing fails");
        let announced = one.ids().expect("all have a place");
        // An engine that did not wait has computed the same block.
        let computed = compute(&world, &manager, &hashes).await;
        for layer in 1..3 {
            one.layer_ready(layer).await.expect("nothing fails");
            other.layer_ready(layer).await.expect("nothing fails");
        }
        // The onboarding that joined last has ended, and another caller takes all free blocks.
        assert_eq!(other.await.missed, None);
        let taken = manager.default_group().allocate(4).await.expect("blocks");
        assert!(taken.ids().iter().all(|block| !announced.contains(block)), "{announced:?} is computed with");
        believe(&world, announced.iter().copied(), &hashes, world.settings.block_bytes());
        drop(taken);
        drop((one, computed));
        assert_eq!(
            manager.default_group().allocate(6).await.expect("blocks").len(),
            6,
            "the last one gives it back"
        );
    });
}

#[test]
fn rotten_layer_comes_from_the_disk_and_earlier_ones_stay() {
    play(ground(), |world, manager| async move {
        let hashes = sequence(1, 2);
        drop(compute(&world, &manager, &hashes).await);
        assert_eq!(manager.default_group().persist(&hashes).await.copied, 2);
        drop(compute(&world, &manager, &sequence(2, 6)).await);
        world.rest_of_manager().await;
        // A bit of the last layer.
        let last = 2 * world.settings.layer_bytes as u64;
        (0..world.settings.host).for_each(|block| _ = world.mover.rot(block, last));
        let onboard = manager
            .default_group()
            .onboard(manager.default_group().match_prefix(&hashes), by_layers())
            .expect("fits");
        let bytes = world.settings.layer_bytes;
        let mut ids: Vec<BlockId> = Vec::new();
        for layer in 0..3 {
            onboard.layer_ready(layer).await.expect("the disk has it");
            ids = onboard.ids().expect("all have a place");
            believe(&world, ids.iter().copied(), &hashes, (layer as usize + 1) * bytes);
        }
        let up = onboard.await;
        assert_eq!((up.missed, up.blocks.ids().collect::<Vec<_>>()), (None, ids));
        let stats = manager.stats();
        assert_eq!(stats.path(Path::HostToDevice).failed_by(Cause::Mismatch), 2);
        assert_eq!(stats.path(Path::DISK_TO_DEVICE).transfers, 2);
    });
}

#[test]
fn retry_pause_outliving_its_transfer_resumes_no_other() {
    let mut settings = ground();
    (settings.retries, settings.retry_after) = (1, Duration::from_millis(500));
    play(settings, |world, manager| async move {
        let hashes = sequence(1, 2);
        drop(compute(&world, &manager, &hashes).await);
        drop(manager.default_group().allocate(6).await.expect("all go down"));
        world.rest_of_manager().await;
        let begin = || {
            manager
                .default_group()
                .onboard(manager.default_group().match_prefix(&hashes), OnboardOptions::default())
        };
        world.mover.change(|plan| plan.fail = crate::sim::ALWAYS);
        let first = begin().expect("fits");
        while manager.census().moving > 0 {
            crate::patience::pass(Duration::from_millis(1)).await;
        }
        assert_eq!((manager.census().up, manager.census().queued), (2, 0), "they pause");
        drop(first);
        assert_eq!(manager.census().up, 0);
        world.mover.change(|plan| {
            (plan.fail, plan.latency) = (0, Duration::from_secs(2)..Duration::from_secs(3));
        });
        let up = begin().expect("fits").await;
        assert_eq!((up.missed, up.blocks.len()), (None, 2));
        believe(&world, up.blocks.ids(), &hashes, world.settings.block_bytes());
    });
}

#[test]
fn onboard_ends_with_its_last_block() {
    play(ground(), |world, manager| async move {
        let hashes = sequence(1, 3);
        drop(compute(&world, &manager, &hashes).await);
        drop(compute(&world, &manager, &sequence(2, 6)).await);
        let began = Instant::now();
        let up = manager.default_group().restore_to_gpu(&hashes).await.expect("fits");
        assert_eq!((up.missed, up.blocks.len()), (None, 3));
        assert!(began.elapsed() < Duration::from_secs(2), "after {:?}", began.elapsed());
    });
}

#[test]
fn repeated_allocations_of_the_device_are_served_soon() {
    play(ground(), |world, manager| async move {
        for which in 1..6 {
            let began = Instant::now();
            drop(compute(&world, &manager, &sequence(which, 6)).await);
            assert!(began.elapsed() < Duration::from_secs(5), "after {:?}", began.elapsed());
        }
    });
}

#[test]
fn shutdown_answers_gated_offloads() {
    play(ground(), |world, manager| async move {
        let blocks = compute(&world, &manager, &sequence(1, 3)).await;
        let pass = manager.begin_iteration().expect("none runs");
        let iteration = pass.number();
        let gated = OffloadOptions::default().gate(Gate::Iteration(iteration));
        let offload = manager.default_group().offload(&blocks, gated);
        assert_eq!(manager.census().gated, 3);
        assert!(world.shut_down_now().await);
        assert_eq!(manager.census().gated, 0);
        let ended = timeout(Duration::from_secs(1), offload).await.expect("answered");
        assert_eq!((ended.copied, ended.refused), (0, 3));
        drop(blocks);
    });
}

#[test]
fn shutdown_drains_copies_awaiting_iteration_bytes() {
    let mut settings = ground();
    settings.iteration_bytes = Some(settings.block_bytes() as u64);
    play(settings, |world, manager| async move {
        let blocks = compute(&world, &manager, &sequence(1, 5)).await;
        let _pass = manager.begin_iteration().expect("none runs");
        let mut offload = manager.default_group().offload(&blocks, OffloadOptions::default());
        let stalled = timeout(Duration::from_secs(5), &mut offload).await;
        assert!(stalled.is_err(), "more than an iteration may move");
        assert!(world.shut_down_now().await, "all is over in time");
        assert_eq!(offload.await.copied, 5);
        drop(blocks);
    });
}

#[test]
fn persist_reaches_the_disk_from_any_tier() {
    play(ground(), |world, manager| async move {
        let (low, high) = (sequence(1, 3), sequence(2, 6));
        drop(compute(&world, &manager, &low).await);
        drop(compute(&world, &manager, &high).await);
        world.rest_of_manager().await;
        let all: Vec<_> = low.iter().chain(&high).copied().collect();
        let done = manager.default_group().persist(&all).await;
        assert_eq!((done.copied + done.there, done.refused + done.failed), (9, 0));
        let disk = world.disk.as_ref().expect("over a disk");
        use kvstrata_tiers::transfer::TierPort;
        assert!(all.iter().all(|hash| disk.pool().contains(*hash)));
    });
}

#[test]
fn preempted_request_keeps_bytes_of_its_partial_block() {
    use kvstrata_core::storage::DevicePort;
    play(ground(), |world, manager| async move {
        let (hashes, other) = (sequence(1, 3), content::child(None, 77));
        let bytes = bytes_of(other, world.settings.block_bytes());
        let blocks = compute(&world, &manager, &hashes).await;
        let partial = manager.default_group().allocate(1).await.expect("a block");
        world.device.copy_in(partial.ids()[0].0, 0, &bytes).expect("in range");
        world.partial(other);
        let preempted = manager.default_group().preempt(blocks, partial, 1).expect("one manager");
        drop(compute(&world, &manager, &sequence(2, 6)).await);
        let back = manager.default_group().resume(preempted, OnboardOptions::default()).await.expect("fits");
        assert_eq!((back.missed, back.blocks.len()), (None, 3));
        believe(&world, back.blocks.ids(), &hashes, bytes.len());
        let partial = back.partial.expect("all are there");
        assert!(content::is(&world.device, partial.ids()[0].0, other, 0..bytes.len()));
    });
}

#[test]
fn resume_waits_for_no_copy_awaiting_iteration_bytes() {
    let mut settings = grounds().nth(1).expect("over a disk alone");
    settings.iteration_bytes = Some(settings.block_bytes() as u64);
    play(settings, |world, manager| async move {
        let (of, partial) = (sequence(7, 1)[0], manager.default_group().allocate(1).await.expect("a block"));
        world.partial(of);
        let bytes = content::bytes_of(of, world.settings.block_bytes());
        world.device.copy_in(partial.ids()[0].0, 0, &bytes).expect("in range");
        let full = manager.default_group().match_device(&[]);
        let preempted = manager.default_group().preempt(full, partial, 1).expect("of one manager");
        assert_eq!(
            manager.census().moving,
            1,
            "it has all of the bytes, and none are left for its way to the disk"
        );
        let began = Instant::now();
        let resumed =
            manager.default_group().resume(preempted, OnboardOptions::default()).await.expect("fits");
        assert!(began.elapsed() < Duration::from_secs(5), "after {:?}", began.elapsed());
        let partial = resumed.partial.expect("with its bytes");
        believe(&world, partial.ids().iter().copied(), &[of], bytes.len());
    });
}
