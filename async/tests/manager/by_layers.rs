//! Copies down by layers, while the pass that writes the layers goes on: their bytes, their times, and
//! ways to end a copy in the middle of the pass.
//!
//! Past 500 lines because each way to end one in the middle is a test, and all share a ground.

use super::flying::look;
use super::ground::{BYTES, bytes_of, check, hashes, rest, settings, stepping, still};
use crate::gated::Ground;
use crate::sim::{Plan, SimDisk};
use kvstrata::OriginalNames;
use kvstrata::config::ManagerConfigBuilder;
use kvstrata::manager::{Blocks, Iteration, Offload, OffloadOptions, OnboardOptions, Purge, Tiers};
use kvstrata::scheduler::{Gate, Misuse};
use kvstrata::tier::Tier;
use kvstrata::transfer::{Cause, Class, Path, TierPort};
use kvstrata_core::{DevicePort, SequenceHash};
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

const LAYERS: u32 = 8;
const LAYER: usize = BYTES / LAYERS as usize;
const PATIENCE: Duration = Duration::from_secs(20);

/// An engine in the middle of a pass. Its blocks hold other bytes until their layer is computed.
struct Pass<'g> {
    ground: &'g Ground,
    iteration: u64,
    /// `None` once the pass has ended.
    running: Option<Iteration>,
    blocks: Blocks,
    hashes: Vec<SequenceHash>,
}

impl Pass<'_> {
    /// Begins a pass over new blocks of a sequence, with the handle of a manager or of a tenant.
    async fn begin<'g>(ground: &'g Ground, of: &Tiers, (sequence, count): (u64, u64)) -> Pass<'g> {
        let hashes = hashes(sequence, count);
        let blocks = of.default_group().allocate(hashes.len()).await.expect("blocks");
        for block in blocks.ids() {
            ground.device.copy_in(block.0, 0, &[0xEE; BYTES]).expect("in range");
        }
        let running = of.begin_iteration().expect("none runs");
        let iteration = running.number();
        let (blocks, _) = blocks.register_ahead(&hashes, None, iteration).expect("registered");
        Pass { ground, iteration, running: Some(running), blocks, hashes }
    }

    /// Offloads the blocks behind a layer of this pass.
    fn offload(&self, layer: u32) -> Offload {
        let gate = Gate::Layer { iteration: self.iteration, layer };
        let options = OffloadOptions::default().gate(gate).request(1).deadline(PATIENCE);
        self.ground.manager.default_group().offload(&self.blocks, options)
    }

    /// Computes layers after each copy that may start has landed. A copy that started too early has
    /// other bytes.
    async fn write(&self, layers: Range<u32>) {
        if self.ground.mover.waiting() == 0 {
            still(&self.ground.manager).await;
        }
        for (block, hash) in self.blocks.ids().zip(&self.hashes) {
            for layer in layers.clone() {
                let at = layer as usize * LAYER..(layer as usize + 1) * LAYER;
                self.ground
                    .device
                    .copy_in(block.0, at.start, &bytes_of(*hash)[at])
                    .expect("nobody copies it");
            }
        }
    }

    /// Computes layers, and reports each of them.
    async fn run(&self, layers: Range<u32>) {
        for layer in layers {
            self.write(layer..layer + 1).await;
            self.layer_done(layer).expect("in turn");
        }
        if self.ground.mover.waiting() == 0 {
            still(&self.ground.manager).await;
        }
    }

    fn layer_done(&self, layer: u32) -> Result<(), Misuse> {
        self.running.as_ref().expect("it runs").layer_done(layer)
    }

    fn end(&mut self) {
        self.running.take().expect("it runs").end().expect("one runs");
    }

    /// The ranges of layers copied so far, which must be the same for all blocks.
    fn copied(&self) -> Vec<(u32, u32)> {
        let mut all: Vec<_> = self.blocks.ids().map(|block| self.ground.mover.layers_down(block)).collect();
        let one = all.pop().expect("blocks");
        assert!(all.iter().all(|other| *other == one), "{one:?}, {all:?}");
        one
    }

    /// Brings all blocks up from below, and checks their bytes.
    async fn back(self) {
        let Pass { ground, blocks, hashes, .. } = self;
        drop(blocks);
        let manager = &ground.manager;
        let group = manager.default_group();
        drop(group.allocate(group.capacity(Tier::Device)).await.expect("all of them"));
        rest(manager).await;
        assert_eq!(group.match_prefix(&hashes).in_tier(Tier::Device), 0);
        let up = group.restore_to_gpu(&hashes).await.expect("fits");
        check(manager, &up.blocks, &hashes);
    }
}

fn ground_of(settings: ManagerConfigBuilder, device: u32, host: u32) -> Ground {
    Ground::with_layers(settings, (device, host), LAYERS as usize, None)
}

/// Eight blocks of the device over sixteen of the host.
fn ground() -> Ground {
    ground_of(settings(8, 16), 8, 16)
}

/// A device of so many blocks over a disk, with two blocks of staging and no host tier.
fn over_disk(device: u32) -> (Ground, Arc<SimDisk>) {
    let quick = Plan { latency: Duration::ZERO..Duration::from_millis(1), ..Plan::calm(1) };
    let disk = Arc::new(SimDisk::new(32, BYTES, quick));
    let port: Arc<dyn TierPort> = Arc::<SimDisk>::clone(&disk);
    (Ground::with_layers(settings(device, 0), (device, 0), LAYERS as usize, Some(port)), disk)
}

/// Host blocks of copies that have begun and are not over.
fn host_owned(manager: &Tiers) -> usize {
    manager.census().tiers[0][1].owned
}

/// Waits for an answer that must come soon, whatever the engine does.
async fn soon<F: IntoFuture>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("not only when the engine goes on")
}

#[tokio::test]
async fn offload_by_layers_stores_the_block_after_its_last_step() {
    let ground = ground();
    let manager = &ground.manager;
    let mut pass = Pass::begin(&ground, manager, (1, 3)).await;
    let offload = pass.offload(2);
    assert_eq!((manager.census().gated, manager.census().down), (3, 0));
    pass.run(0..2).await;
    assert!(pass.copied().is_empty());
    for (layers, copied) in
        [(2..5, vec![(0, 3)]), (5..7, vec![(0, 3), (3, 6)]), (7..8, vec![(0, 3), (3, 6), (6, 8)])]
    {
        assert_eq!(manager.default_group().pool_stats(Tier::Host).stored, 0, "none is whole");
        pass.run(layers).await;
        assert_eq!(pass.copied(), copied);
    }
    let down = offload.await;
    assert_eq!((down.copied, down.cause), (3, None));
    assert_eq!((manager.census().gated, manager.default_group().pool_stats(Tier::Host).stored), (0, 3));
    let path = manager.stats().path(Path::DeviceToHost);
    assert_eq!((path.transfers, path.bytes), (9, 3 * BYTES as u64));
    pass.end();
    pass.back().await;
}

#[tokio::test]
async fn layers_opened_by_several_steps_go_in_one_copy() {
    let ground = ground();
    let mut pass = Pass::begin(&ground, &ground.manager, (1, 2)).await;
    let offload = pass.offload(0);
    ground.mover.close();
    pass.run(0..3).await;
    assert_eq!(pass.copied(), [(0, 1)], "the first has not landed");
    ground.mover.open();
    still(&ground.manager).await;
    assert_eq!(pass.copied(), [(0, 1), (1, 3)]);
    // A layer is reported with all before it, and the last ones with the pass.
    pass.write(3..6).await;
    pass.layer_done(5).expect("in turn");
    pass.write(6..8).await;
    pass.end();
    assert_eq!(offload.await.copied, 2);
    assert_eq!(pass.copied(), [(0, 1), (1, 3), (3, 6), (6, 8)]);
    pass.back().await;
}

#[tokio::test]
async fn pass_end_opens_all_layers() {
    let ground = ground();
    let mut pass = Pass::begin(&ground, &ground.manager, (1, 2)).await;
    let offload = pass.offload(1);
    pass.run(0..2).await;
    pass.write(2..8).await;
    pass.end();
    assert_eq!((offload.await.copied, pass.copied()), (2, vec![(0, 2), (2, 8)]));
    pass.back().await;

    let mut pass = Pass::begin(&ground, &ground.manager, (2, 2)).await;
    pass.end();
    // A gate of the next iteration, which is a `step`.
    let gate = Gate::Layer { iteration: pass.iteration + 1, layer: 1 };
    let options = OffloadOptions::default().gate(gate);
    let offload = ground.manager.default_group().offload(&pass.blocks, options);
    pass.write(0..8).await;
    ground.manager.step().expect("none runs");
    assert_eq!(offload.await.copied, 2);
    // Earlier blocks of these slots were copied, too.
    let copied: Vec<_> = pass.blocks.ids().map(|block| ground.mover.layers_down(block)).collect();
    assert!(copied.iter().all(|copied| copied.last() == Some(&(0, 8))), "{copied:?}");
    pass.back().await;
}

/// A gate at the last layer, beyond it, or with no layer left to come: as any offload.
#[tokio::test]
async fn offload_without_a_second_step_goes_whole() {
    for layer in [7, 8, u32::MAX] {
        let ground = ground();
        let mut pass = Pass::begin(&ground, &ground.manager, (1, 2)).await;
        let offload = pass.offload(layer);
        pass.run(0..7).await;
        assert_eq!((pass.copied(), ground.manager.census().gated), (vec![], 2));
        pass.run(7..8).await;
        assert_eq!((offload.await.copied, pass.copied()), (2, vec![(0, 8)]));
        assert_eq!(pass.offload(0).await.there, 2);
        pass.end();
    }
    let ground = ground();
    let pass = Pass::begin(&ground, &ground.manager, (1, 2)).await;
    pass.run(0..8).await;
    assert_eq!((pass.offload(1).await.copied, pass.copied()), (2, vec![(0, 8)]));
}

#[tokio::test]
async fn engine_stopped_within_pass_keeps_nothing_past_deadline() {
    let ground = ground_of(settings(8, 16).deadline_offload(Duration::from_millis(20)), 8, 16);
    let tenant = ground.manager.tenant("a").expect("few tenants");
    let pass = Pass::begin(&ground, &tenant, (1, 3)).await;
    let offload = pass.offload(2);
    pass.run(0..4).await;
    assert_eq!(pass.copied(), [(0, 3)]);
    let down = soon(offload).await;
    assert_eq!((down.failed, down.copied, down.cause), (3, 0, Some(Cause::Deadline)));
    soon(rest(&ground.manager)).await;
    assert_eq!((host_owned(&ground.manager), tenant.usage(Tier::Host).blocks), (0, 0));
    assert_eq!(ground.manager.stats().path(Path::DeviceToHost).failed_by(Cause::Deadline), 3);
    // The copies do not go on later either.
    pass.run(4..8).await;
    assert_eq!((pass.copied(), ground.manager.stats().offloaded[0]), (vec![(0, 3)], 0));
    drop(pass.blocks);
    assert_eq!(soon(ground.manager.default_group().allocate(8)).await.expect("nobody holds them").len(), 8);
}

/// This holds for every copy, whatever its gate: an offload without one, `persist`, a preemption.
#[tokio::test]
async fn copies_of_blocks_being_written_wait_for_the_layers() {
    let ground = ground();
    let manager = &ground.manager;
    let group = manager.default_group();
    let mut pass = Pass::begin(&ground, manager, (1, 2)).await;
    let offload = pass.offload(1);
    // The same once more, before the first step.
    let (twice, open) = (pass.offload(1), group.offload(&pass.blocks, OffloadOptions::default()));
    pass.run(0..2).await;
    let wanted = pass.hashes.clone();
    let mut persist = pin!(group.persist(&wanted));
    assert!(look(persist.as_mut()).is_pending());
    let none = group.try_allocate(0).expect("none");
    let mut preempted = group.preempt(pass.blocks.clone(), none, 1).expect("one manager");
    still(manager).await;
    assert_eq!(pass.copied(), [(0, 2)]);
    pass.run(2..8).await;
    let (offload, twice, open) = (offload.await, twice.await, open.await);
    assert_eq!((offload.copied, twice.copied, twice.refused), (2, 2, 0));
    assert_eq!((open.copied + open.there, open.refused + open.failed), (2, 0));
    assert_eq!((soon(persist).await.failed, soon(preempted.settled()).await.copied), (0, 2));
    pass.end();
    pass.back().await;
}

#[tokio::test]
async fn tenant_purged_within_pass_leaves_no_layer() {
    for moves in [false, true] {
        let ground = ground();
        let tenant = ground.manager.tenant("a").expect("few tenants");
        let pass = Pass::begin(&ground, &tenant, (1, 3)).await;
        let offload = pass.offload(1);
        pass.run(0..3).await;
        if moves {
            ground.mover.close();
            pass.run(3..4).await;
        }
        let Pass { running, blocks, hashes, .. } = pass;
        let mut purge = pin!(tenant.purge(Purge::default().zero(true)));
        assert!(look(purge.as_mut()).is_pending(), "held");
        drop(blocks);
        ground.mover.open();
        // The pass writes until here.
        running.expect("it runs").end().expect("one runs");
        let purged = soon(purge).await.expect("open");
        assert_eq!((purged.complete, purged.in_flight, purged.device.purged), (true, 3, 3), "{moves}");
        let down = offload.await;
        assert_eq!((down.failed, down.cause), (3, Some(Cause::Cancelled)), "{moves}");
        assert_eq!((host_owned(&ground.manager), tenant.usage(Tier::Host).blocks), (0, 0));
        assert_eq!((ground.manager.census().gated, ground.manager.census().down), (0, 0));
        for (block, hash) in (0..16).flat_map(|block| hashes.iter().map(move |hash| (block, hash))) {
            let bytes = ground.memory.read(block).expect("nobody writes");
            let all = bytes_of(*hash);
            let mut layers = bytes.chunks(LAYER).zip(all.chunks(LAYER));
            assert!(layers.all(|(found, of)| found != of), "a layer of {hash:?} is in block {block}");
        }
        rest(&ground.manager).await;
    }
}

#[tokio::test]
async fn shutdown_within_pass_waits_for_no_layer() {
    let ground = ground();
    let pass = Pass::begin(&ground, &ground.manager, (1, 3)).await;
    let offload = pass.offload(1);
    pass.run(0..2).await;
    assert_eq!((ground.manager.census().gated, ground.manager.census().down), (3, 3));
    let began = tokio::time::Instant::now();
    assert!(ground.manager.shutdown().await, "nothing moves");
    assert!(began.elapsed() < Duration::from_secs(4), "half of its deadline is {:?}", began.elapsed());
    let down = offload.await;
    assert_eq!((down.failed, down.cause), (3, Some(Cause::Cancelled)));
    pass.run(2..8).await;
    assert_eq!((pass.copied(), host_owned(&ground.manager)), (vec![(0, 2)], 0));
    assert!(ground.manager.census().is_idle());

    // The same with a step in flight, which lands later.
    let ground = ground_of(settings(8, 16).deadline_shutdown(Duration::from_millis(20)), 8, 16);
    let pass = Pass::begin(&ground, &ground.manager, (1, 3)).await;
    let offload = pass.offload(1);
    ground.mover.close();
    pass.run(0..2).await;
    assert!(!ground.manager.shutdown().await, "a step moves");
    ground.mover.open();
    let down = soon(offload).await;
    assert_eq!((down.failed, down.cause), (3, Some(Cause::Cancelled)));
    soon(rest(&ground.manager)).await;
    assert_eq!(host_owned(&ground.manager), 0);
}

#[tokio::test]
async fn failed_step_is_retried_without_the_steps_before_it() {
    let retries = |retries| settings(8, 16).transfer_retries(retries).transfer_retry_after(Duration::ZERO);
    let ground = ground_of(retries(1), 8, 16);
    let mut pass = Pass::begin(&ground, &ground.manager, (1, 2)).await;
    let offload = pass.offload(2);
    pass.run(0..3).await;
    ground.mover.close();
    pass.run(3..7).await;
    ground.mover.fail();
    while ground.mover.layers_down(pass.blocks.ids().next().expect("two")).len() < 3 {
        tokio::task::yield_now().await;
    }
    pass.run(7..8).await;
    assert_eq!((offload.await.copied, pass.copied()), (2, vec![(0, 3), (3, 6), (3, 6), (6, 8)]));
    pass.end();
    pass.back().await;

    let ground = ground_of(retries(0), 8, 16);
    let pass = Pass::begin(&ground, &ground.manager, (1, 2)).await;
    let offload = pass.offload(2);
    pass.run(0..3).await;
    ground.mover.close();
    pass.run(3..6).await;
    ground.mover.fail();
    let down = offload.await;
    assert_eq!((down.failed, down.cause), (2, Some(Cause::Device)));
    pass.run(6..8).await;
    assert_eq!((pass.copied(), host_owned(&ground.manager)), (vec![(0, 3), (3, 6)], 0));
    assert!(ground.manager.census().is_idle());
}

#[tokio::test]
async fn iteration_bytes_bound_the_bytes_of_steps() {
    // Four steps of two layers.
    let bytes = BYTES as u64;
    let ground = ground_of(settings(8, 16).iteration_bytes(Some(bytes)), 8, 16);
    let manager = &ground.manager;
    let mut pass = Pass::begin(&ground, manager, (1, 6)).await;
    let offload = pass.offload(1);
    pass.run(0..2).await;
    let path = || manager.stats().path(Path::DeviceToHost);
    assert_eq!((path().transfers, path().bytes, manager.census().queued), (4, bytes, 2));
    pass.run(2..8).await;
    assert_eq!((path().transfers, path().bytes, manager.census().queued), (4, bytes, 6), "and no more");
    pass.end();
    assert_eq!(stepping(manager, offload).await.copied, 6);
    assert_eq!(path().bytes, 6 * bytes);
    drop(pass);
}

/// The bound counts only copies that have not begun.
#[tokio::test]
async fn begun_copies_waiting_for_layers_take_no_queue_places() {
    let ground = ground_of(settings(8, 16).transfer_queue(2), 8, 16);
    let manager = &ground.manager;
    let mut pass = Pass::begin(&ground, manager, (1, 4)).await;
    let mut others = pass.blocks.clone();
    others.drop_first(2);
    pass.blocks.truncate(2);
    let first = pass.offload(1);
    ground.mover.close();
    pass.run(0..2).await;
    let gate = Gate::Iteration(pass.iteration);
    let second = manager.default_group().offload(&others, OffloadOptions::default().gate(gate));
    assert_eq!((manager.census().gated, manager.census().moving), (2, 2));
    ground.mover.open();
    still(manager).await;
    assert_eq!((manager.census().gated, manager.census().down), (4, 2));
    pass.run(2..8).await;
    assert_eq!(first.await.copied, 2);
    pass.end();
    assert_eq!(second.await.copied, 2);
}

#[tokio::test]
async fn disk_write_starts_after_all_layers_are_staged() {
    let (ground, disk) = over_disk(4);
    let mut pass = Pass::begin(&ground, &ground.manager, (1, 2)).await;
    let offload = pass.offload(3);
    pass.run(0..7).await;
    assert_eq!((pass.copied(), ground.manager.census().staged), (vec![(0, 4)], 2));
    assert_eq!(disk.counts().written, 0);
    pass.run(7..8).await;
    assert_eq!((offload.await.copied, pass.copied()), (2, vec![(0, 4), (4, 8)]));
    assert_eq!((disk.counts().written, ground.manager.census().staging), (2, 2));
    pass.end();
    pass.back().await;
}

/// Both blocks of staging belong to copies that wait for the engine.
#[tokio::test]
async fn reads_and_victims_take_staging_from_gated_copies() {
    let (ground, disk) = over_disk(6);
    let manager = &ground.manager;
    let group = manager.default_group();
    let others = hashes(2, 2);
    drop(super::ground::compute(manager, &others, None).await);
    assert_eq!(group.persist(&others).await.copied, 2);
    drop(group.allocate(6).await.expect("all of them"));
    rest(manager).await;
    let mut pass = Pass::begin(&ground, manager, (1, 2)).await;
    let offload = pass.offload(3);
    pass.run(0..4).await;
    assert_eq!((manager.census().staged, manager.census().staging), (2, 0));
    let found = group.match_prefix(&others);
    assert_eq!(found.in_tier(Tier::DISK), 2);
    let up = soon(group.onboard(found, OnboardOptions::default()).expect("fits")).await;
    check(manager, &up.blocks, &others);
    // A copy that gave up its staging goes whole, when all of the block is written.
    pass.run(4..7).await;
    assert_eq!(manager.census().gated, 2);
    assert!(!pass.copied_whole(), "not all of it is written");
    pass.run(7..8).await;
    assert_eq!(offload.await.copied, 2);
    pass.end();
    drop(up);
    pass.back().await;

    drop(super::ground::compute(manager, &hashes(3, 4), None).await);
    rest(manager).await;
    let mut pass = Pass::begin(&ground, manager, (4, 2)).await;
    rest(manager).await;
    let offload = pass.offload(3);
    pass.run(0..4).await;
    assert_eq!((manager.census().staged, manager.census().staging), (2, 0));
    let written = disk.counts().written;
    let taken = soon(group.allocate(4)).await.expect("those that nobody holds");
    assert_eq!((taken.len(), disk.counts().written - written), (4, 4), "they are on the disk");
    pass.run(4..8).await;
    assert_eq!(offload.await.copied, 2);
    pass.end();
    drop(taken);
    pass.back().await;
}

#[tokio::test]
async fn written_blocks_take_staging_from_gated_copies() {
    let (ground, _disk) = over_disk(4);
    let manager = &ground.manager;
    let group = manager.default_group();
    let others = super::ground::compute(manager, &hashes(2, 2), None).await;
    let mut pass = Pass::begin(&ground, manager, (1, 2)).await;
    let offload = pass.offload(3);
    pass.run(0..4).await;
    assert_eq!((manager.census().staged, manager.census().staging), (2, 0));
    let none = group.try_allocate(0).expect("none");
    let preempted = group.preempt(others, none, 7).expect("one manager");
    let two = soon(group.allocate(2)).await.expect("those of the preempted");
    pass.run(4..8).await;
    assert_eq!(offload.await.copied, 2);
    pass.end();
    drop((two, preempted, pass));
    rest(manager).await;

    // A read that a caller awaits does not wait either, however low its class.
    let mut pass = Pass::begin(&ground, manager, (3, 2)).await;
    let offload = pass.offload(3);
    pass.run(0..4).await;
    assert_eq!((manager.census().staged, manager.census().staging), (2, 0));
    let (others, found) = (hashes(2, 2), group.match_prefix(&hashes(2, 2)));
    assert_eq!(found.in_tier(Tier::DISK), 2);
    let options = OnboardOptions::default().class(Class::Background);
    let up = soon(group.onboard(found, options).expect("fits")).await;
    check(manager, &up.blocks, &others);
    pass.run(4..8).await;
    assert_eq!(offload.await.copied, 2);
    pass.end();
}

#[tokio::test]
async fn shutdown_waits_for_no_copy_behind_gated_staging() {
    let (ground, _disk) = over_disk(4);
    let manager = &ground.manager;
    let pass = Pass::begin(&ground, manager, (1, 4)).await;
    let offload = pass.offload(3);
    pass.run(0..4).await;
    assert_eq!((manager.census().staged, manager.census().gated, manager.census().down), (2, 2, 4));
    let began = tokio::time::Instant::now();
    assert!(manager.shutdown().await, "nothing moves");
    assert!(began.elapsed() < Duration::from_secs(4), "half of its deadline is {:?}", began.elapsed());
    assert_eq!(offload.await.failed, 4);
}

impl Pass<'_> {
    /// Whether the last copy of some block was of all layers.
    fn copied_whole(&self) -> bool {
        self.blocks.ids().any(|block| self.ground.mover.layers_down(block).last() == Some(&(0, LAYERS)))
    }
}

/// The host tier is full of copies that wait for the engine. Victims are dropped, as if no tier had room
/// for them.
#[tokio::test]
async fn allocation_when_gated_copies_fill_the_host_drops_victims() {
    let ground = ground_of(settings(4, 2).host_headroom(0), 4, 2);
    let manager = &ground.manager;
    drop(super::ground::compute(manager, &hashes(2, 2), None).await);
    let mut pass = Pass::begin(&ground, manager, (1, 2)).await;
    let offload = pass.offload(1);
    pass.run(0..2).await;
    assert_eq!((host_owned(manager), manager.census().gated), (2, 2));
    assert_eq!(soon(manager.default_group().allocate(2)).await.expect("two that nobody holds").len(), 2);
    assert_eq!(manager.stats().dropped[0], 2);
    pass.run(2..8).await;
    assert_eq!(offload.await.copied, 2);
    pass.end();
    pass.back().await;
}

/// All blocks of the device are under copies of the pass. No other caller gets one until the engine
/// goes on, or until the deadline.
#[tokio::test]
async fn allocation_of_blocks_under_gated_copies_ends_at_deadline() {
    let ground = ground_of(settings(4, 16).deadline_offload(Duration::from_millis(50)), 4, 16);
    let pass = Pass::begin(&ground, &ground.manager, (1, 4)).await;
    let offload = pass.offload(1);
    pass.run(0..2).await;
    drop(pass.blocks);
    let mut waits = pin!(ground.manager.default_group().allocate(1).into_future());
    assert!(matches!(look(waits.as_mut()), Poll::Pending), "all are held");
    assert_eq!(soon(waits).await.expect("they are let go of").len(), 1);
    assert_eq!(offload.await.cause, Some(Cause::Deadline));
}

/// No setting says which layer of a group a layer of the model is.
#[tokio::test]
async fn gate_with_several_groups_waits_for_the_last_layer() {
    let groups = |number: u32| {
        let layers = [2 * number, 2 * number + 1];
        format!("[[group]]\nlayers = {layers:?}\npage_size = 16\nkv_heads = 1\nhead_size = 64\n")
    };
    let text = format!("[geometry]\nlayers = 4\n{}{}", groups(0), groups(1));
    let settings = settings(8, 16).geometry_block_bytes(None);
    let manager = super::ground::build(settings.toml("groups.toml", text));
    let pass = manager.begin_iteration().expect("none runs");
    let iteration = pass.number();
    for group in 0..2 {
        let blocks = manager.group(group).expect("a group").allocate(2).await.expect("blocks");
        let blocks = blocks.register(&hashes(1, 2), None).expect("registered");
        let gate = Gate::Layer { iteration, layer: 0 };
        drop(manager.default_group().offload(&blocks, OffloadOptions::default().gate(gate)));
    }
    for layer in 0..3 {
        pass.layer_done(layer).expect("in turn");
        assert_eq!((manager.census().gated, manager.census().down), (4, 0), "layer {layer}");
    }
    pass.layer_done(3).expect("in turn");
    rest(&manager).await;
    let path = manager.stats().path(Path::DeviceToHost);
    assert_eq!((manager.stats().offloaded[0], path.transfers), (4, 4), "whole");
}
