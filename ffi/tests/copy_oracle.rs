//! The CPU executor matches the oracle, byte by byte, on every path and any number of threads; no other
//! byte changes.
#![cfg(all(unix, not(miri)))] // Miri has no guard pages; `copy_safe.rs` is for it.

mod copy_cases;
#[path = "copy_cases/random.rs"]
mod random;

use copy_cases::{Case, Picks};
use kvstrata_ffi::copy::{HostCopy, Path, ScopedThreads};
use proptest::prelude::*;
use random::picks;
use twox_hash::XxHash3_64;

/// Every way to execute a plan: each path of this CPU, past the caches and through them.
fn executors() -> impl Iterator<Item = HostCopy> {
    let paths = Path::ALL.into_iter().filter_map(|path| HostCopy::with_path(path).ok());
    paths.flat_map(|copy| [0, u64::MAX].map(|from| copy.stream_from_bytes(from).share_from_bytes(1)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_are_the_oracles(picks in picks()) {
        let Some(mut case) = Case::new(&picks) else { return Err(TestCaseError::reject("no such layout")) };
        let plan = case.plan().expect("a tame case");
        case.src.fill(1);
        case.dst.fill(2);
        let (source, wanted) = (case.src.bytes(), case.oracle());
        let in_order: Vec<u8> = plan.pieces().flat_map(|piece| {
            let of = case.src.memory.iter().find_map(|memory| Some((memory, memory.place(piece.src)?)));
            let (memory, at) = of.expect("an address of a region");
            memory.all()[at..][..piece.bytes as usize].to_vec()
        }).collect();
        for copy in executors() {
            for threads in 0..4 {
                case.dst.fill(2);
                let done = if threads == 0 {
                    // SAFETY: the plan's regions are the case's, which has no other user.
                    unsafe { copy.execute(&plan) }
                } else {
                    // SAFETY: as above.
                    unsafe { copy.execute_on(&plan, &ScopedThreads(threads)) }
                };
                prop_assert_eq!(done, Ok(()));
                prop_assert!(case.dst.bytes() == wanted, "{:?}, {} threads", copy, threads);
            }
            case.dst.fill(2);
            // SAFETY: as above.
            let hash = unsafe { copy.execute_with_checksum(&plan) };
            prop_assert!(case.dst.bytes() == wanted, "{:?}, with checksum", copy);
            prop_assert_eq!(hash, Ok(XxHash3_64::oneshot(&in_order)));
        }
        prop_assert!(case.src.bytes() == source, "the source is as it was");
    }
}

/// The checksum is that of the destination if a block is one piece; every path is tried.
#[test]
fn checksum_equals_the_destinations() {
    let picks = Picks {
        sizes: [1, 2, 1, 31, 3, 127],
        dtype: 2,
        arrangements: [3, 0],
        alignments: [0, 0],
        hnd: [false, false],
        scales_apart: [false, false],
        at_end: [true, true],
        shifts: [0, 0],
        of: 1,
        blocks: vec![(1, 0), (0, 1)],
        all: [true, true],
        slices: [[0; 3]; 2],
        tame: true,
    };
    let mut case = Case::new(&picks).expect("a layout");
    let plan = case.plan().expect("alike");
    case.src.fill(1);
    let region = case.dst.layout.regions()[0];
    assert_eq!(region.size_bytes, plan.bytes(), "all of it");
    for copy in executors() {
        case.dst.fill(2);
        // SAFETY: the plan's regions are the case's, which has no other user.
        let hash = unsafe { copy.execute_with_checksum(&plan) };
        let memory = &case.dst.memory[0];
        let start = memory.place(region.address).expect("its own");
        let mut written = memory.all()[start..][..region.size_bytes as usize].to_vec();
        assert_eq!(hash, Ok(XxHash3_64::oneshot(&written)), "{copy:?}");
        written[7] ^= 1;
        assert_ne!(hash, Ok(XxHash3_64::oneshot(&written)), "a bit is noticed");
    }
}
