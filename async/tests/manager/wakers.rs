//! Wakers are callers' code: one that panics takes nothing with it.

use super::gated::Ground;
use super::ground::{build, compute, hashes, rest, settings};
use kvstrata::manager::{KvBlockManager, OffloadOptions};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Panics>) {
        panic!("a waker of a test");
    }
}

fn panics() -> Waker {
    Waker::from(Arc::new(Panics))
}

#[tokio::test]
async fn a_waker_that_panics_keeps_no_blocks_from_others() {
    let manager = build(settings(4, 0));
    let all = manager.allocate(4).await.expect("all of them");
    let mut first = pin!(manager.allocate(2));
    assert!(first.as_mut().poll(&mut Context::from_waker(&panics())).is_pending());
    let mut second = pin!(manager.allocate(2));
    assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(all);
    let Poll::Ready(Ok(blocks)) = second.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("granted with the first")
    };
    assert_eq!(blocks.len(), 2);
    let Poll::Ready(Ok(blocks)) = first.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("granted, though nobody was woken")
    };
    assert_eq!(blocks.len(), 2);
}

#[tokio::test]
async fn a_waker_that_panics_keeps_nobody_from_being_dismissed() {
    let manager = build(settings(4, 0).deadline_shutdown(Duration::from_millis(20)));
    let all = manager.allocate(4).await.expect("all of them");
    let mut waits: Vec<_> = (0..3).map(|_| Box::pin(manager.allocate(2))).collect();
    for wait in &mut waits {
        assert!(wait.as_mut().poll(&mut Context::from_waker(&panics())).is_pending());
    }
    assert!(!manager.shutdown().await, "they waited");
    for wait in &mut waits {
        let answer = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(answer, Poll::Ready(Err(_))), "{answer:?}");
    }
    drop(all);
    assert_eq!(conserved(&manager), 4);
}

/// Two wait for the same copies, so that both are woken at the same time.
#[tokio::test]
async fn a_waker_that_panics_keeps_nobody_from_being_woken() {
    let ground = Ground::new(8, 16);
    let blocks = compute(&ground.manager, &hashes(1, 2), None).await;
    ground.mover.close();
    let mut panicking = pin!(ground.manager.offload(&blocks, OffloadOptions::default()));
    assert!(panicking.as_mut().poll(&mut Context::from_waker(&panics())).is_pending());
    let other = tokio::spawn(ground.manager.offload(&blocks, OffloadOptions::default()));
    tokio::task::yield_now().await;
    ground.mover.open();
    let other = tokio::time::timeout(Duration::from_secs(5), other).await.expect("woken").expect("no panic");
    assert_eq!(other.copied, 2);
    rest(&ground.manager).await;
    let answer = panicking.poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(answer, Poll::Ready(down) if down.copied == 2), "{answer:?}");
}

/// Blocks of the device that are free, at rest.
fn conserved(manager: &KvBlockManager) -> usize {
    let census = manager.census();
    assert!(census.is_idle(), "{census:?}");
    census.tiers[0][0].free
}
