//! A process forks while it has a manager, and the child goes on. In the child each call is refused, and
//! dropping a handle does nothing. The parent's manager goes on as if there were no child.

use super::ground::{build, check, compute, hashes, settings};
use kvstrata::config::WriteMode;
use kvstrata::manager::{
    AllocateError, Offload, OffloadOptions, Offloaded, OnboardError, OnboardOptions, Purge, PurgeError,
    RegisterFault, TenantError,
};
use kvstrata::scheduler::Reason;
use kvstrata::tier::Tier;
use kvstrata_testing::forked::in_child;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The answer of a call at its first poll: nothing in a child could wake it.
fn now<F: IntoFuture>(future: F) -> F::Output {
    match pin!(future.into_future()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn forked_child_is_refused_and_its_drops_do_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("volume");
    // Also for a manager with a runtime of its own.
    for own in [false, true] {
        let anywhere = "127.0.0.1:0".parse().expect("an address");
        let settings = || settings(8, 8).disk_blocks(16).disk_paths(vec![file.clone()]);
        let settings = || settings().offload_mode(WriteMode::Back).metrics_listen(Some(anywhere));
        let _in = (!own).then(|| runtime.enter());
        let manager = build(settings());
        drop(_in);
        let all = hashes(1, 4);
        let (held, found, spare, hint) = runtime.block_on(async {
            let held = compute(&manager, &all, None).await;
            assert_eq!(manager.default_group().persist(&all).await.copied, if own { 0 } else { 4 });
            (
                held,
                manager.default_group().match_prefix(&all),
                manager.default_group().allocate(2).await.expect("free"),
                manager.default_group().prefetch(&all),
            )
        });
        let tenant = manager.tenant("acme").expect("a name");
        let address = manager.metrics_address().expect("served");
        let running = manager.begin_iteration().expect("none runs");
        in_child(|| {
            assert_eq!(
                now(manager.default_group().allocate(1)).expect_err("a child"),
                AllocateError::Inherited
            );
            let said = AllocateError::Inherited.to_string();
            assert!(said.contains("build a manager in this process, after the fork"), "{said}");
            let within = manager.default_group().allocate(1).deadline(Duration::from_millis(1));
            assert_eq!(now(within).expect_err("a child"), AllocateError::Inherited);
            assert!(manager.default_group().try_allocate(1).is_none());
            assert!(
                manager.default_group().match_prefix(&all).is_empty()
                    && manager.default_group().match_device(&all).is_empty()
            );
            assert!(!manager.default_group().touch(all[0]));
            let refused = |of: Offload| assert_eq!(now(of), Offloaded { refused: 4, ..Offloaded::default() });
            refused(manager.default_group().offload(&held, OffloadOptions::default()));
            assert_eq!(now(manager.default_group().persist(&all)).refused, 4);
            assert!(matches!(manager.begin_iteration(), Err(misuse) if misuse.reason == Reason::Inherited));
            assert!(manager.step().is_err() && running.layer_done(0).is_err() && running.end().is_err());
            manager.check_watermark();
            manager.default_group().prefetch(&all).detach();
            assert!(matches!(manager.tenant("other"), Err(TenantError::Inherited)));
            assert!(matches!(now(tenant.purge(Purge::default())), Err(PurgeError::Inherited)));
            let error = spare.register(&all[..2], None).expect_err("a child");
            assert_eq!(error.why, RegisterFault::Inherited);
            drop(error);
            let refused = manager.default_group().onboard(found, OnboardOptions::default());
            assert_eq!(refused.expect_err("a child"), OnboardError::Inherited);
            assert!(held.written_in().is_none() && manager.metrics_address().is_none());
            assert!(!now(manager.shutdown()));
            drop((hint, held, tenant, manager));
        })
        .expect("a child in order");
        // `in_child` takes the child's handles by its closure, so the parent's handles have gone with
        // it, and the manager is closed in order.
        assert!(std::net::TcpStream::connect(address).is_err());
        let _in = runtime.enter();
        let again = build(settings());
        drop(_in);
        assert_eq!(again.default_group().match_prefix(&all).in_tier(Tier::DISK), 4);
        runtime.block_on(async {
            let up = again
                .default_group()
                .onboard(again.default_group().match_prefix(&all), OnboardOptions::default())
                .expect("fits")
                .await;
            check(&again, &up.blocks, &all);
            drop(up);
            assert!(again.shutdown().await);
        });
    }
}

/// Another thread takes the manager's lock again and again. Children do not wait for it.
#[test]
fn forked_child_waits_for_no_lock_of_its_parent() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build();
    let runtime = runtime.expect("a runtime");
    let manager = runtime.block_on(async { build(settings(8, 8)) });
    let held = runtime.block_on(compute(&manager, &hashes(1, 4), None));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = (manager.census(), manager.metrics());
                let _ = manager.step();
            }
        });
        for _ in 0..50 {
            let (manager, held) = (manager.clone(), held.clone());
            let child = in_child(move || {
                assert!(manager.default_group().try_allocate(1).is_none() && manager.step().is_err());
                assert_eq!(manager.metrics().waiting.requests, 0);
                drop((manager, held));
            });
            if child.is_err() {
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            child.expect("a child in order");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    check(&manager, &held, &hashes(1, 4));
    drop(held);
    assert!(runtime.block_on(manager.shutdown()));
}
