//! Sums of payloads in device memory, by the kernel and otherwise: the same as in the disk tier's seals.

use crate::{machine, memory, open, pattern, plans, queue, until};
use core::time::Duration;
use kvstrata_core::storage::Storage;
use kvstrata_cuda_double::Double;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::cuda::{
    Batch, CudaDevice, CudaError, CudaKernels, CudaSums, DeviceStorage, PinOptions, PinnedStorage, Purpose,
    SumOptions,
};
use kvstrata_ffi::disk::seal_of;
use std::sync::Arc;
use twox_hash::XxHash3_64;

const CHUNK: usize = 64 << 10;
const MIB: usize = 1 << 20;

/// The sum defined in `docs/disk-format.md`.
fn wanted(payload: &[u8]) -> u64 {
    let chunks = (0..).zip(payload.chunks(CHUNK));
    let sums: Vec<u64> = chunks.map(|(seed, chunk)| XxHash3_64::oneshot_with_seed(seed, chunk)).collect();
    seal_of(&sums)
}

fn sums_with(double: &Double, device: &Arc<CudaDevice>, options: SumOptions) -> CudaSums {
    double.plain_addresses();
    CudaSums::new(device, &plans::kernels(double, device), options).expect("it has the kernel")
}

/// Device memory with a pattern, and the pattern.
fn filled(device: &Arc<CudaDevice>, bytes: usize) -> (Arc<DeviceStorage>, Vec<u8>) {
    let (storage, pattern) = (memory(device, bytes as u64), pattern(3, bytes));
    let arena = HostArena::new(1, bytes).expect("an arena");
    let host = PinnedStorage::register(device, arena, PinOptions::new(), &mut |_, _| {}).expect("registered");
    let mut block = host.arena().write(0).expect("free");
    block.copy_from_slice(&pattern);
    let mut batch = Batch::new();
    let from = batch.read(block.into_read(), &host).expect("registered");
    let to = batch.device(storage.range(0, bytes as u64).expect("in range"));
    batch.copy((from, 0), (to, 0), bytes as u64).expect("in range");
    queue(device, Purpose::Onboard).submit(batch).expect("queued").wait().expect("copied");
    (storage, pattern)
}

#[test]
fn seal_is_its_chunks_sums_modulo_two_to_the_64() {
    assert_eq!(seal_of(&[]), 0);
    assert_eq!(seal_of(&[u64::MAX, 7, 1 << 63, 1 << 63]), 6);
}

/// Launches and copies to the host since the last time.
struct Calls<'a>(&'a Double, [u64; 2]);

impl Calls<'_> {
    fn since(&mut self) -> [u64; 2] {
        let now = ["cuLaunchKernel", "cuMemcpyDtoHAsync_v2"].map(|name| self.0.calls(name));
        let before = core::mem::replace(&mut self.1, now);
        [now[0] - before[0], now[1] - before[1]]
    }
}

#[test]
fn sums_by_kernel_and_cpu_are_the_disk_tiers() {
    let (double, device) = machine();
    let sums = sums_with(&double, &device, SumOptions::new());
    let (storage, bytes) = filled(&device, 3 * MIB + 48);
    let mut calls = Calls(&double, [0; 2]);
    let mut check = |offset: usize, len: usize, made_by: [u64; 2]| {
        let range = storage.range(offset as u64, len as u64).expect("in range");
        calls.since();
        assert_eq!(sums.of_range(&range), Ok(wanted(&bytes[offset..][..len])), "{len} bytes at {offset}");
        assert_eq!(calls.since(), made_by, "{len} bytes at {offset}");
    };
    for len in [256, 4096, CHUNK - 16, CHUNK, CHUNK + 256, 5 * CHUNK, 5 * CHUNK + 4096, MIB + 4096, 3 * MIB] {
        check(0, len, [1, 0]);
        check(48, len, [1, 0]);
    }
    // Too short, odd, or from an odd address: one MiB at a time.
    for (offset, len, parts) in [
        (0, 0, 0),
        (0, 1, 1),
        (0, 240, 1),
        (16, CHUNK + 240, 1),
        (0, 3 * CHUNK + 5, 1),
        (8, 4096, 1),
        (1, MIB, 1),
        (1, MIB + 1, 2),
        (0, 3 * MIB + 16, 4),
    ] {
        check(offset, len, [0, parts]);
    }
    drop((sums, storage, device));
    double.finish();
}

#[test]
fn device_without_host_writes_has_payloads_copied_down() {
    let (double, device) = machine();
    double.mapped_at(1 << 40);
    let sums = sums_with(&double, &device, SumOptions::new());
    let (storage, bytes) = filled(&device, MIB + 4096);
    let range = storage.range(0, storage.size_bytes()).expect("in range");
    assert_eq!(sums.of_range(&range), Ok(wanted(&bytes)));
    assert_eq!(double.calls("cuLaunchKernel"), 0);
    drop((sums, range, storage, device));
    double.finish();
}

#[test]
fn many_threads_each_get_their_own_sum() {
    for seed in 0..2 {
        let (double, device) = machine();
        double.seed(seed);
        let sums = sums_with(&double, &device, SumOptions::new().calls(2).most_ctas(3));
        let (storage, bytes) = filled(&device, 8 * 3 * CHUNK);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (sums, storage, bytes) = (&sums, &storage, &bytes);
                scope.spawn(move || {
                    for round in 0..6 {
                        // The CPU hashes every third one.
                        let len = 2 * CHUNK + 256 * (1 + round) - usize::from(round % 3 == 2);
                        let at = thread * 3 * CHUNK;
                        let range = storage.range(at as u64, len as u64).expect("in range");
                        assert_eq!(sums.of_range(&range), Ok(wanted(&bytes[at..][..len])));
                    }
                });
            }
        });
        assert!(format!("{sums:?}").contains("2 of 2 seats idle"), "{sums:?}");
        drop((sums, storage, device));
        double.finish();
    }
}

#[test]
fn refused_sum_is_an_error_and_the_next_one_succeeds() {
    let (double, device) = machine();
    let sums = sums_with(&double, &device, SumOptions::new().calls(1));
    let (storage, bytes) = filled(&device, 2 * CHUNK);
    let [whole, odd] = [2 * CHUNK, CHUNK + 1].map(|len| storage.range(0, len as u64).expect("in range"));
    for (call, range) in [("cuLaunchKernel", &whole), ("cuMemcpyDtoHAsync_v2", &odd)] {
        double.fail(call, 1, 701);
        let refused = sums.of_range(range).expect_err("refused");
        assert!(
            matches!(refused, CudaError::Refused { fault, .. } if fault.code.number() == 701),
            "{refused}"
        );
        let held = Arc::strong_count(&storage);
        let sum = sums.of_range(range);
        assert_eq!(sum, Ok(wanted(&bytes[..range.size_bytes() as usize])), "{call}");
        assert_eq!((Arc::strong_count(&storage), held), (3, 3), "the payload was let go");
    }
    let other = open(1);
    let theirs = memory(&other, 4096);
    let refused = sums.of_range(&theirs.range(0, 4096).expect("in range")).expect_err("another device's");
    assert!(matches!(refused, CudaError::WrongDevice { found: 1, wanted: 0, .. }), "{refused}");
    // SAFETY: the double takes any image.
    let none = unsafe { CudaKernels::of(&device, &[]) }.expect("none");
    let refused = CudaSums::new(&device, &none, SumOptions::new()).expect_err("nothing sums");
    assert!(matches!(refused, CudaError::NoKernels { .. }), "{refused}");
    drop((sums, whole, odd, storage, theirs, none, device, other));
    double.finish();
}

#[test]
fn unanswered_sum_keeps_its_payload_and_times_out() {
    let (double, device) = machine();
    let sums = sums_with(&double, &device, SumOptions::new().calls(1).patience(Duration::ZERO));
    let (storage, bytes) = filled(&device, CHUNK);
    let range = storage.range(0, CHUNK as u64).expect("in range");
    double.hold();
    let late = sums.of_range(&range).expect_err("nothing is executed");
    assert!(matches!(late, CudaError::Deadline { device: 0, waited_ms: 0 }), "{late}");
    assert_eq!(Arc::strong_count(&storage), 3, "the device's share");
    let full = sums.of_range(&range).expect_err("the only seat is the device's");
    assert!(matches!(full, CudaError::Full { limit: 1, .. }), "{full}");
    double.release();
    until("the device's answer", || Arc::strong_count(&storage) == 2);
    drop(sums);
    let sums = sums_with(&double, &device, SumOptions::new().calls(1));
    assert_eq!(sums.of_range(&range), Ok(wanted(&bytes)));
    drop((sums, range, storage, device));
    double.finish();
}

#[test]
fn waiter_for_a_seat_learns_of_the_devices_failure() {
    let (double, device) = machine();
    let sums = sums_with(&double, &device, SumOptions::new().calls(1));
    let (storage, _) = filled(&device, CHUNK);
    let range = storage.range(0, CHUNK as u64).expect("in range");
    double.hold();
    double.break_at(0, 1, 700);
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..4).map(|_| scope.spawn(|| sums.of_range(&range))).collect();
        double.called("cuLaunchKernel", 1);
        double.release();
        for call in calls {
            let error = call.join().expect("no panic").expect_err("the device is dead");
            assert_eq!(error.fault().map(|fault| fault.code.number()), Some(700), "{error}");
        }
    });
    drop((sums, range, storage, device));
    let left = double.left();
    double.finish_with(left);
}

#[test]
fn dead_device_gets_no_more_sums() {
    let (double, device) = machine();
    let sums = sums_with(&double, &device, SumOptions::new().calls(1));
    let (storage, _) = filled(&device, CHUNK);
    let range = storage.range(0, CHUNK as u64).expect("in range");
    // The launch is executed, and breaks the device.
    double.break_at(0, 1, 700);
    let first = sums.of_range(&range).expect_err("an illegal address");
    assert_eq!(first.fault().map(|fault| fault.code.number()), Some(700), "{first}");
    let calls = double.all_calls();
    let later = sums.of_range(&range).expect_err("quarantined");
    assert!(matches!(later, CudaError::Quarantined { .. }), "{later}");
    assert_eq!(double.all_calls(), calls);
    assert!(Arc::strong_count(&storage) > 2, "kept for a device that may still read it");
    drop((sums, range, storage, device));
    let left = double.left();
    assert_eq!((left.contexts, left.allocations, left.registrations), (1, 1, 1));
    double.finish_with(left);
}
