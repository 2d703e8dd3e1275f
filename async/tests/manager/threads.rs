//! Races that need several threads: landings handled on any thread, blocks taken without the lock beside
//! waiting callers, and registrations without the lock beside the first one ahead of its pass.

use super::ground::{build, bytes_of, check, compute, hashes, rest, settings};
use kvstrata::manager::{KvBlockManager, OffloadOptions, OnboardOptions};
use kvstrata::tier::Tier;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// One thread computes many blocks, while another registers the last of them ahead of a pass that comes
/// to nothing: the computed block stays. Only a manager's first list of that kind can interfere, so
/// each attempt has a new manager.
#[tokio::test]
async fn computed_blocks_race_an_unwritten_list_and_stay() {
    let hashes = &hashes(1, 500);
    for attempt in 0..300 {
        let manager = build(settings(501, 0));
        let group = manager.default_group();
        let (computed, ahead) =
            (group.allocate(500).await.expect("blocks"), group.allocate(1).await.expect("blocks"));
        let (there, begins) = (&AtomicBool::new(false), &AtomicBool::new(false));
        let computed = std::thread::scope(|threads| {
            threads.spawn(move || {
                there.store(true, Relaxed);
                wait_for(begins);
                // While the other thread registers, at another point each time.
                (0..attempt * 50).for_each(|_| spin_loop());
                let (blocks, ahead) = ahead.register_ahead(&hashes[499..], None, 1).expect("registered");
                ahead.withdraw();
                blocks
            });
            wait_for(there);
            begins.store(true, Relaxed);
            computed.register(hashes, None).expect("registered")
        });
        assert_eq!((computed.registered(), computed.written_in()), (500, None));
        assert_eq!(group.match_prefix(hashes).in_tier(Tier::Device), 500);
    }
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Relaxed) {
        spin_loop();
    }
}

/// Serves the requests of one task: found blocks have their bytes, and missing ones are computed.
async fn serve(manager: KvBlockManager, task: u64, ends: &AtomicBool) -> usize {
    let group = manager.default_group();
    let (mut state, mut found_in_all) = (task, 0);
    while !ends.load(Relaxed) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let hashes = hashes(1 + (state >> 33) % 12, 1 + (state >> 48) % 8);
        let up = group.onboard(group.match_prefix(&hashes), OnboardOptions::default()).expect("fits").await;
        let (there, rest) = hashes.split_at(up.blocks.len());
        check(&manager, &up.blocks, there);
        found_in_all += there.len();
        let computed = compute(&manager, rest, Some(&up.blocks).filter(|blocks| !blocks.is_empty())).await;
        check(&manager, &computed, rest);
        match (state >> 60) % 4 {
            0 => _ = group.offload(&computed, OffloadOptions::default()).await,
            // Dropped while it waits, or after.
            1 => drop(group.persist(&hashes)),
            _ => {}
        }
        // Free blocks can be taken past waiting callers.
        if let Some(blocks) = group.try_allocate(1) {
            let port = group.device_port().expect("a simulated device");
            port.copy_in(blocks.ids()[0].0, 0, &bytes_of(hashes[0])[1..]).expect("in range");
        }
    }
    found_in_all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_on_many_threads_find_the_right_bytes() {
    // Each of four tasks holds eight blocks at most, and one more.
    let manager = build(settings(36, 48));
    static ENDS: AtomicBool = AtomicBool::new(false);
    let tasks: Vec<_> = (1..=4).map(|task| tokio::spawn(serve(manager.clone(), task, &ENDS))).collect();
    while manager.stats().onboarded[0] < 3_000 {
        manager.step().expect("none runs");
        tokio::task::yield_now().await;
    }
    ENDS.store(true, Relaxed);
    for task in tasks {
        assert!(task.await.expect("no panic") > 0);
    }
    rest(&manager).await;
    let stats = manager.stats();
    assert_eq!((stats.late, stats.missed.iter().sum::<u64>()), (0, 0), "{stats:?}");
    assert_eq!(manager.default_group().allocate(36).await.expect("nobody holds any").len(), 36);
}
