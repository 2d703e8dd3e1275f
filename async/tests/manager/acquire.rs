//! `acquire`: all blocks of a sequence in one call, those that exist and fresh ones for the rest.

use crate::gated::Ground;
use crate::ground::{build, check, compute, hashes, rest, settings};
use kvstrata::manager::{AcquireError, Acquired, AllocateError};
use kvstrata::tier::Tier;
use kvstrata::transfer::Cause;
use std::time::Duration;

/// Counts held and fresh blocks.
fn counts(blocks: &Acquired) -> (usize, usize) {
    (blocks.held.len(), blocks.fresh.len())
}

#[tokio::test]
async fn acquire_of_new_sequence_gives_fresh_blocks_and_more() {
    let manager = build(settings(16, 0));
    let group = manager.default_group();
    let run = hashes(1, 6);
    let mut blocks = group.acquire(&run).more(2).await.expect("free");
    assert_eq!((counts(&blocks), blocks.missed), ((0, 8), None));
    let computed = blocks.fresh.split_to(6).register(&run, None).expect("registered");
    drop((blocks, computed));
    let again = group.acquire(&run).await.expect("there");
    assert_eq!(counts(&again), (6, 0));
    let longer = group.acquire(&hashes(1, 9)).await.expect("free");
    assert_eq!(counts(&longer), (6, 3));
}

#[tokio::test]
async fn acquire_onboards_blocks_of_the_host() {
    let manager = build(settings(8, 16));
    let group = manager.default_group();
    let run = hashes(1, 6);
    drop(compute(&manager, &run, None).await);
    drop(group.allocate(8).await.expect("evictable"));
    rest(&manager).await;
    assert_eq!(group.match_prefix(&run).in_tier(Tier::Host), 6);
    let blocks = group.acquire(&run).more(1).await.expect("room");
    assert_eq!((counts(&blocks), blocks.missed), ((6, 1), None));
    check(&manager, &blocks.held, &run);
}

#[tokio::test]
async fn acquire_replaces_blocks_lost_in_flight() {
    let ground = Ground::of(settings(8, 16).transfer_retries(0), 8, 16);
    let run = hashes(1, 5);
    drop(compute(&ground.manager, &run, None).await);
    drop(ground.manager.default_group().allocate(8).await.expect("evictable"));
    rest(&ground.manager).await;
    ground.mover.close();
    let manager = ground.manager.clone();
    let wanted = run.clone();
    let acquired = tokio::spawn(async move { manager.default_group().acquire(&wanted).more(1).await });
    while ground.mover.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    ground.mover.fail_first();
    ground.mover.open();
    let blocks = acquired.await.expect("no panic").expect("room");
    let (held, fresh) = counts(&blocks);
    assert_eq!(held + fresh, 6, "as many as were asked for");
    assert!(held < 5 && blocks.missed == Some(Cause::Device), "{held} held, {:?}", blocks.missed);
    check(&ground.manager, &blocks.held, &run[..held]);
    let mut fresh = blocks.fresh;
    let computed = fresh.split_to(5 - held).register(&run[held..], Some(&blocks.held));
    assert_eq!((computed.expect("registered").len(), fresh.len()), (5 - held, 1));
}

#[tokio::test]
async fn acquire_beyond_the_device_is_refused_and_keeps_nothing() {
    let manager = build(settings(8, 8));
    let group = manager.default_group();
    let error = group.acquire(&hashes(1, 6)).more(3).await.expect_err("too many");
    assert_eq!(error, AcquireError::Allocate(AllocateError::TooMany { requested: 9, capacity: 8 }));
    let error = group.acquire(&[]).more(usize::MAX).await.expect_err("too many");
    assert!(matches!(error, AcquireError::Allocate(AllocateError::TooMany { .. })), "{error}");
    assert_eq!(group.available(Tier::Device), 8);
}

#[tokio::test]
async fn acquire_late_or_dropped_keeps_nothing() {
    let manager = build(settings(8, 16));
    let group = manager.default_group();
    let run = hashes(1, 6);
    drop(compute(&manager, &run, None).await);
    let full = group.allocate(8).await.expect("evictable");
    rest(&manager).await;
    let soon = Duration::from_millis(5);
    let error = group.acquire(&run).more(1).deadline(soon).await.expect_err("all blocks are held");
    assert!(matches!(error, AcquireError::Allocate(AllocateError::Deadline { .. })), "{error}");
    let dropped = tokio::time::timeout(soon, group.acquire(&run)).await;
    assert!(dropped.is_err(), "it waits");
    drop(full);
    rest(&manager).await;
    assert_eq!(manager.census().waiting, 0);
    let blocks = group.acquire(&run).more(2).await.expect("all of the device");
    assert_eq!(counts(&blocks), (6, 2));
}

/// Each caller wants most of the device. They are served in turn, and none waits for another's part.
#[tokio::test]
async fn acquires_of_most_of_the_device_are_served_in_turn() {
    let manager = build(settings(8, 64));
    for number in 1..5 {
        drop(compute(&manager, &hashes(number, 4), None).await);
        drop(manager.default_group().allocate(8).await.expect("evictable"));
        rest(&manager).await;
    }
    let all = (1..5).map(|number| {
        let manager = manager.clone();
        tokio::spawn(async move {
            let run = hashes(number, 6);
            let blocks = manager
                .default_group()
                .acquire(&run)
                .deadline(Duration::from_secs(30))
                .await
                .expect("in turn");
            assert_eq!(blocks.held.len() + blocks.fresh.len(), 6);
            check(&manager, &blocks.held, &run[..blocks.held.len()]);
        })
    });
    for one in all.collect::<Vec<_>>() {
        one.await.expect("no panic");
    }
}
