//! The policies as one type, dispatched by a predictable branch: no call of a policy goes through a pointer.

use super::carried::{Batch, Cursor, Uses};
use super::eviction::{Event, Eviction, Shape};
use super::order::Ordered;
use super::scan::Scan;
use super::stats::ReuseStats;
use super::{Policy, arc, lfu, lru, reuse, s3fifo, sieve, two_q};
use crate::hash::Placement;
use crate::id::BlockRef;
use crate::slot::{Priority, Slot, Word};
use crate::timeline::Timeline;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A policy of any kind.
pub(crate) enum AnyPolicy {
    Lru(lru::Lru),
    Lfu(lfu::Lfu),
    Sieve(sieve::Sieve),
    S3Fifo(s3fifo::S3Fifo),
    Arc(arc::Arc),
    TwoQ(two_q::TwoQ),
    Reuse(Box<reuse::Reuse>),
}

macro_rules! each {
    ($self:ident, $policy:ident => $call:expr) => {
        match $self {
            AnyPolicy::Lru($policy) => $call,
            AnyPolicy::Lfu($policy) => $call,
            AnyPolicy::Sieve($policy) => $call,
            AnyPolicy::S3Fifo($policy) => $call,
            AnyPolicy::Arc($policy) => $call,
            AnyPolicy::TwoQ($policy) => $call,
            AnyPolicy::Reuse($policy) => $call,
        }
    };
}

impl AnyPolicy {
    pub(crate) fn new(
        policy: Policy,
        capacity: usize,
        place: Placement,
        lanes: usize,
        lane_of: fn() -> usize,
    ) -> AnyPolicy {
        match policy {
            Policy::Lru => AnyPolicy::Lru(lru::Lru),
            Policy::Lfu => AnyPolicy::Lfu(lfu::Lfu::new()),
            Policy::Sieve => AnyPolicy::Sieve(sieve::Sieve),
            Policy::S3Fifo => AnyPolicy::S3Fifo(s3fifo::S3Fifo::new(capacity, place)),
            Policy::Arc => AnyPolicy::Arc(arc::Arc::new(capacity, place)),
            Policy::TwoQ => AnyPolicy::TwoQ(two_q::TwoQ::new(capacity, place)),
            Policy::Reuse => AnyPolicy::Reuse(Box::new(reuse::Reuse::new(capacity, place, lanes, lane_of))),
        }
    }
}

impl Eviction for AnyPolicy {
    fn shape(&self) -> Shape {
        each!(self, policy => policy.shape())
    }

    /// Inlined always: callers know which event it is, so only the branch that finds the policy is left.
    #[inline(always)]
    fn on(&self, number: u32, slot: &Slot, event: Event<'_>) {
        each!(self, policy => policy.on(number, slot, event));
    }

    #[inline]
    fn end_uses(&self, uses: &mut Uses) {
        each!(self, policy => policy.end_uses(uses));
    }

    #[inline]
    fn begin_batch<'s>(&self, first: u64, blocks: impl Iterator<Item = &'s Slot>) -> Batch {
        each!(self, policy => policy.begin_batch(first, blocks))
    }

    #[inline]
    fn place(&self, batch: &mut Batch, number: u32, slot: &Slot, priority: Priority, position: u64) -> u8 {
        each!(self, policy => policy.place(batch, number, slot, priority, position))
    }

    #[inline]
    fn end_batch(&self, batch: &mut Batch, free: impl Fn() -> usize) {
        each!(self, policy => policy.end_batch(batch, free));
    }

    #[inline]
    fn list_of_returning(&self, priority: Priority) -> Option<u8> {
        each!(self, policy => policy.list_of_returning(priority))
    }

    fn evict<'p>(&self, wanted: usize, scan: &impl Scan<'p>) -> usize {
        each!(self, policy => policy.evict(wanted, scan))
    }

    fn memory_bytes(&self) -> usize {
        each!(self, policy => policy.memory_bytes())
    }

    fn beside_lru(&self) -> Option<ReuseStats> {
        each!(self, policy => policy.beside_lru())
    }
}

impl Ordered for AnyPolicy {
    fn look(
        &self,
        timeline: &Timeline,
        slots: &[Slot],
        cursor: &mut Cursor,
        n: usize,
        show: impl FnMut(u32, &Slot, Word),
    ) {
        each!(self, policy => policy.look(timeline, slots, cursor, n, show));
    }

    fn look_among(
        &self,
        timeline: &Timeline,
        slots: &[Slot],
        places: &mut [u64],
        end: usize,
        is_one: &mut impl FnMut(BlockRef) -> bool,
        out: &mut Vec<BlockRef>,
    ) {
        each!(self, policy => policy.look_among(timeline, slots, places, end, is_one, out));
    }
}
