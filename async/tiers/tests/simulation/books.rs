//! The blocks that engines hold, by their own account; their observations; and the trace.

use kvstrata_core::{BlockId, SequenceHash};
use kvstrata_testing::virtual_time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A block of the device that engines hold.
#[derive(Debug)]
pub struct Holding {
    pub hash: SequenceHash,
    pub count: u32,
}

/// An allocation that waits.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    pub blocks: u32,
    /// The line that it waits in: allocations of one line are served in order.
    line: u64,
}

/// How an allocation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Served,
    Refused,
    GivenUp,
}

#[derive(Debug, Default)]
pub struct Books {
    pub held: BTreeMap<u32, Holding>,
    pub owned: BTreeSet<u32>,
    /// Calls in flight that may hold blocks not noted yet: matches, onboardings.
    pub unsure: u32,
    /// Waiting allocations, by number of arrival.
    pub waiting: BTreeMap<u64, Waiting>,
    arrivals: u64,
    /// Those that saw a later one served: which one, and when.
    overtaken: BTreeMap<u64, (u64, Instant)>,
    /// All hashes ever registered: the tenant, and the number of the last registration.
    pub known: BTreeMap<u128, (u64, u64)>,
    registrations: u64,
    pub violations: Vec<String>,
    pub tell: bool,
    began: Option<Instant>,
    trace: DefaultHasher,
}

impl Books {
    pub fn begin(&mut self, tell: bool) {
        self.tell = tell;
        self.began = Some(Instant::now());
    }

    /// Notes an event, its time and its engine.
    pub fn note(&mut self, who: u64, what: &str) {
        let now = self.began.map_or(0, |began| began.elapsed().as_millis());
        (now, who, what).hash(&mut self.trace);
        if self.tell {
            println!("{now:>7} ms  engine {who}: {what}");
        }
    }

    pub fn trace(&self) -> u64 {
        self.trace.finish()
    }

    pub fn violation(&mut self, what: String) {
        if self.tell {
            println!("    VIOLATION {what}");
        }
        self.violations.push(what);
    }

    /// An engine holds a block.
    pub fn hold(&mut self, BlockId(block): BlockId, hash: SequenceHash) {
        if self.owned.contains(&block) {
            self.violation(format!("block {block} is said to be {hash:?}, and is somebody's to fill"));
        }
        let held = self.held.entry(block).or_insert(Holding { hash, count: 0 });
        held.count += 1;
        if held.hash != hash {
            let old = held.hash;
            self.violation(format!("block {block} is said to be {hash:?}, and is held as {old:?}"));
        }
    }

    /// An engine no longer holds a block.
    pub fn release(&mut self, BlockId(block): BlockId) {
        let Some(held) = self.held.get_mut(&block) else { return };
        held.count -= 1;
        if held.count == 0 {
            self.held.remove(&block);
        }
    }

    /// An engine has a block to fill.
    pub fn own(&mut self, BlockId(block): BlockId) {
        let held = self.held.contains_key(&block);
        if !self.owned.insert(block) || held {
            self.violation(format!("block {block} is given to be filled, and is somebody's"));
        }
    }

    pub fn disown(&mut self, BlockId(block): BlockId) {
        self.owned.remove(&block);
    }

    /// An allocation begins.
    pub fn arrive(&mut self, blocks: u32, line: u64) -> u64 {
        self.arrivals += 1;
        // An allocation of no blocks is answered at once, even if others wait.
        if blocks > 0 {
            self.waiting.insert(self.arrivals, Waiting { blocks, line });
        }
        self.arrivals
    }

    /// An allocation has ended. The one that is served has waited longest; but those before it may have
    /// been served, and hear of it only now.
    pub fn leave(&mut self, number: u64, ended: Ended) {
        let line = self.waiting.remove(&number).map(|waiting| waiting.line);
        let overtaken = self.overtaken.remove(&number);
        // An overtaking in this same moment does not count: the allocation was late when the later one
        // came, and hears of that only now.
        let before = overtaken.filter(|(_, when)| *when < Instant::now());
        if let (Ended::Refused, Some((by, _))) = (ended, before) {
            self.violation(format!("allocation {number} was not served, and {by}, which came later, was"));
        }
        if let Ended::Served = ended {
            let now = Instant::now();
            let before = self.waiting.range(..number).filter(|(_, waiting)| Some(waiting.line) == line);
            before.for_each(|(before, _)| {
                self.overtaken.entry(*before).or_insert((number, now));
            });
        }
        self.check_order();
    }

    /// A tenant's blocks are registered.
    pub fn registered(&mut self, tenant: u64, hashes: &[SequenceHash]) {
        self.registrations += 1;
        let number = self.registrations;
        self.known.extend(hashes.iter().map(|hash| (hash.to_u128(), (tenant, number))));
    }

    /// Hashes that a tenant has registered, up to the registration `until`, or all.
    pub fn known_of(&self, tenant: u64, until: Option<u64>) -> Vec<SequenceHash> {
        let until = until.unwrap_or(u64::MAX);
        let its = self.known.iter().filter(|(_, (of, number))| *of == tenant && *number <= until);
        its.map(|(hash, _)| SequenceHash::from_u128(*hash)).collect()
    }

    /// The number of the last registration.
    pub fn registrations(&self) -> u64 {
        self.registrations
    }

    /// Checks that no overtaken allocation still waits.
    pub fn check_order(&mut self) {
        let late = self.overtaken.iter().find(|(_, (_, when))| *when < Instant::now());
        if let Some((number, (by, _))) = late {
            let what = format!("allocation {number} still waits, and {by}, which came later, was served");
            self.violation(what);
        }
    }
}
