//! Blocks through all three tiers by the public API alone: device → host → volume → host → device.

use kvstrata_core::SequenceHash;
use kvstrata_core::storage::{DevicePort, Storage, StorageKind};
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::device::SimDevice;
use kvstrata_ffi::disk::{Name, OwnerId, Urgency, Volume, VolumeOptions};

const BLOCK_BYTES: usize = 40_000;
const BLOCKS: u32 = 24;

fn fill(block: u32, bytes: &mut [u8]) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = (at as u32).wrapping_mul(2_654_435_761).wrapping_add(block) as u8;
    }
}

fn name(block: u32) -> Name {
    let hash = SequenceHash::from_u128(u128::from(block) + 1);
    Name { hash, parent: None, owner: OwnerId::NONE }
}

#[test]
fn bytes_survive_the_way_down_and_up() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let device = SimDevice::new(BLOCKS as usize, BLOCK_BYTES).expect("device");
    let host = HostArena::new(4, BLOCK_BYTES).expect("arena");
    let options = VolumeOptions::new(dir.path().join("g3"), BLOCKS, BLOCK_BYTES).register(&host);
    let (volume, _) = Volume::open(options).expect("volume");
    println!("{}; arena on {}", volume.describe(), host.backing());
    assert_eq!((device.kind(), host.kind()), (StorageKind::Device { ordinal: 0 }, StorageKind::System));
    assert_eq!(volume.kind(), StorageKind::Disk { volume: 0 });

    let mut bytes = vec![0; BLOCK_BYTES];
    for block in 0..BLOCKS {
        fill(block, &mut bytes);
        device.copy_in(block, 0, &bytes).expect("in range");
    }
    // Down, four at a time, to slots in another order.
    for group in (0..BLOCKS).step_by(4) {
        let pending: Vec<_> = (group..group + 4)
            .map(|block| {
                let mut buffer = host.write((block % 4) as usize).expect("free");
                device.copy_out(block, 0, &mut buffer).expect("in range");
                volume.write(BLOCKS - 1 - block, name(block), buffer.into_read())
            })
            .collect();
        pending.into_iter().for_each(|pending| drop(pending.wait().expect("written")));
    }
    // Up again, to other device blocks.
    bytes.fill(0);
    for block in 0..BLOCKS {
        device.copy_in(block, 0, &bytes).expect("in range");
    }
    for block in 0..BLOCKS {
        let buffer = host.write(0).expect("free");
        let buffer =
            volume.read(BLOCKS - 1 - block, name(block).hash, Urgency::Urgent, buffer).wait().expect("read");
        device.copy_in((block + 5) % BLOCKS, 0, &buffer).expect("in range");
    }
    let mut back = vec![0; BLOCK_BYTES];
    for block in 0..BLOCKS {
        device.copy_out((block + 5) % BLOCKS, 0, &mut back).expect("in range");
        fill(block, &mut bytes);
        assert!(back == bytes, "block {block}: other bytes came back");
    }
    let stats = volume.stats();
    assert_eq!((stats.writes, stats.reads, stats.failures), (u64::from(BLOCKS), u64::from(BLOCKS), 0));
}

#[test]
fn types_that_cross_threads_are_send() {
    fn send<T: Send + 'static>() {}
    fn shared<T: Send + Sync + 'static>() {}
    send::<kvstrata_ffi::arena::BlockRead>();
    send::<kvstrata_ffi::arena::BlockWrite>();
    send::<kvstrata_ffi::disk::Pending<kvstrata_ffi::arena::BlockRead>>();
    shared::<HostArena>();
    shared::<SimDevice>();
    shared::<Volume>();
}
