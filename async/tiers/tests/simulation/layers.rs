//! A pass of the model over an engine's own blocks, which are offloaded behind its layers. The layers
//! are written one by one while the iterations go on, and the engine reports them or not.
//!
//! ```text
//!   engine   allocates, registers ahead of the next iteration, offloads behind layer k
//!            ──► waits until all is written ──► releases
//!   others   find the blocks, persist them: together with the engine's, in any write mode;
//!            register the same ahead of the same iteration or another, and write it if the first does not;
//!            compute blocks from them in the same pass, or the next: wrong if they are not written
//!   model    iteration: │ layer 0 written, reported │ layer 1 written │ layer 2 written, reported │ … │ over
//! ```
//!
//! Checked: blocks of the host have the bytes of all layers. Until a layer is written, its part of the
//! block holds bytes that no pass computed, so that a copy which is too early is found out.

use crate::content::{self, bytes_of};
use crate::engine::Engine;
use crate::patience::pass;
use crate::recorder::lock;
use crate::world::World;
use kvstrata_core::storage::DevicePort;
use kvstrata_core::{BlockId, SequenceHash};
use kvstrata_testing::virtual_time::Instant;
use kvstrata_tiers::Tier;
use kvstrata_tiers::scheduler::{Gate, Misuse};
use kvstrata_tiers::transfer::{Cause, Class};
use kvstrata_tiers::{Ahead, Blocks, Offload, OffloadOptions, RegisterFault};
use std::pin::Pin;
use std::time::Duration;

/// Bytes that no pass computed.
const NOTHING: u8 = 0x5A;
/// Bytes computed from those.
const WRONG: u8 = 0xA5;

/// Another list of the same hashes, and so of the same blocks, and the iteration that writes them if the
/// first does not.
struct Joined {
    iteration: u64,
    blocks: Blocks,
    ahead: Ahead,
}

/// A block computed from those of another list: in a pass, or as if they were written already.
struct Behind {
    iteration: u64,
    blocks: Blocks,
    hash: SequenceHash,
    _ahead: Option<Ahead>,
    /// Held until the block is computed.
    _from: Blocks,
}

/// A block that an iteration writes, from its parent, and the layers written so far.
#[derive(Debug)]
pub struct Written {
    iteration: u64,
    block: BlockId,
    hash: SequenceHash,
    from: Option<(BlockId, SequenceHash)>,
    layers: u32,
}

impl World {
    /// The model runs a layer of an iteration.
    fn write_layer(&self, iteration: u64, layer: u32) {
        let bytes = self.settings.layer_bytes;
        let at = layer as usize * bytes..(layer as usize + 1) * bytes;
        let mut written = self.pace.written.borrow_mut();
        // Parents come first.
        written.sort_by_key(|of| of.from.is_some());
        // The first of several lists writes a block.
        let by_others: Vec<BlockId> =
            written.iter().filter(|of| of.layers > layer).map(|of| of.block).collect();
        let its = |of: &&mut Written| of.iteration == iteration && !by_others.contains(&of.block);
        for of in written.iter_mut().filter(its) {
            let mut content = bytes_of(of.hash, self.settings.block_bytes());
            if of.from.is_some_and(|(block, hash)| !content::is(&self.device, block.0, hash, at.clone())) {
                content.fill(WRONG);
            }
            if let Err(error) = self.device.copy_in(of.block.0, at.start, &content[at.clone()]) {
                self.violation(format!("layer {layer} of block {} cannot be written: {error}", of.block));
            }
            of.layers = layer + 1;
        }
    }

    /// A whole iteration of an engine that does not report its layers.
    pub fn step(&self) -> Result<u64, Misuse> {
        let next = self.iteration.get() + 1;
        (0..self.settings.layers).for_each(|layer| self.write_layer(next, layer));
        let iteration = self.manager().step()?;
        self.iteration.set(iteration);
        Ok(iteration)
    }

    /// An iteration. Some report each layer, some every other one, some none.
    pub async fn one_iteration(&self, every: Duration) {
        let (manager, layers) = (self.manager(), self.settings.layers);
        let running = match manager.begin_iteration() {
            Ok(running) => running,
            Err(error) => return self.violation(error.to_string()),
        };
        let iteration = running.number();
        self.iteration.set(iteration);
        for layer in 0..layers {
            pass(every / (layers + 1)).await;
            self.write_layer(iteration, layer);
            let tells = match iteration % 5 {
                0 => false,
                1 => layer % 2 == 1,
                _ => true,
            };
            if tells && let Err(error) = running.layer_done(layer) {
                self.violation(error.to_string());
            }
        }
        pass(every / (layers + 1)).await;
        if let Err(error) = running.end() {
            self.violation(error.to_string());
        }
        self.check();
    }

    /// Whether these blocks are written, by any of the lists.
    fn is_written(&self, ids: &[BlockId]) -> bool {
        let written = self.pace.written.borrow();
        let layers =
            |block: BlockId| written.iter().filter(move |of| of.block == block).map(|of| of.layers).max();
        ids.iter().all(|block| layers(*block).is_none_or(|layers| layers == self.settings.layers))
    }

    /// The pass of a list has ended, or come to nothing: its blocks may be others' by now.
    fn writes_no_more(&self, iteration: u64, ids: &[BlockId]) {
        let mut written = self.pace.written.borrow_mut();
        for block in ids {
            // Two lists of one pass are alike.
            let its = written.iter().position(|of| (of.iteration, of.block) == (iteration, *block));
            its.map(|at| written.swap_remove(at));
        }
    }

    /// Checks the bytes of those blocks of these hashes that the host has.
    fn believe_host(&self, hashes: &[SequenceHash]) {
        let Some(memory) = self.memory.upgrade().filter(|_| self.settings.rot == 0) else { return };
        for hash in hashes {
            let there = lock(&self.stored[1]).get(&hash.to_u128()).copied();
            let bytes = there.and_then(|there| memory.read(there.id.0).ok());
            if bytes.is_some_and(|bytes| *bytes != *bytes_of(*hash, self.settings.block_bytes())) {
                self.violation(format!("{hash:?} is in the host before all of it was written"));
            }
        }
    }
}

impl Engine {
    /// Offloads blocks that a pass writes. Others may ask for them before they are written.
    pub async fn offload_behind_layers(&mut self) {
        let settings = &self.world.settings;
        if settings.iteration.is_none() {
            return;
        }
        let count = 1 + self.random.below(settings.depth.min(4)) as usize;
        let Some(blocks) = self.allocate(count).await else { return };
        let ids = blocks.ids().to_vec();
        let hashes: Vec<SequenceHash> =
            ids.iter().map(|_| crate::content::child(None, self.random.next() | 1 << 62)).collect();
        for block in &ids {
            self.world.device.copy_in(block.0, 0, &vec![NOTHING; self.bytes()]).expect("in range");
        }
        {
            let mut books = self.world.books.borrow_mut();
            ids.iter().for_each(|block| books.disown(*block));
            books.unsure += 1;
        }
        let iteration = self.world.iteration.get() + 1;
        let since = Instant::now();
        match blocks.register_ahead(&hashes, None, iteration) {
            Ok((registered, ahead)) => {
                self.world.registered(&ids, &registered, &hashes);
                self.is_to_write(iteration, &ids, &hashes, None);
                let behind = if self.chance(3) { self.compute_behind(&ids, &hashes).await } else { None };
                self.run_pass(iteration, (registered, ahead, since), &ids, &hashes).await;
                self.world.writes_no_more(iteration, &ids);
                if let Some(behind) = behind {
                    self.see_behind(behind).await;
                }
            }
            Err(error) if error.why == RegisterFault::Purging && self.is_purging() => {}
            Err(error) => self.world.violation(format!("{error}")),
        }
        self.world.books.borrow_mut().unsure -= 1;
        self.world.check();
    }

    async fn run_pass(
        &mut self,
        iteration: u64,
        (blocks, ahead, since): (Blocks, Ahead, Instant),
        ids: &[BlockId],
        hashes: &[SequenceHash],
    ) {
        let layer = self.random.below(u64::from(self.world.settings.layers) + 1) as u32;
        let class = if self.random.below(2) == 0 { Class::Offload } else { Class::Background };
        let gate = Gate::Layer { iteration, layer };
        let options = OffloadOptions::default().class(class).request(self.number).gate(gate);
        let mut offload = Box::pin(self.manager().default_group().offload(&blocks, options));
        self.note(&format!("offloads {} behind layer {layer} of iteration {iteration}", ids.len()));
        self.world.check();
        self.ask_early(&blocks, hashes, since).await;
        let mut joined = if self.chance(3) { self.join(ids, hashes).await } else { None };
        if self.chance(if joined.is_some() { 4 } else { 1 }) {
            return self.fail_pass(iteration, (blocks, ahead), ids, hashes, (offload, joined)).await;
        }
        if self.chance(5)
            && let Some(Joined { iteration, ahead, .. }) = joined.take()
        {
            self.world.writes_no_more(iteration, ids);
            lock(&self.world.notes).gives_up(hashes);
            ahead.withdraw();
            self.note("withdraws what another list is to write, too");
        }
        let patience = self.patience();
        let early = patience.wait(&mut offload).await;
        while !self.world.is_written(ids) {
            pass(Duration::from_millis(1)).await;
        }
        self.believe(ids.iter().copied(), hashes, "written by layers");
        self.world.books.borrow_mut().registered(self.tenant, hashes);
        let outcome = match early {
            Some(outcome) => Some(outcome),
            None => self.patience().wait(offload).await,
        };
        self.note(&format!("offloaded behind a layer: {outcome:?}"));
        self.world.believe_host(hashes);
        if let Some(of) = outcome {
            let all = of.copied + of.there + of.refused + of.failed;
            if all != ids.len() {
                self.world.violation(format!("{of:?} of {} blocks behind a layer", ids.len()));
            }
            if of.cause == Some(Cause::Deadline) && of.failed == 0 {
                self.world.violation(format!("late, and none has failed: {of:?}"));
            }
        }
        self.believe(ids.iter().copied(), hashes, "held behind a layer");
        joined.iter().for_each(|joined| self.world.writes_no_more(joined.iteration, ids));
    }

    /// Another caller asks for blocks that the pass has still to write: they are found in the device,
    /// and copied when they are written. Not so if no pass has come for as long as the manager waits for
    /// one, since all requests waited.
    async fn ask_early(&mut self, blocks: &Blocks, hashes: &[SequenceHash], since: Instant) {
        let manager = self.manager();
        if self.chance(3) {
            let found = manager.default_group().match_prefix(hashes);
            let missed = found.in_tier(Tier::Device) < hashes.len();
            let is_late =
                since.elapsed() >= self.world.settings.offload && blocks.registered() < hashes.len();
            if missed && !is_late && !self.is_purging() && !self.world.closing.get() {
                self.world.violation(format!("{found:?} of {} that are registered and held", hashes.len()));
            }
        }
        if self.chance(3) {
            let patience = self.patience();
            let outcome = patience.wait(manager.default_group().persist(hashes)).await;
            self.note(&format!("persists what a pass writes: {outcome:?}"));
            self.world.believe_host(hashes);
            self.world.check();
        }
    }

    fn is_to_write(
        &self,
        iteration: u64,
        ids: &[BlockId],
        hashes: &[SequenceHash],
        from: Option<(BlockId, SequenceHash)>,
    ) {
        let of = |(block, hash): (&BlockId, &SequenceHash)| Written {
            iteration,
            block: *block,
            hash: *hash,
            from,
            layers: 0,
        };
        self.world.pace.written.borrow_mut().extend(ids.iter().zip(hashes).map(of));
    }

    /// Another request finds the blocks, and computes the next one from them. `None`: they are
    /// no longer found, or are written.
    async fn compute_behind(&mut self, ids: &[BlockId], hashes: &[SequenceHash]) -> Option<Behind> {
        let blocks = self.allocate(1).await?;
        let block = blocks.ids()[0];
        self.world.device.copy_in(block.0, 0, &vec![NOTHING; self.bytes()]).expect("in range");
        self.world.books.borrow_mut().disown(block);
        let found = self.manager().default_group().match_device(hashes);
        let first = found.written_in().filter(|_| found.ids().eq(ids.iter().copied()))?;
        let from = (*ids.last()?, *hashes.last()?);
        let hash = content::child(Some(from.1), self.random.next() | 1 << 62);
        // A running pass has begun without it.
        let begun = self.world.iteration.get() >= first;
        let iteration = first.max(self.world.iteration.get() + 1) + self.random.below(2);
        let plain = self.chance(3) && !begun;
        let registered = match plain {
            true => blocks.register(&[hash], Some(&found)).map(|blocks| (blocks, None)),
            false => blocks
                .register_ahead(&[hash], Some(&found), iteration)
                .map(|(blocks, ahead)| (blocks, Some(ahead))),
        };
        let iteration = if plain { first } else { iteration };
        match registered {
            Ok((blocks, _ahead)) => {
                self.world.registered(&[block], &blocks, &[hash]);
                self.is_to_write(iteration, &[block], &[hash], Some(from));
                self.note(&format!("computes a block from them in iteration {iteration}"));
                Some(Behind { iteration, blocks, hash, _ahead, _from: found })
            }
            Err(error) if error.why == RegisterFault::Purging && self.is_purging() => None,
            Err(error) => {
                self.world.violation(format!("behind blocks of iteration {first}: {error}"));
                None
            }
        }
    }

    /// Checks that the block is right once it counts as written, unless it is no longer found.
    async fn see_behind(&mut self, behind: Behind) {
        let ids: Vec<BlockId> = behind.blocks.ids().collect();
        while behind.blocks.written_in().is_some() && !self.world.closing.get() {
            pass(Duration::from_millis(1)).await;
        }
        if behind.blocks.registered() == 1 && behind.blocks.written_in().is_none() {
            self.believe(ids.iter().copied(), &[behind.hash], "computed from blocks that are written");
        }
        self.world.believe_host(&[behind.hash]);
        self.world.writes_no_more(behind.iteration, &ids);
    }

    /// Another request registers the same blocks, for the next iteration or the one behind it. `None`:
    /// they are written by now, or withdrawn.
    async fn join(&mut self, ids: &[BlockId], hashes: &[SequenceHash]) -> Option<Joined> {
        let blocks = self.allocate(hashes.len()).await?;
        for block in blocks.ids() {
            self.world.device.copy_in(block.0, 0, &vec![NOTHING; self.bytes()]).expect("in range");
            self.world.books.borrow_mut().disown(*block);
        }
        let own = blocks.ids().to_vec();
        let iteration = self.world.iteration.get() + 1 + self.random.below(2);
        let (blocks, ahead) = blocks.register_ahead(hashes, None, iteration).ok()?;
        self.world.registered(&own, &blocks, hashes);
        if blocks.written_in().is_none() || !blocks.ids().eq(ids.iter().copied()) {
            ahead.withdraw();
            return None;
        }
        self.is_to_write(iteration, ids, hashes, None);
        self.note(&format!("joins {} blocks that are to be written, in iteration {iteration}", ids.len()));
        Some(Joined { iteration, blocks, ahead })
    }

    /// The first list has withdrawn, so this one's pass writes the blocks.
    async fn write_instead(&mut self, joined: Joined, ids: &[BlockId], hashes: &[SequenceHash]) {
        self.world.believe_host(hashes);
        while !self.world.is_written(ids) && !self.world.closing.get() {
            pass(Duration::from_millis(1)).await;
        }
        self.world.believe_host(hashes);
        if self.world.is_written(ids) && joined.blocks.registered() == hashes.len() {
            self.believe(ids.iter().copied(), hashes, "written by another list");
        }
        self.world.writes_no_more(joined.iteration, ids);
    }

    /// The pass has failed, or is reported as failed.
    async fn fail_pass(
        &mut self,
        iteration: u64,
        (blocks, ahead): (Blocks, Ahead),
        ids: &[BlockId],
        hashes: &[SequenceHash],
        (offload, joined): (Pin<Box<Offload>>, Option<Joined>),
    ) {
        self.pause(30).await;
        // Blocks written by now stay.
        if blocks.written_in().is_none() {
            joined.iter().for_each(|joined| self.world.writes_no_more(joined.iteration, ids));
            return;
        }
        self.world.writes_no_more(iteration, ids);
        lock(&self.world.notes).gives_up(hashes);
        ahead.withdraw();
        drop(blocks);
        self.note("withdraws what a pass was to write");
        if let Some(joined) = joined {
            self.write_instead(joined, ids, hashes).await;
            let outcome = self.patience().wait(offload).await;
            return self.note(&format!("offloaded what another list has written: {outcome:?}"));
        }
        let found = self.manager().default_group().match_prefix(hashes);
        if !found.is_empty() {
            self.world.violation(format!("{found:?} of what was withdrawn"));
        }
        drop(found);
        self.world.check();
        let outcome = self.patience().wait(offload).await;
        self.note(&format!("offloaded what was withdrawn: {outcome:?}"));
        // The pass has come to nothing. Its blocks are unowned when it is over.
        while self.world.iteration.get() <= iteration && !self.world.closing.get() {
            pass(Duration::from_millis(1)).await;
        }
        if !self.manager().default_group().match_prefix(hashes).is_empty() {
            self.world.violation(format!("{hashes:?}: withdrawn, and there"));
        }
    }
}

/// Offloads behind layers, by engines that serve nothing else, so that each seed has many.
mod directed {
    use super::*;
    use crate::common::Random;
    use crate::directed::play;
    use crate::drops::{compute, sequence};
    use crate::sim::Plan;
    use crate::world::calm;
    use kvstrata_tiers::WriteMode;
    use std::rc::Rc;

    /// A world of four layers, with a model that iterates.
    fn paced(seed: u64, mover: Plan) -> crate::settings::Settings {
        let mut settings = calm(seed);
        (settings.device, settings.host, settings.disk) = (12, 16, [0, 24][seed as usize % 2]);
        (settings.layers, settings.layer_bytes) = (4, 16);
        (settings.iteration, settings.iteration_bytes) = (Some(Duration::from_millis(20)), None);
        (settings.mode, settings.depth, settings.headroom) = (WriteMode::Back, 4, 0);
        settings.offload = Duration::from_secs(5);
        settings.mover = mover;
        settings
    }

    /// Each wait has its own time: an engine may take long over a pass.
    #[test]
    fn offload_deadline_is_per_layer_not_per_pass() {
        let quick = Duration::from_millis(1)..Duration::from_millis(2);
        let mut settings = paced(0, Plan { latency: quick, ..Plan::calm(0) });
        (settings.offload, settings.queue) = (Duration::from_millis(100), 1024);
        play(settings, |world, manager| async move {
            let blocks = compute(&world, &manager, &sequence(1, 2)).await;
            let running = manager.begin_iteration().expect("none runs");
            let iteration = running.number();
            let (gate, deadline) = (Gate::Layer { iteration, layer: 0 }, Some(Duration::from_secs(5)));
            let offload = manager
                .default_group()
                .offload(&blocks, OffloadOptions::default().gate(gate).deadline(deadline));
            for layer in 0..world.settings.layers {
                pass(Duration::from_millis(60)).await;
                running.layer_done(layer).expect("in turn");
            }
            let down = offload.await;
            assert_eq!((down.copied, down.cause), (2, None));
            running.end().expect("one runs");
            drop(blocks);
        });
    }

    #[test]
    fn offload_behind_layers_has_the_bytes_of_all_layers() {
        for seed in 0..40 {
            let plan = if seed % 3 == 0 { Plan { hang: 0, ..Plan::rough(seed) } } else { Plan::calm(seed) };
            let quick = Duration::from_millis(1)..Duration::from_millis(8);
            play(paced(seed, Plan { latency: quick, ..plan }), |world, _| async move {
                let every = Duration::from_millis(20);
                let model = kvstrata_testing::virtual_time::spawn_local(Rc::clone(&world).iterate(every));
                let mut engine = Engine::new(Rc::clone(&world), 1, Random(seed));
                for _ in 0..12 {
                    engine.offload_behind_layers().await;
                }
                // The last pass with blocks registered ahead of it may be the one behind the next.
                pass(3 * every).await;
                (0..world.settings.engines).for_each(|_| world.engine_ends());
                model.await.expect("no panic");
            });
        }
    }
}
