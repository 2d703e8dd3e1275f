//! Bytes that identify their block: they are drawn from its hash, and no two blocks begin with the same word.

use crate::common::Random;
use kvstrata_core::SequenceHash;
use kvstrata_core::storage::DevicePort;
use kvstrata_ffi::device::SimDevice;
use std::ops::Range;

/// The hash of a block, from its parent's hash and its number among the children.
pub fn child(parent: Option<SequenceHash>, which: u64) -> SequenceHash {
    let mut random = Random(
        parent.map_or(7, |parent| parent.to_u128() as u64) ^ which.wrapping_mul(0x1234_5678_9ABC_DEF1),
    );
    SequenceHash::from_u128(u128::from(random.next()) << 64 | u128::from(random.next()))
}

/// A block's bytes.
pub fn bytes_of(hash: SequenceHash, bytes: usize) -> Vec<u8> {
    let mut random = Random(hash.to_u128() as u64);
    let mut all = vec![0; bytes / 8 * 8];
    all.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
    all
}

/// Some bytes of a device block.
pub fn read(device: &SimDevice, block: u32, range: Range<usize>) -> Vec<u8> {
    let mut bytes = vec![0; range.len()];
    device.copy_out(block, range.start, &mut bytes).expect("nothing else copies while this does");
    bytes
}

/// Whether those bytes of a device block are this hash's.
pub fn is(device: &SimDevice, block: u32, hash: SequenceHash, range: Range<usize>) -> bool {
    read(device, block, range.clone()) == bytes_of(hash, range.end)[range]
}
