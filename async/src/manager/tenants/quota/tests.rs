//! How much is looked at for who is held.

use crate::config::ManagerConfig;
use crate::manager::KvBlockManager;
use kvstrata_core::SequenceHash;
use std::cell::Cell;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

thread_local! {
    /// Searches of the eviction order, by this thread.
    pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
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
