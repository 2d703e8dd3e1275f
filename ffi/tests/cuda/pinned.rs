//! Registering host memory: in chunks, by threads, and undone if it fails half way.

use crate::{copy_in, machine, memory, open, queue};
use kvstrata_core::storage::{Storage, StorageKind};
use kvstrata_cuda_double::Double;
use kvstrata_ffi::arena::{HostArena, Span};
use kvstrata_ffi::cuda::{CudaError, PinOptions, PinnedStorage, Placement, Purpose};

const MIB: usize = 1 << 20;

#[test]
fn arena_is_registered_in_chunks_and_says_how_far_it_is() {
    let (double, device) = machine();
    for threads in [1, 3, 9] {
        let before = double.calls("cuMemHostRegister_v2");
        let options = PinOptions::new().chunk_bytes(2 * MIB).threads(threads);
        let mut told = Vec::new();
        let pinned =
            PinnedStorage::allocate(&device, 10, MIB, options, &mut |done, all| told.push((done, all)));
        let pinned = pinned.expect("registered");
        // Half for the pages, in one piece of this size; the rest chunk by chunk.
        let expected: Vec<_> = (5..=10).map(|mib| (mib * MIB as u64, 10 * MIB as u64)).collect();
        assert_eq!(told, expected);
        assert_eq!(double.calls("cuMemHostRegister_v2") - before, 5);
        assert_eq!(double.left().registrations, 5);
        assert_eq!((pinned.kind(), pinned.size_bytes()), (StorageKind::Pinned, 10 * MIB as u64));
        assert!(pinned.is_mapped());
        assert!(pinned.arena().read(8).expect("free").iter().all(|byte| *byte == 0), "zeroed");
        assert_ne!(pinned.placement(), Placement::Refused(0));
        println!("{pinned:?}");
        drop(pinned);
        assert_eq!(double.left().registrations, 0);
    }
    drop(device);
    double.finish();
}

#[test]
fn registration_failed_half_way_is_undone() {
    let (double, device) = machine();
    let arena = HostArena::new(10, MIB).expect("an arena");
    arena.write(0).expect("free").fill(7);
    for threads in [1, 4] {
        let options = PinOptions::new().chunk_bytes(2 * MIB).threads(threads);
        let calls = || (double.calls("cuMemHostRegister_v2"), double.calls("cuMemHostUnregister"));
        let before = calls();
        double.fail("cuMemHostRegister_v2", 3, 2);
        let refused =
            PinnedStorage::register(&device, arena.clone(), options, &mut |_, _| {}).expect_err("refused");
        let CudaError::Register { asked_bytes, done_bytes, fault, .. } = refused else { panic!("{refused}") };
        assert_eq!((asked_bytes, fault.operation), (10 * MIB as u64, "cuMemHostRegister"));
        if threads == 1 {
            assert_eq!(done_bytes, 4 * MIB as u64);
        }
        assert!(refused.to_string().contains("free host memory, or shrink the arena"), "{refused}");
        assert!(
            !refused.to_string().contains("ulimit"),
            "no limit of the system's is the driver's: {refused}"
        );
        assert_eq!(double.left().registrations, 0);
        let (registered, unregistered) = calls();
        assert_eq!(unregistered - before.1, registered - before.0 - 1, "all but the one that was refused");
    }
    assert!(arena.read(0).expect("free").iter().all(|byte| *byte == 7));
    drop(device);
    double.finish();
}

#[test]
fn limits_and_second_registrations_are_errors() {
    let double = Double::new();
    double.memory(1 << 30, 4 * MIB as u64);
    let device = open(0);
    let options = PinOptions::new().chunk_bytes(2 * MIB).threads(1);
    let refused =
        PinnedStorage::allocate(&device, 8, MIB, options, &mut |_, _| {}).expect_err("above the limit");
    assert!(matches!(refused, CudaError::Register { done_bytes: 0x0040_0000, .. }), "{refused}");
    let arena = HostArena::new(1, MIB).expect("an arena");
    let first = PinnedStorage::register(&device, arena.clone(), options, &mut |_, _| {}).expect("fits");
    let refused =
        PinnedStorage::register(&device, arena, options, &mut |_, _| {}).expect_err("a second time");
    assert!(refused.to_string().contains("712 CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"), "{refused}");
    assert_eq!(double.left().registrations, 1, "the first one stays");
    let refused = PinnedStorage::allocate(&device, 0, MIB, options, &mut |_, _| {}).expect_err("no blocks");
    assert!(matches!(refused, CudaError::Arena { .. }), "{refused}");
    drop((first, device));
    double.finish();
}

#[test]
fn lent_memory_is_not_registered() {
    let double = Double::new();
    let device = open(0);
    let mut bytes = Box::new([0_u8; 4096]);
    let span = Span::new(bytes.as_mut_ptr(), 4096).expect("memory");
    // SAFETY: no guard is made of the arena.
    let arena = unsafe { HostArena::lent(vec![span], bytes) }.expect("an arena");
    let refused =
        PinnedStorage::register(&device, arena, PinOptions::new(), &mut |_, _| {}).expect_err("lent");
    assert!(refused.to_string().contains("lent memory cannot be registered"), "{refused}");
    assert_eq!(double.left().registrations, 0);
    drop(device);
    double.finish();
}

/// Whether children do not inherit the mapping that contains this address; the kernel marks it "don't copy".
fn is_kept_from_children(address: u64) -> bool {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("the kernel's list");
    let mut inside = false;
    for line in maps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        if let Some((from, to)) = range {
            let number = |text| u64::from_str_radix(text, 16).ok();
            if let (Some(from), Some(to)) = (number(from), number(to)) {
                inside = (from..to).contains(&address);
            }
        } else if let (true, Some(flags)) = (inside, line.strip_prefix("VmFlags:")) {
            return flags.split_whitespace().any(|flag| flag == "dc");
        }
    }
    panic!("{address:#x} is not mapped");
}

#[test]
fn child_process_has_nothing_of_a_registered_arena() {
    if !std::fs::read_to_string("/proc/self/smaps").is_ok_and(|maps| maps.contains("VmFlags:")) {
        println!("SKIP forks: the kernel does not say what children have of a mapping");
        return;
    }
    let (double, device) = machine();
    let arena = HostArena::new(10, MIB).expect("an arena");
    let places = [0, 10 * MIB as u64 - 1].map(|offset| arena.base_address() + offset);
    let kept = || places.map(is_kept_from_children);
    assert_eq!(kept(), [false; 2]);
    let options = PinOptions::new().chunk_bytes(2 * MIB);
    let register = || PinnedStorage::register(&device, arena.clone(), options, &mut |_, _| {});
    double.fail("cuMemHostRegister_v2", 3, 2);
    register().expect_err("refused");
    assert_eq!(kept(), [false; 2], "undone");
    let first = register().expect("registered");
    assert_eq!(kept(), [true; 2]);
    register().expect_err("a second time");
    assert_eq!(kept(), [true; 2], "still the first one's");
    // Chunks that the driver did not take back yet are still pinned.
    double.fail("cuMemHostUnregister", 5, 900);
    drop(first);
    assert_eq!((kept(), double.left().registrations), ([true; 2], 1));
    drop(device);
    assert_eq!(kept(), [false; 2]);
    double.finish();
}

#[test]
fn two_threads_register_however_many_make_pages() {
    let (double, device) = machine();
    let options = PinOptions::new().chunk_bytes(1).threads(16);
    let host = PinnedStorage::allocate(&device, 200, 4096, options, &mut |_, _| {}).expect("registered");
    assert_eq!(double.left().registrations, 200);
    assert!((1..=2).contains(&double.registering()), "{} threads", double.registering());
    drop((host, device));
    double.finish();
}

#[test]
fn pages_are_made_before_the_driver_pins_them() {
    let (double, device) = machine();
    let host =
        PinnedStorage::allocate(&device, 6, MIB, PinOptions::new(), &mut |_, _| {}).expect("registered");
    let mut pages = [0_u8; 6 * MIB / 4096];
    let start = core::ptr::with_exposed_provenance_mut(host.base_address() as usize);
    // SAFETY: queries the pages of a live mapping; `pages` is ours, one byte per page.
    assert_eq!(unsafe { libc::mincore(start, 6 * MIB, pages.as_mut_ptr()) }, 0);
    assert!(pages.iter().all(|page| page & 1 != 0), "the double touches none");
    drop((host, device));
    double.finish();
}

#[test]
fn no_block_lies_across_two_registrations() {
    let (double, device) = machine();
    let bytes = 3 * MIB / 2 - 5000;
    let options = PinOptions::new().chunk_bytes(2 * MIB);
    let host = PinnedStorage::allocate(&device, 6, bytes, options, &mut |_, _| {}).expect("registered");
    assert_eq!(double.left().registrations, 6, "a block each");
    let (target, queue) = (memory(&device, bytes as u64), queue(&device, Purpose::Onboard));
    for block in 0..6 {
        drop(copy_in(&queue, &host, block, &target).wait().expect("copied"));
    }
    drop((host, target, queue, device));
    double.finish();
}
