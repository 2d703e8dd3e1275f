//! Each route: its bytes, its calls, and the objects that it holds.

use super::{Memory, Side, copier, engine_and_tier, kernels, oracle, picks, split, submit};
use crate::{machine, queue};
use core::sync::atomic::{AtomicBool, Ordering};
use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, Layout, LayoutConfig, Region};
use kvstrata_core::plan::{CopyPlan, Slice};
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::cuda::{
    Batch, CopyOptions, CudaCopy, CudaError, Direction, PinOptions, PinnedStorage, Place, Purpose, Route,
};
use proptest::prelude::*;
use std::sync::Arc;

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_route_moves_the_oracles_bytes(picks in picks(), most_ctas in 1_u32..9) {
        let (double, device, copy) = copier(CopyOptions::new().most_ctas(most_ctas));
        let queue = queue(&device, Purpose::Onboard);
        let Some([src, dst]) = picks.sides(&device) else { return Err(TestCaseError::reject("no such layout")) };
        let [layers, heads] = picks.slices();
        let plan = CopyPlan::new(&src.layout, &[], &dst.layout, &[], layers, heads).expect("alike");
        let prepared = copy.prepare(&plan, src.place(), dst.place()).expect("inside its places");
        prop_assert_eq!(prepared.direction(), picks.direction);
        let mut batch = Batch::new();
        let within = picks.direction == Direction::DeviceToDevice;
        prop_assert_eq!(prepared.has(Route::Rows).is_err(), within, "rows within a device are not offered");
        let routes = Route::ALL.into_iter().filter(|route| prepared.has(*route).is_ok());
        for route in routes.map(Some).chain([None]) {
            src.fill(1);
            dst.fill(100);
            let (source, wanted) = (src.bytes(), oracle(&src, &dst, &picks.blocks, picks.slices()));
            batch = submit(&prepared, route, &queue, [&src, &dst], &picks.blocks, batch);
            prop_assert!(dst.bytes() == wanted, "{:?}: {:?}", route, prepared);
            prop_assert!(src.bytes() == source, "the source is as it was");
        }
        drop((prepared, copy, queue, src, dst, device));
        crate::until("the release", || double.left().contexts == 0);
        double.finish();
    }
}

#[test]
fn batch_is_one_launch_or_one_call_and_uploads_nothing() {
    let (double, device, copy) = copier(CopyOptions::new());
    let [engine, tier] = engine_and_tier(&device, 40);
    let plan = CopyPlan::new(&engine.layout, &[], &tier.layout, &[], .., ..).expect("alike");
    let prepared = copy.prepare(&plan, engine.place(), tier.place()).expect("prepared");
    let queue = queue(&device, Purpose::Offload);
    let blocks: Vec<_> = (0..40).map(|block| (39 - block, block)).collect();
    let mut batch = Batch::new();
    for (route, calls) in [
        (Route::Kernel, ("cuLaunchKernel", 1)),
        (Route::Batch, ("cuMemcpyBatchAsync_v2", 1)),
        (Route::Single, ("cuMemcpyDtoHAsync_v2", 240)),
        // K and V of a layer; the layers are in two allocations.
        (Route::Rows, ("cuMemcpy2DAsync_v2", 120)),
    ] {
        let before = (double.calls(calls.0), double.all_calls());
        batch = submit(&prepared, Some(route), &queue, [&engine, &tier], &blocks, batch);
        assert_eq!(double.calls(calls.0) - before.0, calls.1, "{route:?}");
        // In addition: the context, the thread's mode of capture, an event, and the wait for it.
        let others = double.all_calls() - before.1 - calls.1;
        assert!(others <= 10, "{route:?}: {others} other calls");
    }
    drop((batch, prepared, copy, queue, engine, tier, device));
    crate::until("the release", || double.left().contexts == 0);
    double.finish();
}

#[test]
fn memory_of_a_plan_is_held_until_the_device_answers() {
    let (double, device, copy) = copier(CopyOptions::new());
    let [engine, tier] = engine_and_tier(&device, 4);
    let plan = CopyPlan::new(&engine.layout, &[], &tier.layout, &[], .., ..).expect("alike");
    let prepared = copy.prepare(&plan, engine.place(), tier.place()).expect("prepared");
    let queue = queue(&device, Purpose::Offload);
    engine.fill(1);
    let wanted = oracle(&engine, &tier, &[(3, 0), (1, 2)], [Slice::All, Slice::All]);
    let (allocations, modules) = (double.left().allocations, double.left().modules);
    double.hold();
    let [from, to] = split(&[(3, 0), (1, 2)]);
    let mut batch = Batch::new();
    tier.guard(&to, true, &mut batch);
    let transfer = prepared.submit_by(Route::Kernel, &queue, &from, &to, batch).expect("queued");
    let Memory::Host(pinned) = &tier.memory else { unreachable!("a host's") };
    let arena = Arc::clone(pinned.arena());
    // The engine's tensors, the tier, the bases, the kernels: only the work in flight holds them now.
    drop((transfer, prepared, copy, engine, tier));
    assert_eq!(
        (double.left().allocations, double.left().modules),
        (allocations, modules - 3),
        "what is in use"
    );
    assert!(arena.read(0).is_err() && arena.read(1).is_ok(), "borrowed by the transfer");
    double.release();
    crate::until("the end", || double.left().allocations == 0);
    let found: Vec<_> = (0..4).map(|block| arena.read(block).expect("free").to_vec()).collect();
    assert!(found.iter().eq(wanted.iter().map(|(_, bytes)| bytes)));
    drop((queue, device));
    crate::until("the release", || double.left().contexts == 0);
    double.finish();
}

/// During an open transfer, its thread may look at routes, and other threads may submit the same prepared
/// copy to other queues.
#[test]
fn open_transfer_holds_up_its_queue_alone() {
    let (double, device, copy) = copier(CopyOptions::new());
    let [engine, tier] = engine_and_tier(&device, 8);
    let plan = CopyPlan::new(&engine.layout, &[], &tier.layout, &[], .., ..).expect("alike");
    let prepared = copy.prepare(&plan, engine.place(), tier.place()).expect("prepared");
    let [first, second] = [queue(&device, Purpose::Offload), queue(&device, Purpose::Staging)];
    let open = first.begin(Batch::new()).expect("begun");
    let mut batch = Batch::new();
    tier.guard(&[BlockId(0)], true, &mut batch);
    let begun = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            begun.store(true, Ordering::Release);
            prepared
                .submit(&first, &[BlockId(0)], &[BlockId(0)], batch)
                .expect("queued")
                .wait()
                .expect("executed")
        });
        // The thread waits for its turn, or soon will.
        crate::until("the other's call", || begun.load(Ordering::Acquire));
        for _ in 0..200 {
            std::thread::yield_now();
            prepared.route(&[], &[]).expect("a route");
        }
        drop(submit(&prepared, None, &second, [&engine, &tier], &[(1, 1)], Batch::new()));
        assert!(!waits.is_finished());
        drop(open);
        drop(waits.join().expect("its turn has come"));
    });
    drop((prepared, copy, first, second, engine, tier, device));
    crate::until("the release", || double.left().contexts == 0);
    double.finish();
}

/// Pieces of neighbouring blocks are joined; but a copy covers neither two registrations nor two
/// allocations that happen to adjoin.
#[test]
fn piece_ends_where_its_memory_does() {
    let (double, device, copy) = copier(CopyOptions::new());
    let config = LayoutConfig::new().num_blocks(12).page_size(64).heads(1, 64).alignment(256);
    let engine = Side::device(&device, config, Arrangement::FullyContiguous, 0, false).expect("a layout");
    let arena = HostArena::new(12, 4096).expect("an arena");
    // Registered in chunks of three blocks; lent in parts of five and a half blocks and the rest.
    let options = PinOptions::new().chunk_bytes(3 * 4096);
    let pinned = PinnedStorage::register(&device, arena, options, &mut |_, _| {}).expect("registered");
    let layout = Layout::fully_contiguous(config.alignment(4096), Region::of(&*pinned)).expect("as it needs");
    let tier = Side { layout, memory: Memory::Host(Arc::clone(&pinned)) };
    let Memory::Device(memory) = &engine.memory else { unreachable!("a device's") };
    let [first, second] = [(0, 11), (11, 13)].map(|(at, halves)| memory[0].range(at * 2048, halves * 2048));
    let place = Place::Device(vec![second.expect("in range"), first.expect("in range")]);
    let plan = CopyPlan::new(&engine.layout, &[], &tier.layout, &[], .., ..).expect("alike");
    let prepared = copy.prepare(&plan, place, tier.place()).expect("prepared");
    let queue = queue(&device, Purpose::Offload);
    let blocks: Vec<_> = (1..12).map(|block| (block, block)).collect();
    for route in Route::ALL {
        engine.fill(1);
        tier.fill(50);
        let wanted = oracle(&engine, &tier, &blocks, [Slice::All, Slice::All]);
        let before = double.calls("cuMemcpyDtoHAsync_v2");
        drop(submit(&prepared, Some(route), &queue, [&engine, &tier], &blocks, Batch::new()));
        assert!(tier.bytes() == wanted, "{route:?}");
        if route == Route::Single {
            // Cut at blocks 3, 5½, 6 and 9.
            assert_eq!(double.calls("cuMemcpyDtoHAsync_v2") - before, 5);
        }
    }
    drop(prepared);
    // Every other head: rows, but not from one range into the other.
    let heads = LayoutConfig::new().num_blocks(3).page_size(8).heads(2, 512).alignment(256);
    let engine_of_heads =
        Side::device(&device, heads, Arrangement::FullyContiguous, 0, false).expect("a layout");
    let tier_of_heads = Side::host(&device, heads);
    let Memory::Device(memory) = &engine_of_heads.memory else { unreachable!("a device's") };
    // Within the second block, between its rows.
    let cut = 8192 + 3 * 1024;
    let parts = [memory[0].range(0, cut), memory[0].range(cut, 3 * 8192 - cut)];
    let place = Place::Device(parts.into_iter().map(|part| part.expect("in range")).collect());
    let (from, to) = (&engine_of_heads, &tier_of_heads);
    let plan = CopyPlan::new(&from.layout, &[], &to.layout, &[], .., 1..2).expect("alike");
    let prepared = copy.prepare(&plan, place, to.place()).expect("prepared");
    from.fill(3);
    let blocks = [(0, 0), (1, 2), (2, 1)];
    let wanted = oracle(from, to, &blocks, [Slice::All, Slice::Same(1..2)]);
    let before = double.calls("cuMemcpy2DAsync_v2");
    drop(submit(&prepared, Some(Route::Rows), &queue, [from, to], &blocks, Batch::new()));
    assert!(to.bytes() == wanted);
    assert_eq!(
        double.calls("cuMemcpy2DAsync_v2") - before,
        2,
        "two blocks by rows, the one between row by row"
    );
    drop((prepared, copy, queue, engine, tier, engine_of_heads, tier_of_heads, pinned, device));
    crate::until("the release", || double.left().contexts == 0);
    double.finish();
}

#[test]
fn copy_engine_serves_without_kernels_or_mapped_memory() {
    let (double, device) = machine();
    for mapped_at in [0, 1 << 40] {
        double.plain_addresses();
        double.mapped_at(mapped_at);
        let [engine, tier] = engine_and_tier(&device, 4);
        let kernels = match mapped_at {
            0 => Err(CudaError::NoKernels { why: "as a test".to_owned() }),
            _ => Ok(kernels(&double, &device)),
        };
        let copy = CudaCopy::with(&device, kernels, CopyOptions::new());
        let plan = CopyPlan::new(&engine.layout, &[], &tier.layout, &[], .., ..).expect("alike");
        let prepared = copy.prepare(&plan, engine.place(), tier.place()).expect("prepared");
        let wanted = match mapped_at {
            0 => CudaError::NoKernels { why: "as a test".to_owned() },
            _ => CudaError::NotMapped,
        };
        assert_eq!(prepared.has(Route::Kernel), Err(wanted.clone()));
        assert_eq!(prepared.has(Route::Batch).is_ok(), mapped_at == 0);
        let queue = queue(&device, Purpose::Offload);
        let rejected = prepared.submit_by(Route::Kernel, &queue, &[], &[], Batch::new()).expect_err("none");
        assert_eq!(rejected.error, wanted);
        engine.fill(7);
        let blocks = [(0, 3), (3, 1), (1, 2)];
        let bytes = oracle(&engine, &tier, &blocks, [Slice::All, Slice::All]);
        drop(submit(&prepared, None, &queue, [&engine, &tier], &blocks, Batch::new()));
        assert!(tier.bytes() == bytes);
        drop((prepared, copy, queue, engine, tier));
    }
    drop(device);
    crate::until("the release", || double.left().contexts == 0);
    double.finish();
}
