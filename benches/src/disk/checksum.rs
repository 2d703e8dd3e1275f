//! The payload checksum beside memcpy: XXH3-64 of chunks of 64 KiB, each seeded with its number, summed.

use crate::pages::Pages;
use crate::rounds::{Effort, Samples, Spread};
use crate::work::Work;
use std::hint::black_box;
use twox_hash::XxHash3_64;

const CHUNK_BYTES: usize = 64 << 10;
/// Fits into a core's second-level cache.
const WARM_BYTES: usize = 256 << 10;
/// Far more than any cache.
const COLD_BYTES: usize = 512 << 20;

/// Returns the checksum of a payload, as in the disk format.
#[must_use]
pub fn payload(bytes: &[u8]) -> u64 {
    let chunks = bytes.chunks(CHUNK_BYTES).zip(0_u64..);
    chunks.fold(0, |sum, (chunk, seed)| sum.wrapping_add(XxHash3_64::oneshot_with_seed(seed, chunk)))
}

/// A figure of the table, in GB/s.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// The name of the row.
    pub name: &'static str,
    /// GB/s.
    pub gb_per_s: Spread,
}

struct Hashes<'a> {
    memory: &'a Pages,
    bytes: usize,
}

impl Work for Hashes<'_> {
    fn items(&self) -> u64 {
        self.bytes as u64
    }

    fn run(&mut self) {
        black_box(payload(black_box(slice(self.memory, 0, self.bytes))));
    }
}

struct Copies<'a> {
    from: &'a Pages,
    to: &'a Pages,
    bytes: usize,
}

impl Work for Copies<'_> {
    fn items(&self) -> u64 {
        self.bytes as u64
    }

    fn run(&mut self) {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.to.address() as usize);
        let from = black_box(slice(self.from, 0, self.bytes));
        assert!(self.bytes <= self.to.bytes());
        // SAFETY: both are mappings of their own, of that length, and no reference into `to` exists.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        black_box(to);
    }
}

/// Measures checksum and copy, of warm and of cold bytes, in turns.
#[must_use]
pub fn rates(effort: Effort) -> Vec<Rate> {
    let (memory, other) = (Pages::new(COLD_BYTES), Pages::new(COLD_BYTES));
    let mut warm = Hashes { memory: &memory, bytes: WARM_BYTES };
    let mut cold = Hashes { memory: &memory, bytes: COLD_BYTES };
    let mut warm_copy = Copies { from: &memory, to: &other, bytes: WARM_BYTES };
    let mut cold_copy = Copies { from: &memory, to: &other, bytes: COLD_BYTES };
    let samples = Samples::take(effort, &mut [&mut warm, &mut cold, &mut warm_copy, &mut cold_copy]);
    let rate = |who: usize, name, bytes: usize| {
        let Spread { low, median, high } = samples.time(who);
        let rate = |ns: f64| bytes as f64 / ns;
        Rate { name, gb_per_s: Spread { low: rate(high), median: rate(median), high: rate(low) } }
    };
    vec![
        rate(0, "XXH3-64, 64 KiB chunks, 256 KiB again and again", WARM_BYTES),
        rate(1, "XXH3-64, 64 KiB chunks, 512 MiB", COLD_BYTES),
        rate(2, "memcpy, 256 KiB again and again", WARM_BYTES),
        rate(3, "memcpy, 512 MiB to 512 MiB", COLD_BYTES),
    ]
}

fn slice(memory: &Pages, at: usize, bytes: usize) -> &[u8] {
    assert!(at + bytes <= memory.bytes());
    let start = std::ptr::with_exposed_provenance::<u8>(memory.address() as usize + at);
    // SAFETY: within the mapping, which was written and lives; no other code writes it while it is
    // borrowed here.
    unsafe { std::slice::from_raw_parts(start, bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_sum_is_the_sum_of_its_chunks() {
        let bytes: Vec<u8> = (0..CHUNK_BYTES as u32 + 100).map(|i| i as u8).collect();
        let (first, last) = bytes.split_at(CHUNK_BYTES);
        let sum =
            XxHash3_64::oneshot_with_seed(0, first).wrapping_add(XxHash3_64::oneshot_with_seed(1, last));
        assert_eq!(payload(&bytes), sum);
        // Swapping chunks changes it.
        let mut swapped = last.to_vec();
        swapped.extend_from_slice(first);
        assert_ne!(payload(&swapped), sum);
    }
}
