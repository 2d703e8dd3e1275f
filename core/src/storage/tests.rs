use super::*;
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;

const DEVICE: StorageKind = StorageKind::Device { ordinal: 1 };

#[test]
fn storage_kinds_print_their_table_names() {
    let (disk, remote) = (StorageKind::Disk { volume: 0 }, StorageKind::Remote { peer: 2 });
    let printed = [DEVICE, StorageKind::Pinned, StorageKind::System, disk, remote];
    assert_eq!(printed.map(|k| k.to_string()), ["device:1", "pinned", "system", "disk:0", "remote:2"]);
    assert_eq!(printed.map(StorageKind::is_host), [false, true, true, false, false]);
    assert_eq!(printed.map(StorageKind::is_memory), [true, true, true, false, false]);
}

#[test]
fn byo_storage_with_a_wrong_field_is_refused_by_name() {
    let refused =
        |kind, address, size, alignment| ByoStorage::new((), kind, address, size, alignment).unwrap_err();
    let null = refused(DEVICE, 0, 16, 1);
    assert_eq!(null, ByoError::NullAddress { kind: DEVICE });
    assert_eq!(null.to_string(), "address = 0: device:1 memory starts at an address above 0");
    assert_eq!(refused(DEVICE, 64, 0, 1), ByoError::ZeroSize);
    assert_eq!(
        refused(DEVICE, u64::MAX - 7, 8, 8),
        ByoError::Overflow { address: u64::MAX - 7, size_bytes: 8 },
        "one past the end must be an address too (I1)"
    );
    assert_eq!(refused(DEVICE, 64, 8, 0), ByoError::AlignmentNotPowerOfTwo { alignment: 0 });
    assert_eq!(refused(DEVICE, 64, 8, 48), ByoError::AlignmentNotPowerOfTwo { alignment: 48 });
    let misaligned = refused(DEVICE, 72, 8, 16);
    assert_eq!(misaligned, ByoError::Misaligned { address: 72, alignment: 16 });
    assert_eq!(misaligned.to_string(), "address = 0x48: must be a multiple of 16");
}

#[test]
fn byo_storage_of_a_file_accepts_offset_zero() {
    let file = ByoStorage::new((), StorageKind::Disk { volume: 0 }, 0, 4096, 4096).unwrap();
    assert_eq!(file.base_address(), 0);
}

#[test]
fn byo_storage_keeps_its_owner_alive() {
    let owner = Arc::new([0u8; 64]);
    let storage = ByoStorage::new(Arc::clone(&owner), StorageKind::Pinned, 0x1000, 64, 64).unwrap();
    assert_eq!(Arc::strong_count(&owner), 2);
    assert_eq!(format!("{storage:?}"), "ByoStorage(pinned 0x1000 + 64)");
    let shared: Arc<dyn Storage> = Arc::new(storage);
    assert_eq!(
        (shared.kind(), shared.base_address(), shared.size_bytes()),
        (StorageKind::Pinned, 0x1000, 64)
    );
    drop(shared);
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn range_beyond_one_block_is_refused() {
    let check = |block, offset, len| DeviceError::check_range(block, offset, len, 4, 128);
    assert_eq!(check(3, 0, 128), Ok(()));
    assert_eq!(check(0, 128, 0), Ok(()));
    let beyond = DeviceError::OutOfRange { block: 4, offset: 0, len: 1, blocks: 4, block_bytes: 128 };
    assert_eq!(check(4, 0, 1), Err(beyond));
    assert!(check(0, 1, 128).is_err());
    assert!(check(0, usize::MAX, 2).is_err());
    assert!(check(0, 0, usize::MAX).is_err());
    assert_eq!(
        beyond.to_string(),
        "1 bytes at offset 0 of block 4 are outside the device: it has 4 blocks of 128 bytes"
    );
}
