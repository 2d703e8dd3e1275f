//! Sums and conversions on the way; the place of bases.

use super::{Memory, Side, copier, engine_and_tier, oracle, poke, split, submit};
use crate::{pinned, queue};
use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, DType, Layout, LayoutConfig, Region};
use kvstrata_core::plan::{CopyPlan, Slice};
use kvstrata_core::storage::Storage;
use kvstrata_ffi::cuda::{Batch, CopyOptions, CudaError, Held, Place, Purpose, Route};
use twox_hash::XxHash3_64;

#[test]
fn blocks_are_summed_on_their_way_up_and_down() {
    let (double, device, copy) = copier(CopyOptions::new());
    let config = LayoutConfig::new().num_blocks(5).num_layers(3).outer_dim(2).page_size(16);
    let config = config.heads(4, 128).dtype(DType::BF16).alignment(2);
    let engine = Side::device(&device, config, Arrangement::BlockFirst, 16, false).expect("a layout");
    let tier = Side::host(&device, config);
    let plan = CopyPlan::new(&engine.layout, &[], &tier.layout, &[], .., ..).expect("alike");
    let summed = copy.prepare_summed(&plan, engine.place(), tier.place()).expect("blocks in one piece");
    let block_bytes = 3 * 2 * 16 * 4 * 128 * 2;
    assert_eq!(summed.sums_bytes(), u64::div_ceil(block_bytes, 65_536) * 8);
    let queue = queue(&device, Purpose::Offload);
    engine.fill(3);
    let blocks = [(4, 2), (0, 3), (1, 0)];
    let wanted = oracle(&engine, &tier, &blocks, [Slice::All, Slice::All]);
    let sums = pinned(&device, 1, 4096);
    let mut batch = Batch::new();
    let region = batch.write(sums.arena().write(0).expect("free"), &sums).expect("registered");
    let [from, to] = split(&blocks);
    tier.guard(&to, true, &mut batch);
    for (at, what) in [(4, "no multiple of 8"), (4096 - 8, "no room")] {
        let rejected = summed.submit(&queue, &from, &to, batch, (region, at)).expect_err(what);
        assert!(matches!(rejected.error, CudaError::OutOfRange { .. }), "{}", rejected.error);
        batch = rejected.batch;
    }
    let mut batch =
        summed.submit(&queue, &from, &to, batch, (region, 64)).expect("queued").wait().expect("executed");
    let Some(Held::Write(found, _)) = batch.release().next() else { panic!("the sums") };
    assert!(tier.bytes() == wanted);
    let of_block = |block: usize| {
        let chunks = (0..).zip(wanted[block].1.chunks(65_536));
        chunks.map(|(seed, chunk)| XxHash3_64::oneshot_with_seed(seed, chunk)).collect::<Vec<u64>>()
    };
    let found: Vec<u64> =
        found[64..].chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight"))).collect();
    assert_eq!(found[..6], [0, 2, 3].map(of_block).concat(), "by ascending block of the destination");
    assert_eq!(found[6..], vec![0; found.len() - 6]);
    // A part of a block has no seal, and sums cannot go where blocks are.
    let part = CopyPlan::new(&engine.layout, &[], &tier.layout, &[], 1..2, ..).expect("alike");
    let refused = copy.prepare_summed(&part, engine.place(), tier.place()).expect_err("a part");
    assert!(refused.to_string().contains("a seal covers a whole block"), "{refused}");
    let mut batch = Batch::new();
    tier.guard(&to, true, &mut batch);
    let Memory::Host(arena) = &tier.memory else { unreachable!("a host's") };
    let other = batch.write(arena.arena().write(4).expect("free"), arena).expect("registered");
    let Memory::Device(tensors) = &engine.memory else { unreachable!("a device's") };
    let tensor = batch.device(tensors[0].range(0, 4096).expect("in range"));
    let own = batch.write(arena.arena().write(1).expect("free"), arena).expect("registered");
    let with_own = [to.clone(), vec![BlockId(1)]].concat();
    let with_one = [from.clone(), vec![BlockId(0)]].concat();
    for (region, what) in [(tensor, "a tensor"), (own, "a block of the plan")] {
        let rejected = summed.submit(&queue, &with_one, &with_own, batch, (region, 0)).expect_err(what);
        assert!(matches!(rejected.error, CudaError::NoRoute { .. }), "{what}: {}", rejected.error);
        batch = rejected.batch;
    }
    drop(summed.submit(&queue, &from, &to, batch, (other, 0)).expect("queued").wait().expect("executed"));
    // Scattered, a block is not in one piece.
    let back = CopyPlan::new(&tier.layout, &[], &engine.layout, &[], .., ..).expect("alike");
    let refused = copy.prepare_summed(&back, tier.place(), engine.place()).expect_err("scattered");
    assert!(refused.to_string().contains("not in one piece"), "{refused}");
    drop((summed, copy, queue, engine, tier, sums, device));
    crate::until("the release", || double.left().contexts == 0);
    double.finish();
}

#[test]
fn elements_are_converted_on_their_way_to_a_smaller_tier() {
    let (double, device, copy) = copier(CopyOptions::new());
    let config = LayoutConfig::new().num_blocks(3).num_layers(2).outer_dim(2).page_size(4).heads(2, 24);
    let wide = config.dtype(DType::F32).alignment(4);
    let engine = Side::device(&device, wide, Arrangement::OuterFirst, 0, false).expect("a layout");
    let tier = Side::host(&device, config.dtype(DType::BF16));
    let layouts = [&engine.layout, &tier.layout];
    let down =
        copy.prepare_converting(layouts, (.., ..), 1.0, engine.place(), tier.place()).expect("prepared");
    let back = [layouts[1], layouts[0]];
    let up = copy.prepare_converting(back, (.., ..), 1.0, tier.place(), engine.place()).expect("prepared");
    for route in [Route::Single, Route::Batch, Route::Rows] {
        assert!(matches!(down.has(route), Err(CudaError::NoRoute { .. })), "{route:?} converts nothing");
    }
    // Values that bfloat16 represents exactly come back unchanged.
    let Memory::Device(tensors) = &engine.memory else { unreachable!("a device's") };
    for (layer, of) in tensors.iter().enumerate() {
        let floats = (0..of.size_bytes() / 4).map(|at| (at % 251) as f32 - 17.0 * layer as f32);
        poke(of.base_address(), &floats.flat_map(f32::to_le_bytes).collect::<Vec<u8>>());
    }
    let before = engine.bytes();
    let queue = queue(&device, Purpose::Offload);
    let blocks = [(0, 1), (1, 2), (2, 0)];
    let batch = submit(&down, None, &queue, [&engine, &tier], &blocks, Batch::new());
    let halves = tier.bytes();
    engine.fill(9);
    let returned = blocks.map(|(engine, tier)| (tier, engine));
    drop(submit(&up, None, &queue, [&tier, &engine], &returned, batch));
    assert!(engine.bytes() == before);
    assert!(halves.iter().all(|(_, block)| block.chunks(2).any(|half| half != [0, 0])));
    // The bounds are those of the narrow side's own addresses.
    let small = crate::pinned(&device, 3, 64);
    let error = copy.prepare_converting(layouts, (.., ..), 1.0, engine.place(), Place::Host(small));
    assert!(matches!(error, Err(CudaError::Outside { side: "destination", .. })), "{error:?}");
    // A region that claims more bytes than there is memory.
    let huge = Region { size_bytes: 1 << 63, ..tier.layout.regions()[0] };
    let huge = Layout::fully_contiguous(*tier.layout.config(), huge).expect("as it says");
    let error = copy.prepare_converting([layouts[0], &huge], (.., ..), 1.0, engine.place(), tier.place());
    assert!(error.expect_err("refused").to_string().contains("too high to be doubled"));
    // Within one memory, a plan of stand-ins could not detect overlaps.
    let narrow = Layout::new(
        config.dtype(DType::BF16).alignment(4).num_blocks(1),
        Arrangement::OuterFirst,
        engine.layout.regions(),
    );
    let narrow = narrow.expect("smaller");
    let error =
        copy.prepare_converting([&engine.layout, &narrow], (.., ..), 1.0, engine.place(), engine.place());
    assert!(matches!(error, Err(CudaError::NoRoute { .. })), "{error:?}");
    drop((down, up, copy, queue, engine, tier, device));
    crate::until("the release", || double.left().contexts == 0);
    double.finish();
}

#[test]
fn bases_find_their_places_again_and_a_full_table_says_so() {
    let (double, device, copy) = copier(CopyOptions::new());
    let [engine, tier] = engine_and_tier(&device, 2);
    let plan = CopyPlan::new(&engine.layout, &[], &tier.layout, &[], .., ..).expect("alike");
    let prepare = || copy.prepare(&plan, engine.place(), tier.place()).expect("prepared");
    // Three pairs of addresses: one grain each.
    let mut many: Vec<_> = (0..2048).map(|_| prepare()).collect();
    let last = prepare();
    assert!(matches!(last.has(Route::Kernel), Err(CudaError::Full { .. })), "{:?}", last.has(Route::Kernel));
    assert_eq!(last.has(Route::Single), Ok(()));
    many.swap_remove(700);
    let again = prepare();
    assert_eq!(again.has(Route::Kernel), Ok(()));
    // More bases than one upload.
    let config = LayoutConfig::new().num_blocks(2).num_layers(300).heads(1, 32);
    let deep = Side::device(&device, config, Arrangement::OuterFirst, 0, true).expect("a layout");
    let flat = Side::host(&device, config);
    let of_deep = CopyPlan::new(&deep.layout, &[], &flat.layout, &[], .., ..).expect("alike");
    many.truncate(many.len() - 50);
    let of_deep = copy.prepare(&of_deep, deep.place(), flat.place()).expect("prepared");
    let queue = queue(&device, Purpose::Offload);
    deep.fill(1);
    let wanted = oracle(&deep, &flat, &[(1, 0)], [Slice::All, Slice::All]);
    drop(submit(&of_deep, Some(Route::Kernel), &queue, [&deep, &flat], &[(1, 0)], Batch::new()));
    assert!(flat.bytes() == wanted);
    engine.fill(5);
    let wanted = oracle(&engine, &tier, &[(0, 1)], [Slice::All, Slice::All]);
    drop(submit(&again, Some(Route::Kernel), &queue, [&engine, &tier], &[(0, 1)], Batch::new()));
    assert!(tier.bytes() == wanted);
    drop((many, last, again, of_deep, copy, queue, engine, tier, deep, flat, device));
    crate::until("the release", || double.left().contexts == 0);
    double.finish();
}
