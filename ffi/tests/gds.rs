//! cuFile as installed here, or its absence, tested by the public API alone.

#[path = "../examples/gds_rate/device.rs"]
mod device;

use device::{Allocation, Cuda};
use kvstrata_core::SequenceHash;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::disk::{Name, OwnerId, Urgency, Volume, VolumeOptions};
use kvstrata_ffi::gds::{DeviceRange, DeviceSums, GdsBuffer, GdsDriver, GdsError, GdsOptions};
use std::sync::Arc;
use twox_hash::XxHash3_64;

/// Not a multiple of a chunk.
const BYTES: usize = (1 << 20) + 4096;

/// Prints the reason for leaving a test out; fails if `KVSTRATA_REQUIRE` names the missing part.
fn skip(why: &dyn core::fmt::Display) {
    let required = std::env::var("KVSTRATA_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name.trim() == "gds"), "gds is required: {why}");
    println!("SKIP gds: {why}");
}

/// A volume that keeps its file: cuFile opens a file again by name.
fn options(folder: &tempfile::TempDir) -> VolumeOptions {
    VolumeOptions::new(folder.path().join("volume"), 4, BYTES).keep(true)
}

#[test]
fn missing_gds_part_is_in_the_volumes_notes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (volume, _) = Volume::open(options(&folder).gds(GdsOptions::new(0))).expect("without cuFile too");
    let words = volume.describe().to_string();
    println!("{words}");
    match volume.gds() {
        Some(_) => assert!(words.contains("device memory by cuFile"), "{words}"),
        None => {
            let notes = &volume.describe().notes;
            let note = notes.iter().find(|note| note.starts_with("the volume refuses device memory: "));
            assert!(note.expect("a note").contains("; "), "says what to do: {words}");
        }
    }
    // A device that no machine has, or a missing part that is needed before it: an answer, at once.
    match GdsDriver::open(GdsOptions::new(u32::MAX)) {
        Err(GdsError::LibraryMissing { library, .. }) => assert!(library.starts_with("libcu"), "{library}"),
        Err(
            GdsError::Cuda { device: u32::MAX, .. }
            | GdsError::SymbolMissing { .. }
            | GdsError::Unreadable { .. },
        ) => {}
        other => panic!("{other:?}"),
    }
}

/// The documented sum, over a copy in host memory.
struct CopiedSums(Arc<Allocation>);

fn sum(payload: &[u8]) -> u64 {
    let sums = (0..).zip(payload.chunks(65536)).map(|(i, chunk)| XxHash3_64::oneshot_with_seed(i, chunk));
    sums.fold(0, u64::wrapping_add)
}

impl DeviceSums for CopiedSums {
    fn sum(&self, payload: &DeviceRange) -> Result<u64, i32> {
        let mut copy = vec![0; payload.size_bytes()];
        self.0.copy_out(payload.offset(), &mut copy).map_err(|_| 1)?;
        Ok(sum(&copy))
    }
}

#[test]
fn bytes_survive_the_way_from_a_device_to_a_volume_and_back() {
    let gds = GdsOptions::new(0).allow_compat(true);
    let cuda = match GdsDriver::open(gds) {
        Ok(_) => Cuda::open(0).expect("the driver needed it too"),
        Err(error) => return skip(&error),
    };
    let memory = cuda.allocate(2 * BYTES).expect("2 MiB");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sums = Arc::new(CopiedSums(Arc::clone(&memory)));
    let (volume, _) = Volume::open(options(&folder).gds(gds).device_sums(sums)).expect("a volume");
    let Some(driver) = volume.gds() else { return skip(volume.describe()) };
    println!("{}", volume.describe());
    let content: Vec<u8> = (0..BYTES as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let arena = HostArena::new(1, BYTES).expect("an arena");
    let mut back = vec![0; BYTES];
    let buffers =
        [GdsBuffer::register(driver, memory.memory()), Ok(GdsBuffer::unregistered(driver, memory.memory()))];
    for (slot, buffer) in (0..).zip(buffers) {
        let Ok(buffer) = buffer.inspect_err(|error| println!("{error}")) else { continue };
        let range = |offset| buffer.range(offset, BYTES).expect("in range");
        memory.copy_in(0, &content).expect("in range");
        memory.copy_in(BYTES, &vec![0xEE; BYTES]).expect("in range");
        let name = Name { hash: SequenceHash::from_u128(7), parent: None, owner: OwnerId::NONE };
        volume.write_device(slot, name, range(0)).wait().expect("written");
        volume.read_device(slot, name.hash, Urgency::Urgent, range(BYTES)).wait().expect("read");
        memory.copy_out(BYTES, &mut back).expect("in range");
        assert!(back == content, "other bytes came back: {buffer:?}");
        // The seal made by the device's sum passes the host's own verification.
        let host = arena.write(0).expect("free");
        let host = volume.read(slot, name.hash, Urgency::Urgent, host).wait().expect("verified by the host");
        assert!(*host == *content);
    }
}
