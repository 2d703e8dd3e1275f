//! A queue's entries for requests in one class: the request's waiting transfers, and its turn. An entry
//! lives while a transfer waits.
//!
//! ```text
//!   buckets [h(class, request)] ──► flow ──chain──► flow          to find one
//!   of a class:  flow ◄──► flow ◄──► flow                         the round: the first one's turn is it
//!                  │
//!                lane 0 ◄──► lane 3                             of a flow: its lanes with waiting transfers
//!                  │ first … last
//!                  transfers, FIFO
//! ```

use super::list::{Linked, Links, List};
use super::{FIFO, LANE, ROUND};
use crate::transfer::Class;
use slab::Slab;

const NONE: u32 = u32::MAX;
/// 2⁶⁴ divided by the golden ratio: spreads consecutive numbers over the upper bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const LEAST_BUCKETS: usize = 16;

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) class: Class,
    pub(super) request: u64,
    pub(super) lanes: List<LANE>,
    /// Bytes that it may move before its turn ends; the rest of them stays for its next turn.
    pub(super) deficit: u64,
    /// Whether its turn has begun: its quantum is in the deficit.
    pub(super) its_turn: bool,
    round: Links,
    chain: u32,
}

/// A flow's transfers of a lane.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) flow: u32,
    pub(super) number: u16,
    pub(super) transfers: List<FIFO>,
    links: Links,
}

impl Linked<LANE> for Lane {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Linked<ROUND> for Flow {
    fn links(&mut self) -> &mut Links {
        &mut self.round
    }
}

/// Flows by class and request. No allocation shrinks: each is used again.
#[derive(Debug)]
pub(super) struct Flows {
    pub(super) slab: Slab<Flow>,
    pub(super) lanes: Slab<Lane>,
    /// The heads of chains: a power of two, at least as many as there have been flows at a time.
    buckets: Vec<u32>,
}

impl Flows {
    pub(super) fn new() -> Flows {
        Flows { slab: Slab::new(), lanes: Slab::new(), buckets: vec![NONE; LEAST_BUCKETS] }
    }

    fn bucket(&self, class: Class, request: u64) -> usize {
        let spread = request.wrapping_mul(4).wrapping_add(class as u64).wrapping_mul(SPREAD);
        (spread >> (u64::BITS - self.buckets.len().trailing_zeros())) as usize
    }

    fn find(&self, class: Class, request: u64) -> Option<u32> {
        let mut key = self.buckets[self.bucket(class, request)];
        while key != NONE {
            let flow = &self.slab[key as usize];
            if flow.class == class && flow.request == request {
                return Some(key);
            }
            key = flow.chain;
        }
        None
    }

    /// Returns the request's flow, or adds a new one as the last of the `round`.
    pub(super) fn find_or_add(&mut self, round: &mut List<ROUND>, class: Class, request: u64) -> u32 {
        if let Some(key) = self.find(class, request) {
            return key;
        }
        if self.slab.len() == self.buckets.len() {
            self.double();
        }
        let bucket = self.bucket(class, request);
        let key = self.slab.insert(Flow {
            class,
            request,
            lanes: List::EMPTY,
            deficit: 0,
            its_turn: false,
            round: Links::NONE,
            chain: self.buckets[bucket],
        }) as u32;
        self.buckets[bucket] = key;
        round.push_last(&mut self.slab, key);
        key
    }

    /// Returns the flow's lane of a number, or adds one.
    pub(super) fn lane(&mut self, flow: u32, number: u16) -> u32 {
        let mut next = self.slab[flow as usize].lanes.first();
        while let Some(key) = next {
            if self.lanes[key as usize].number == number {
                return key;
            }
            next = self.lane_after(flow, key);
        }
        let lane = Lane { flow, number, transfers: List::EMPTY, links: Links::NONE };
        let key = self.lanes.insert(lane) as u32;
        self.slab[flow as usize].lanes.push_last(&mut self.lanes, key);
        key
    }

    /// Returns the flow's lane behind one of its lanes.
    pub(super) fn lane_after(&mut self, flow: u32, key: u32) -> Option<u32> {
        self.slab[flow as usize].lanes.after(&mut self.lanes, key)
    }

    /// Forgets a lane without waiting transfers, and with the last lane its flow.
    pub(super) fn remove_lane(&mut self, round: &mut List<ROUND>, key: u32) {
        let flow = self.lanes[key as usize].flow;
        let lanes = &mut self.slab[flow as usize].lanes;
        lanes.remove(&mut self.lanes, key);
        self.lanes.remove(key as usize);
        if lanes.length() == 0 {
            self.remove(round, flow);
        }
    }

    fn remove(&mut self, round: &mut List<ROUND>, key: u32) {
        round.remove(&mut self.slab, key);
        let Flow { class, request, chain, .. } = self.slab.remove(key as usize);
        let bucket = self.bucket(class, request);
        if self.buckets[bucket] == key {
            self.buckets[bucket] = chain;
            return;
        }
        let mut before = self.buckets[bucket];
        while self.slab[before as usize].chain != key {
            before = self.slab[before as usize].chain;
        }
        self.slab[before as usize].chain = chain;
    }

    fn double(&mut self) {
        let buckets = 2 * self.buckets.len();
        self.buckets.clear();
        self.buckets.resize(buckets, NONE);
        for key in 0..self.slab.capacity() {
            if let Some(&Flow { class, request, .. }) = self.slab.get(key) {
                let bucket = self.bucket(class, request);
                self.slab[key].chain = std::mem::replace(&mut self.buckets[bucket], key as u32);
            }
        }
    }
}
