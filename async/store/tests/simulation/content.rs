//! The entries: their keys, lengths and bytes.

use kvstrata_core::SequenceHash;
use kvstrata_ffi::arena::HostArena;
use std::sync::Arc;

/// The sizes of blocks.
pub const SIZES: [usize; 2] = [4096, 12_288];
/// The number of keys.
pub const KEYS: u64 = 24;
/// The lengths of entries: whole blocks and parts of them, aligned or not.
const LENGTHS: [usize; 6] = [4096, 4096, 1000, 12_288, 8192, 5001];

pub fn key(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

pub fn bytes_of(number: u64) -> usize {
    LENGTHS[number as usize % LENGTHS.len()]
}

pub fn content(number: u64) -> Vec<u8> {
    (0..bytes_of(number) as u64).map(|at| (number * 31 + at * 7 + at / 256 * 3) as u8).collect()
}

/// The contents of keys, in memory to lend. Aligned if all are of one length, and `aligned` says so.
pub fn filled(numbers: &[u64], aligned: bool) -> Arc<HostArena> {
    let memory = blank(numbers, aligned, 0);
    for (block, number) in numbers.iter().enumerate() {
        memory.write(block).expect("unused").copy_from_slice(&content(*number));
    }
    memory
}

/// Memory to load keys into; each span is shorter by `less` bytes than its entry.
pub fn blank(numbers: &[u64], aligned: bool, less: usize) -> Arc<HostArena> {
    let lengths: Vec<usize> = numbers.iter().map(|number| bytes_of(*number) - less).collect();
    let same = lengths.iter().all(|length| *length == lengths[0]);
    let memory = match aligned && same {
        true => HostArena::new(lengths.len(), lengths[0]),
        false => HostArena::of_buffers(lengths.iter().map(|length| vec![0; *length]).collect()),
    };
    let memory = memory.expect("memory");
    (0..lengths.len()).for_each(|block| memory.write(block).expect("unused").fill(BLANK));
    memory
}

/// The bytes of blank memory.
pub const BLANK: u8 = 0x55;

/// Compares loaded bytes with the key's.
pub fn assert_same(bytes: &[u8], number: u64) {
    let wanted = content(number);
    let wrong: Vec<usize> = (0..wanted.len()).filter(|at| bytes.get(*at) != wanted.get(*at)).collect();
    let first = wrong.first().map(|at| (*at, bytes.get(*at), wanted[*at]));
    assert!(
        wrong.is_empty() && bytes.len() == wanted.len(),
        "key {number}: {} bytes differ, first {first:?}",
        wrong.len()
    );
}
