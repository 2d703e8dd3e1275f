//! An engine: one request after another. Each takes the blocks that are there, computes the
//! others, and holds them for a while.

use crate::books::Ended;
use crate::common::Random;
use crate::content::{self, bytes_of};
use crate::patience::{Patience, pass};
use crate::recorder::lock;
use crate::world::World;
use kvstrata_core::storage::DevicePort;
use kvstrata_core::{BlockId, SequenceHash};
use kvstrata_testing::virtual_time::Instant;
use kvstrata_tiers::transfer::Class;
use kvstrata_tiers::{
    AllocateError, Blocks, BlocksMut, Onboard, OnboardError, OnboardOptions, Onboarded, PrefixMatch,
    RegisterFault, Tiers,
};
use std::rc::Rc;
use std::time::Duration;

/// A tick of the clock, and one of a task that is late by a tick.
pub const SLACK: Duration = Duration::from_millis(2);

pub struct Engine {
    pub world: Rc<World>,
    pub number: u64,
    /// The engine's tenant; 0: none.
    pub tenant: u64,
    pub random: Random,
}

/// A request's blocks so far.
pub struct Request {
    pub hashes: Vec<SequenceHash>,
    pub blocks: Option<Blocks>,
}

impl Engine {
    pub fn new(world: Rc<World>, number: u64, random: Random) -> Engine {
        let tenant = number % (world.settings.tenants + 1);
        Engine { world, number, tenant, random }
    }

    pub async fn run(mut self) {
        for _ in 0..self.world.settings.requests {
            self.pause(200).await;
            if self.random.below(2) == 0 {
                self.world.unpin();
            }
            if self.tenant > 0 && self.random.below(100) < self.world.settings.purges {
                self.purge().await;
            }
            self.world.request_begins();
            let request = self.request().await;
            self.release(request);
            self.world.request_ends();
            self.world.check();
            if self.world.closing.get() || !self.world.books.borrow().violations.is_empty() {
                break;
            }
        }
        self.world.engine_ends();
    }

    /// The manager, or its tenant's handle.
    pub fn manager(&self) -> Tiers {
        match self.tenant {
            0 => self.world.manager(),
            tenant => self.world.tenant(tenant),
        }
    }

    pub fn note(&self, what: &str) {
        self.world.note(self.number, what);
    }

    pub fn chance(&mut self, of_10: u64) -> bool {
        self.random.below(10) < of_10
    }

    pub async fn pause(&mut self, most_ms: u64) {
        if self.chance(6) {
            pass(Duration::from_millis(self.random.below(most_ms))).await;
        }
    }

    pub fn patience(&mut self) -> Patience {
        let hasty = self.world.settings.hasty;
        Patience::draw(&mut self.random, hasty)
    }

    pub fn bytes(&self) -> usize {
        self.world.settings.block_bytes()
    }

    /// Checks the bytes of blocks that were reported.
    pub fn believe(&self, blocks: impl Iterator<Item = BlockId>, hashes: &[SequenceHash], whence: &str) {
        for (BlockId(block), hash) in blocks.zip(hashes) {
            if !content::is(&self.world.device, block, *hash, 0..self.bytes()) {
                self.world.violation(format!("{whence}: block {block} is said to be {hash:?}, and is not"));
            }
        }
    }

    pub fn hold(&self, blocks: &Blocks, hashes: &[SequenceHash]) {
        let mut books = self.world.books.borrow_mut();
        blocks.ids().zip(hashes).for_each(|(block, hash)| books.hold(block, *hash));
    }

    pub fn unhold(&self, ids: impl Iterator<Item = BlockId>) {
        let mut books = self.world.books.borrow_mut();
        ids.for_each(|block| books.release(block));
    }

    fn release(&mut self, request: Request) {
        let Some(mut blocks) = request.blocks else { return };
        self.believe(blocks.ids(), &request.hashes, "released");
        match self.random.below(4) {
            0 => {
                let left = self.random.below(blocks.len() as u64 + 1) as usize;
                self.unhold(blocks.ids().skip(left));
                blocks.truncate(left);
                self.world.check();
            }
            1 => {
                let again = blocks.clone();
                self.hold(&again, &request.hashes);
                self.unhold(blocks.ids());
                drop(blocks);
                self.world.check();
                blocks = again;
            }
            _ => {}
        }
        self.unhold(blocks.ids());
        drop(blocks);
        self.note("releases");
    }

    /// A sequence of the tree.
    fn sequence(&mut self) -> Vec<SequenceHash> {
        let length = 1 + self.random.below(self.world.settings.depth);
        let mut hashes: Vec<SequenceHash> = Vec::new();
        for _ in 0..length {
            // Tenants' sequences begin with their salts.
            let salt = if hashes.is_empty() { self.tenant << 32 } else { 0 };
            let which = salt | self.random.below(self.world.settings.branch);
            hashes.push(content::child(hashes.last().copied(), which));
        }
        hashes
    }

    async fn request(&mut self) -> Request {
        let hashes = self.sequence();
        let hint = self.chance(2).then(|| self.manager().default_group().prefetch(&hashes));
        if hint.is_some() {
            self.note("hints");
            self.world.check();
            self.pause(300).await;
        }
        match hint {
            Some(hint) if self.chance(5) => hint.detach(),
            hint => drop(hint),
        }
        self.world.check();
        let blocks = self.bring(&hashes).await;
        let mut request = Request { hashes, blocks };
        let all = request.hashes.clone();
        if !self.compute(&mut request, &all).await {
            return request;
        }
        self.pause(300).await;
        for _ in 0..self.random.below(4) {
            if request.hashes.len() >= self.world.settings.most() {
                break;
            }
            let which = self.random.below(self.world.settings.branch);
            let mut longer = request.hashes.clone();
            longer.push(content::child(longer.last().copied(), which));
            if !self.compute(&mut request, &longer).await {
                return request;
            }
            self.pause(50).await;
        }
        if self.chance(3) {
            self.offload(&request).await;
        }
        if self.chance(2) {
            self.offload_behind_layers().await;
        }
        if self.chance(1) {
            self.persist(&request).await;
        }
        self.pause(300).await;
        if self.chance(self.world.settings.preempts) {
            return self.preempt(request).await;
        }
        request
    }

    /// Brings up the blocks of a sequence that are there.
    async fn bring(&mut self, hashes: &[SequenceHash]) -> Option<Blocks> {
        let manager = self.manager();
        if self.chance(1) {
            let blocks = manager.default_group().match_device(hashes);
            self.note(&format!("looks for {} in the device: {}", hashes.len(), blocks.len()));
            self.believe(blocks.ids(), hashes, "matched");
            self.hold(&blocks, hashes);
            return Some(blocks);
        }
        let found = manager.default_group().match_prefix(hashes);
        self.note(&format!("looks for {}: {found:?}", hashes.len()));
        self.believe(found.device().ids(), hashes, "found");
        self.world.books.borrow_mut().unsure += 1;
        self.world.check();
        self.pause(100).await;
        self.believe(found.device().ids(), hashes, "held by a match");
        let blocks = match self.random.below(10) {
            0 => Some(found.into_device()),
            1 => {
                drop(found);
                None
            }
            _ => self.onboard(found, hashes).await,
        };
        if let Some(blocks) = &blocks {
            self.believe(blocks.ids(), hashes, "brought");
            self.hold(blocks, hashes);
            self.classify(blocks, hashes);
        }
        self.world.books.borrow_mut().unsure -= 1;
        self.world.check();
        blocks
    }

    async fn onboard(&mut self, found: PrefixMatch, hashes: &[SequenceHash]) -> Option<Blocks> {
        let settings = &self.world.settings;
        let (layers, wanted) = (u64::from(settings.layers), found.len());
        let layers = (self.random.below(3) == 0).then(|| 1 + self.random.below(layers) as u32);
        let short = (self.random.below(5) == 0).then(|| Duration::from_millis(1 + self.random.below(300)));
        let class = match self.random.below(6) {
            0 => Class::Background,
            1 => Class::Prefetch,
            _ => Class::Urgent,
        };
        let options =
            OnboardOptions::default().class(class).request(self.number).layers(layers).deadline(short);
        let deadline = short.unwrap_or(settings.onboard);
        let began = Instant::now();
        let mut onboard = match self.manager().default_group().onboard(found, options) {
            Ok(onboard) => onboard,
            Err(error) => {
                self.note(&format!("does not onboard: {error}"));
                if !(error == OnboardError::Closed && self.world.closing.get()) {
                    self.world.violation(format!("onboard of {wanted} blocks: {error}"));
                }
                return None;
            }
        };
        self.world.check();
        self.early_ids(&onboard, wanted);
        let asks = layers.is_some() || self.chance(1);
        let urgent = class == Class::Urgent;
        if asks && !self.layer_by_layer(&onboard, hashes, wanted, (began + deadline, urgent)).await {
            return None;
        }
        let asked = Instant::now();
        let patience = self.patience();
        let whole = |up: &Option<Onboarded>| up.as_ref().is_some_and(|up| up.missed.is_none());
        let up = self.world.waits(urgent, "an onboarding", patience.wait(&mut onboard), whole).await;
        let Some(up) = up else {
            self.note(&format!("gives up an onboarding: {patience:?}"));
            drop(onboard);
            self.world.check();
            return None;
        };
        let got = up.blocks.len();
        self.note(&format!("onboarded {got} of {wanted}: {:?}", up.missed));
        self.in_time(asked, began + deadline, "onboarding");
        if up.missed.is_some() != (got < wanted) || got > wanted {
            self.world.violation(format!("{got} of {wanted} came up, missed: {:?}", up.missed));
        }
        Some(up.blocks)
    }

    /// Checks that a wait has ended by its deadline, or at once if it began after that.
    pub fn in_time(&self, asked: Instant, deadline: Instant, what: &str) {
        let late = Instant::now().saturating_duration_since(deadline.max(asked));
        if late > SLACK {
            self.world.violation(format!("{what} took {late:?} longer than the deadline"));
        }
    }

    /// Reads each layer when it is reported. False: the wait was given up.
    async fn layer_by_layer(
        &mut self,
        onboard: &Onboard,
        hashes: &[SequenceHash],
        wanted: usize,
        (deadline, urgent): (Instant, bool),
    ) -> bool {
        let bytes = self.world.settings.layer_bytes;
        let mut places: Option<Vec<BlockId>> = None;
        for layer in 0..self.world.settings.layers {
            let (patience, asked) = (self.patience(), Instant::now());
            let wait = patience.wait(onboard.layer_ready(layer));
            let there = |ready: &Option<Result<(), _>>| matches!(ready, Some(Ok(())));
            let ready = self.world.waits(urgent, "a layer", wait, there).await;
            self.in_time(asked, deadline, "a layer");
            match ready {
                None if self.chance(5) => continue,
                None => {
                    self.note(&format!("gives up layer {layer}: {patience:?}"));
                    return false;
                }
                Some(Err(cause)) => {
                    self.note(&format!("layer {layer}: {cause:?}"));
                    return true;
                }
                Some(Ok(())) => {}
            }
            // As an engine does: it goes on with the blocks that it has begun with.
            let ids = places.get_or_insert_with(|| onboard.ids().unwrap_or_default());
            if ids.len() != wanted {
                self.world.violation(format!("layer {layer} is there, of {} blocks of {wanted}", ids.len()));
            }
            let range = layer as usize * bytes..(layer as usize + 1) * bytes;
            for (BlockId(block), hash) in ids.iter().zip(hashes) {
                if !content::is(&self.world.device, *block, *hash, range.clone()) {
                    self.world.violation(format!("layer {layer} of {hash:?} is said to be in block {block}"));
                }
            }
            self.note(&format!("layer {layer} is there"));
            self.pause(30).await;
        }
        true
    }

    /// Computes the blocks of a sequence that a request lacks. False: there was no room.
    async fn compute(&mut self, request: &mut Request, hashes: &[SequenceHash]) -> bool {
        let have = request.blocks.as_ref().map_or(0, Blocks::len);
        // A match never finds more than was asked for.
        let missing = hashes.len() - have;
        if missing > 0 {
            let Some(blocks) = self.allocate(missing).await else { return false };
            if !self.fill(request, blocks, &hashes[have..]).await {
                return false;
            }
        }
        request.hashes = hashes.to_vec();
        true
    }

    pub async fn allocate(&mut self, count: usize) -> Option<BlocksMut> {
        let manager = self.manager();
        let group = manager.default_group();
        if self.chance(1) {
            let before = self.world.before_eviction();
            let blocks = group.try_allocate(count);
            self.world.after_eviction(before);
            self.note(&format!("tries to allocate {count}: {}", blocks.is_some()));
            return blocks.map(|blocks| self.own(blocks, count));
        }
        let short = self.chance(2).then(|| Duration::from_millis(1 + self.random.below(300)));
        let deadline = short.unwrap_or(self.world.settings.allocate);
        let (patience, began) = (self.patience(), Instant::now());
        let number = self.world.books.borrow_mut().arrive(count as u32, self.line());
        self.note(&format!("allocation {number}: {count}, {patience:?}, {short:?}"));
        let wait = patience.wait(async {
            match short {
                Some(short) => group.allocate(count).deadline(short).await,
                None => group.allocate(count).await,
            }
        });
        let wait = self.world.evicts_by_class(wait);
        let had = |outcome: &Option<Result<BlocksMut, _>>| matches!(outcome, Some(Ok(_)));
        let outcome = self.world.waits(true, "an allocation", wait, had).await;
        let ended = match outcome {
            // Its line was dissolved.
            Some(Err(AllocateError::Purging)) => Ended::GivenUp,
            Some(Ok(_)) => Ended::Served,
            Some(Err(_)) => Ended::Refused,
            None => Ended::GivenUp,
        };
        self.world.books.borrow_mut().leave(number, ended);
        let took = began.elapsed();
        if took > deadline + SLACK {
            self.world.violation(format!("allocation took {took:?}, the deadline is {deadline:?}"));
        }
        let blocks = match outcome {
            Some(Ok(blocks)) => {
                self.note(&format!("allocated {count}"));
                Some(self.own(blocks, count))
            }
            Some(Err(error)) => {
                self.note(&format!("did not allocate {count}: {error}"));
                let expected = match error {
                    AllocateError::TooMany { .. } => false,
                    AllocateError::Deadline { .. } => took + SLACK >= deadline,
                    AllocateError::Closed => self.world.closing.get(),
                    // The purge may be over by now.
                    AllocateError::Purging => self.tenant > 0 && self.world.settings.purges > 0,
                    _ => false,
                };
                if !expected {
                    self.world.violation(format!("allocation of {count} after {took:?}: {error}"));
                }
                None
            }
            None => {
                self.note(&format!("gives up allocating {count}: {patience:?}"));
                None
            }
        };
        self.world.check();
        blocks
    }

    /// The line that its allocations wait in: a tenant with a quota has one of its own.
    fn line(&self) -> u64 {
        if self.world.settings.quotas[0] < 1.0 { self.tenant } else { 0 }
    }

    pub fn own(&self, blocks: BlocksMut, count: usize) -> BlocksMut {
        let mut books = self.world.books.borrow_mut();
        if blocks.len() != count {
            books.violation(format!("{} blocks for {count}", blocks.len()));
        }
        let mut notes = lock(&self.world.notes);
        for block in blocks.ids() {
            books.own(*block);
            notes.declassify(*block, "given to be filled");
        }
        drop(notes);
        blocks
    }

    /// Writes blocks, as a model would, and registers them.
    async fn fill(&mut self, request: &mut Request, blocks: BlocksMut, hashes: &[SequenceHash]) -> bool {
        let ids = blocks.ids().to_vec();
        for (block, hash) in ids.iter().zip(hashes) {
            self.world.device.copy_in(block.0, 0, &bytes_of(*hash, self.bytes())).expect("in range");
        }
        self.pause(50).await;
        self.believe(ids.iter().copied(), hashes, "written");
        let mut books = self.world.books.borrow_mut();
        ids.iter().for_each(|block| books.disown(*block));
        drop(books);
        if self.chance(1) {
            drop(blocks);
            self.note("throws away what it has written");
            return false;
        }
        match blocks.register(hashes, request.blocks.as_ref()) {
            Ok(registered) => {
                self.note(&format!("registers {}", registered.len()));
                self.believe(registered.ids(), hashes, "registered");
                self.hold(&registered, hashes);
                self.world.books.borrow_mut().registered(self.tenant, hashes);
                self.world.registered(&ids, &registered, hashes);
                self.classify(&registered, hashes);
                match &mut request.blocks {
                    Some(blocks) => blocks.append(registered).expect("of one manager"),
                    None => request.blocks = Some(registered),
                }
            }
            Err(error) if error.why == RegisterFault::Purging && self.is_purging() => return false,
            // A purge has come and gone since the blocks that it goes on from were found.
            Err(error)
                if error.why == RegisterFault::Withdrawn
                    && self.tenant > 0
                    && self.world.settings.purges > 0
                    && request.blocks.as_ref().is_some_and(|of| of.registered() < of.len()) =>
            {
                return false;
            }
            Err(error) => self.world.violation(format!("{error}")),
        }
        self.world.check();
        true
    }
}
