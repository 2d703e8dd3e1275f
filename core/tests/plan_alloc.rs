//! A plan that is made again allocates nothing, nor does walking its pieces: a counting allocator watches.

use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, DType, Layout, LayoutConfig, Region};
use kvstrata_core::plan::CopyPlan;
use kvstrata_testing::counting::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BLOCKS: u32 = 4096;

/// 80 layers of keys and values, a region each, to one region; `even` is whether a stride reaches all layers.
fn layouts(even: bool) -> (Layout, Layout) {
    let config =
        LayoutConfig::new().num_blocks(BLOCKS).num_layers(80).outer_dim(2).page_size(16).heads(2, 128);
    let config = config.dtype(DType::BF16).alignment(2);
    let need = Arrangement::OuterFirst.needs(&config).expect("a valid geometry");
    let at = |i: u64| need.bytes * (2 * i + if even { 0 } else { i % 2 });
    let regions: Vec<Region> = (0..80).map(|i| Region::system((1 << 40) + at(i), need.bytes)).collect();
    let src = Layout::layer_separated(config, Arrangement::OuterFirst, &regions).expect("it fits");
    let dst = Region::system(1 << 44, 80 * need.bytes);
    (src, Layout::fully_contiguous(config, dst).expect("it fits"))
}

/// `count` blocks, no two alike, in an order that `seed` gives.
fn blocks(count: u32, seed: u32) -> Vec<BlockId> {
    // An odd factor permutes the numbers below a power of two.
    (0..count).map(|i| BlockId(i.wrapping_mul(2 * seed + 1).wrapping_add(seed * 77) % BLOCKS)).collect()
}

#[test]
fn plan_made_anew_allocates_nothing() {
    for even in [true, false] {
        let (src, dst) = layouts(even);
        let lists: Vec<_> = (0..40).map(|i| (blocks(1024, 3 * i), blocks(1024, 500 + 7 * i))).collect();
        let ascending = blocks(1024, 0);
        let before = allocations();
        let mut plan = CopyPlan::new(&src, &lists[1].0, &dst, &lists[1].1, .., ..).expect("alike");
        assert!(allocations() > before, "the allocator counts");
        let before = allocations();
        for (from, to) in &lists {
            for (from, to) in [(from, to), (from, &ascending), (&ascending, &ascending)] {
                plan.replan(from, to).expect("blocks of the layouts");
                assert_eq!(plan.blocks(), 1024);
                assert_eq!(plan.pieces().count() as u64, plan.pieces_count());
                assert_eq!(
                    plan.families().map(|family| u64::from(family.count)).sum::<u64>(),
                    plan.pieces_count()
                );
                let mut bytes = 0;
                for piece in plan.pieces() {
                    bytes += piece.bytes;
                }
                assert_eq!(bytes, plan.bytes());
            }
            plan.replan(&from[..7], &to[..7]).expect("fewer");
            plan.replan(from, &[]).expect_err("lists of two lengths");
        }
        assert_eq!(allocations() - before, 0, "even: {even}");
    }
}
