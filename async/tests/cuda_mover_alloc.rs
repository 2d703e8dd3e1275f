//! In steady state a list of copies between device and host allocates nothing, neither in the
//! mover's threads nor in the queue's.

#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "of what the mover's own tests use, some")]
#[path = "cuda_mover/ground.rs"]
mod ground;

use ground::{BLOCKS, Ground, LAYERS, until};
use kvstrata::movers::CudaMoverOptions;
use kvstrata::transfer::{Copies, Copy, DeviceMover, Landed, Landing, Lands};
use kvstrata_core::BlockId;
use kvstrata_testing::counting::{Counting, counted};
use std::ops::Range;
use std::sync::{Arc, Barrier, Condvar, Mutex};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Keeps the latest list.
#[derive(Default)]
struct Kept {
    list: Mutex<Option<Vec<Copy>>>,
    came: Condvar,
}

impl Lands for Kept {
    fn landed(&self, landed: Landed) {
        if let Landed::Copies(list) = landed {
            *self.list.lock().expect("no panic under it") = Some(list);
            self.came.notify_all();
        }
    }
}

/// A landing at which two threads meet.
struct Meets(Barrier);

impl Lands for Meets {
    fn landed(&self, _landed: Landed) {
        self.0.wait();
    }
}

/// Allocations at the start of a thread are no list's. Afterwards both queues have answered,
/// and both of the mover's threads.
fn start_all_threads(ground: &Ground) {
    let bytes = ground.mover().read_block(BlockId(0)).expect("read");
    ground.mover().write_block(BlockId(0), &bytes).expect("written");
    let meets = Arc::new(Meets(Barrier::new(3)));
    for block in 0..2 {
        let list = vec![ground.down(block, block, 0..LAYERS)];
        ground.mover().start(Copies::new(list, Landing::new(Arc::<Meets>::clone(&meets))));
    }
    meets.0.wait();
}

#[test]
fn copies_in_steady_state_allocate_nothing() {
    let ground = Ground::new(CudaMoverOptions::new().threads(2));
    start_all_threads(&ground);
    until("the guards are back", || (0..2).all(|block| ground.memory.write(block).is_ok()));
    let kept = Arc::new(Kept::default());
    let landing = || Landing::new(Arc::<Kept>::clone(&kept));
    // Whole blocks, then single layers: two transfers a list, alike, so that each batch fits either.
    let whole = |_: u32| 0..LAYERS;
    let single = |block: u32| block % 2..block % 2 + 1;
    for (up, layers) in
        [(false, &whole as &dyn Fn(u32) -> Range<u32>), (true, &whole), (false, &single), (true, &single)]
    {
        let copy = |block| match up {
            false => ground.down(block, block, layers(block)),
            true => ground.up(block, block, layers(block), true),
        };
        let mut list: Vec<_> = (0..BLOCKS).map(copy).collect();
        for round in 0..20 {
            let (back, count) = counted(|| {
                ground.mover().start(Copies::new(list, landing()));
                let answer = kept.list.lock().expect("no panic under it");
                let answer = kept.came.wait_while(answer, |list| list.is_none());
                answer.expect("no panic under it").take().expect("there")
            });
            list = back;
            assert!(list.iter().all(|copy| copy.outcome == Ok(())), "{list:?}");
            // The first rounds make room.
            assert!(round < 2 || count == 0, "{count} allocations, round {round}, up: {up}");
        }
    }
    ground.finish();
}
