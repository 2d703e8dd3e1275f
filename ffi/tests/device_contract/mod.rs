//! The contract of every device behind [`DevicePort`]. One body; each backend runs it, wrappers and
//! faulty ones included.

use kvstrata_core::{DeviceError, DevicePort, StorageKind};

/// Checks a device of 4 zeroed blocks of 1,000 bytes, or as many bytes as it rounds up to.
pub fn check(device: &dyn DevicePort) {
    let (blocks, bytes) = (4u32, device.block_bytes());
    assert!(bytes >= 1000, "a block has at least the bytes that were asked for");
    assert!(matches!(device.kind(), StorageKind::Device { .. }));
    assert!(device.size_bytes() >= u64::from(blocks) * bytes as u64);
    bytes_come_back(device, blocks, bytes);
    parts_leave_the_rest(device, bytes);
    what_does_not_fit_is_refused(device, bytes);
    threads_do_not_mix(device, blocks, bytes);
}

fn pattern(block: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i as u32).wrapping_mul(31).wrapping_add(block * 101 + 7) as u8).collect()
}

fn read(device: &dyn DevicePort, block: u32, bytes: usize) -> Vec<u8> {
    let mut back = vec![0; bytes];
    device.copy_out(block, 0, &mut back).expect("in range");
    back
}

/// Fails with the first place that differs, instead of all the bytes.
fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: bytes");
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    assert_eq!(differs, None, "{what}: the first byte that differs");
}

fn bytes_come_back(device: &dyn DevicePort, blocks: u32, bytes: usize) {
    for block in 0..blocks {
        device.copy_in(block, 0, &pattern(block, bytes)).expect("in range");
    }
    for block in 0..blocks {
        assert_same(&read(device, block, bytes), &pattern(block, bytes), &format!("block {block}"));
    }
}

fn parts_leave_the_rest(device: &dyn DevicePort, bytes: usize) {
    let mut expected = pattern(1, bytes);
    for (offset, len) in [(0, 1), (1, 7), (63, 130), (bytes - 1, 1), (bytes, 0), (500, 0)] {
        let part = vec![0xa5; len];
        device.copy_in(1, offset, &part).expect("in range");
        expected[offset..offset + len].copy_from_slice(&part);
        let mut back = vec![0; len];
        device.copy_out(1, offset, &mut back).expect("in range");
        assert_same(&back, &part, "the part");
    }
    assert_same(&read(device, 1, bytes), &expected, "the block around the parts");
    assert_same(&read(device, 0, bytes), &pattern(0, bytes), "the neighbour before");
    assert_same(&read(device, 2, bytes), &pattern(2, bytes), "the neighbour behind");
}

fn what_does_not_fit_is_refused(device: &dyn DevicePort, bytes: usize) {
    let before = read(device, 3, bytes);
    for (block, offset, len) in
        [(u32::MAX, 0, 1), (3, bytes, 1), (3, 0, bytes + 1), (3, bytes - 1, 2), (3, usize::MAX, 2)]
    {
        let refused = device.copy_in(block, offset, &vec![9; len]);
        assert!(
            matches!(refused, Err(DeviceError::OutOfRange { .. })),
            "{block} {offset} {len}: {refused:?}"
        );
        let mut target = vec![9; len];
        assert!(matches!(device.copy_out(block, offset, &mut target), Err(DeviceError::OutOfRange { .. })));
        assert!(target.iter().all(|byte| *byte == 9), "a refusal writes nothing");
    }
    assert_same(&read(device, 3, bytes), &before, "after refusals");
}

fn threads_do_not_mix(device: &dyn DevicePort, blocks: u32, bytes: usize) {
    std::thread::scope(|scope| {
        for block in 0..blocks {
            scope.spawn(move || {
                for round in 0..50 {
                    let bytes = pattern(block + round * 17, bytes);
                    device.copy_in(block, 0, &bytes).expect("each its own block");
                    assert_same(&read(device, block, bytes.len()), &bytes, "beside other threads");
                }
            });
        }
    });
}
