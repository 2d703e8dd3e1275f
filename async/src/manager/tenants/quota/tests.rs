//! How much is looked at for who is held.

use crate::config::ManagerConfig;
use crate::manager::line::tests::HURRIES;
use crate::manager::{KvBlockManager, OffloadOptions};
use kvstrata_core::SequenceHash;
use std::cell::Cell;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

thread_local! {
    /// Searches of the eviction order, by this thread.
    pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
    /// Blocks that were looked at in them.
    pub(super) static PASSED: Cell<usize> = const { Cell::new(0) };
}

#[tokio::test]
async fn who_is_held_is_looked_after_when_its_own_has_changed_and_not_at_each_change() {
    let settings = ManagerConfig::builder()
        .geometry_block_bytes(Some(64))
        .device_blocks(8)
        .host_blocks(0)
        .watermark_device(1.0)
        .quota_device(0.5);
    let manager = KvBlockManager::new(&settings.build().expect("a configuration")).expect("a manager");
    let tenant = manager.tenant("a").expect("few tenants");
    let name = |number: u128| SequenceHash::from_u128(number << 64 | 1);
    let theirs = manager.try_allocate(3).expect("free ones");
    let theirs = theirs.register(&[1, 2, 3].map(name), None).expect("registered");
    let own = tenant.try_allocate(4).expect("its quota");
    let mut own = own.register(&[4, 5, 6, 7].map(name), None).expect("registered");
    let mut held = pin!(tenant.allocate(2));
    let mut context = Context::from_waker(Waker::noop());
    assert!(held.as_mut().poll(&mut context).is_pending());
    let before = LOOKS.get();
    for _ in 0..100 {
        manager.check_watermark();
        drop(theirs.clone());
    }
    drop(theirs);
    assert_eq!(LOOKS.get(), before, "nothing of its own has changed");
    own.truncate(3);
    assert!(held.as_mut().poll(&mut context).is_pending(), "one of two");
    own.truncate(2);
    let Poll::Ready(blocks) = held.as_mut().poll(&mut context) else { panic!("there are two") };
    assert_eq!(blocks.expect("in time").len(), 2);
    assert!(LOOKS.get() > before);
}

#[tokio::test]
async fn copies_are_hurried_for_who_is_held_when_there_is_something_new_and_not_at_each_change() {
    let settings = ManagerConfig::builder()
        .geometry_block_bytes(Some(64))
        .device_blocks(8)
        .host_blocks(16)
        .watermark_device(1.0)
        .iteration_bytes(Some(64))
        .quota_device(0.5);
    let manager = KvBlockManager::new(&settings.build().expect("a configuration")).expect("a manager");
    let tenant = manager.tenant("a").expect("few tenants");
    let name = |number: u128| SequenceHash::from_u128(number << 64 | 1);
    let theirs = manager.try_allocate(3).expect("free ones");
    let theirs = theirs.register(&[1, 2, 3].map(name), None).expect("registered");
    let own = tenant.try_allocate(4).expect("its quota");
    let own = own.register(&[4, 5, 6, 7].map(name), None).expect("registered");
    let mut held = pin!(tenant.allocate_within(2, Duration::from_secs(20)));
    assert!(held.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let before = HURRIES.get();
    for _ in 0..100 {
        manager.check_watermark();
        drop(theirs.clone());
    }
    assert_eq!(HURRIES.get(), before, "nothing is new");
    // The iteration has bytes for one of them.
    let offloads = [&theirs, &own].map(|blocks| manager.offload(blocks, OffloadOptions::default()));
    assert_eq!(HURRIES.get(), before + 2, "there are new flights");
    for _ in 0..100 {
        drop(theirs.clone());
    }
    assert_eq!(HURRIES.get(), before + 2, "and then no more");
    // Of its own blocks that are released, the copies keep some: they wait for no iteration any more.
    drop(own);
    assert_eq!(held.await.expect("in time").len(), 2);
    drop(offloads);
}

#[tokio::test]
async fn others_blocks_are_passed_once_and_not_with_each_block() {
    let settings = ManagerConfig::builder()
        .geometry_block_bytes(Some(64))
        .device_blocks(512)
        .host_blocks(0)
        .watermark_device(1.0)
        .quota_device(1.0 / 64.0);
    let manager = KvBlockManager::new(&settings.build().expect("a configuration")).expect("a manager");
    let tenant = manager.tenant("a").expect("few tenants");
    let names = |of: std::ops::Range<u128>| -> Vec<_> {
        of.map(|number| SequenceHash::from_u128(number << 64 | 1)).collect()
    };
    let theirs = manager.try_allocate(400).expect("free ones");
    drop(theirs.register(&names(0..400), None).expect("registered"));
    let before = PASSED.get();
    for number in 1000..1200 {
        let own = tenant.try_allocate(1).expect("its own make room");
        drop(own.register(&names(number..number + 1), None).expect("registered"));
    }
    let looked_at = PASSED.get() - before;
    assert!((400..3000).contains(&looked_at), "{looked_at} blocks were looked at for 192");
}
