//! CUDA as installed here, or its absence, tested by the public API on a real device. The test double is
//! never loaded here.

#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "its memory is the host's; a device's is elsewhere")]
mod copy_cases;
mod device_contract;
mod device_plans;
#[path = "../../kernels/tests/numbers/mod.rs"]
mod numbers;
#[path = "copy_cases/random.rs"]
mod random;

use device_plans::memory::Ground;
use kvstrata_core::storage::Storage;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::cuda::{
    Batch, CudaDevice, CudaDriver, CudaError, CudaKernels, DeviceStorage, Held, IpcHandle, PinOptions,
    PinnedStorage, Purpose, QueueOptions, TransferQueue, Way,
};
use kvstrata_ffi::device::CudaDeviceTier;
use std::sync::Arc;

/// Prints the reason for leaving a test out; fails if `KVSTRATA_REQUIRE` names the missing part.
fn skip<T>(what: &str, error: &CudaError) -> Option<T> {
    let required = std::env::var("KVSTRATA_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| [what, "all"].contains(&name.trim())),
        "{what} is required: {error}"
    );
    println!("SKIP {what}: {error}");
    None
}

/// The first device.
fn device() -> Option<Arc<CudaDevice>> {
    let opened = CudaDriver::load().and_then(|driver| CudaDevice::open(&driver, 0));
    match opened {
        Ok(device) => Some(device),
        Err(error) => skip("cuda", &error),
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

const BYTES: usize = (1 << 20) + 4096;

#[test]
fn missing_cuda_part_is_given_as_a_reason() {
    match CudaDriver::load() {
        Ok(driver) => {
            println!("{}", driver.describe());
            let count = driver.describe().devices;
            let refused = CudaDevice::open(&driver, count).expect_err("one too many");
            assert_eq!(refused, CudaError::NoSuchDevice { ordinal: count, count });
        }
        Err(error) => {
            println!("{error}");
            assert!(error.to_string().contains("; "), "says what to do: {error}");
            assert_eq!(error.fault(), None, "nothing is quarantined");
        }
    }
}

#[test]
fn device_keeps_the_contract() {
    let Some(device) = device() else { return };
    println!("{}", device.describe());
    device_contract::check(&CudaDeviceTier::new(&device, 4, 1000).expect("4 kB"));
}

#[test]
fn every_way_of_completion_brings_the_bytes_back() {
    let Some(device) = device() else { return };
    let arena = HostArena::new(2, BYTES).expect("an arena");
    let host =
        PinnedStorage::register(&device, arena, PinOptions::new(), &mut |_, _| {}).expect("registered");
    let memory = DeviceStorage::allocate(&device, BYTES as u64).expect("1 MiB");
    let content = pattern(BYTES);
    for way in Way::ALL {
        let queue =
            TransferQueue::new(&device, Purpose::Staging, QueueOptions::new().way(way)).expect("a queue");
        for round in 0..50_usize {
            let mut source = host.arena().write(0).expect("free");
            source.copy_from_slice(&content);
            source[0] = round as u8;
            let mut batch = Batch::new();
            let from = batch.read(source.into_read(), &host).expect("registered");
            let to = batch.device(memory.range(0, BYTES as u64).expect("in range"));
            // In pieces of many sizes, by one call if the driver has it; the last part as rows.
            let mut at = 0;
            for bytes in (1..).map(|piece| piece * 37).take_while(|bytes| *bytes < 8192) {
                batch.copy((from, at), (to, at), bytes).expect("in range");
                at += bytes;
            }
            batch.copy_rows((from, at), (to, at), (512, 4), (512, 512)).expect("in range");
            at += 2048;
            batch.copy((from, at), (to, at), BYTES as u64 - at).expect("in range");
            let up = queue.submit(batch).expect("queued");
            let mut batch = Batch::new();
            let target = batch.write(host.arena().write(1).expect("free"), &host).expect("registered");
            let from = batch.device(memory.range(0, BYTES as u64).expect("in range"));
            batch.copy((from, 0), (target, 0), BYTES as u64).expect("in range");
            let mut down = queue.submit(batch).expect("queued").wait().expect("copied");
            drop(up.wait().expect("copied"));
            let Some(Held::Write(found, _)) = down.release().next() else { panic!("the block") };
            assert_eq!(found[0], round as u8, "{way}");
            assert!(found[1..] == content[1..], "{way}, round {round}");
        }
    }
    assert_eq!(device.fault(), None);
}

#[test]
fn memory_is_counted_and_too_much_is_refused() {
    let Some(device) = device() else { return };
    let before = device.memory().expect("asked");
    let held = DeviceStorage::allocate(&device, 64 << 20).expect("64 MiB");
    assert!(device.memory().expect("asked").free_bytes < before.free_bytes);
    let asked = before.total_bytes + (1 << 30);
    match DeviceStorage::allocate(&device, asked).expect_err("more than there is") {
        CudaError::OutOfMemory { asked_bytes, total_bytes, .. } => {
            assert_eq!((asked_bytes, total_bytes), (asked, before.total_bytes));
        }
        other => panic!("{other}"),
    }
    let handle = IpcHandle::export(&held).expect("exported");
    // SAFETY: refused: the handle is this process's own.
    let refused = unsafe { handle.import(&device) }.expect_err("our own");
    assert_eq!(refused, CudaError::SameProcess { process: std::process::id() });
    assert_eq!(held.size_bytes(), 64 << 20);
}

/// Returns the first device, with the kernels of this program.
fn ground() -> Option<Ground> {
    let device = device()?;
    match CudaKernels::load(&device) {
        Ok(kernels) => Some(Ground::new(&device, kernels)),
        Err(error) => skip("cuda-kernels", &error),
    }
}

#[test]
fn plans_are_the_oracles_by_every_route() {
    let Some(ground) = ground() else { return };
    device_plans::random_plans(&ground, proptest::test_runner::Config::default().cases);
    assert_eq!(ground.device.fault(), None);
}

#[test]
fn sums_are_the_disk_tiers() {
    let Some(ground) = ground() else { return };
    device_plans::sums(&ground);
}

#[test]
fn conversions_are_the_nearest() {
    let Some(ground) = ground() else { return };
    device_plans::conversions(&ground);
}

#[test]
fn large_copies_count_and_reach_as_far_as_they_go() {
    let Some(ground) = ground() else { return };
    // 4.4 GB to 2.2 GB: two launches, the first with all except 2³¹ units.
    let (blocks, tokens) = (4200, 2048);
    let (needed, free) =
        (u64::from(blocks) * 256 * tokens * 3, ground.device.memory().expect("asked").free_bytes);
    if free < needed + (1 << 30) {
        println!(
            "SKIP cuda-large: {needed} bytes of device memory and 1 GiB more are needed, {free} are free"
        );
        return;
    }
    device_plans::large(&ground, blocks, tokens as u32);
}
