//! The costs of plans: to make one again, and to walk its pieces.

use crate::copies::scattered;
use crate::work::Work;
use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, DType, Layout, LayoutConfig, Region};
use kvstrata_core::plan::{CopyPlan, Piece};
use std::hint::black_box;

const BLOCKS: u32 = 4096;
const PLANNED: usize = 1024;
/// Lists that take turns, so that no branch predictor learns one of them.
const LISTS: usize = 64;

/// Two layouts at addresses that are never read: a region a layer, and one region.
fn layouts(even: bool) -> (Layout, Layout) {
    let config = LayoutConfig::new().num_blocks(BLOCKS).num_layers(80).outer_dim(2).page_size(64);
    let config = config.heads(2, 128).dtype(DType::BF16).alignment(4096);
    let need = Arrangement::OuterFirst.needs(&config).expect("a valid geometry");
    let at = |i: u64| if even { i * need.bytes } else { (i ^ 1) * need.bytes * 2 + (i & 1) * 4096 };
    let regions: Vec<Region> =
        (0..u64::from(need.count)).map(|i| Region::system((1 << 40) + at(i), need.bytes)).collect();
    let src = Layout::new(config, Arrangement::OuterFirst, &regions).expect("it fits");
    let dst = Region::system(1 << 44, need.bytes * u64::from(need.count));
    (src, Layout::fully_contiguous(config, dst).expect("it fits"))
}

/// Makes a plan again and again, of other blocks each time.
pub struct Plan {
    plan: CopyPlan,
    lists: Vec<(Vec<BlockId>, Vec<BlockId>)>,
    next: usize,
}

impl Plan {
    /// Returns plans from blocks in no order to blocks in no order, and from and to ascending ones, with
    /// and without gaps.
    pub fn all() -> Vec<(&'static str, Plan)> {
        let random: Vec<Vec<BlockId>> = (0..2 * LISTS)
            .map(|list| {
                // Another 1,024 of 4,096 each: a stretch of the shuffle that starts elsewhere.
                let mut all = scattered(BLOCKS);
                all.rotate_left(list * 61 % BLOCKS as usize);
                all.truncate(PLANNED);
                all
            })
            .collect();
        let sorted = |list: &Vec<BlockId>| {
            let mut list = list.clone();
            list.sort_unstable_by_key(|block| block.0);
            list
        };
        let straight: Vec<BlockId> = (0..PLANNED as u32).map(BlockId).collect();
        let plan = |lists: Vec<(Vec<BlockId>, Vec<BlockId>)>| {
            let (src, dst) = layouts(true);
            let plan =
                CopyPlan::new(&src, &lists[0].0, &dst, &lists[0].1, .., ..).expect("the sides are alike");
            Plan { plan, lists, next: 0 }
        };
        let pairs = || random.chunks_exact(2);
        vec![
            ("random to random", plan(pairs().map(|pair| (pair[0].clone(), pair[1].clone())).collect())),
            ("random to ascending", plan(pairs().map(|pair| (pair[0].clone(), straight.clone())).collect())),
            (
                "ascending with gaps, both",
                plan(pairs().map(|pair| (sorted(&pair[0]), sorted(&pair[1]))).collect()),
            ),
            ("ascending, both", plan(vec![(straight.clone(), straight.clone())])),
        ]
    }
}

impl Work for Plan {
    fn items(&self) -> u64 {
        PLANNED as u64
    }

    #[inline]
    fn run(&mut self) {
        let (src, dst) = &self.lists[self.next];
        self.next = (self.next + 1) % self.lists.len();
        self.plan.replan(black_box(src), black_box(dst)).expect("blocks of the layouts");
        black_box(self.plan.pieces_count());
    }
}

/// The way in which pieces are visited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visit {
    /// By a `for` loop.
    Next,
    /// By `for_each`.
    ForEach,
}

/// Walks all pieces of a plan in no order.
pub struct Iterate {
    plan: CopyPlan,
    visit: Visit,
}

impl Iterate {
    /// Walks layers that a stride reaches, or layers that lie anywhere.
    pub fn new(even: bool, visit: Visit) -> Iterate {
        let (src, dst) = layouts(even);
        let (from, mut to) = (scattered(BLOCKS), scattered(BLOCKS));
        to.reverse();
        let plan = CopyPlan::new(&src, &from[..PLANNED], &dst, &to[..PLANNED], .., ..);
        Iterate { plan: plan.expect("the sides are alike"), visit }
    }
}

impl Work for Iterate {
    fn items(&self) -> u64 {
        self.plan.pieces_count()
    }

    #[inline]
    fn run(&mut self) {
        let mut sum = 0u64;
        let mut add = |piece: Piece| sum = sum.wrapping_add(piece.src ^ piece.dst);
        match self.visit {
            Visit::Next => {
                for piece in black_box(&self.plan).pieces() {
                    add(piece);
                }
            }
            Visit::ForEach => black_box(&self.plan).pieces().for_each(add),
        }
        black_box(sum);
    }
}
