//! Memory that poses as a remote store: slow, away for a while as a seed says, back again, and perhaps
//! empty then.
//!
//! ```text
//!   virtual time   │ there          │ away    │ there          │ away    │ …
//!   reads, writes  │ succeed, after │ fail:   │ of blocks from before the store was away: rejected, where it
//!                  │ their latency  │ Away    │ comes back empty
//! ```
//!
//! `violations` lists calls that break the port's contract.

use super::{RUBBISH, lock};
use crate::common::Random;
use crate::time::{Handle, Instant, sleep_until};
use kvstrata_core::{
    BlockId, BlockPool, BlockRef, EvictedBlock, ImmutableBlock, MutableBlock, PoolConfig, SequenceHash,
};
use kvstrata_tiers::transfer::{
    Cause, Erases, Erasing, Extras, Failure, Landed, Reserve, Sizes, TierFacts, TierPort, TierRead, TierWrite,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The most reads at once, and the most writes.
const AT_ONCE: u32 = 4;

/// When the store is there, and whether it keeps its blocks while it is away.
#[derive(Debug, Clone)]
pub struct Weather {
    pub seed: u64,
    /// How long it is there each time, and how long it is away then. `None`: it is always there.
    pub there: Option<[Duration; 2]>,
    /// It is empty when it is back.
    pub forgets: bool,
    /// Requests that fail, of a thousand.
    pub fails: u64,
}

impl Weather {
    /// Always there.
    pub fn fair(seed: u64) -> Weather {
        Weather { seed, there: None, forgets: false, fails: 0 }
    }

    /// Drawn from a seed: most are away now and then.
    pub fn drawn(seed: u64) -> Weather {
        let random = &mut Random(seed);
        let seed = random.next();
        let [there, away] = [50 + random.below(3000), 1 + random.below(1000)].map(Duration::from_millis);
        let there = (random.below(4) > 0).then_some([there, away]);
        let (forgets, fails) = (random.below(2) == 0, [0, 20, 200][random.below(3) as usize]);
        Weather { seed, there, forgets, fails }
    }
}

/// Counts of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Events {
    pub written: u64,
    pub read: u64,
    /// Requests while it was away.
    pub away: u64,
    /// Reads of blocks that it has no longer.
    pub rejected: u64,
    /// Requests that succeeded after it had been away.
    pub back: u64,
}

/// A simulated remote store.
#[derive(Debug)]
pub struct Remote(Arc<Store>);

#[derive(Debug)]
struct Store {
    pool: BlockPool,
    block_bytes: usize,
    runtime: Handle,
    weather: Weather,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: Random,
    /// By slot.
    blocks: BTreeMap<u32, (SequenceHash, Vec<u8>)>,
    /// How often it has been away.
    absences: u32,
    /// Reads and writes under way.
    under_way: [u32; 2],
    events: Events,
    violations: Vec<String>,
}

impl Remote {
    /// A store of so many blocks, each of so many bytes, on the current runtime.
    pub fn new(blocks: u32, block_bytes: usize, weather: Weather) -> Remote {
        let pool = BlockPool::new(PoolConfig::new(blocks).lanes(1).seed(1)).expect("a pool");
        let state = State {
            random: Random(weather.seed),
            blocks: BTreeMap::new(),
            absences: 0,
            under_way: [0; 2],
            events: Events::default(),
            violations: Vec::new(),
        };
        let (runtime, began) = (Handle::current(), Instant::now());
        Remote(Arc::new(Store { pool, block_bytes, runtime, weather, began, state: Mutex::new(state) }))
    }

    pub fn events(&self) -> Events {
        lock(&self.0.state).events.clone()
    }

    pub fn violations(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0.state).violations)
    }

    /// Loses the bytes of a slot, as if they had rotted.
    pub fn rot(&self, slot: BlockId) {
        lock(&self.0.state).blocks.remove(&slot.0);
    }
}

impl Store {
    /// Runs a request when its time is over.
    fn later(self: &Arc<Store>, bytes: usize, request: impl FnOnce() + Send + 'static) {
        let latency = 5 + lock(&self.state).random.below(60) + bytes as u64 / 64;
        let until = Instant::now() + Duration::from_millis(latency);
        self.runtime.spawn(async move {
            sleep_until(until).await;
            request();
        });
    }

    /// Whether a request succeeds now: the store is there, and the request is none of those that fail.
    fn answers(&self, state: &mut State) -> Result<(), Cause> {
        if let Some([there, away]) = self.weather.there {
            let (elapsed, period) = (self.began.elapsed().as_nanos(), (there + away).as_nanos());
            let absences = (elapsed / period) as u32 + u32::from(elapsed % period >= there.as_nanos());
            if absences > state.absences {
                state.absences = absences;
                if self.weather.forgets {
                    state.blocks.clear();
                }
            }
            if elapsed % period >= there.as_nanos() {
                state.events.away += 1;
                return Err(Cause::Away);
            }
        }
        if state.random.below(1000) < self.weather.fails { Err(Cause::Tier) } else { Ok(()) }
    }

    fn bring(&self, read: &mut TierRead) -> Result<(), Cause> {
        let state = &mut *lock(&self.state);
        state.ends(0);
        self.answers(state)?;
        let Some((_, bytes)) = state.blocks.get(&read.slot.0).filter(|(hash, _)| *hash == read.hash) else {
            state.events.rejected += 1;
            return Err(Cause::Rejected);
        };
        if read.buffer.len() != bytes.len() {
            return Err(Cause::Buffer);
        }
        read.buffer.copy_from_slice(bytes);
        state.events.read += 1;
        state.events.back += u64::from(state.absences > 0);
        Ok(())
    }

    fn keep(&self, write: &TierWrite) -> Result<(), Cause> {
        let state = &mut *lock(&self.state);
        state.ends(1);
        let (slot, hash) = (write.slot, write.name.hash);
        let Ok(owned) = self.pool.adopt_mutable(slot) else {
            state.violations.push(format!("remote: {slot} is written, and was not reserved"));
            return Err(Cause::Tier);
        };
        // A slot whose write fails is free when `owned` is dropped.
        state.blocks.remove(&slot.0);
        self.answers(state)?;
        if write.bytes.len() > self.block_bytes {
            return Err(Cause::Buffer);
        }
        if self.pool.lookup(hash).is_some() {
            return Ok(());
        }
        state.blocks.insert(slot.0, (hash, write.bytes.to_vec()));
        state.events.written += 1;
        state.events.back += u64::from(state.absences > 0);
        if let Ok(complete) = owned.complete(hash) {
            drop(self.pool.register(complete, None));
        }
        Ok(())
    }
}

impl State {
    fn begins(&mut self, kind: usize) {
        self.under_way[kind] += 1;
        if self.under_way[kind] > AT_ONCE {
            let what = ["reads", "writes"][kind];
            self.violations.push(format!("remote: {} {what} are under way", self.under_way[kind]));
        }
    }

    fn ends(&mut self, kind: usize) {
        self.under_way[kind] -= 1;
    }
}

impl TierPort for Remote {
    fn pool(&self) -> &BlockPool {
        &self.0.pool
    }

    fn facts(&self) -> TierFacts {
        let facts = TierFacts::new(format!("a remote store of {} blocks", self.0.pool.capacity()));
        TierFacts { reads_at_once: AT_ONCE, writes_at_once: AT_ONCE, ..facts }
    }

    fn find(&self, hash: SequenceHash, uses: bool) -> Option<ImmutableBlock<'_>> {
        if uses { self.0.pool.lookup(hash) } else { self.0.pool.find(hash) }
    }

    fn reserve(&self, which: Reserve, slots: &mut Vec<BlockId>) {
        let pool = &self.0.pool;
        match which {
            Reserve::Some(wanted) => {
                let (mut free, mut victims) = (Vec::new(), Vec::new());
                let _ = pool.allocate_free(pool.free().min(wanted), &mut free);
                pool.evict(wanted - free.len(), &mut victims);
                let taken = free.into_iter().chain(victims.into_iter().map(EvictedBlock::into_mutable));
                slots.extend(taken.map(MutableBlock::into_id));
            }
            Reserve::This(block) => {
                slots.extend(pool.take_out(block).ok().map(|taken| taken.into_mutable().into_id()));
            }
        }
    }

    fn read(&self, mut read: TierRead) {
        read.buffer.fill(RUBBISH);
        lock(&self.0.state).begins(0);
        let store = Arc::clone(&self.0);
        self.0.later(read.buffer.len(), move || {
            let outcome = store.bring(&mut read);
            let TierRead { token, buffer, landing, .. } = read;
            landing.land(Landed::Read(token, outcome.map_err(Failure::of).map(|()| buffer)));
        });
    }

    fn write(&self, write: TierWrite) {
        lock(&self.0.state).begins(1);
        let store = Arc::clone(&self.0);
        self.0.later(write.bytes.len(), move || {
            let outcome = store.keep(&write);
            let TierWrite { token, bytes, landing, .. } = write;
            landing.land(Landed::Write(token, outcome.map_err(Failure::of).map(|()| bytes)));
        });
    }

    fn release(&self, slot: BlockId) {
        if self.0.pool.adopt_mutable(slot).is_err() {
            lock(&self.0.state).violations.push(format!("remote: {slot} is released, and was not reserved"));
        }
    }

    fn forget(&self, block: BlockRef) {
        let _ = self.0.pool.unregister(block);
    }

    fn extras(&self) -> Extras<'_> {
        Extras { erases: Some(self), sizes: Some(self), ..Extras::default() }
    }
}

impl Sizes for Remote {
    fn bytes_of(&self, block: BlockId) -> usize {
        lock(&self.0.state).blocks.get(&block.0).map_or(0, |(_, bytes)| bytes.len())
    }
}

impl Erases for Remote {
    /// Erases at once.
    fn erase(&self, slots: Vec<BlockId>, _: bool) -> Erasing {
        let mut state = lock(&self.0.state);
        slots.iter().for_each(|slot| _ = state.blocks.remove(&slot.0));
        Box::pin(std::future::ready(Vec::new()))
    }
}
