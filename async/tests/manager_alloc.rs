//! Blocks that come up in any order cost no allocation each, once there is room for as many: a counting
//! allocator watches all threads.

#[expect(dead_code, reason = "this test uses some of it")]
#[path = "tenants/gated.rs"]
mod gated;
#[expect(dead_code, reason = "this test uses some of it")]
#[path = "manager/ground.rs"]
mod ground;

use gated::Ground;
use ground::{compute, hashes, rest, settings};
use kvstrata_core::Policy;
use kvstrata_testing::counting::{Counting, counted};
use std::pin::pin;
use std::task::{Context, Waker};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BLOCKS: u32 = 64;
/// Rounds before it counts: kept buffers have grown by then.
const WARM: usize = 4;

/// All but the first wait for their parents, the last first.
#[test]
fn block_landing_before_its_parent_allocates_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let policy = settings(BLOCKS, 4 * BLOCKS).device_policy(Policy::Lfu);
    let ground = runtime.block_on(async { Ground::of(policy, BLOCKS, 4 * BLOCKS) });
    let manager = &ground.manager;
    let group = manager.default_group();
    let of_run = |blocks: u32| {
        let run = hashes(u64::from(blocks), u64::from(blocks));
        runtime.block_on(async { drop(compute(manager, &run, None).await) });
        let mut count = 0;
        for _ in 0..=WARM {
            runtime.block_on(async {
                drop(group.allocate(BLOCKS as usize).await.expect("idle"));
                rest(manager).await;
            });
            ground.mover.close();
            let mut up = pin!(group.onboard(group.match_prefix(&run), Default::default()).expect("fits"));
            assert!(up.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(ground.mover.waiting(), run.len());
            let all;
            (all, count) = counted(|| {
                ground.mover.open_backwards();
                runtime.block_on(up)
            });
            assert_eq!(all.blocks.len(), run.len());
        }
        count
    };
    let [short, long] = [4, BLOCKS].map(of_run);
    assert!(long < short + 4, "{short} allocations for 4 blocks, {long} for {BLOCKS}");
}
