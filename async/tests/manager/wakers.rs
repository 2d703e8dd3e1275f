//! Wakers are callers' code: a panic in one stops nothing else, and no waker is kept that will not be called.

use super::gated::Ground;
use super::ground::{build, compute, hashes, rest, settings};
use kvstrata::manager::{OffloadOptions, Onboard, OnboardOptions, Tiers};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
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
async fn panicking_waker_keeps_no_blocks_from_others() {
    let manager = build(settings(4, 0));
    let group = manager.default_group();
    let all = group.allocate(4).await.expect("all of them");
    let mut first = pin!(group.allocate(2).into_future());
    assert!(first.as_mut().poll(&mut Context::from_waker(&panics())).is_pending());
    let mut second = pin!(group.allocate(2).into_future());
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
async fn panicking_waker_keeps_no_waiter_from_its_dismissal() {
    let manager = build(settings(4, 0).deadline_shutdown(Duration::from_millis(20)));
    let all = manager.default_group().allocate(4).await.expect("all of them");
    let mut waits: Vec<_> =
        (0..3).map(|_| Box::pin(manager.default_group().allocate(2).into_future())).collect();
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

/// Two calls wait for the same copies, so that both are woken at the same time.
#[tokio::test]
async fn panicking_waker_keeps_no_other_call_from_waking() {
    let ground = Ground::new(8, 16);
    let blocks = compute(&ground.manager, &hashes(1, 2), None).await;
    ground.mover.close();
    let mut panicking = pin!(ground.manager.default_group().offload(&blocks, OffloadOptions::default()));
    assert!(panicking.as_mut().poll(&mut Context::from_waker(&panics())).is_pending());
    let other = tokio::spawn(ground.manager.default_group().offload(&blocks, OffloadOptions::default()));
    tokio::task::yield_now().await;
    ground.mover.open();
    let other = tokio::time::timeout(Duration::from_secs(5), other).await.expect("woken").expect("no panic");
    assert_eq!(other.copied, 2);
    rest(&ground.manager).await;
    let answer = panicking.poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(answer, Poll::Ready(down) if down.copied == 2), "{answer:?}");
}

/// A waker that counts its calls.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Wake for Counted {
    fn wake(self: Arc<Counted>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A waiting future keeps its last waker, and none of earlier polls.
#[tokio::test]
async fn replaced_wakers_of_an_onboard_are_not_kept() {
    let ground = Ground::new(8, 16);
    let all = hashes(1, 4);
    drop(compute(&ground.manager, &all, None).await);
    drop(ground.manager.default_group().allocate(8).await.expect("blocks"));
    rest(&ground.manager).await;
    ground.mover.close();
    let options = OnboardOptions::default().layers(1);
    let mut up = ground
        .manager
        .default_group()
        .onboard(ground.manager.default_group().match_prefix(&all), options)
        .expect("fits");
    let mut made: Vec<Weak<Counted>> = Vec::new();
    let mut poll = |future: Pin<&mut dyn Future<Output = ()>>| {
        let counted = Arc::<Counted>::default();
        made.push(Arc::downgrade(&counted));
        assert!(future.poll(&mut Context::from_waker(&Waker::from(counted))).is_pending());
        made.iter().filter(|counted| counted.strong_count() > 0).count()
    };
    {
        let (mut first, mut second) = (pin!(layer(&up, 0)), pin!(layer(&up, 1)));
        for _ in 0..100 {
            assert!(poll(first.as_mut()) <= 2 && poll(second.as_mut()) <= 2);
        }
        // Each round polls another future, which is dropped.
        for _ in 0..100 {
            assert!(poll(pin!(layer(&up, 0))) <= 3);
        }
    }
    for _ in 0..100 {
        let mut whole = pin!(async { _ = (&mut up).await });
        assert_eq!(poll(whole.as_mut()), 1, "the others are gone");
    }
    let last = made.last().and_then(Weak::upgrade).expect("kept");
    ground.mover.open();
    // The last waker is called.
    while last.0.load(Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(up.await.blocks.len(), 4);
}

async fn layer(up: &Onboard, layer: u32) {
    up.layer_ready(layer).await.expect("it comes");
}

/// Blocks of the device that are free, at rest.
fn conserved(manager: &Tiers) -> usize {
    let census = manager.census();
    assert!(census.is_idle(), "{census:?}");
    census.tiers[0][0].free
}
