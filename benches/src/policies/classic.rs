//! Classic policies by their papers, a block at a time, each request tail first; hits are leading runs,
//! counted before.
//!
//! They evict in any order, not leaf first, and nothing is held, so the core's versions of the same
//! names count otherwise.
//!
//! I1. An id is in at most one list of a policy.

use super::traffic::Trace;
use std::collections::BTreeSet;
use std::mem::take;

const NONE: u32 = u32::MAX;

/// Several lists over the same ids; an id is in at most one. Head: oldest.
struct Lists {
    prev: Vec<u32>,
    next: Vec<u32>,
    of: Vec<u8>,
    head: [u32; 4],
    tail: [u32; 4],
    len: [usize; 4],
}

const OUT: u8 = u8::MAX;

impl Lists {
    fn new(ids: usize) -> Lists {
        Lists {
            prev: vec![NONE; ids],
            next: vec![NONE; ids],
            of: vec![OUT; ids],
            head: [NONE; 4],
            tail: [NONE; 4],
            len: [0; 4],
        }
    }

    fn of(&self, id: u32) -> u8 {
        self.of[id as usize]
    }

    fn remove(&mut self, id: u32) {
        let list = self.of(id) as usize;
        let (p, n) = (self.prev[id as usize], self.next[id as usize]);
        if p == NONE {
            self.head[list] = n
        } else {
            self.next[p as usize] = n
        }
        if n == NONE {
            self.tail[list] = p
        } else {
            self.prev[n as usize] = p
        }
        self.of[id as usize] = OUT;
        self.len[list] -= 1;
    }

    fn push(&mut self, id: u32, list: usize) {
        let t = self.tail[list];
        (self.prev[id as usize], self.next[id as usize], self.of[id as usize]) = (t, NONE, list as u8);
        if t == NONE {
            self.head[list] = id
        } else {
            self.next[t as usize] = id
        }
        self.tail[list] = id;
        self.len[list] += 1;
    }

    fn pop(&mut self, list: usize) -> u32 {
        let id = self.head[list];
        self.remove(id);
        id
    }
}

trait Cache {
    fn has(&self, id: u32) -> bool;
    fn access(&mut self, id: u32);
}

fn hits(trace: &Trace, cache: &mut impl Cache) -> u64 {
    let mut hits = 0;
    for request in &trace.requests {
        hits += request.ids.iter().take_while(|id| cache.has(**id)).count() as u64;
        request.ids.iter().rev().for_each(|id| cache.access(*id));
    }
    hits
}

struct Lru(Lists, usize);

impl Cache for Lru {
    fn has(&self, id: u32) -> bool {
        self.0.of(id) == 0
    }

    fn access(&mut self, id: u32) {
        if self.has(id) {
            self.0.remove(id);
        } else if self.0.len[0] == self.1 {
            self.0.pop(0);
        }
        self.0.push(id, 0);
    }
}

/// LFU with dynamic ageing, uses up to 15, the first included, ties by recency: as in the core.
struct Lfu {
    c: usize,
    order: BTreeSet<(u64, u64, u32)>,
    state: Vec<Option<(u64, u64, u64)>>,
    age: u64,
    clock: u64,
}

impl Cache for Lfu {
    fn has(&self, id: u32) -> bool {
        self.state[id as usize].is_some()
    }

    fn access(&mut self, id: u32) {
        self.clock += 1;
        let uses = match self.state[id as usize] {
            Some((uses, worth, stamp)) => {
                self.order.remove(&(worth, stamp, id));
                (uses + 1).min(15)
            }
            None => {
                if self.order.len() == self.c
                    && let Some((worth, _, victim)) = self.order.pop_first()
                {
                    self.age = worth;
                    self.state[victim as usize] = None;
                }
                1
            }
        };
        let worth = self.age + uses;
        self.state[id as usize] = Some((uses, worth, self.clock));
        self.order.insert((worth, self.clock, id));
    }
}

struct Sieve {
    c: usize,
    lists: Lists,
    seen: Vec<bool>,
    hand: u32,
}

impl Cache for Sieve {
    fn has(&self, id: u32) -> bool {
        self.lists.of(id) == 0
    }

    fn access(&mut self, id: u32) {
        if self.has(id) {
            self.seen[id as usize] = true;
            return;
        }
        if self.lists.len[0] == self.c {
            let mut at = if self.hand == NONE { self.lists.head[0] } else { self.hand };
            while take(&mut self.seen[at as usize]) {
                at = self.lists.next[at as usize];
                if at == NONE {
                    at = self.lists.head[0];
                }
            }
            self.hand = self.lists.next[at as usize];
            self.lists.remove(at);
        }
        self.seen[id as usize] = false;
        self.lists.push(id, 0);
    }
}

/// Lists: 0 small, 1 main, 2 ghost. As in the authors' own code (libCacheSim): promotions from small may
/// overfill main until a block leaves small; the paper's listing takes one from main too.
struct S3Fifo {
    c: usize,
    lists: Lists,
    freq: Vec<u8>,
}

impl S3Fifo {
    fn evict_main(&mut self) {
        loop {
            let id = self.lists.pop(1);
            if self.freq[id as usize] == 0 {
                return;
            }
            self.freq[id as usize] -= 1;
            self.lists.push(id, 1);
        }
    }

    fn evict(&mut self) {
        if self.lists.len[0] >= (self.c / 10).max(1) || self.lists.len[1] == 0 {
            while self.lists.len[0] > 0 {
                let id = self.lists.pop(0);
                if self.freq[id as usize] > 1 {
                    self.freq[id as usize] = 0;
                    self.lists.push(id, 1);
                } else {
                    self.lists.push(id, 2);
                    if self.lists.len[2] > self.c * 9 / 10 {
                        self.lists.pop(2);
                    }
                    return;
                }
            }
        }
        self.evict_main();
    }
}

impl Cache for S3Fifo {
    fn has(&self, id: u32) -> bool {
        self.lists.of(id) < 2
    }

    fn access(&mut self, id: u32) {
        if self.has(id) {
            self.freq[id as usize] = (self.freq[id as usize] + 1).min(3);
            return;
        }
        while self.lists.len[0] + self.lists.len[1] >= self.c {
            self.evict();
        }
        let ghost = self.lists.of(id) == 2;
        if ghost {
            self.lists.remove(id);
        }
        self.freq[id as usize] = 0;
        self.lists.push(id, usize::from(ghost));
    }
}

/// Lists: 0 T1, 1 T2, 2 B1, 3 B2.
struct Arc {
    c: usize,
    p: f64,
    lists: Lists,
}

/// Sums of parts of blocks are not exact: values nearer than this are equal.
const NEAR: f64 = 1e-9;

impl Arc {
    fn replace(&mut self, in_b2: bool) {
        let t1 = self.lists.len[0];
        let more = t1 as f64 - self.p;
        if t1 >= 1 && (more > NEAR || (in_b2 && more > -NEAR)) {
            let id = self.lists.pop(0);
            self.lists.push(id, 2);
        } else if self.lists.len[1] > 0 {
            let id = self.lists.pop(1);
            self.lists.push(id, 3);
        } else {
            let id = self.lists.pop(0);
            self.lists.push(id, 2);
        }
    }
}

impl Cache for Arc {
    fn has(&self, id: u32) -> bool {
        self.lists.of(id) < 2
    }

    fn access(&mut self, id: u32) {
        let c = self.c;
        match self.lists.of(id) {
            0 | 1 => self.lists.remove(id),
            of @ (2 | 3) => {
                let (b1, b2) = (self.lists.len[2], self.lists.len[3]);
                if of == 2 {
                    self.p = (self.p + (b2 as f64 / b1 as f64).max(1.0)).min(c as f64);
                } else {
                    self.p = (self.p - (b1 as f64 / b2 as f64).max(1.0)).max(0.0);
                }
                self.replace(of == 3);
                self.lists.remove(id);
            }
            _ => {
                let [t1, t2, b1, b2] = [0, 1, 2, 3].map(|l| self.lists.len[l]);
                if t1 + b1 == c {
                    if t1 < c {
                        self.lists.pop(2);
                        self.replace(false);
                    } else {
                        self.lists.pop(0);
                    }
                } else if t1 + t2 + b1 + b2 >= c {
                    if t1 + t2 + b1 + b2 == 2 * c {
                        self.lists.pop(3);
                    }
                    if t1 + t2 >= c {
                        self.replace(false);
                    }
                }
                return self.lists.push(id, 0);
            }
        }
        self.lists.push(id, 1);
    }
}

/// Full 2Q. Lists: 0 A1in, 1 Am, 2 A1out.
struct TwoQ {
    c: usize,
    kin: usize,
    kout: usize,
    lists: Lists,
}

impl Cache for TwoQ {
    fn has(&self, id: u32) -> bool {
        self.lists.of(id) < 2
    }

    fn access(&mut self, id: u32) {
        match self.lists.of(id) {
            1 => {
                self.lists.remove(id);
                return self.lists.push(id, 1);
            }
            0 => return,
            _ => {}
        }
        let out = self.lists.of(id) == 2;
        if out {
            self.lists.remove(id);
        }
        if self.lists.len[0] + self.lists.len[1] >= self.c {
            if self.lists.len[0] > self.kin || self.lists.len[1] == 0 {
                let old = self.lists.pop(0);
                self.lists.push(old, 2);
                if self.lists.len[2] > self.kout {
                    self.lists.pop(2);
                }
            } else {
                self.lists.pop(1);
            }
        }
        self.lists.push(id, usize::from(out));
    }
}

/// One of the policies.
#[derive(Clone, Copy, Debug)]
pub enum Classic {
    /// Least recently released.
    Lru,
    /// LFU with dynamic ageing.
    Lfu,
    /// SIEVE.
    Sieve,
    /// S3-FIFO, a tenth of it small.
    S3Fifo,
    /// ARC.
    Arc,
    /// 2Q with a ghost list of half the capacity.
    TwoQ,
    /// 2Q with a ghost list of four capacities.
    TwoQLong,
}

impl Classic {
    /// All policies, with their names.
    pub const ALL: [(&str, Classic); 7] = [
        ("lru", Classic::Lru),
        ("lfu", Classic::Lfu),
        ("sieve", Classic::Sieve),
        ("s3fifo", Classic::S3Fifo),
        ("arc", Classic::Arc),
        ("2q", Classic::TwoQ),
        ("2q, ghost 4C", Classic::TwoQLong),
    ];

    /// Returns the hits over a cache of `c` blocks.
    #[must_use]
    pub fn hits(self, t: &Trace, c: usize) -> u64 {
        let n = t.distinct;
        let two = |kout| TwoQ { c, kin: c / 4, kout, lists: Lists::new(n) };
        match self {
            Classic::Lru => hits(t, &mut Lru(Lists::new(n), c)),
            Classic::Lfu => {
                hits(t, &mut Lfu { c, order: BTreeSet::new(), state: vec![None; n], age: 0, clock: 0 })
            }
            Classic::Sieve => {
                hits(t, &mut Sieve { c, lists: Lists::new(n), seen: vec![false; n], hand: NONE })
            }
            Classic::S3Fifo => hits(t, &mut S3Fifo { c, lists: Lists::new(n), freq: vec![0; n] }),
            Classic::Arc => hits(t, &mut Arc { c, p: 0.0, lists: Lists::new(n) }),
            Classic::TwoQ => hits(t, &mut two(c / 2)),
            Classic::TwoQLong => hits(t, &mut two(4 * c)),
        }
    }
}
