//! A manager that gets no runtime makes one, for timers, transfers and the disk's task. Any
//! thread may wait for its calls.

use super::ground::{build, check, compute, hashes, settings};
use kvstrata::manager::{AllocateError, OnboardOptions};
use kvstrata::tier::Tier;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Unparks>) {
        self.0.unpark();
    }
}

/// Waits without a runtime.
fn wait<F: IntoFuture>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unparks(thread::current())));
    let mut future = pin!(future.into_future());
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn manager_without_a_runtime_makes_one_and_ends_it() {
    assert!(tokio::runtime::Handle::try_current().is_err());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    let open = || build(settings(4, 8).runtime_threads(1).disk_blocks(16).disk_paths(vec![file.clone()]));
    let manager = open();
    let group = manager.default_group();
    let first = hashes(1, 4);
    drop(wait(compute(&manager, &first, None)));
    // Through the host to the disk, and back.
    assert_eq!(wait(group.persist(&first)).copied, 4);
    for sequence in 2..6 {
        drop(wait(compute(&manager, &hashes(sequence, 4), None)));
    }
    let found = group.match_prefix(&first);
    assert_eq!((found.len(), found.in_tier(Tier::Device)), (4, 0));
    let up = wait(group.onboard(found, OnboardOptions::default()).expect("fits"));
    check(&manager, &up.blocks, &first);
    // Its timers.
    let error = wait(group.allocate(1).deadline(Duration::from_millis(5))).expect_err("all are held");
    assert!(matches!(error, AllocateError::Deadline { requested: 1, .. }), "{error}");
    drop(up);
    assert!(wait(manager.shutdown()));
    drop(manager);
    // And one that is dropped without a shutdown.
    let second = open();
    assert_eq!(second.default_group().match_prefix(&first).in_tier(Tier::DISK), 4);
    drop(second);
    assert_eq!(open().default_group().match_prefix(&first).in_tier(Tier::DISK), 4);
}

/// A task compares blocks on their way to the disk first. When its runtime ends, it gives them up, and
/// nothing is in flight any more.
#[test]
fn runtime_ended_during_a_write_answers_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut polls = 0;
    loop {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let file = folder.path().join(polls.to_string());
        let (manager, all) = runtime.block_on(async {
            let manager = build(settings(4, 4).disk_blocks(16).disk_paths(vec![file]));
            let all = hashes(1, 4);
            drop(compute(&manager, &all, None).await);
            (manager, all)
        });
        let over = runtime.block_on(async {
            let mut persist = pin!(manager.default_group().persist(&all));
            for _ in 0..polls {
                if persist.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    return true;
                }
                tokio::task::yield_now().await;
            }
            false
        });
        drop(runtime);
        let began = Instant::now();
        while manager.census().moving > 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "after {polls}: {:?}", manager.census());
            thread::yield_now();
        }
        assert_eq!(manager.default_group().match_prefix(&all).len(), 4, "after {polls}");
        if over {
            assert!(polls > 4, "it takes several");
            break;
        }
        polls += 1 + polls / 8;
    }
}
