//! The machine's limit: the memory that an operation must touch, touched by minimal code.
//!
//! No shared pool can be faster than these. They are printed beside the table, so that a figure can be
//! read as a distance from the limit as well as from the peer.

use crate::PREFIX;
use crate::inputs::mix;
use crate::work::Work;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// On a line (and its prefetched neighbour) of its own.
#[repr(align(128))]
#[derive(Default)]
pub struct Padded<T>(pub T);

/// One atomic read-modify-write on a line without other writers.
#[derive(Default)]
pub struct Rmw(Padded<AtomicU64>);

impl Work for Rmw {
    fn items(&self) -> u64 {
        1
    }

    #[inline]
    fn run(&mut self) {
        self.0.0.fetch_add(1, Relaxed);
    }
}

/// A word of 64 free bits and the slots behind it.
pub struct Leaf {
    bits: Padded<AtomicU64>,
    slots: Box<[Padded<AtomicU64>]>,
}

impl Default for Leaf {
    fn default() -> Self {
        let slots = (0..64).map(|_| Padded::default()).collect();
        Leaf { bits: Padded(AtomicU64::new(u64::MAX)), slots }
    }
}

/// Claims a bit, writes its slot, frees it; with a counter that all callers write, or without.
pub struct ClaimFree<'a> {
    /// The word to claim from.
    pub leaf: &'a Leaf,
    /// A count of free blocks, as in a simple pool.
    pub counter: Option<&'a AtomicU64>,
}

impl Work for ClaimFree<'_> {
    fn items(&self) -> u64 {
        1
    }

    #[inline]
    fn run(&mut self) {
        let bits = &self.leaf.bits.0;
        // Relaxed, all: nothing is published, only the instructions' cost is of interest, and on x86-64
        // that is the same.
        if let Some(counter) = self.counter {
            counter.fetch_sub(1, Relaxed);
        }
        let mut seen = bits.load(Relaxed);
        let bit = loop {
            let bit = seen & seen.wrapping_neg();
            match bits.compare_exchange_weak(seen, seen ^ bit, Relaxed, Relaxed) {
                Ok(_) => break bit,
                Err(now) => seen = now,
            }
        };
        self.leaf.slots[(bit.trailing_zeros() & 63) as usize].0.store(bit, Relaxed);
        bits.fetch_or(bit, Relaxed);
        if let Some(counter) = self.counter {
            counter.fetch_add(1, Relaxed);
        }
    }
}

/// For each block of a prefix: finds a bucket by hash, reads the slot that it names, and takes and drops
/// a reference in it. Buckets are in the random order of hashes; the slots of a prefix are side by side,
/// as after an allocator that prefers runs.
pub struct Touch {
    buckets: Box<[u32]>,
    slots: Box<[Padded64]>,
    hashes: Vec<u32>,
    next: usize,
}

/// One slot's line.
#[repr(align(64))]
#[derive(Default)]
struct Padded64(AtomicU64);

impl Touch {
    /// Builds it over `capacity` blocks, a power of two.
    pub fn new(capacity: u32) -> Touch {
        let mut order: Vec<u32> = (0..capacity).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, mix(i as u64) as usize % (i + 1));
        }
        // Block i lies behind bucket order[i].
        let mut buckets = vec![0; order.len()].into_boxed_slice();
        for (slot, bucket) in order.iter().enumerate() {
            buckets[*bucket as usize] = slot as u32;
        }
        Touch { buckets, slots: (0..capacity).map(|_| Padded64::default()).collect(), hashes: order, next: 0 }
    }
}

impl Work for Touch {
    fn items(&self) -> u64 {
        PREFIX as u64
    }

    #[inline]
    fn run(&mut self) {
        let prefixes = self.hashes.len() / PREFIX;
        self.next = (self.next + 1) % prefixes;
        let first = self.next.wrapping_mul(0x9e37_79b1) % prefixes * PREFIX;
        let hashes = &self.hashes[first..][..PREFIX];
        for bucket in hashes {
            self.slots[self.buckets[*bucket as usize] as usize].0.fetch_add(1, Relaxed);
        }
        for bucket in hashes.iter().rev() {
            self.slots[self.buckets[*bucket as usize] as usize].0.fetch_sub(1, Relaxed);
        }
    }
}
