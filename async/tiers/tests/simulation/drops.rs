//! Every await point, with its future dropped at every point: after each number of polls, and after each
//! time, until the awaited work ends by itself. Then all comes to rest, and nothing is lost.
//!
//! | a caller may wait in | dropped in |
//! |---|---|
//! | `allocate`, `onboard`, `layer_ready`, `offload` | here |
//! | `shutdown` until all is idle, until moving transfers have ended, and until the disks are closed | here |
//! | `restore_to_gpu`, `onboard_groups`, `allocate_groups`, `settled` | `async/tests/manager/dropped.rs` |
//! | `resume` (onboards; running copies), `persist`, `purge` | `async/tests/manager/dropped.rs` |
//! | a purge's own work, with its runtime | `async/tests/tenants/edges.rs` |
//!
//! Other awaits are in the manager's own tasks (pauses, deadlines): those end with the runtime.

use crate::content::{self, bytes_of};
use crate::directed::play;
use crate::patience::Patience;
use crate::recorder::lock;
use crate::settings::Settings;
use crate::world::{World, calm, in_virtual_time};
use kvstrata_core::storage::DevicePort;
use kvstrata_core::{BlockId, SequenceHash};
use kvstrata_tiers::{Blocks, OffloadOptions, OnboardOptions, Tiers};
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::time::Duration;

/// Longer than any of these waits.
const STEPS: u32 = 400;
const STEP: Duration = Duration::from_millis(31);

/// Over the host, over the disk, and over both.
pub fn grounds() -> impl Iterator<Item = Settings> {
    let tiers = [(16, 0), (0, 24), (6, 24)];
    tiers.into_iter().enumerate().map(|(seed, (host, disk))| {
        let mut settings = calm(seed as u64);
        (settings.device, settings.host, settings.disk, settings.headroom) = (6, host, disk, 0);
        (settings.layers, settings.layer_bytes, settings.staging) = (3, 32, 2);
        (settings.in_flight, settings.queue) = (settings.block_bytes() as u64 * 2, 16);
        (settings.iteration, settings.iteration_bytes, settings.prefetch) = (None, None, 0);
        settings.mode = kvstrata_tiers::WriteMode::Back;
        let long = Duration::from_secs(30);
        (settings.allocate, settings.onboard, settings.shutdown) = (long, long, long);
        settings.offload = long;
        settings
    })
}

pub fn sequence(which: u64, blocks: usize) -> Vec<SequenceHash> {
    let mut hashes: Vec<SequenceHash> = Vec::new();
    for _ in 0..blocks {
        hashes.push(content::child(hashes.last().copied(), which));
    }
    hashes
}

pub async fn compute(world: &World, manager: &Tiers, hashes: &[SequenceHash]) -> Blocks {
    let blocks = manager.default_group().allocate(hashes.len()).await.expect("blocks");
    for (block, hash) in blocks.ids().iter().zip(hashes) {
        let bytes = bytes_of(*hash, world.settings.block_bytes());
        world.device.copy_in(block.0, 0, &bytes).expect("in range");
    }
    blocks.register(hashes, None).expect("registered")
}

pub fn believe(world: &World, blocks: impl Iterator<Item = BlockId>, hashes: &[SequenceHash], bytes: usize) {
    for (BlockId(block), hash) in blocks.zip(hashes) {
        assert!(content::is(&world.device, block, *hash, 0..bytes), "block {block} is not {hash:?}");
    }
}

/// Runs `body` with ever more patience, in a fresh world each time, until it reports that its wait has
/// ended. The first six blocks are below the device, which is full of six other idle ones.
fn give_up<F: Future<Output = bool>>(body: impl Fn(Rc<World>, Tiers, Patience) -> F) {
    let kinds: [fn(u32) -> Patience; 2] = [Patience::Polls, |n| Patience::Time(STEP * n)];
    for (settings, patience) in grounds().flat_map(|settings| kinds.map(|kind| (settings.clone(), kind))) {
        let ended = |n: &u32| {
            in_virtual_time(async {
                let world = World::new(settings.clone());
                let manager = world.manager();
                for which in [1, 5, 2] {
                    drop(compute(&world, &manager, &sequence(which, 6)).await);
                }
                let ended = body(Rc::clone(&world), manager, patience(*n)).await;
                world.rest().await;
                let violations = &world.books.borrow().violations;
                assert!(violations.is_empty(), "{:?}: {violations:?}", patience(*n));
                ended
            })
        };
        let first = (0..STEPS).find(ended);
        assert!(first.is_some_and(|first| first > 0), "given up {first:?} times until it ended");
    }
}

#[test]
fn allocation_dropped_at_any_point_leaves_nothing() {
    give_up(|_, manager, patience| async move {
        let got = patience.wait(manager.default_group().allocate(4)).await;
        got.map(|blocks| assert_eq!(blocks.expect("in time").len(), 4)).is_some()
    });
}

#[test]
fn allocation_behind_another_dropped_leaves_nothing() {
    give_up(|_, manager, patience| async move {
        let other = kvstrata_testing::virtual_time::spawn_local({
            let manager = manager.clone();
            async move { manager.default_group().allocate(3).await.expect("in time").len() }
        });
        kvstrata_testing::virtual_time::yield_now().await;
        let got = patience.wait(manager.default_group().allocate(6)).await;
        let ended = got.is_some();
        drop(got);
        assert_eq!(other.await.expect("no panic"), 3);
        ended
    });
}

#[test]
fn onboard_dropped_at_any_point_leaves_nothing() {
    give_up(|world, manager, patience| async move {
        let hashes = sequence(1, 6);
        let found = manager.default_group().match_prefix(&hashes);
        assert!(!found.is_empty() && !found.is_ready(), "{found:?}");
        let onboard = manager.default_group().onboard(found, OnboardOptions::default()).expect("fits");
        let up = patience.wait(onboard).await;
        up.map(|up| believe(&world, up.blocks.ids(), &hashes, world.settings.block_bytes())).is_some()
    });
}

#[test]
fn onboard_survives_the_drop_of_another_of_its_blocks() {
    give_up(|world, manager, patience| async move {
        let hashes = sequence(1, 6);
        let begin = || {
            manager
                .default_group()
                .onboard(manager.default_group().match_prefix(&hashes), OnboardOptions::default())
        };
        let (one, other) = (begin().expect("fits"), begin().expect("fits"));
        let ended = patience.wait(one).await.is_some();
        let up = other.await;
        assert_eq!((up.missed, up.blocks.is_empty()), (None, false));
        believe(&world, up.blocks.ids(), &hashes, world.settings.block_bytes());
        ended
    });
}

#[test]
fn layer_wait_dropped_leaves_the_onboard_whole() {
    give_up(|world, manager, patience| async move {
        let hashes = sequence(1, 6);
        let options = OnboardOptions::default().layers(1);
        let onboard = manager
            .default_group()
            .onboard(manager.default_group().match_prefix(&hashes), options)
            .expect("fits");
        let ready = patience.wait(onboard.layer_ready(1)).await;
        if let Some(ready) = ready {
            ready.expect("nothing fails");
            let ids = onboard.ids().expect("all have a place");
            believe(&world, ids.into_iter(), &hashes, 2 * world.settings.layer_bytes);
        }
        let up = onboard.await;
        assert_eq!(up.missed, None);
        believe(&world, up.blocks.ids(), &hashes, world.settings.block_bytes());
        ready.is_some()
    });
}

#[test]
fn offload_dropped_at_any_point_goes_on() {
    give_up(|world, manager, patience| async move {
        let hashes = sequence(3, 2);
        let blocks = compute(&world, &manager, &hashes).await;
        let offload = manager.default_group().offload(&blocks, OffloadOptions::default());
        let ended = patience.wait(offload).await.is_some();
        drop(blocks);
        world.rest().await;
        // The copies are made, even for a dropped call.
        drop(compute(&world, &manager, &sequence(4, 6)).await);
        let found = manager.default_group().match_prefix(&hashes);
        assert_eq!(found.len(), 2, "{found:?}");
        ended
    });
}

#[test]
fn shutdown_dropped_at_any_point_can_be_repeated() {
    give_up(|world, manager, patience| async move {
        let onboard = manager
            .default_group()
            .onboard(manager.default_group().match_prefix(&sequence(1, 6)), OnboardOptions::default());
        let ended = patience.wait(manager.shutdown()).await.is_some();
        assert!(world.shut_down_now().await, "all is over in time");
        drop(onboard);
        ended
    });
}

/// Transfers that still move when the first half of the time is over are awaited in the second.
#[test]
fn shutdown_dropped_while_transfers_move_can_be_repeated() {
    for mut settings in grounds() {
        settings.shutdown = Duration::from_secs(8);
        settings.mover.latency = Duration::from_secs(7)..Duration::from_millis(7001);
        play(settings, |world, manager| async move {
            let blocks = compute(&world, &manager, &sequence(1, 1)).await;
            let offload = manager.default_group().offload(&blocks, OffloadOptions::default());
            let mut shutdown = Box::pin(manager.shutdown());
            // Nothing is cancelled in the first half, and moving transfers cannot be in the second.
            assert_eq!(Patience::Time(Duration::from_secs(6)).wait(&mut shutdown).await, None);
            assert!(manager.census().moving > 0 && manager.default_group().try_allocate(1).is_none());
            drop((shutdown, blocks));
            assert!(world.shut_down_now().await, "it has ended by then");
            drop(offload);
        });
    }
}

/// The same for the wait for disks that close: where nothing is in flight, it comes first.
#[test]
fn shutdown_dropped_while_disks_close_still_closes_them() {
    let settings = grounds().last().expect("with a disk");
    let closing = |gives_up: bool| {
        play(settings.clone(), move |world, manager| async move {
            let ((go_on, told), (closed, is_closed)) = (mpsc::channel(), mpsc::channel());
            lock(&world.notes).closing = Some((told, closed));
            world.runtime.has_threads.store(true, Relaxed);
            let mut shutdown = Box::pin(manager.shutdown());
            assert_eq!(Patience::Polls(1).wait(&mut shutdown).await, None, "it waits for the disk");
            if gives_up {
                drop(shutdown);
                go_on.send(()).expect("it is being closed");
                is_closed.recv().expect("it is closed");
                return assert!(world.shut_down_now().await, "there is nothing left to close");
            }
            assert!(!shutdown.await, "not by its deadline");
            go_on.send(()).expect("it is being closed, and nobody waits for it");
            is_closed.recv().expect("it is closed");
        });
    };
    [true, false].into_iter().for_each(closing);
}
