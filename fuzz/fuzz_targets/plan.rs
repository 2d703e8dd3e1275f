//! Any two layouts, blocks and slices: a plan is refused with a reason, or the CPU executor's bytes are
//! the oracle's, the plan's facts about itself are true, and its parts are the whole. Between page
//! sizes, by addresses alone: each byte comes from the oracle's address.
#![no_main]

#[path = "../../ffi/tests/copy_cases/mod.rs"]
mod copy_cases;

use arbitrary::{Arbitrary, Result, Unstructured};
use copy_cases::{Case, Picks};
use kvstrata_core::layout::{Layout, Region};
use kvstrata_core::plan::{CopyPlan, PagePlan, Piece, Slice, naive};
use kvstrata_core::{BlockId, StorageKind};
use kvstrata_ffi::copy::{HostCopy, Path, ScopedThreads};
use libfuzzer_sys::fuzz_target;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

#[derive(Debug)]
struct Input {
    picks: Picks,
    path: Path,
    streams: bool,
    threads: u8,
    blocks: u8,
    layers: u8,
    bytes: u16,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Input> {
        Ok(Input {
            path: *input.choose(&Path::ALL)?,
            streams: input.arbitrary()?,
            threads: input.arbitrary()?,
            blocks: input.arbitrary()?,
            layers: input.arbitrary()?,
            bytes: input.arbitrary()?,
            picks: Picks {
                sizes: input.arbitrary()?,
                dtype: input.arbitrary()?,
                arrangements: input.arbitrary()?,
                alignments: input.arbitrary()?,
                hnd: input.arbitrary()?,
                scales_apart: input.arbitrary()?,
                at_end: input.arbitrary()?,
                shifts: input.arbitrary()?,
                of: input.arbitrary()?,
                all: input.arbitrary()?,
                slices: input.arbitrary()?,
                tame: input.ratio(7, 8)?,
                blocks: input.arbitrary_iter()?.take(8).collect::<Result<_>>()?,
            },
        })
    }
}

fuzz_target!(|input: Input| {
    // The oracle copies byte by byte: it is slow, and slower under the sanitizer.
    let mut picks = input.picks.clone();
    picks.sizes[3] %= 12;
    picks.sizes[5] %= 70;
    let Some(mut case) = Case::new(&picks) else { return };
    pages(&case.src.layout, &case.dst.layout, &input);
    let plan = match case.plan() {
        Ok(plan) => plan,
        Err(refused) => {
            assert!(!picks.tame, "{refused}");
            return assert!(!refused.to_string().is_empty());
        }
    };
    facts(&plan);
    case.src.fill(1);
    case.dst.fill(2);
    let (source, wanted) = (case.src.bytes(), case.oracle());
    let copy = HostCopy::with_path(input.path).unwrap_or_default();
    let copy = copy.share_from_bytes(1).stream_from_bytes(if input.streams { 0 } else { u64::MAX });
    // SAFETY (all): the plan's regions are the case's, and no other code uses them.
    unsafe { copy.execute_on(&plan, &ScopedThreads(usize::from(input.threads % 3))) }.expect("host memory");
    assert!(case.dst.bytes() == wanted, "{copy:?}");
    case.dst.fill(2);
    // SAFETY: as above.
    unsafe { copy.execute_with_checksum(&plan) }.expect("host memory");
    assert!(case.dst.bytes() == wanted, "{copy:?}, with checksum");

    let most = |n: u8| NonZeroU32::MIN.saturating_add(u32::from(n % 5));
    let bytes = NonZeroU64::MIN.saturating_add(u64::from(input.bytes));
    let parts: [Vec<CopyPlan>; 3] = [
        plan.split_blocks(most(input.blocks)).collect(),
        plan.split_layers(most(input.layers)).collect(),
        plan.split_bytes(bytes).collect(),
    ];
    for parts in parts {
        case.dst.fill(2);
        for part in &parts {
            // SAFETY: as above.
            unsafe { copy.execute(part) }.expect("host memory");
        }
        assert!(case.dst.bytes() == wanted, "the parts are the whole");
        assert_eq!(parts.iter().map(CopyPlan::bytes).sum::<u64>(), plan.bytes(), "each byte in one part");
    }
    assert!(case.src.bytes() == source);
});

/// Checks the same geometries with another page size at the destination, and a slice of the tokens of
/// some blocks.
fn pages(src: &Layout, dst: &Layout, input: &Input) {
    let Some(arrangement) = dst.arrangement() else { return };
    let config = dst.config().page_size(1 + u32::from(input.bytes % 37));
    let Ok(need) = arrangement.needs(&config) else { return };
    let step = (need.bytes + 64).next_multiple_of(config.alignment);
    let region = |number: u64| Region {
        kind: StorageKind::Device { ordinal: 0 },
        ..Region::system((1 << 40) + number * step, need.bytes)
    };
    let regions: Vec<Region> = (0..u64::from(need.count)).map(region).collect();
    let dst = Layout::new(config, arrangement, &regions).expect("as it needs");
    let mut to: Vec<BlockId> = Vec::new();
    let mut from: Vec<BlockId> = Vec::new();
    for (at, block) in &input.picks.blocks {
        from.push(BlockId(u32::from(*at) % src.config().num_blocks));
        let block = BlockId(u32::from(*block) % config.num_blocks);
        if !to.contains(&block) {
            to.push(block);
        }
    }
    let of_src = from.len() as u32 * src.config().page_size;
    let of_dst = to.len() as u32 * config.page_size;
    if from.is_empty() {
        return;
    }
    let first = [u32::from(input.blocks) % of_src, u32::from(input.layers) % of_dst];
    let count = 1 + u32::from(input.threads) % (of_src - first[0]).min(of_dst - first[1]);
    let tokens = Slice::Moved { src: first[0], dst: first[1], count };
    let plan = PagePlan::new(src, &from, &dst, &to, tokens.clone(), .., ..).expect("all of it is there");
    let (mut wanted, last) = (BTreeMap::new(), Cell::new(0));
    let read = |at| {
        last.set(at);
        0
    };
    naive::copy_tokens((src, &from), (&dst, &to), tokens, .., .., read, |at, _| {
        assert_eq!(wanted.insert(at, last.get()), None, "written twice");
    });
    let mut moved = BTreeMap::new();
    for piece in plan.pieces() {
        for i in 0..piece.bytes {
            assert_eq!(moved.insert(piece.dst + i, piece.src + i), None, "in two pieces");
        }
    }
    assert!(moved == wanted, "each byte from where the oracle has it");
    assert_eq!(plan.bytes(), wanted.len() as u64);
}

/// Checks a plan's facts about its pieces.
fn facts(plan: &CopyPlan) {
    let pieces: Vec<Piece> = plan.pieces().collect();
    let sizes = || pieces.iter().map(|piece| piece.bytes);
    assert_eq!(plan.pieces_count(), pieces.len() as u64);
    assert_eq!(plan.bytes(), sizes().sum::<u64>());
    assert_eq!(plan.smallest_piece(), sizes().min().unwrap_or(0));
    assert_eq!(plan.largest_piece(), sizes().max().unwrap_or(0));
    assert!(
        pieces.iter().all(|piece| (piece.src | piece.dst | piece.bytes).is_multiple_of(plan.alignment()))
    );
    let mut folded = Vec::with_capacity(pieces.len());
    plan.pieces().for_each(|piece| folded.push(piece));
    assert_eq!(folded, pieces, "by `next` and by `fold`");
    let families = plan.families().map(|family| u64::from(family.count)).sum::<u64>();
    assert_eq!(families, plan.pieces_count());
}
