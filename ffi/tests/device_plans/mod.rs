//! Copy plans on any device: on a real one (`cuda_device.rs`), and on the double, so that the tests
//! themselves are verified without a GPU (`cuda/on_device.rs`). Memory is copied up and down, by the
//! public API alone.

pub mod memory;

use crate::copy_cases::Case;
use crate::numbers::{nearest, value};
use crate::random::picks;
use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, DType, LayoutConfig};
use kvstrata_core::plan::{CopyPlan, Slice, naive};
use kvstrata_core::storage::Storage;
use kvstrata_ffi::cuda::{Batch, Held, Route};
use kvstrata_kernels::{CHUNK_BYTES, Conversion};
use memory::{DEADLINE, End, Ground, Side, arena};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use twox_hash::XxHash3_64;

/// Returns a destination's image after the oracle has copied.
fn oracle(src: &Side, dst: &Side, [from, to]: [&[BlockId]; 2], [layers, heads]: [Slice; 2]) -> Vec<Vec<u8>> {
    let mut after: Vec<Vec<u8>> = dst.image.iter().map(|(_, bytes)| bytes.clone()).collect();
    let read = |address| {
        let (stretch, at) = src.find(address);
        src.image[stretch].1[at]
    };
    naive::copy((&src.layout, from), (&dst.layout, to), layers, heads, read, |address, byte| {
        let (stretch, at) = dst.find(address);
        after[stretch][at] = byte;
    });
    after
}

/// Any plan, between any two places, by every route: the oracle's bytes, and no other byte changes.
pub fn random_plans(ground: &Ground, cases: u32) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let ends = prop_oneof![
        3 => Just([End::Device, End::Device]),
        1 => Just([End::Device, End::Host]),
        1 => Just([End::Host, End::Device]),
    ];
    let ran = TestRunner::new(config).run(&(picks(), ends), |(picks, ends)| {
        let Some(case) = Case::new(&picks) else { return Err(TestCaseError::reject("no such layout")) };
        let (blocks, [layers, heads]) = case.selection();
        let [mut src, mut dst] = [ground.like(&case.src, ends[0]), ground.like(&case.dst, ends[1])];
        let plan =
            CopyPlan::new(&src.layout, blocks[0], &dst.layout, blocks[1], layers.clone(), heads.clone())
                .expect("as the case's own");
        let prepared = ground.copy.prepare(&plan, src.place(), dst.place()).expect("inside its places");
        prepared.has(Route::Kernel).expect("a kernel");
        src.fill(1);
        dst.fill(2);
        let wanted = oracle(&src, &dst, blocks, [layers, heads]);
        ground.up(&src);
        for route in Route::ALL.into_iter().filter(|route| prepared.has(*route).is_ok()) {
            ground.up(&dst);
            let mut batch = Batch::new();
            // A block may be the source of several.
            let mut read = blocks[0].to_vec();
            read.sort_unstable_by_key(|block| block.0);
            read.dedup();
            src.guard(&read, false, &mut batch);
            dst.guard(blocks[1], true, &mut batch);
            let transfer = prepared.submit_by(route, &ground.queue, blocks[0], blocks[1], batch);
            drop(transfer.expect("queued").wait_for(DEADLINE).expect("executed"));
            prop_assert!(ground.down(&dst) == wanted, "{:?}, {:?}: {:?}", route, ends, picks);
        }
        let before: Vec<&[u8]> = src.image.iter().map(|(_, bytes)| &bytes[..]).collect();
        prop_assert!(ground.down(&src) == before, "the source is as it was");
        Ok(())
    });
    ran.unwrap_or_else(|failed| panic!("{failed}"));
}

/// Copies an engine's tensors to a tier's blocks, summed on the way as the disk tier sums them.
pub fn sums(ground: &Ground) {
    let config = LayoutConfig::new().num_blocks(5).num_layers(3).outer_dim(2).page_size(16);
    let config = config.heads(4, 128).dtype(DType::BF16).alignment(256);
    let mut engine = ground.on_device(config, Arrangement::OuterFirst, &[0, 512, 2048]);
    engine.fill(3);
    ground.up(&engine);
    let (from, to) = ([BlockId(4), BlockId(0), BlockId(1)], [BlockId(2), BlockId(3), BlockId(0)]);
    for end in [End::Host, End::Device] {
        let tier = match end {
            End::Host => ground.on_host(config),
            End::Device => ground.on_device(config, Arrangement::FullyContiguous, &[256]),
        };
        let plan = CopyPlan::new(&engine.layout, &[], &tier.layout, &[], .., ..).expect("alike");
        let summed = ground.copy.prepare_summed(&plan, engine.place(), tier.place()).expect("in one piece");
        let wanted = oracle(&engine, &tier, [&from, &to], [Slice::All, Slice::All]);
        ground.up(&tier);
        let room = arena(&ground.device, 1, 3 * summed.sums_bytes() as usize);
        let mut batch = Batch::new();
        let region = batch.write(room.arena().write(0).expect("free"), &room).expect("registered");
        tier.guard(&to, true, &mut batch);
        let mut batch = ground
            .run(batch, |queue, batch| summed.submit(queue, &from, &to, batch, (region, 0)).expect("queued"));
        let Some(Held::Write(found, _)) = batch.release().next() else { panic!("the sums") };
        assert!(ground.down(&tier) == wanted, "{end:?}");
        let of_block = |block: u32| {
            let first = tier.layout.address([block, 0, 0, 0, 0]).expect("a block");
            let (stretch, at) = tier.find(first);
            let block = &wanted[stretch][at..at + plan.block_bytes() as usize];
            let chunks = (0..).zip(block.chunks(CHUNK_BYTES as usize));
            chunks.map(|(seed, chunk)| XxHash3_64::oneshot_with_seed(seed, chunk)).collect::<Vec<u64>>()
        };
        let found: Vec<u64> =
            found.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight"))).collect();
        assert!(found.len() > 3, "blocks of several chunks");
        assert_eq!(found, [0, 2, 3].map(of_block).concat(), "{end:?}, by ascending block of the destination");
    }
}

/// Converts every number of one or two bytes, and many of four, as one row: the result is the nearest
/// number, or NaN if there is none.
pub fn conversions(ground: &Ground) {
    for conversion in Conversion::ALL {
        let [from, to] = conversion.types();
        for scale in if from == DType::F32 || to == DType::F32 { &[1.0_f32][..] } else { &[1.0, 0.25, 4.0] } {
            let elements: Vec<u32> = match from {
                DType::F8E4M3 => (0..=0xff).collect(),
                DType::F32 => (0..60_000_u32).map(|at| at.wrapping_mul(0x9e37_79b9)).collect(),
                _ => (0..=0xffff).collect(),
            };
            let row = |dtype: DType| {
                let config = LayoutConfig::new().heads(1, elements.len() as u32).dtype(dtype).alignment(16);
                ground.on_device(config, Arrangement::FullyContiguous, &[0])
            };
            let (mut src, dst) = (row(from), row(to));
            let bytes = |of: DType| of.bits() as usize / 8;
            for (to, bits) in src.image[0].1.chunks_mut(bytes(from)).zip(&elements) {
                to.copy_from_slice(&bits.to_le_bytes()[..to.len()]);
            }
            ground.up(&src);
            ground.up(&dst);
            let layouts = [&src.layout, &dst.layout];
            let copy = ground.copy.prepare_converting(layouts, (.., ..), *scale, src.place(), dst.place());
            let copy = copy.expect("prepared");
            let only = [BlockId(0)];
            let transfer = copy.submit(&ground.queue, &only, &only, Batch::new());
            drop(transfer.expect("queued").wait_for(DEADLINE).expect("executed"));
            let found = &ground.down(&dst)[0];
            for (bits, found) in elements.iter().zip(found.chunks(bytes(to))) {
                let found = found.iter().rev().fold(0, |bits, byte| bits << 8 | u32::from(*byte));
                // Powers of two: exact.
                let number = value(from, *bits)
                    * f64::from(if bytes(to) < bytes(from) { 1.0 / *scale } else { *scale });
                let wanted = if to == DType::F32 { Some(bits << 16) } else { nearest(to, number) };
                match wanted.filter(|_| !number.is_nan()) {
                    Some(wanted) => assert_eq!(found, wanted, "{conversion:?} of {bits:#x}, scale {scale}"),
                    None => assert!(value(to, found).is_nan(), "{conversion:?} of {bits:#x}, not a number"),
                }
            }
        }
    }
}

/// Copies pieces of one byte out of `blocks` blocks of `tokens` each; the device must have room for them.
/// Thousands of both make nearly as many units of work per launch as kernels count, and offsets above
/// 4 GiB. The bytes of some blocks are compared.
pub fn large(ground: &Ground, blocks: u32, tokens: u32) {
    // The first of two heads: its bytes are two apart in the source, and one apart in the target.
    let config = LayoutConfig::new().num_blocks(blocks).num_layers(128).outer_dim(2).page_size(tokens);
    let lay = |heads: u32| {
        let config = config.heads(heads, 1).dtype(DType::U8).alignment(1);
        let bytes = Arrangement::FullyContiguous.needs(&config).expect("a layout").bytes;
        let memory = ground.memory(bytes);
        let region = kvstrata_core::layout::Region::of(&*memory);
        (kvstrata_core::layout::Layout::fully_contiguous(config, region).expect("as it needs"), memory)
    };
    let ((src, source), (dst, target)) = (lay(2), lay(1));
    let one = Slice::Moved { src: 1, dst: 0, count: 1 };
    let numbers: Vec<BlockId> = (0..blocks).map(BlockId).collect();
    let backwards: Vec<BlockId> = (0..blocks).rev().map(BlockId).collect();
    let plan = CopyPlan::new(&src, &numbers, &dst, &backwards, .., one).expect("alike");
    assert_eq!(plan.pieces_count(), u64::from(blocks) * 256 * u64::from(tokens), "of one byte each");
    let place = |of: &std::sync::Arc<kvstrata_ffi::cuda::DeviceStorage>| {
        kvstrata_ffi::cuda::Place::Device(vec![of.range(0, of.size_bytes()).expect("all")])
    };
    let copy = ground.copy.prepare(&plan, place(&source), place(&target)).expect("inside its places");
    // Compared blocks of the source: the first, the last, and those at and around 4 GiB and the end of a
    // full launch.
    let block_bytes = 2 * 256 * u64::from(tokens);
    let at_4_gib = ((4_u64 << 30) / block_bytes) as u32;
    let launch_ends = (((1_u64 << 31) - (1 << 28)) / (block_bytes / 2)) as u32;
    let mut looked_at: Vec<u32> = [
        0,
        1,
        at_4_gib.saturating_sub(1),
        at_4_gib,
        at_4_gib + 1,
        launch_ends.saturating_sub(1),
        launch_ends,
        blocks - 2,
        blocks - 1,
    ]
    .into_iter()
    .filter(|block| *block < blocks)
    .collect();
    looked_at.sort_unstable();
    looked_at.dedup();
    // Bytes that identify their block.
    let bytes_of = |block: u32| -> Vec<u8> {
        let mixed =
            |at: u64| (at ^ u64::from(block) << 40).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        (0..block_bytes).map(|at| mixed(at) as u8).collect()
    };
    for block in &looked_at {
        ground.put(&source, u64::from(*block) * block_bytes, &bytes_of(*block));
    }
    let transfer = copy.submit_by(Route::Kernel, &ground.queue, &numbers, &backwards, Batch::new());
    drop(transfer.expect("queued").wait_for(DEADLINE).expect("executed"));
    for block in looked_at {
        let wanted: Vec<u8> = bytes_of(block).chunks(2).map(|heads| heads[1]).collect();
        let at = u64::from(blocks - 1 - block) * block_bytes / 2;
        assert!(ground.get(&target, at, wanted.len()) == wanted, "block {block} of {blocks}");
    }
}
