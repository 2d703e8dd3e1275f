//! Copies that cannot be made, refusals of the driver, and a device that dies.

use crate::ground::{BLOCK_BYTES, BLOCKS, Ground, Heard, LAYERS, pattern, until};
use kvstrata::movers::CudaMoverOptions;
use kvstrata::transfer::{Cause, Copy, Failure, HostMemory, HostSide, Token};
use kvstrata_core::BlockId;
use kvstrata_ffi::cuda::QueueOptions;

#[test]
fn impossible_copy_is_refused_alone() {
    let ground = Ground::new(CudaMoverOptions::new());
    let other = HostMemory::new(1, &[BLOCK_BYTES]).expect("memory");
    let held = HostSide::Write(other.write(0).expect("free"));
    let list = vec![
        ground.down(BLOCKS, 0, 0..LAYERS),
        ground.down(1, 1, 0..LAYERS + 1),
        Copy::new(Token(9), BlockId(2), held, 0..1, false),
        Copy::new(Token(9), BlockId(2), HostSide::Kept { up: false }, 0..1, false),
        ground.down(3, 3, 0..LAYERS),
    ];
    let list = ground.carry_out(list);
    let outcomes: Vec<_> = list.iter().map(|copy| copy.outcome).collect();
    let refused = Err(Failure::of(Cause::Device));
    assert_eq!(outcomes, [refused, refused, refused, refused, Ok(())]);
    let guards = list.iter().filter(|copy| matches!(copy.host, HostSide::Write(_)));
    assert_eq!(guards.count(), 4, "they are back");
    drop(list);
    assert!(ground.host(3) == ground.peek(3));
    // A device's block twice in a list: the plan refuses them together.
    ground.seal(0, &pattern(9, BLOCK_BYTES));
    let list = vec![ground.up(0, 4, 0..LAYERS, false), ground.up(0, 4, 0..LAYERS, false)];
    let list = ground.carry_out(list);
    assert!(list.iter().all(|copy| copy.outcome == refused && matches!(copy.host, HostSide::Read(_))));
    drop((list, other));
    // An empty list is answered too.
    assert!(ground.carry_out(Vec::new()).is_empty());
    ground.finish();
}

#[test]
fn full_queue_is_answered_at_once_and_a_retry_succeeds() {
    let ground = Ground::new(CudaMoverOptions::new().queue(QueueOptions::new().depth(1)));
    ground.double.hold();
    let (first, second) = (Heard::new(), Heard::new());
    ground.start(vec![ground.down(0, 0, 0..LAYERS)], &first);
    ground.double.called("cuEventRecord", 1);
    ground.start(vec![ground.down(1, 1, 0..LAYERS)], &second);
    let refused = second.wait(1).remove(0);
    assert_eq!(refused[0].outcome, Err(Failure::passing(Cause::Device)));
    assert!(matches!(refused[0].host, HostSide::Write(_)), "nothing of it was queued");
    assert_eq!(first.answers(), 0);
    ground.double.release();
    assert_eq!(first.wait(1)[0][0].outcome, Ok(()));
    let again = ground.carry_out(refused);
    assert_eq!(again[0].outcome, Ok(()));
    drop(again);
    assert!(ground.host(1) == ground.peek(1));
    ground.finish();
}

/// The driver refuses a part while others are queued: the failure is known at once, and
/// answered when the device is done.
#[test]
fn copies_refused_by_the_driver_come_back_after_the_rest() {
    for (code, failure) in [(1, Failure::of(Cause::Device)), (2, Failure::passing(Cause::Device))] {
        let ground = Ground::new(CudaMoverOptions::new());
        ground.double.fail("cuMemcpyBatchAsync_v2", 1, code);
        ground.double.fail("cuMemcpy2DAsync_v2", 1, code);
        let list = (0..4).map(|block| ground.down(block, block, 0..LAYERS)).collect();
        let list = ground.carry_out(list);
        for copy in &list {
            assert_eq!(copy.outcome, Err(failure));
            assert!(matches!(copy.host, HostSide::Write(_)), "the device has answered: the guard is back");
        }
        // The next list succeeds.
        let list = ground.carry_out(list);
        assert!(list.iter().all(|copy| copy.outcome == Ok(())), "{list:?}");
        drop(list);
        ground.finish();
    }
}

/// The device dies under lists in both directions. All are answered, and memory that it may
/// still reach is never given back.
#[test]
fn dying_device_answers_every_list_and_keeps_its_memory() {
    for operation in 1..=6 {
        let ground = Ground::seeded(operation, CudaMoverOptions::new());
        (4..BLOCKS).for_each(|block| ground.seal(block, &pattern(u64::from(block), BLOCK_BYTES)));
        ground.double.hold();
        let heard = Heard::new();
        ground.start(vec![ground.down(0, 0, 0..LAYERS), ground.down(1, 1, 0..1)], &heard);
        ground.start(vec![ground.up(4, 4, 0..LAYERS, true)], &heard);
        ground.start(vec![ground.down(2, 2, 0..LAYERS)], &heard);
        ground.double.called("cuEventRecord", 4);
        ground.double.break_at(0, operation, 700);
        ground.double.release();
        let lists = heard.wait(3);
        let mut kept = 0;
        for copy in lists.iter().flatten() {
            match (&copy.outcome, &copy.host) {
                (Ok(()), HostSide::Read(_) | HostSide::Write(_)) => {}
                (Err(failure), HostSide::Kept { up }) => {
                    assert_eq!(*up, copy.device.0 == 4, "which way it went");
                    assert_eq!(*failure, Failure::of(Cause::Device));
                    kept += 1;
                }
                _ => panic!("operation {operation}: {copy:?}"),
            }
        }
        assert!(kept > 0, "operation {operation}");
        let of =
            lists.iter().flatten().map(|copy| (copy.device.0, matches!(copy.host, HostSide::Kept { .. })));
        let of: Vec<_> = of.collect();
        drop(lists);
        assert!(ground.device.fault().is_some());
        for (block, kept) in of {
            assert_eq!(ground.memory.write(block).is_err(), kept, "operation {operation}: block {block}");
        }
        // From now on the answer comes at once, and the guard never leaves.
        let list = ground.carry_out(vec![ground.down(3, 3, 0..LAYERS)]);
        assert_eq!(list[0].outcome, Err(Failure::of(Cause::Device)));
        assert!(matches!(list[0].host, HostSide::Write(_)));
        drop(list);
        until("empty queues", || ground.device.leaked().things >= kept.min(1));
        ground.finish_broken();
    }
}

/// Blocks that are being overwritten are kept as those of copies are. Refused, they are as they were.
#[test]
fn dying_device_keeps_blocks_to_overwrite() {
    let ground = Ground::new(CudaMoverOptions::new());
    ground.double.fail("cuMemcpyBatchAsync_v2", 1, 2);
    ground.double.fail("cuMemcpy2DAsync_v2", 1, 2);
    let refused = ground.carry_out(vec![ground.zeros(0), ground.zeros(1)]);
    for copy in &refused {
        assert_eq!(copy.outcome, Err(Failure::passing(Cause::Device)));
        assert!(matches!(copy.host, HostSide::Zeros));
    }
    let again = ground.carry_out(refused);
    assert!(again.iter().all(|copy| copy.outcome == Ok(())), "{again:?}");
    assert!(ground.peek(0) == [0; BLOCK_BYTES] && ground.peek(2) != [0; BLOCK_BYTES]);
    ground.double.hold();
    let heard = Heard::new();
    ground.start(vec![ground.zeros(2), ground.zeros(3)], &heard);
    ground.double.called("cuEventRecord", 3);
    ground.double.break_at(0, 1, 700);
    ground.double.release();
    for copy in heard.wait(1).iter().flatten() {
        assert_eq!(copy.outcome, Err(Failure::of(Cause::Device)));
        assert!(matches!(copy.host, HostSide::Kept { up: true }), "{copy:?}");
    }
    // From now on the answer comes at once, and the device does not keep the block.
    let list = ground.carry_out(vec![ground.zeros(4)]);
    assert_eq!(list[0].outcome, Err(Failure::of(Cause::Device)));
    assert!(matches!(list[0].host, HostSide::Zeros));
    until("empty queues", || ground.device.leaked().things >= 1);
    ground.finish_broken();
}
