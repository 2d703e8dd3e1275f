//! The same volumes with the sums of the CUDA part: its kernel on the CPU, over the double of libcuda.
//! The stand-in for cuFile moves bytes to and from the double's memory, whose addresses are plain.

use super::*;
use crate::cuda::{CudaDevice, CudaDriver, CudaKernels, CudaSums, DeviceStorage, SumOptions};
use crate::gds::DeviceMemory;
use kvstrata_core::storage::Storage;
use kvstrata_cuda_double::Double;
use kvstrata_kernels::{Image, cpu};
use std::time::Duration;

/// Not a multiple of a chunk.
const BYTES: usize = (3 << 16) + 4096;
const SLOTS: u32 = 4;

/// Fields in the order of their drop: the double goes last.
struct Machine {
    volume: Volume,
    buffer: Arc<GdsBuffer>,
    sums: Arc<CudaSums>,
    dir: TempDir,
    fake: Fake,
    device: Arc<CudaDevice>,
    double: Double,
}

fn machine(backend: Backend, sum_options: SumOptions) -> Option<Machine> {
    let (double, fake, dir) = (Double::new(), Fake::new(), dir());
    double.plain_addresses();
    for kernel in cpu::kernels() {
        // SAFETY: launched for sums alone, with parameters of theirs.
        unsafe { double.kernel(&kernel.name.to_string_lossy(), kernel.parameters_bytes, kernel.run) };
    }
    let images = [Image { name: "sum", bytes: b"image" }];
    let device = CudaDevice::open(&CudaDriver::load().expect("the double"), 0).expect("a device");
    // SAFETY: the double takes any image.
    let kernels = unsafe { CudaKernels::of(&device, &images) }.expect("loaded");
    let sums = Arc::new(CudaSums::new(&device, &kernels, sum_options).expect("it has the kernel"));
    let options = device_options(&fake, &dir, SLOTS, BYTES).backend(backend);
    let volume = volume_or_skip(open(options.device_sums(Arc::<CudaSums>::clone(&sums))))?;
    if !volume.describe().direct {
        skip("o_direct", volume.describe());
        return None;
    }
    // From the first address that O_DIRECT accepts, and one more block.
    let bytes = (SLOTS as usize + 1) * BYTES + 4096;
    let storage = DeviceStorage::allocate(&device, bytes as u64).expect("memory");
    let base = storage.base_address().next_multiple_of(4096);
    // SAFETY: inside the storage, which is its owner's; no reference reaches it.
    let memory = unsafe { DeviceMemory::new(base, (SLOTS as usize + 1) * BYTES, storage) };
    let buffer = GdsBuffer::register(volume.gds().expect("the stand-in works"), memory).expect("registered");
    Some(Machine { volume, buffer, sums, dir, fake, device, double })
}

impl Machine {
    /// A block of the device's memory.
    fn range(&self, block: u32) -> DeviceRange {
        self.buffer.range(block as usize * BYTES, BYTES).expect("in range")
    }

    fn place(range: &DeviceRange) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(range.address() as usize)
    }

    /// A block of the device's memory with a pattern in it.
    fn filled(&self, block: u32, slot: u32, round: u32) -> DeviceRange {
        let (range, mut bytes) = (self.range(block), vec![0; BYTES]);
        pattern(slot, round, &mut bytes);
        // SAFETY: as large, and no transfer of it is under way.
        unsafe { Machine::place(&range).copy_from_nonoverlapping(bytes.as_ptr(), BYTES) };
        range
    }

    fn bytes_of(range: &DeviceRange) -> Vec<u8> {
        // SAFETY: as large, and no transfer of it is under way.
        unsafe { core::slice::from_raw_parts(Machine::place(range), BYTES) }.to_vec()
    }

    fn finish(self) {
        let Machine { volume, buffer, sums, dir, fake, device, double } = self;
        drop((volume, buffer, sums, dir, device, fake));
        double.finish();
    }
}

fn over_each(body: impl Fn(Machine)) {
    for backend in [Backend::UringDirect, Backend::Blocking] {
        if let Some(machine) = machine(backend, SumOptions::new()) {
            body(machine);
        }
    }
}

#[test]
fn kernel_and_host_seal_and_verify_alike() {
    over_each(|machine| {
        let volume = &machine.volume;
        let writes: Vec<_> = (0..SLOTS)
            .map(|slot| volume.write_device(slot, name(slot, 1), machine.filled(slot, slot, 1)))
            .collect();
        writes.into_iter().for_each(|write| drop(write.wait().expect("written")));
        let launched = || machine.double.calls("cuLaunchKernel");
        assert_eq!(launched(), u64::from(SLOTS));
        let arena = HostArena::new(1, BYTES).expect("arena");
        for slot in 0..SLOTS {
            check_pattern(volume, &arena, 0, slot, 1);
            let read =
                volume.read_device(slot, name(slot, 1).hash, Urgency::Urgent, machine.filled(SLOTS, 9, 9));
            assert_pattern(slot, 1, &Machine::bytes_of(&read.wait().expect("verified on the device")));
        }
        // The device verifies seals that the host has made.
        write_pattern(volume, &arena, 0, 2, 2);
        let read = volume.read_device(2, name(2, 2).hash, Urgency::Urgent, machine.range(SLOTS));
        assert_pattern(2, 2, &Machine::bytes_of(&read.wait().expect("verified on the device")));
        assert_eq!(launched(), u64::from(2 * SLOTS + 1), "each by the kernel");
        assert_eq!((volume.stats().rejected, volume.stats().failures), (0, 0));
        machine.finish();
    });
}

#[test]
fn kernel_finds_a_damaged_payload() {
    over_each(|machine| {
        let volume = &machine.volume;
        volume.write_device(1, name(1, 1), machine.filled(0, 1, 1)).wait().expect("written");
        let file =
            File::options().read(true).write(true).open(machine.dir.path().join("volume")).expect("kept");
        let (at, mut byte) = (2 * SUPERBLOCK_BYTES as u64 + 2 * BYTES as u64 - 1, [0]);
        file.read_exact_at(&mut byte, at).expect("read");
        file.write_all_at(&[byte[0] ^ 0x10], at).expect("written");
        let hash = name(1, 1).hash;
        let failure =
            volume.read_device(1, hash, Urgency::Urgent, machine.range(0)).wait().expect_err("damaged");
        assert_eq!(failure.cause, FailureCause::Rejected(Rejection::Payload));
        machine.finish();
    });
}

#[test]
fn refused_sum_fails_its_request_with_the_drivers_code() {
    over_each(|machine| {
        let volume = &machine.volume;
        machine.double.fail("cuLaunchKernel", 1, 701);
        let write = |round| volume.write_device(1, name(1, round), machine.filled(0, 1, round)).wait();
        assert_eq!(write(1).expect_err("not summed").cause, FailureCause::DeviceSum { code: 701 });
        let hash = name(1, 1).hash;
        let refused =
            volume.read_device(1, hash, Urgency::Urgent, machine.range(0)).wait().expect_err("no record");
        assert_eq!(refused.cause, FailureCause::Rejected(Rejection::Empty));
        write(2).expect("written");
        machine.double.break_at(0, 1, 700);
        assert_eq!(write(3).expect_err("not summed").cause, FailureCause::DeviceSum { code: 700 });
        assert_eq!(write(4).expect_err("quarantined").cause, FailureCause::DeviceSum { code: 700 });
        // A dead device keeps its resources, including the buffer.
        let Machine { volume, buffer, sums, double, device, .. } = machine;
        drop((volume, sums, device));
        assert!(Arc::strong_count(&buffer) > 1);
        assert_eq!(double.misuse().0, 0);
        double.reset();
    });
}

#[test]
fn late_device_fails_requests_with_cudas_timeout_code() {
    let impatient = SumOptions::new().calls(1).patience(Duration::ZERO);
    let Some(machine) = machine(Backend::Blocking, impatient) else { return };
    machine.double.hold();
    let write = |round| machine.volume.write_device(1, name(1, round), machine.filled(0, 1, round)).wait();
    // The second has no seat: the device still has it.
    for round in 0..2 {
        assert_eq!(write(round).expect_err("not summed").cause, FailureCause::DeviceSum { code: 909 });
    }
    assert_eq!(Arc::strong_count(&machine.buffer), 2, "the device's share");
    machine.double.release();
    while Arc::strong_count(&machine.buffer) > 1 {
        std::thread::yield_now();
    }
    machine.finish();
}
