//! A pool with the policy, as the core has it: match, hold, evict leaf first, register, release tail first.
//!
//! One tier, one request at a time, all of a request's victims before its registrations, as an allocation takes them.
//!
//! I1. A block is in one slot at most; its parent is resident as long as it is.

use super::reuse::{Host, NIL, Reuse};
use super::traffic::{Trace, key_of};
use std::time::Instant;

/// A request's work is less: what took longer was interrupted.
const INTERRUPTED_NS: u64 = 100_000;

/// What a run counted.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Blocks of leading runs that were found.
    pub hits: u64,
    /// Blocks that were evicted.
    pub evictions: u64,
    /// Nanoseconds of the evictions that were timed.
    pub evict_ns: u64,
    /// Evictions that were timed, and not interrupted.
    pub evictions_timed: u64,
    /// Nanoseconds of hits, registrations and releases.
    pub touch_ns: u64,
}

/// What the core has in its slots anyway.
struct Pool {
    keys: Vec<u64>,
    parents: Vec<u32>,
    children: Vec<u32>,
}

impl Host for Pool {
    fn key(&self, slot: u32) -> u64 {
        self.keys[slot as usize]
    }

    fn parent(&self, slot: u32) -> u32 {
        self.parents[slot as usize]
    }

    fn children(&self, slot: u32) -> u32 {
        self.children[slot as usize]
    }
}

/// Runs the trace over a pool of so many blocks; a request longer than the pool is cut off.
#[must_use]
pub fn run(trace: &Trace, capacity: usize, timed: bool) -> Outcome {
    let mut policy = Reuse::new(capacity);
    let mut pool =
        Pool { keys: vec![0; capacity], parents: vec![NIL; capacity], children: vec![0; capacity] };
    let mut slot_of = vec![NIL; trace.distinct];
    let mut id_of = vec![NIL; capacity];
    let mut free: Vec<u32> = (0..capacity as u32).rev().collect();
    let mut out = Outcome::default();
    let (mut fresh, mut victims) = (Vec::new(), Vec::new());
    for request in &trace.requests {
        let ids = &request.ids[..request.ids.len().min(capacity)];
        out.hits += ids.iter().take_while(|id| slot_of[**id as usize] != NIL).count() as u64;
        // Match, and look-up of the rest: held.
        let watch = Watch::start(timed);
        fresh.clear();
        for (at, id) in ids.iter().enumerate() {
            match slot_of[*id as usize] {
                NIL => fresh.push(at),
                slot => policy.on_hit(&pool, slot),
            }
        }
        out.touch_ns += watch.stop().unwrap_or(0);
        let wanted = fresh.len().saturating_sub(free.len());
        let watch = Watch::start(timed);
        victims.clear();
        for _ in 0..wanted {
            let victim = policy.evict(&pool).expect("a request is at most as long as the pool");
            victims.push(victim);
            let parent = pool.parents[victim as usize];
            if parent != NIL {
                pool.children[parent as usize] -= 1;
                if pool.children[parent as usize] == 0 {
                    policy.on_childless(parent);
                }
            }
        }
        if let Some(ns) = watch.stop() {
            out.evict_ns += ns;
            out.evictions_timed += wanted as u64;
        }
        for victim in victims.drain(..) {
            slot_of[id_of[victim as usize] as usize] = NIL;
            free.push(victim);
        }
        out.evictions += wanted as u64;
        let watch = Watch::start(timed);
        for (nth, at) in fresh.iter().enumerate() {
            let (slot, id) = (free.pop().expect("as many were evicted"), ids[*at]);
            slot_of[id as usize] = slot;
            id_of[slot as usize] = id;
            let parent = if *at == 0 { NIL } else { slot_of[ids[*at - 1] as usize] };
            pool.keys[slot as usize] = key_of(id);
            pool.parents[slot as usize] = parent;
            pool.children[slot as usize] = 0;
            if parent != NIL {
                pool.children[parent as usize] += 1;
            }
            policy.on_register(&pool, slot, (fresh.len() - nth) as u32);
        }
        for (at, id) in ids.iter().rev().enumerate() {
            policy.on_release(&pool, slot_of[*id as usize], at as u32);
        }
        out.touch_ns += watch.stop().unwrap_or(0);
    }
    out
}

/// Time, but for what was interrupted.
struct Watch(Option<Instant>);

impl Watch {
    fn start(timed: bool) -> Watch {
        Watch(timed.then(Instant::now))
    }

    /// Nanoseconds; none if it was interrupted, or nothing is timed.
    fn stop(self) -> Option<u64> {
        self.0.map(|start| start.elapsed().as_nanos() as u64).filter(|ns| *ns < INTERRUPTED_NS)
    }
}
