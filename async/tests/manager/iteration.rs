//! The guard of an iteration: one runs at a time, and a dropped one has failed.

use super::ground::{build, check, compute, hashes, rest, settings};
use kvstrata::config::WriteMode;
use kvstrata::manager::{Iteration, OffloadOptions};
use kvstrata::scheduler::{Gate, Reason};
use kvstrata::tier::Tier;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[tokio::test]
async fn iteration_beside_a_running_one_is_refused() {
    let manager = build(settings(4, 4));
    let first = manager.begin_iteration().expect("none runs");
    let refused = manager.begin_iteration().expect_err("one runs");
    assert_eq!(refused.to_string(), "begin_iteration: iteration 1 is running; end it first");
    assert_eq!(manager.step().expect_err("one runs").reason, Reason::Running(1));
    assert_eq!(first.number(), 1);
    first.layer_done(0).expect("the only layer");
    assert!(first.layer_done(0).is_err() && first.layer_done(1).is_err());
    first.end().expect("it runs");
    assert_eq!(manager.step(), Ok(2));
    drop(manager.begin_iteration().expect("none runs"));
    assert_eq!(manager.begin_iteration().expect("none runs").number(), 4, "the one dropped is over");
}

/// A dropped iteration, also one dropped by a panic, has not written the blocks that were registered
/// ahead of it.
#[tokio::test]
async fn iteration_dropped_withdraws_unwritten_blocks() {
    for panics in [false, true] {
        let manager = build(settings(8, 16).offload_mode(WriteMode::Through));
        let group = manager.default_group();
        let (ahead, behind, next) = (hashes(1, 3), hashes(1, 5), hashes(2, 2));
        let running = manager.begin_iteration().expect("none runs");
        let number = running.number();
        let fresh = group.allocate(3).await.expect("free ones");
        let (blocks, _) = fresh.register_ahead(&ahead, None, number).expect("registered");
        // Blocks computed from them go with them; a later pass' own blocks stay.
        let fresh = group.allocate(2).await.expect("free ones");
        let (after, _) = fresh.register_ahead(&behind[3..], Some(&blocks), number + 1).expect("registered");
        let fresh = group.allocate(2).await.expect("free ones");
        let (later, _) = fresh.register_ahead(&next, None, number + 1).expect("registered");
        let copies = group.offload(&blocks, OffloadOptions::default());
        match panics {
            false => drop(running),
            true => {
                let hook = std::panic::take_hook();
                std::panic::set_hook(Box::new(|_| ()));
                let failed = catch_unwind(AssertUnwindSafe(move || {
                    let _running = running;
                    panic!("the pass fails");
                }));
                std::panic::set_hook(hook);
                assert!(failed.is_err());
            }
        }
        assert_eq!((blocks.registered(), after.registered(), later.registered()), (0, 0, 2));
        assert_eq!((manager.stats().unwritten, group.match_prefix(&ahead).len()), (5, 0));
        assert_eq!(copies.await.failed, 3);
        drop((blocks, after));
        manager.begin_iteration().expect("none runs").end().expect("it runs");
        rest(&manager).await;
        assert_eq!((manager.census().unwritten, manager.stats().offloaded[0]), (0, 2), "of the later pass");
        drop(later);
        assert_eq!(group.available(Tier::Device), 8);
    }
}

#[tokio::test]
async fn iteration_dropped_behind_its_last_layer_has_written() {
    let manager = build(settings(8, 16));
    let group = manager.default_group();
    let running = manager.begin_iteration().expect("none runs");
    let fresh = group.allocate(2).await.expect("free ones");
    let (blocks, _) = fresh.register_ahead(&hashes(1, 2), None, running.number()).expect("registered");
    running.layer_done(0).expect("the only layer");
    drop(running);
    assert_eq!((blocks.registered(), manager.stats().unwritten), (2, 0));
}

#[tokio::test]
async fn iteration_dropped_opens_its_gates() {
    let manager = build(settings(8, 16));
    let all = hashes(1, 2);
    let blocks = compute(&manager, &all, None).await;
    let running = manager.begin_iteration().expect("none runs");
    let gate = Gate::Iteration(running.number());
    let copies = manager.default_group().offload(&blocks, OffloadOptions::default().gate(gate));
    assert_eq!(manager.census().gated, 2);
    drop(running);
    assert_eq!(copies.await.copied, 2);
    check(&manager, &blocks, &all);
}

#[test]
fn iteration_can_be_sent_and_outlives_its_manager() {
    fn is_sent<T: Send + Sync + 'static>(value: T) -> T {
        value
    }
    let manager = build(settings(4, 4));
    let running: Iteration = is_sent(manager.begin_iteration().expect("none runs"));
    drop(manager);
    let ended = std::thread::spawn(move || running.end()).join().expect("no panic");
    assert_eq!(ended, Ok(()));
}
