//! The kernels, compiled for the CPU and launched as on a device, match the oracle byte by byte; no other
//! byte changes.
#![cfg(all(unix, not(miri)))]

#[path = "../../ffi/tests/copy_cases/mod.rs"]
mod copy_cases;
#[path = "../../ffi/tests/copy_cases/random.rs"]
mod random;

use copy_cases::{Case, Picks};
use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, DType, Dim, HeadOrder, Layout, LayoutConfig, Region};
use kvstrata_core::plan::{CopyPlan, Run, naive};
use kvstrata_kernels::{CHUNK_BYTES, CannotSum, CopyKernel, Image, Parameters, SumKernel, cpu};
use proptest::prelude::*;
use random::picks;
use twox_hash::XxHash3_64;

/// The pairs of addresses, placed for a kernel.
struct Bases(Vec<u128>);

impl Bases {
    fn new(bytes: &[u8]) -> Bases {
        Bases(bytes.chunks(16).map(|pair| u128::from_ne_bytes(pair.try_into().expect("pairs"))).collect())
    }

    fn address(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }
}

/// Executes a plan whose regions are the caller's own. Returns the launched kernels.
fn execute(plan: &CopyPlan, most_ctas: u32) -> Vec<String> {
    let kernel = CopyKernel::new(plan).expect("a small block");
    let bases = Bases::new(kernel.bases());
    let address = bases.address();
    let mut names = Vec::new();
    let launched = kernel.launches(plan.runs(), address, most_ctas, &mut Parameters::default(), |launch| {
        names.push(launch.kernel.to_str().expect("ASCII").to_owned());
        assert!(launch.grid <= most_ctas.max(1), "no more than it may have");
        // SAFETY: the plan's regions are the case's, which has no other user; the bases are above.
        if unsafe { cpu::launch(&launch) } { Ok(()) } else { Err(launch.kernel) }
    });
    assert_eq!(launched, Ok(()), "a kernel of that name, for such parameters");
    names
}

fn check(case: &mut Case, most_ctas: u32) -> Result<Vec<String>, TestCaseError> {
    let plan = case.plan().expect("a tame case");
    case.src.fill(1);
    case.dst.fill(2);
    let (source, wanted) = (case.src.bytes(), case.oracle());
    let names = execute(&plan, most_ctas);
    prop_assert!(case.dst.bytes() == wanted, "{:?}", names);
    prop_assert!(case.src.bytes() == source, "the source is as it was");
    Ok(names)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_are_the_oracles(picks in picks(), most_ctas in 1_u32..40) {
        let Some(mut case) = Case::new(&picks) else { return Err(TestCaseError::reject("no such layout")) };
        check(&mut case, most_ctas)?;
    }
}

/// Returns the seal's sums of a payload, chunk by chunk.
fn sums(payload: &[u8]) -> Vec<u64> {
    let chunks = (0..).zip(payload.chunks(CHUNK_BYTES as usize));
    chunks.map(|(seed, chunk)| XxHash3_64::oneshot_with_seed(seed, chunk)).collect()
}

fn launch_sums(kernel: &SumKernel, runs: &[Run], most_ctas: u32) -> Vec<u64> {
    let blocks: u32 = runs.iter().map(|run| run.len).sum();
    let sums = vec![0_u64; (kernel.chunks() * blocks) as usize];
    let bases = Bases::new(kernel.bases());
    let to = sums.as_ptr().expose_provenance() as u64;
    let parameters = &mut Parameters::default();
    let launched = kernel.launches(runs, bases.address(), to, most_ctas, parameters, |launch| {
        // SAFETY: the caller's blocks, which have no other user; the bases, and room for the sums, are above.
        if unsafe { cpu::launch(&launch) } { Ok(()) } else { Err(launch.kernel) }
    });
    assert_eq!(launched, Ok(()));
    sums
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn payload_is_summed_as_the_disk_tier_does(vectors in 16_usize..13_000, seed in any::<u8>(), most_ctas in 1_u32..9) {
        let payload: Vec<u128> = (0..vectors as u128).map(|at| (at + u128::from(seed)).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060)).collect();
        let bytes: Vec<u8> = payload.iter().flat_map(|vector| vector.to_ne_bytes()).collect();
        let address = payload.as_ptr().expose_provenance() as u64;
        match SumKernel::of_payload(address, bytes.len() as u64) {
            Ok(kernel) => prop_assert_eq!(launch_sums(&kernel, &SumKernel::PAYLOAD, most_ctas), sums(&bytes)),
            Err(refused) => prop_assert_eq!(refused, CannotSum::Short(bytes.len() as u64 % CHUNK_BYTES)),
        }
    }
}

/// Copies an engine's tensors to a tier's blocks: every block's bytes are the oracle's, and so are its sums.
#[test]
fn blocks_are_summed_while_they_are_gathered() {
    let tested = [[1, 2, 1, 31, 3, 127], [4, 0, 0, 15, 1, 63], [2, 1, 1, 31, 3, 127]].map(|sizes| {
        let arrangement = |arrangement| {
            Arrangement::ALL.iter().position(|of| *of == arrangement).expect("one of all") as u8
        };
        let picks = Picks {
            sizes,
            dtype: 2,
            arrangements: [arrangement(Arrangement::OuterFirst), arrangement(Arrangement::FullyContiguous)],
            alignments: [3, 3],
            hnd: [false, false],
            scales_apart: [false, false],
            at_end: [true, true],
            shifts: [0, 0],
            of: sizes[0],
            blocks: vec![(1, 0), (0, 1), (3, 2)],
            all: [true, true],
            slices: [[0; 3]; 2],
            tame: true,
        };
        let mut case = Case::new(&picks).expect("a layout");
        let plan = case.plan().expect("alike");
        case.src.fill(1);
        case.dst.fill(2);
        let wanted = case.oracle();
        let kernel = SumKernel::new(&plan).expect("blocks in one piece");
        let found = launch_sums(&kernel, plan.runs(), 5);
        assert!(case.dst.bytes() == wanted);
        let memory = &case.dst.memory[0];
        let of_blocks = plan.runs().iter().flat_map(|run| run.dst..run.dst + run.len).flat_map(|block| {
            let start = memory.place(case.dst.layout.regions()[0].address).expect("its own");
            let stride = case.dst.layout.stride(Dim::Block).expect("a stride") as usize;
            sums(&memory.all()[start + block as usize * stride..][..plan.block_bytes() as usize])
        });
        assert_eq!(found, of_blocks.collect::<Vec<_>>());
        found.len()
    });
    assert!(tested.iter().any(|sums| *sums > 3), "blocks of several chunks: {tested:?}");
}

/// If a block has very many short pieces, a launch takes fewer blocks than it has room for.
#[test]
fn dividends_of_a_launch_stay_below_the_bound() {
    let config =
        LayoutConfig::new().num_layers(80).outer_dim(2).page_size(32).heads(128, 8).dtype(DType::BF16);
    let config = config.alignment(16).num_blocks(4000);
    let block_bytes = 80 * 2 * 32 * 128 * 16;
    // Only addresses: nothing is launched.
    let region = |at| Region::system(at, 4000 * block_bytes);
    let src = Layout::fully_contiguous(config.head_order(HeadOrder::Hnd), region(1 << 40)).expect("a layout");
    let dst = Layout::fully_contiguous(config, region(1 << 44)).expect("a layout");
    let blocks: Vec<_> = (0..4000).map(BlockId).collect();
    let plan = CopyPlan::new(&src, &blocks, &dst, &blocks, .., ..).expect("alike");
    let pieces_a_block = block_bytes / 16;
    let (mut launches, mut summed) = (0, 0);
    let kernel = SumKernel::new(&plan).expect("in one piece");
    let launched = kernel.launches(plan.runs(), 0, 0, 100, &mut Parameters::default(), |launch| {
        // The walk's `units`.
        let units = u32::from_ne_bytes(launch.parameters[196..200].try_into().expect("four"));
        let of_launch = u64::from(units / kernel.chunks());
        assert!(of_launch * pieces_a_block < 1 << 31, "{of_launch} blocks");
        (launches, summed) = (launches + 1, summed + of_launch);
        Ok::<(), ()>(())
    });
    assert_eq!((launched, launches, summed), (Ok(()), 2, 4000));
    assert!(SumKernel::of_payload(0, 16 << 31).is_err(), "more vectors than a kernel divides");
}

/// A driver finds each kernel under the name that it has in the sources.
#[test]
fn every_kernel_has_its_name() {
    let images = ["convert", "copy", "permute", "sum"].map(|name| Image { name, bytes: &[] });
    let asked: std::collections::BTreeSet<_> = images.iter().flat_map(Image::kernels).collect();
    assert_eq!(asked, cpu::kernels().map(|kernel| kernel.name).collect());
}

/// Each plan launches its kernel, for lists of any length; and its bytes are right.
#[test]
fn each_plan_has_its_kernel() {
    // Heads, elements of two bytes, tokens, blocks; the destination's order of heads; the expected launches.
    let small = "a list of a few blocks";
    let table = [
        (small, [8, 64, 16, 9], false, vec!["copy16_tiled_small"]),
        (small, [1, 64, 8, 9], false, vec!["copy16_strewn_small"]),
        (small, [8, 64, 16, 9], true, vec!["permute16_small"]),
        (small, [3, 66, 5, 9], true, vec!["permute4_small"]),
        (small, [3, 33, 5, 9], true, vec!["permute2_small"]),
        (small, [3, 33, 5, 9], false, vec!["copy2_tiled_small"]),
        // Rows of 1 KiB are whole transactions already.
        (small, [2, 512, 3, 9], true, vec!["copy16_strewn_small"]),
        ("as many as 4 KiB of parameters have", [1, 8, 1, 485], false, vec!["copy16_strewn_small"]),
        ("one more", [1, 8, 1, 486], false, vec!["copy16_strewn_large"]),
        ("as many as 32 KiB have", [1, 8, 1, 4068], false, vec!["copy16_strewn_large"]),
        ("two launches", [1, 8, 1, 4069], false, vec!["copy16_strewn_large"; 2]),
        ("two launches of tiles", [2, 1, 2, 4061], true, vec!["permute2_large"; 2]),
    ];
    for (what, [heads, elements, tokens, blocks], hnd, wanted) in table {
        let config = LayoutConfig::new().num_layers(2).outer_dim(1).page_size(tokens).heads(heads, elements);
        let config = config.dtype(DType::BF16).alignment(2).num_blocks(blocks);
        let block_bytes = (2 * tokens * heads * elements * 2) as usize;
        let [src, dst] = [0, 1].map(|side| {
            let memory: Vec<u128> =
                (0..(block_bytes * blocks as usize).div_ceil(16) as u128)
                    .map(|at| {
                        if side == 0 { at.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) } else { 0 }
                    })
                    .collect();
            let region = Region::system(
                memory.as_ptr().expose_provenance() as u64,
                (block_bytes * blocks as usize) as u64,
            );
            let order = if side == 1 && hnd { HeadOrder::Hnd } else { HeadOrder::Nhd };
            // One layer behind the other, so that its pieces are not the whole block.
            let layout = match side {
                0 => {
                    let half = region.size_bytes / 2;
                    let layers =
                        [Region::system(region.address, half), Region::system(region.address + half, half)];
                    Layout::layer_separated(config, Arrangement::OuterFirst, &layers)
                }
                _ => Layout::fully_contiguous(config.head_order(order), region),
            };
            (memory, layout.expect("as much as it needs"))
        });
        // Backwards, so that no two blocks form one run.
        let of: Vec<_> = (0..blocks).map(BlockId).collect();
        let back: Vec<_> = (0..blocks).rev().map(BlockId).collect();
        let plan = CopyPlan::new(&src.1, &of, &dst.1, &back, .., ..).expect("alike");
        let launched = execute(&plan, 7);
        assert_eq!(launched, wanted, "{what}: {heads} heads of {elements}, {tokens} tokens, {blocks} blocks");
        let (from, mut after) = (bytes_of(&src.0), vec![0; bytes_of(&dst.0).len()]);
        let starts = [src.0.as_ptr().addr() as u64, dst.0.as_ptr().addr() as u64];
        let read = |address| from[(address - starts[0]) as usize];
        naive::copy((&src.1, &of), (&dst.1, &back), .., .., read, |address, byte| {
            after[(address - starts[1]) as usize] = byte
        });
        assert!(
            bytes_of(&dst.0) == after,
            "{what}: {heads} heads of {elements}, {tokens} tokens, {blocks} blocks"
        );
    }
}

fn bytes_of(memory: &[u128]) -> Vec<u8> {
    memory.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
