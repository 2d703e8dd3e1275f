//! Rare actions of engines: they offload and persist their blocks, are preempted and go on, and purge
//! their tenant.

use crate::content::{self, bytes_of};
use crate::engine::{Engine, Request, SLACK};
use crate::patience::pass;
use kvstrata_core::SequenceHash;
use kvstrata_core::storage::DevicePort;
use kvstrata_testing::virtual_time::Instant;
use kvstrata_tiers::scheduler::Gate;
use kvstrata_tiers::transfer::{Cause, Class, Loses};
use kvstrata_tiers::{
    BlocksMut, OffloadOptions, Onboard, OnboardError, OnboardOptions, Purge, PurgeError, Purged, Resumed,
};
use std::time::Duration;

impl Engine {
    /// Whether some tenant is being purged.
    pub fn is_purging(&self) -> bool {
        self.world.manager().census().purges > 0
    }

    /// Offloads the blocks. The answer comes by the deadline, also where a mover hangs.
    pub async fn offload(&mut self, request: &Request) {
        let Some(blocks) = &request.blocks else { return };
        let class = if self.random.below(2) == 0 { Class::Offload } else { Class::Background };
        let gate = match self.random.below(4) {
            0 => Gate::Iteration(self.world.iteration.get()),
            1 => Gate::Layer { iteration: self.world.iteration.get(), layer: 0 },
            _ => Gate::Open,
        };
        let short = self.chance(4).then(|| Duration::from_millis(1 + self.random.below(300)));
        let options = OffloadOptions::default().class(class).request(self.number).gate(gate).deadline(short);
        let (began, usual) = (Instant::now(), self.world.settings.offload);
        let offload = self.manager().default_group().offload(blocks, options);
        self.world.check();
        let patience = self.patience();
        let outcome = patience.wait(offload).await;
        self.in_time(began, began + short.unwrap_or(usual), "an offload");
        self.note(&format!("offloads {}: {outcome:?}", blocks.len()));
        if let Some(of) = outcome {
            // A gate is awaited for the usual time.
            let early = began.elapsed() + SLACK < short.unwrap_or(usual).min(usual);
            let adds_up = of.copied + of.there + of.refused + of.failed == blocks.len();
            if !adds_up || of.cause == Some(Cause::Deadline) && early {
                self.world.violation(format!(
                    "{of:?} of {} blocks after {:?}",
                    blocks.len(),
                    began.elapsed()
                ));
            }
        }
        self.world.check();
    }

    pub async fn persist(&mut self, request: &Request) {
        let manager = self.manager();
        let (patience, began) = (self.patience(), Instant::now());
        let outcome = patience.wait(manager.default_group().persist(&request.hashes)).await;
        self.in_time(began, began + self.world.settings.offload, "persisting");
        self.note(&format!("persists {}: {outcome:?}", request.hashes.len()));
        // Each block is in one count.
        if let Some(of) = outcome
            && of.copied + of.there + of.refused + of.failed != request.hashes.len()
        {
            self.world.violation(format!("{of:?} of {} blocks", request.hashes.len()));
        }
        self.world.check();
    }

    /// Before the first layer a block's place may be known or not. If it is, no other engine may fill it.
    pub fn early_ids(&self, onboard: &Onboard, wanted: usize) {
        let Some(ids) = onboard.ids() else { return };
        let books = self.world.books.borrow();
        let filled = ids.iter().any(|block| books.owned.contains(&block.0));
        drop(books);
        if ids.len() > wanted || filled {
            self.world.violation(format!("{wanted} blocks are to come up, in {ids:?}"));
        }
    }

    /// Partial blocks, with bytes of their own.
    async fn partial(&mut self) -> Option<(BlocksMut, Vec<SequenceHash>)> {
        let count = self.random.below(3) as usize;
        let blocks = self.allocate(count).await?;
        let of: Vec<SequenceHash> =
            (0..count).map(|_| content::child(None, self.random.next() | 1 << 63)).collect();
        for (block, of) in blocks.ids().iter().zip(&of) {
            self.world.partial(*of);
            self.world.device.copy_in(block.0, 0, &bytes_of(*of, self.bytes())).expect("in range");
        }
        Some((blocks, of))
    }

    /// Gives all blocks up, and takes them again. Missing ones are not computed anew: another request will.
    pub async fn preempt(&mut self, mut request: Request) -> Request {
        let Some((partial, of)) = self.partial().await else { return request };
        let Some(blocks) = request.blocks.take() else {
            self.disown(&partial);
            return request;
        };
        self.disown(&partial);
        self.unhold(blocks.ids());
        let began = Instant::now();
        let preempted = match self.manager().default_group().preempt(blocks, partial, self.number) {
            Ok(preempted) => preempted,
            Err((blocks, partial)) => {
                if !self.is_purging() {
                    self.world.violation("not preempted".to_owned());
                }
                self.hold(&blocks, &request.hashes);
                drop(partial);
                request.blocks = Some(blocks);
                return request;
            }
        };
        self.world.check();
        let mut preempted = preempted;
        if self.chance(3) {
            let patience = self.patience();
            let settled = patience.wait(preempted.settled()).await;
            self.in_time(began, began + self.world.settings.offload, "a preemption");
            self.note(&format!("is preempted, and settled: {settled:?}"));
        }
        self.pause(1000).await;
        self.world.check();
        let short = self.chance(2).then(|| Duration::from_millis(1 + self.random.below(300)));
        let options = OnboardOptions::default().request(self.number).deadline(short);
        let (patience, began) = (self.patience(), Instant::now());
        let manager = self.manager();
        self.world.books.borrow_mut().unsure += 1;
        let wait = patience.wait(manager.default_group().resume(preempted, options));
        let whole = |resumed: &Option<Result<Resumed, _>>| {
            resumed.as_ref().is_some_and(|of| of.as_ref().is_ok_and(|of| of.missed.is_none()))
        };
        let resumed = self.world.waits(true, "a resumption", wait, whole).await;
        let deadline = began + short.unwrap_or(self.world.settings.onboard);
        self.in_time(began, deadline, "resuming");
        match resumed {
            Some(Ok(resumed)) => self.resumed(&mut request, resumed, &of),
            Some(Err(error)) => {
                self.note(&format!("does not resume: {error}"));
                // With the partial blocks it may be more than the device has, or than the tenant's quota.
                let fits = request.hashes.len() + of.len() <= self.world.settings.most();
                if fits && !(error == OnboardError::Closed && self.world.closing.get()) {
                    self.world.violation(format!("resume: {error}"));
                }
            }
            None => self.note(&format!("gives up resuming: {patience:?}")),
        }
        self.world.books.borrow_mut().unsure -= 1;
        self.world.check();
        request
    }

    fn resumed(&mut self, request: &mut Request, resumed: Resumed, of: &[SequenceHash]) {
        let Resumed { blocks, partial, missed } = resumed;
        let (got, wanted) = (blocks.len(), request.hashes.len());
        let part = partial.as_ref().map_or(0, BlocksMut::len);
        self.note(&format!("resumed {got} of {wanted}, {part} of {}: {missed:?}", of.len()));
        if missed.is_none() && (got < wanted || part < of.len()) || got > wanted {
            self.world.violation(format!("resumed {got} of {wanted}, {part} of {}: {missed:?}", of.len()));
        }
        self.believe(blocks.ids(), &request.hashes, "resumed");
        self.hold(&blocks, &request.hashes);
        if let Some(partial) = partial {
            let partial = self.own(partial, of.len());
            self.believe(partial.ids().iter().copied(), of, "resumed, not full");
            self.disown(&partial);
        }
        request.blocks = Some(blocks);
    }

    fn disown(&self, blocks: &BlocksMut) {
        let mut books = self.world.books.borrow_mut();
        blocks.ids().iter().for_each(|block| books.disown(*block));
    }

    /// Purges its tenant, while other engines of the tenant are at work.
    pub async fn purge(&mut self) {
        let deadline = Duration::from_millis(1 + self.random.below(3000));
        let zero = self.random.below(2) == 0;
        let (patience, began) = (self.patience(), Instant::now());
        let until = self.world.books.borrow().registrations();
        let tenant = self.world.tenant(self.tenant);
        let outcome = patience.wait(tenant.purge(Purge::default().zero(zero).deadline(deadline))).await;
        self.in_time(began, began + deadline, "a purge");
        self.note(&format!("purges: {outcome:?}"));
        match outcome {
            None => {}
            Some(Ok(purged)) => self.purged(purged, zero, until),
            Some(Err(PurgeError::UnderWay)) if self.is_purging() => {}
            Some(Err(PurgeError::Closed)) if self.world.closing.get() => {}
            Some(Err(error)) => self.world.violation(format!("a purge: {error}")),
        }
        self.world.check();
        pass(Duration::from_millis(1)).await;
    }

    fn purged(&self, purged: Purged, zero: bool, until: u64) {
        let tiers = purged.tiers();
        let all: usize = tiers.iter().map(|tier| tier.purged).sum();
        let adds_up = tiers.iter().all(|tier| tier.found == tier.purged + tier.busy);
        let bytes = self.bytes() as u64;
        let least = bytes * all.saturating_sub(purged.failed) as u64;
        let zeroed = if zero { purged.zeroed_bytes >= least } else { purged.zeroed_bytes == 0 };
        let busy = tiers.iter().any(|tier| tier.busy > 0);
        let failed = purged.failed > 0 && !self.world.may_park();
        if !adds_up || !zeroed || failed || purged.complete && (busy || purged.still_found > 0) {
            self.world.violation(format!("it does not add up: {purged:?}"));
        }
        if !purged.complete {
            return;
        }
        // Blocks registered since are there again.
        for hash in self.world.books.borrow().known_of(self.tenant, Some(until)) {
            let found = self.manager().default_group().match_prefix(&[hash]);
            if !found.is_empty() {
                self.world.violation(format!("purged, and there is {hash:?}: {found:?}"));
            }
        }
        // A restart may find blocks that were given up, and not forgotten when a volume was lost.
        let Some(disk) = self.world.disk.as_ref().filter(|disk| purged.failed == 0 && disk.losses() == 0)
        else {
            return;
        };
        let left = disk.left();
        for hash in self.world.books.borrow().known_of(self.tenant, Some(until)) {
            if left.contains(&hash.to_u128()) {
                self.world.violation(format!("purged, and a restart would find {hash:?}"));
            }
        }
    }
}
