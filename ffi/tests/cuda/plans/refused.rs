//! Plans and blocks outside their memory, without guards, or absent.

use super::{Memory, Side, copier, engine_and_tier};
use crate::queue;
use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, Layout, LayoutConfig, Region};
use kvstrata_core::plan::{CopyPlan, PlanError};
use kvstrata_core::storage::Storage;
use kvstrata_ffi::cuda::{Batch, CopyOptions, CudaError, Place, Purpose, Route};

#[test]
fn plan_outside_its_memory_is_refused() {
    let (double, device, copy) = copier(CopyOptions::new());
    let [engine, tier] = engine_and_tier(&device, 4);
    let plan = CopyPlan::new(&engine.layout, &[], &tier.layout, &[], .., ..).expect("alike");
    let (Memory::Device(tensors), Memory::Host(pinned)) = (&engine.memory, &tier.memory) else {
        unreachable!("one each")
    };
    let refused = |source: Place, destination: Place| {
        copy.prepare(&plan, source, destination).expect_err("refused").to_string()
    };
    // A tensor missing; a tensor a byte short.
    let first = Place::Device(vec![tensors[0].range(0, tensors[0].size_bytes()).expect("all")]);
    assert!(refused(first, tier.place()).starts_with("source blocks of 20480 bytes, from 0x"));
    let short = tensors.iter().map(|of| of.range(0, of.size_bytes() - 1).expect("less"));
    assert!(refused(Place::Device(short.collect()), tier.place()).contains("not inside the device ranges"));
    // Arenas with fewer blocks, smaller blocks, and larger blocks, each with a layout that names the
    // arena; and an arena that the layout does not name.
    let block_bytes = pinned.arena().block_bytes();
    for (blocks, bytes) in [(3, block_bytes), (4, block_bytes - 1), (4, block_bytes + 4096)] {
        let other = crate::pinned(&device, blocks, bytes);
        let region = Region { size_bytes: 1 << 30, ..Region::of(&*other) };
        let layout = Layout::fully_contiguous(*tier.layout.config(), region).expect("as it says");
        let plan = CopyPlan::new(&engine.layout, &[], &layout, &[], .., ..).expect("alike");
        let error = copy.prepare(&plan, engine.place(), Place::Host(other)).expect_err("refused");
        assert!(error.to_string().contains("not inside the arena's blocks"), "{blocks} of {bytes}: {error}");
    }
    let other = Place::Host(crate::pinned(&device, 4, block_bytes));
    assert!(refused(engine.place(), other).contains("not inside the arena's blocks"));
    // Each place at the other's side.
    assert!(refused(tier.place(), engine.place()).contains("the source's layout is of Device"));
    // Both the host's.
    let across = CopyPlan::new(&tier.layout, &[], &tier.layout, &[], .., ..).expect("alike");
    let error = copy.prepare(&across, tier.place(), tier.place()).expect_err("no device");
    assert!(matches!(error, CudaError::NoRoute { .. }), "{error}");
    // Another device's memory.
    let other = crate::open(1);
    let elsewhere =
        Side::device(&other, *engine.layout.config(), Arrangement::OuterFirst, 0, true).expect("a layout");
    let error = copy.prepare(&plan, elsewhere.place(), tier.place()).expect_err("refused");
    assert_eq!(error, CudaError::WrongDevice { what: "the memory", found: 1, wanted: 0 });

    // A queue of another device.
    let (prepared, there) = (
        copy.prepare(&plan, engine.place(), tier.place()).expect("prepared"),
        queue(&other, Purpose::Offload),
    );
    for route in Route::ALL {
        let rejected = prepared.submit_by(route, &there, &[], &[], Batch::new()).expect_err("refused");
        assert_eq!(
            rejected.error,
            CudaError::WrongDevice { what: "the queue", found: 1, wanted: 0 },
            "{route:?}"
        );
    }
    drop((prepared, there));

    // Blocks without a guard, guarded for reading, or of another arena; and lists that make no plan.
    let prepared = copy.prepare(&plan, engine.place(), tier.place()).expect("prepared");
    let back = CopyPlan::new(&tier.layout, &[], &engine.layout, &[], .., ..).expect("alike");
    let back = copy.prepare(&back, tier.place(), engine.place()).expect("prepared");
    let queue = queue(&device, Purpose::Offload);
    let twin = crate::pinned(&device, 4, pinned.arena().block_bytes());
    let ids = |blocks: &[u32]| blocks.iter().map(|block| BlockId(*block)).collect::<Vec<_>>();
    let mut batch = Batch::new();
    batch.write(pinned.arena().write(0).expect("free"), pinned).expect("registered");
    batch.read(pinned.arena().read(1).expect("free"), pinned).expect("registered");
    batch.write(twin.arena().write(2).expect("free"), &twin).expect("registered");
    let held = |batch: &Batch| batch.held().iter().map(|held| format!("{held:?}")).collect::<Vec<_>>();
    let before = held(&batch);
    for route in Route::ALL {
        for block in [1, 2, 3] {
            let rejected = prepared
                .submit_by(route, &queue, &ids(&[0, 1]), &ids(&[0, block]), batch)
                .expect_err("refused");
            assert_eq!(rejected.error, CudaError::NotHeld { side: "destination", block });
            batch = rejected.batch;
        }
        let rejected =
            back.submit_by(route, &queue, &ids(&[0, 1, 2]), &ids(&[0, 1, 2]), batch).expect_err("refused");
        assert_eq!(rejected.error, CudaError::NotHeld { side: "source", block: 2 });
        let rejected =
            prepared.submit_by(route, &queue, &ids(&[0]), &ids(&[4]), rejected.batch).expect_err("refused");
        assert!(matches!(rejected.error, CudaError::Plan(PlanError::Block { .. })), "{}", rejected.error);
        assert_eq!(
            (held(&rejected.batch), rejected.batch.bytes(), rejected.batch.pieces()),
            (before.clone(), 0, 0)
        );
        batch = rejected.batch;
    }
    // Refused by the driver: the batch is as it was.
    for (route, call) in [(Route::Kernel, "cuLaunchKernel"), (Route::Single, "cuMemcpyDtoHAsync_v2")] {
        double.fail(call, 1, 1);
        let rejected = prepared.submit_by(route, &queue, &ids(&[3]), &ids(&[0]), batch).expect_err("refused");
        assert_eq!(rejected.error.number(), 1);
        assert_eq!(
            (held(&rejected.batch), rejected.batch.bytes(), rejected.batch.pieces()),
            (before.clone(), 0, 0)
        );
        batch = rejected.batch;
    }
    drop((batch, prepared, back, copy, queue, engine, tier, elsewhere, twin, other, device));
    crate::until("the release", || double.left().contexts == 0);
    double.finish();
}

/// The copy engine would carry out the pieces that a batch has already, and a kernel would not.
#[test]
fn batch_with_pieces_is_refused_by_every_route() {
    let (double, device, copy) = copier(CopyOptions::new());
    let config = LayoutConfig::new().num_blocks(4).page_size(16).heads(1, 64).alignment(256);
    let [from, to] = [0, 1]
        .map(|_| Side::device(&device, config, Arrangement::FullyContiguous, 0, false).expect("a layout"));
    let plan = CopyPlan::new(&from.layout, &[], &to.layout, &[], .., ..).expect("alike");
    let prepared = copy.prepare(&plan, from.place(), to.place()).expect("prepared");
    let queue = queue(&device, Purpose::Offload);
    let one = [BlockId(0)];
    let batch = prepared.submit_by(Route::Single, &queue, &one, &one, Batch::new()).expect("queued");
    let mut batch = batch.wait().expect("executed");
    for route in Route::ALL {
        let rejected =
            prepared.submit_by(route, &queue, &[BlockId(1)], &[BlockId(1)], batch).expect_err("refused");
        assert_eq!(rejected.error, CudaError::Pieces { pieces: 1 }, "{route:?}");
        batch = rejected.batch;
    }
    batch.release().for_each(drop);
    drop(
        prepared
            .submit(&queue, &[BlockId(1)], &[BlockId(1)], batch)
            .expect("queued")
            .wait()
            .expect("executed"),
    );
    drop((prepared, copy, queue, from, to, device));
    crate::until("the release", || double.left().contexts == 0);
    double.finish();
}

#[test]
fn refused_upload_of_bases_is_not_a_missing_kernel() {
    let (double, device, copy) = copier(CopyOptions::new());
    let [engine, tier] = engine_and_tier(&device, 4);
    let plan = CopyPlan::new(&engine.layout, &[], &tier.layout, &[], .., ..).expect("alike");
    double.fail("cuMemcpyHtoDAsync_v2", 1, 2);
    let error = copy.prepare(&plan, engine.place(), tier.place()).expect_err("its bases did not go up");
    assert_eq!(error.number(), 2);
    let prepared = copy.prepare(&plan, engine.place(), tier.place()).expect("prepared");
    assert_eq!(prepared.has(Route::Kernel), Ok(()));
    drop((prepared, copy, engine, tier, device));
    crate::until("the release", || double.left().contexts == 0);
    double.finish();
}
