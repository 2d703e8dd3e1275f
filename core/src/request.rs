//! The request-level view: `reserve(request, n)`, `release(request)`, over a pool that others use too.
//!
//! ```text
//!   entries   │ id │ head │      block            block
//!             │ 17 │  ────┼───►  next ──────────► next ──► NIL      through the slots' `parent` words,
//!             │  – │ shut │                                         which are unused before registration
//! ```
//!
//! A bounded table of open addressing, twice as long as the requests it may hold, without locks and
//! without allocation.
//!
//! I1. A block is pushed to one entry's list, by compare-exchange on its head, and leaves it when
//!     the head is swapped to `shut`.
//! I2. An entry's id is set (EMPTY → id) before its head is opened, and cleared after its head was
//!     shut; a head never returns to an old value (tag). So a push to an entry that was closed
//!     meanwhile fails, and looks for another.
//! I3. A request may have two entries, if two threads reserve for it at once; release drains all open ones.
//! I4. No entry lies farther from its id's home than `reach`, which only grows.

use crate::error::OutOfBlocks;
use crate::id::BlockId;
use crate::pool::{BlockPool, MutableBlock};
use crate::slot::NIL;
use crate::sync::{Acquire, AtomicU32, AtomicU64, Relaxed, Release, site, skipped};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// The name of a request; any number except `u64::MAX`.
pub type RequestId = u64;

const EMPTY: u64 = u64::MAX;

/// The reason why no block was reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReserveError {
    /// Too few blocks are free or evictable.
    OutOfBlocks(OutOfBlocks),
    /// No entry is left: release a request, or build a larger table.
    TooManyRequests {
        /// The number of requests that the table was built for; it has room for some more.
        limit: usize,
    },
    /// `u64::MAX` names no request.
    InvalidId,
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReserveError::OutOfBlocks(error) => error.fmt(f),
            ReserveError::TooManyRequests { limit } => {
                write!(
                    f,
                    "{limit} requests: the table was built for as many, and is full; \
                     release one, or build a larger table"
                )
            }
            ReserveError::InvalidId => {
                f.write_str("request = u64::MAX: this number names no request; take another")
            }
        }
    }
}

impl core::error::Error for ReserveError {}

/// A head: `tag:31 | shut:1 | slot:32`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Head(u64);

impl Head {
    const SHUT: u64 = 1 << 32;
    fn first(self) -> u32 {
        self.0 as u32
    }
    fn is_shut(self) -> bool {
        self.0 & Head::SHUT != 0
    }
    fn next(self, slot: u32, shut: bool) -> Head {
        let tag = (self.0 >> 33).wrapping_add(1) << 33;
        Head(tag | if shut { Head::SHUT } else { 0 } | u64::from(slot))
    }
}

struct Entry {
    id: AtomicU64,
    head: AtomicU64,
}

impl Entry {
    /// Returns whether the request owned this entry while its head was `head`, which was loaded
    /// before. If the entry was reassigned since, so has the head changed, and no compare-exchange
    /// that expects it succeeds (I2).
    fn owned_by(&self, request: RequestId, head: Head) -> bool {
        // Relaxed: the acquired head was opened after the claim, so this is its id or a later one.
        !head.is_shut() && (self.id.load(Relaxed) == request || skipped!("request_no_owner_check"))
    }
}

/// The blocks of open requests, over a [`BlockPool`].
///
/// # Example
///
/// ```
/// use kvstrata_core::{BlockPool, PoolConfig, RequestTable};
/// let pool = BlockPool::new(PoolConfig::new(100))?;
/// let requests = RequestTable::new(&pool, 8);
/// let mut blocks = Vec::new();
/// requests.reserve(17, 40, &mut blocks)?;
/// requests.reserve(17, 2, &mut blocks)?;
/// assert_eq!((blocks.len(), requests.in_flight(), requests.available()), (42, 42, 58));
/// assert_eq!(requests.release(17), 42);
/// assert_eq!(requests.utilisation(), 0.0);
///
/// // Prefill: the request's blocks become handles, to be filled and registered.
/// requests.reserve(18, 2, &mut blocks)?;
/// let mut handles = Vec::new();
/// assert_eq!(requests.detach(18, &mut handles), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RequestTable<'p> {
    pool: &'p BlockPool,
    entries: Box<[Entry]>,
    limit: usize,
    reach: AtomicU32,
}

impl<'p> RequestTable<'p> {
    /// Builds a table for `limit` requests at a time, and at most twice as many.
    ///
    /// See the [example](RequestTable#example).
    pub fn new(pool: &'p BlockPool, limit: usize) -> RequestTable<'p> {
        let entry = || Entry { id: AtomicU64::new(EMPTY), head: AtomicU64::new(Head::SHUT | u64::from(NIL)) };
        let entries = (0..(2 * limit).max(2)).map(|_| entry()).collect();
        RequestTable { pool, entries, limit, reach: AtomicU32::new(0) }
    }

    /// Reserves `n` more blocks for a request, as [`BlockPool::allocate`] does, and appends their
    /// numbers to `out`.
    ///
    /// See the [example](RequestTable#example).
    ///
    /// # Errors
    /// There are too few blocks, or too many requests. Nothing was reserved; blocks
    /// evicted for it are free now.
    pub fn reserve(&self, request: RequestId, n: usize, out: &mut Vec<BlockId>) -> Result<(), ReserveError> {
        if request == EMPTY {
            return Err(ReserveError::InvalidId);
        }
        let mut blocks: Blocks<'p> = Blocks { pool: self.pool, first: NIL, last: NIL };
        let start = out.len();
        self.pool.allocate_as(n, out).map_err(ReserveError::OutOfBlocks)?;
        for id in &out[start..] {
            blocks.push(id.0);
        }
        if blocks.first == NIL {
            return Ok(());
        }
        let placed = self.place(request, &blocks);
        if !placed {
            out.truncate(start);
            blocks.give_back();
            return Err(ReserveError::TooManyRequests { limit: self.limit });
        }
        Ok(())
    }

    /// Gives back all blocks of a request. Returns how many; 0 if it has none.
    ///
    /// See the [example](RequestTable#example).
    pub fn release(&self, request: RequestId) -> usize {
        if request == EMPTY {
            return 0;
        }
        self.probe(request).filter_map(|entry| self.shut(entry, request)).map(Blocks::give_back).sum()
    }

    /// Hands all blocks of a request over as handles, to be filled and registered; the table
    /// forgets them. Returns how many.
    ///
    /// See the [example](RequestTable#example).
    pub fn detach(&self, request: RequestId, out: &mut Vec<MutableBlock<'p>>) -> usize {
        let start = out.len();
        if request != EMPTY {
            self.probe(request)
                .filter_map(|entry| self.shut(entry, request))
                .for_each(|blocks| out.extend(blocks));
        }
        out.len() - start
    }

    /// Blocks that could be reserved now: free, or evictable.
    ///
    /// See the [example](RequestTable#example).
    pub fn available(&self) -> usize {
        self.pool.available()
    }

    /// The number of blocks that are held.
    ///
    /// See the [example](RequestTable#example).
    pub fn in_flight(&self) -> usize {
        self.pool.active()
    }

    /// Blocks in flight, as a share of all.
    ///
    /// See the [example](RequestTable#example).
    pub fn utilisation(&self) -> f64 {
        self.in_flight() as f64 / self.pool.capacity() as f64
    }

    /// The entries where this request can be.
    fn probe(&self, request: RequestId) -> impl Iterator<Item = &Entry> {
        // Relaxed: it publishes nothing, and only grows. A caller that knows of a reservation sees at
        // least the reach that it needed (I4).
        let reach = self.reach.load(Relaxed) as usize;
        self.entries_from(request).take(reach + 1)
    }

    fn entries_from(&self, request: RequestId) -> impl Iterator<Item = &Entry> {
        let mixed = request.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let home = ((u128::from(mixed) * self.entries.len() as u128) >> 64) as usize;
        self.entries[home..].iter().chain(&self.entries[..home])
    }

    fn place(&self, request: RequestId, blocks: &Blocks<'p>) -> bool {
        if self.probe(request).any(|entry| blocks.push_to(entry, request)) {
            return true;
        }
        for (distance, entry) in self.entries_from(request).enumerate() {
            // Acquire: pairs with the Release in `shut`: the head that `open` reads is the one that was
            // shut last (I2).
            let claim = site!("request_claim_relaxed", Acquire);
            if entry.id.compare_exchange(EMPTY, request, claim, Relaxed).is_ok() {
                if !skipped!("request_no_reach") {
                    // Relaxed: see `probe` (I4).
                    self.reach.fetch_max(distance as u32, Relaxed);
                }
                blocks.open(entry);
                return true;
            }
        }
        false
    }

    /// Takes a request's list out of its entry, which is free from then on.
    fn shut(&self, entry: &Entry, request: RequestId) -> Option<Blocks<'p>> {
        // Acquire, here and where the exchange fails: pairs with the Release in `open` and `push_to`,
        // whose list this takes over (I1).
        let take = site!("request_shut_relaxed", Acquire);
        let mut head = Head(entry.head.load(take));
        while entry.owned_by(request, head) {
            // Relaxed where it succeeds: this head was acquired already, and the id
            // publishes that it is shut.
            match entry.head.compare_exchange(head.0, head.next(NIL, true).0, Relaxed, take) {
                Ok(_) => {
                    // Release: pairs with the Acquire in `place` (I2).
                    entry.id.store(EMPTY, site!("request_clear_relaxed", Release));
                    return Some(Blocks { pool: self.pool, first: head.first(), last: NIL });
                }
                Err(seen) => head = Head(seen),
            }
        }
        None
    }
}

impl Drop for RequestTable<'_> {
    fn drop(&mut self) {
        for entry in &self.entries {
            // Relaxed: no other thread has the table any more, and the event that made it so
            // ordered their changes before this.
            let head = Head(entry.head.load(Relaxed));
            if !head.is_shut() {
                Blocks { pool: self.pool, first: head.first(), last: NIL }.give_back();
            }
        }
    }
}

/// A list of reserved blocks, threaded through their slots.
struct Blocks<'p> {
    pool: &'p BlockPool,
    first: u32,
    last: u32,
}

impl Blocks<'_> {
    fn push(&mut self, slot: u32) {
        self.pool.set_next_reserved(BlockId(slot), self.first);
        if self.first == NIL {
            self.last = slot;
        }
        self.first = slot;
    }

    /// Opens a claimed entry with this list.
    fn open(&self, entry: &Entry) {
        // Relaxed: acquired by the claim, and no other thread changes it while it is shut.
        let head = Head(entry.head.load(Relaxed));
        if cfg!(any(debug_assertions, loom)) {
            assert!(head.is_shut(), "an entry was claimed while it was open (I2)");
        }
        // Release: publishes id and list; pairs with the Acquire in `shut` and `push_to`.
        entry.head.store(head.next(self.first, false).0, site!("request_open_relaxed", Release));
    }

    /// Puts this list before an open entry's own. False: it is shut.
    fn push_to(&self, entry: &Entry, request: RequestId) -> bool {
        // Acquire, here and where the exchange fails: pairs with the Release in `open`, for
        // the id that is read next.
        let look = site!("request_push_look_relaxed", Acquire);
        let mut head = Head(entry.head.load(look));
        while entry.owned_by(request, head) {
            self.pool.set_next_reserved(BlockId(self.last), head.first());
            // Release: publishes this list to the Acquire in `shut`. The earlier ones stay published,
            // since an exchange continues their release sequence.
            let push = site!("request_push_relaxed", Release);
            match entry.head.compare_exchange(head.0, head.next(self.first, false).0, push, look) {
                Ok(_) => return true,
                Err(seen) => head = Head(seen),
            }
        }
        self.pool.set_next_reserved(BlockId(self.last), NIL);
        false
    }

    fn give_back(self) -> usize {
        let (pool, mut count) = (self.pool, 0);
        pool.give_back(self.inspect(|_| count += 1));
        count
    }
}

impl<'p> Iterator for Blocks<'p> {
    type Item = MutableBlock<'p>;

    fn next(&mut self) -> Option<MutableBlock<'p>> {
        let id = (self.first != NIL).then_some(BlockId(self.first))?;
        self.first = self.pool.next_reserved(id);
        Some(self.pool.adopt_reserved(id))
    }
}
