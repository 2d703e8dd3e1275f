//! The executor over slices: the bytes that it copies, and its refusals before it copies anything.

use kvstrata_core::layout::{Arrangement, DType, HeadOrder, Layout, LayoutConfig, Region};
use kvstrata_core::plan::CopyPlan;
use kvstrata_core::{BlockId, StorageKind};
use kvstrata_ffi::copy::{CopyError, HostCopy, Path, ScopedThreads, Threads};

const CONFIG: LayoutConfig = LayoutConfig::new()
    .num_blocks(3)
    .num_layers(2)
    .outer_dim(2)
    .page_size(4)
    .heads(2, 24)
    .dtype(DType::F16)
    .alignment(2);

fn region(bytes: &[u8], kind: StorageKind) -> Region {
    Region { kind, ..Region::system(bytes.as_ptr().addr() as u64, bytes.len() as u64) }
}

/// Two layers of an engine, a tier whose pages have heads first, and a plan from the engine to the tier.
fn plan(engine: [&[u8]; 2], tier: &[u8], kind: StorageKind) -> CopyPlan {
    let engine = engine.map(|layer| region(layer, StorageKind::Pinned));
    let engine = Layout::layer_separated(CONFIG, Arrangement::OuterFirst, &engine).expect("it fits");
    let tier =
        Layout::fully_contiguous(CONFIG.head_order(HeadOrder::Hnd), region(tier, kind)).expect("it fits");
    CopyPlan::new(&engine, &[BlockId(2), BlockId(0)], &tier, &[BlockId(0), BlockId(2)], .., ..)
        .expect("alike")
}

fn aligned(bytes: usize) -> Vec<u16> {
    (0..bytes / 2).map(|i| i as u16).collect()
}

fn bytes(of: &[u16]) -> &[u8] {
    // SAFETY: any u16 is two bytes.
    unsafe { of.align_to().1 }
}

fn bytes_mut(of: &mut [u16]) -> &mut [u8] {
    // SAFETY: any u16 is two bytes, and any two bytes are one.
    unsafe { of.align_to_mut().1 }
}

#[test]
fn copied_rows_change_places() {
    let layer_bytes = 3 * 2 * 4 * 2 * 48;
    let (first, second, mut tier) =
        (aligned(layer_bytes), aligned(2 * layer_bytes), aligned(2 * layer_bytes));
    let second = &second[second.len() / 2..];
    tier.fill(0xeeee);
    let plan = plan([bytes(&first), bytes(second)], bytes(&tier), StorageKind::System);
    for way in 0..3 {
        let src = [bytes(&first), bytes(second)];
        tier.fill(0xeeee);
        let copy = HostCopy::new().stream_from_bytes(0).share_from_bytes(1);
        let dst = &mut [bytes_mut(&mut tier)];
        match way {
            0 => copy.copy(&plan, &src, dst),
            1 => copy.copy_on(&plan, &src, dst, &ScopedThreads(2)),
            _ => copy.copy_with_checksum(&plan, &src, dst).map(|_| ()),
        }
        .expect("slices of the regions");
        // [block][layer][outer][head][token][element] of the tier is [outer][block][token][head][element]
        // of a layer.
        for (to, from) in [(0, 2), (2, 0)] {
            for (layer, of_layer) in [&*first, second].into_iter().enumerate() {
                for i in 0..2 * 2 * 4 * 24 {
                    let [outer, head, token, element] = [i / 192, i / 96 % 2, i / 24 % 4, i % 24];
                    let source = ((((outer * 3) + from) * 4 + token) * 2 + head) * 24 + element;
                    assert_eq!(tier[(to * 2 + layer) * 384 + i], of_layer[source], "{way}: {to} {layer} {i}");
                }
            }
        }
        assert!(tier[2 * 384..4 * 384].iter().all(|element| *element == 0xeeee), "block 1 is nobody's");
    }
}

#[test]
fn memory_other_than_the_hosts_is_refused() {
    let (engine, tier) = (aligned(4608), aligned(4608));
    let (disk, remote) = (StorageKind::Disk { volume: 0 }, StorageKind::Remote { peer: 0 });
    for kind in [StorageKind::Device { ordinal: 1 }, disk, remote] {
        let plan =
            plan([&bytes(&engine)[..2304], &bytes(&engine)[2304..]].map(|layer| layer), bytes(&tier), kind);
        // SAFETY: nothing is copied.
        let refused = unsafe { HostCopy::new().execute(&plan) }.unwrap_err();
        assert!(matches!(refused, CopyError::NotHost { region: 0, kind: of, .. } if of == kind));
        let text = format!(
            "destination region 0 is {kind} memory; the CPU copies between system and pinned memory only"
        );
        assert_eq!(refused.to_string(), text);
        // SAFETY: nothing is copied.
        assert_eq!(unsafe { HostCopy::new().execute_on(&plan, &ScopedThreads(2)) }, Err(refused));
        // SAFETY: nothing is copied.
        assert_eq!(unsafe { HostCopy::new().execute_with_checksum(&plan) }, Err(refused));
    }
}

#[test]
fn slices_must_match_the_regions() {
    let (engine, mut tier) = (aligned(2 * 2304), aligned(2 * 2304));
    let (first, second) = bytes(&engine).split_at(2304);
    let plan = plan([first, second], bytes(&tier), StorageKind::System);
    let before = tier.clone();
    let mut refused = |src: &[&[u8]], from: usize, to: usize| {
        let dst = &mut bytes_mut(&mut tier)[from..to];
        HostCopy::new().copy(&plan, src, &mut [dst]).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&[first], 0, 4608),
        "the number of source slices is 1; it must be 2, one for each region of the layout"
    );
    let wrong = refused(&[second, first], 0, 4608);
    assert!(wrong.starts_with("source slice 0 has 2304 bytes at 0x"), "{wrong}");
    assert!(refused(&[&first[..2303], second], 0, 4608).starts_with("source slice 0 has 2303 bytes"));
    assert!(refused(&[first, second], 0, 4606).starts_with("destination slice 0 has 4606 bytes"));
    assert!(refused(&[first, second], 2, 4608).starts_with("destination slice 0 has 4606 bytes"));
    assert_eq!(tier, before);
}

#[test]
fn path_is_one_that_the_cpu_has() {
    for path in Path::ALL {
        match HostCopy::with_path(path) {
            Ok(copy) => assert_eq!(copy.path(), path),
            Err(refused) => assert!(refused.to_string().starts_with(&format!("this CPU has no {path}"))),
        }
    }
    assert!(HostCopy::with_path(Path::Portable).is_ok());
    assert!(HostCopy::with_path(HostCopy::new().path()).is_ok());
}

#[test]
fn each_part_is_run_once() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    for (threads, parts) in [(0, 3), (1, 3), (2, 5), (3, 2), (4, 0)] {
        let runs: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
        // Relaxed: `run` joins its threads.
        ScopedThreads(threads).run(parts, &|part| _ = runs[part].fetch_add(1, Ordering::Relaxed));
        assert!(runs.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }
}

/// An implementation of threads that leaves parts out, or runs them twice at once, is a bug but not
/// undefined behaviour: all is copied, once.
#[test]
fn wrong_threads_do_not_break_a_copy() {
    use kvstrata_ffi::copy::Threads;
    struct Never;
    struct Twice;
    impl Threads for Never {
        fn count(&self) -> usize {
            4
        }
        fn run(&self, _: usize, _: &(dyn Fn(usize) + Sync)) {}
    }
    impl Threads for Twice {
        fn count(&self) -> usize {
            4
        }
        fn run(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) {
            std::thread::scope(|scope| {
                (0..2).for_each(|_| _ = scope.spawn(|| (0..parts).for_each(part)));
            });
        }
    }
    let config = LayoutConfig::new().num_blocks(8).page_size(16).inner_dim(64);
    let from: Vec<u8> = (0..8 * 1024u32).map(|i| (i * 31 % 251) as u8).collect();
    let mut to = vec![0; from.len()];
    let layout = |at: *const u8| {
        Layout::fully_contiguous(config, Region::system(at.addr() as u64, 8 * 1024)).expect("it fits")
    };
    let (src, dst) = (layout(from.as_ptr()), layout(to.as_ptr()));
    let blocks: Vec<BlockId> = (0..8).map(BlockId).collect();
    let plan = CopyPlan::new(&src, &blocks, &dst, &blocks, .., ..).expect("both are alike");
    let copy = HostCopy::new().share_from_bytes(1);
    for threads in [&Never as &dyn Threads, &Twice] {
        to.fill(0);
        copy.copy_on(&plan, &[&from], &mut [&mut to], threads).expect("host memory");
        assert_eq!(to, from);
    }
}
