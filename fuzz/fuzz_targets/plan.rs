//! Any two layouts, blocks and slices: a plan is refused and says why, or the CPU executor's bytes are the oracle's, what the plan says
//! of itself is true, and its parts are the whole.
#![no_main]

#[path = "../../ffi/tests/copy_cases/mod.rs"]
mod copy_cases;

use arbitrary::{Arbitrary, Result, Unstructured};
use copy_cases::{Case, Picks};
use kvstrata_core::plan::{CopyPlan, Piece};
use kvstrata_ffi::copy::{HostCopy, Path, ScopedThreads};
use libfuzzer_sys::fuzz_target;
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
    // Byte by byte the oracle is slow, and slower under the sanitizer.
    let mut picks = input.picks.clone();
    picks.sizes[3] %= 12;
    picks.sizes[5] %= 70;
    let Some(mut case) = Case::new(&picks) else { return };
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
    // SAFETY (all): the plan's regions are the case's, which nobody else uses.
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

/// What a plan says of its pieces.
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
