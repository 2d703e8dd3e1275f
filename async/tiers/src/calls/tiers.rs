//! The tiers: the calls of an engine, of the first group of layers.

use crate::calls::allocate::{AllocateError, AllocateOptions};
use crate::calls::blocks::{Blocks, BlocksMut};
use crate::calls::census::Census;
use crate::calls::matching::PrefixMatch;
use crate::calls::offload::Offload;
use crate::calls::onboard::{Onboard, OnboardError, Onboarded};
use crate::calls::prefetch::Prefetch;
use crate::calls::{allocate, census, describe, metrics, offload};
use crate::engine::inherited;
use crate::engine::inner::Inner;
use crate::engine::names::TenantHandle;
use crate::metrics::{ManagerStats, Metrics, Requests};
use crate::scheduler::Misuse;
use crate::state::{GroupId, OffloadOptions, Offloaded, OnboardOptions};
use crate::tier::Tier;
use kvstrata_core::hash::{Hasher, Salt};
use kvstrata_core::{DevicePort, SequenceHash, Token, TokenBlockSequence};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tracing::field::Empty;
use tracing::{Instrument, info_span};

/// KV blocks over the tiers of a machine. Clones are the same tiers. Its calls are for the first group of
/// layers, where they are not for all; those of a hybrid model's others are had by [`group`](Tiers::group).
#[derive(Clone)]
pub struct Tiers {
    pub(crate) inner: Arc<Inner>,
    /// For whom it is asked.
    pub(crate) tenant: TenantHandle,
    pub(crate) name: Option<Arc<str>>,
    /// When the last one goes, what has not begun is not begun any more.
    _users: Arc<Users>,
}

/// All clones.
struct Users(Arc<Inner>);

impl Drop for Users {
    fn drop(&mut self) {
        if self.0.is_inherited() {
            return self.0.keep();
        }
        self.0.with(|traffic| traffic.close(&self.0));
        self.0.runtime.closed();
    }
}

impl Tiers {
    pub(crate) fn over(inner: Arc<Inner>) -> Tiers {
        let users = Arc::new(Users(Arc::clone(&inner)));
        Tiers { inner, tenant: TenantHandle::default(), name: None, _users: users }
    }

    /// The same tiers, asked by a tenant of this name.
    pub(crate) fn asked_by(&self, tenant: TenantHandle, name: Arc<str>) -> Tiers {
        Tiers { tenant, name: Some(name), ..self.clone() }
    }

    /// The time, by the runtime's clock.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.inner.elapsed()
    }

    /// Whether calls are refused: a shutdown has begun.
    #[must_use]
    pub fn is_refusing(&self) -> bool {
        self.inner.refusing.load(Relaxed)
    }

    /// Whether this process was forked from the one that made the tiers: then no call does anything.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.inner.is_inherited()
    }

    /// The longest leading run of a sequence over all tiers, held.
    #[must_use]
    pub fn match_prefix(&self, hashes: &[SequenceHash]) -> PrefixMatch {
        self.inner.look_up(GroupId::FIRST, hashes).by(&self.tenant)
    }

    /// The longest leading run that the device has, held; one use of each of its blocks.
    #[must_use]
    pub fn match_sequence_hashes(&self, hashes: &[SequenceHash]) -> Blocks {
        self.inner.look_up_in_device(GroupId::FIRST, hashes)
    }

    /// The same, for a request whose use of these blocks was noted already, by an earlier match of the same
    /// hashes.
    #[must_use]
    pub fn match_noted(&self, hashes: &[SequenceHash]) -> Blocks {
        self.inner.match_device(GroupId::FIRST, hashes)
    }

    /// Brings a run up to the device. It begins at once; the future ends when all of it is there, or will not
    /// be.
    ///
    /// The run's blocks that the device has are held meanwhile. Two that hold some and wait for more may wait
    /// for each other, as any two that allocate while they hold blocks: then the one whose deadline passes
    /// first gets what is there, and gives it up or computes the rest. The manager cannot tell before: who
    /// allocates is not known to be the one who holds a list, and any list may be dropped this moment.
    ///
    /// # Errors
    /// [`OnboardError`]; the run is released.
    pub fn onboard(&self, found: PrefixMatch, options: OnboardOptions) -> Result<Onboard, OnboardError> {
        Onboard::begin(&self.inner, found.by(&self.tenant), options)
    }

    /// As [`match_prefix`](Tiers::match_prefix) and [`onboard`](Tiers::onboard) of the whole run. Of another
    /// tenant's blocks no more come than that one may have in the device: the next is missed, as one that is
    /// late.
    ///
    /// # Errors
    /// [`OnboardError`].
    pub async fn restore_to_gpu(&self, hashes: &[SequenceHash]) -> Result<Onboarded, OnboardError> {
        let found = self.match_prefix(hashes);
        Ok(self.onboard(found, OnboardOptions::default())?.await)
    }

    /// Blocks to fill: free ones, or those of victims, whose bytes go down first. Who came first is served
    /// first.
    ///
    /// # Errors
    /// [`AllocateError`]: more than the device has, or none until the deadline (`deadline.allocate`).
    pub async fn allocate(&self, count: usize) -> Result<BlocksMut, AllocateError> {
        self.allocate_with(count, AllocateOptions::default()).await
    }

    /// The same with a deadline of its own.
    ///
    /// # Errors
    /// [`AllocateError`].
    pub async fn allocate_within(
        &self,
        count: usize,
        deadline: Duration,
    ) -> Result<BlocksMut, AllocateError> {
        self.allocate_with(count, AllocateOptions::within(deadline)).await
    }

    /// The same for a request, by its number.
    ///
    /// # Errors
    /// [`AllocateError`].
    pub async fn allocate_with(
        &self,
        count: usize,
        options: AllocateOptions,
    ) -> Result<BlocksMut, AllocateError> {
        allocate::allocate(&self.inner, GroupId::FIRST, count, options, self.tenant.id()).await
    }

    /// One block to fill.
    ///
    /// # Errors
    /// [`AllocateError`].
    pub async fn get_mutable_block(&self) -> Result<BlocksMut, AllocateError> {
        self.allocate(1).await
    }

    /// Blocks of a group of layers to fill.
    ///
    /// # Errors
    /// [`AllocateError`]. There is no group of that number: as if it had no blocks.
    pub async fn allocate_group(&self, group: usize, count: usize) -> Result<BlocksMut, AllocateError> {
        match Some(group).filter(|group| *group < self.groups()).map(GroupId::new) {
            Some(group) => {
                allocate::allocate(&self.inner, group, count, AllocateOptions::default(), self.tenant.id())
                    .await
            }
            None => Err(AllocateError::TooMany { requested: count, capacity: 0 }),
        }
    }

    /// Blocks that can be had without waiting for a transfer; none if there are fewer, or others wait.
    #[must_use]
    pub fn try_allocate(&self, count: usize) -> Option<BlocksMut> {
        allocate::try_allocate(&self.inner, GroupId::FIRST, count, self.tenant.id())
    }

    /// Copies blocks to the tier below; they stay where they are. It begins at once, and goes on if the
    /// future is dropped, or answers by its deadline (`deadline.offload`).
    ///
    /// Within an iteration whose bytes (`iteration.bytes`) are spent a copy waits for the next one. So
    /// whoever begins the iterations does not await this within one, nor [`persist`](Tiers::persist), nor an
    /// onboarding of a class that does not hurry: it would wait until the deadline.
    pub fn offload(&self, blocks: &Blocks, options: OffloadOptions) -> Offload {
        Offload::begin(blocks, options)
    }

    /// Reaches the bytes of the device's blocks, where the manager has made the device or was given a way.
    #[must_use]
    pub fn device_port(&self) -> Option<&Arc<dyn DevicePort>> {
        self.inner.group(GroupId::FIRST).port.as_ref()
    }

    /// Copies blocks to the disk tier, wherever above they are, so that they outlive the process. Ends when
    /// they are down; what the tier has no room for or its admission refuses, and what is nowhere, is counted
    /// as refused, and stays where it is. What is not down by the deadline (`deadline.offload`) is counted as
    /// failed. What a pass still writes waits for it; about awaiting this within an iteration see
    /// [`offload`](Tiers::offload).
    pub async fn persist(&self, hashes: &[SequenceHash]) -> Offloaded {
        offload::persist(&self.inner, GroupId::FIRST, hashes).await
    }

    /// Takes the hint that a sequence will be asked for: its blocks are brought up when nobody needs the room
    /// more, as many at a time as `prefetch.blocks` allows. Of a sequence that is longer than the device has
    /// blocks, the leading ones that it could have are remembered; the others count in
    /// [`ManagerStats::hints_cut`]. Drop what this returns to withdraw the hint.
    pub fn prefetch(&self, hashes: &[SequenceHash]) -> Prefetch {
        Prefetch::of(&self.inner, GroupId::FIRST, hashes, self.tenant.id())
    }

    /// The same of tokens, as a queued request has them: their hashes are made by the pages of the first
    /// group, with the salt that the sequence is registered with ([`Tiers::salt`]). A hybrid model's other
    /// groups have pages of their own: hint each ([`Group::prefetch_tokens`](crate::Group::prefetch_tokens)).
    pub fn prefetch_tokens(&self, tokens: &[Token], salt: Salt) -> Prefetch {
        self.prefetch(&self.hashes_of(tokens, salt))
    }

    /// The deployment's hash function, with its secret: for salts and sequences that are made outside of the
    /// manager.
    #[must_use]
    pub fn hasher(&self) -> &Hasher {
        &self.inner.hasher
    }

    /// [`Group::sequence`](crate::Group::sequence) of the first group.
    ///
    /// # Panics
    /// Never: there is a group.
    #[must_use]
    pub fn sequence(&self, salt: Salt) -> TokenBlockSequence {
        self.group(0).expect("there is a group").sequence(salt)
    }

    /// [`Group::hashes_of`](crate::Group::hashes_of) of the first group.
    #[must_use]
    pub fn hashes_of(&self, tokens: &[Token], salt: Salt) -> Vec<SequenceHash> {
        self.group(0).map_or_else(Vec::new, |group| group.hashes_of(tokens, salt))
    }

    /// An iteration of the model begins. Its number, for gates. The bytes that it allows
    /// ([`iteration.bytes`](crate)) are anew.
    ///
    /// # Errors
    /// [`Misuse`]: one is running.
    pub fn iteration_begin(&self) -> Result<u64, Misuse> {
        self.inner.iteration_begin()
    }

    /// A layer of the running iteration no longer uses its part of blocks: what waits for it goes on.
    ///
    /// # Errors
    /// [`Misuse`]: none is running, or the layer is done already, or there is none of that number.
    pub fn layer_done(&self, layer: u32) -> Result<(), Misuse> {
        self.inner.layer_done(layer)
    }

    /// The running iteration is over: what waits for it goes on, and blocks that will have to leave soon, or
    /// have been idle for long, are copied to the tier below.
    ///
    /// # Errors
    /// [`Misuse`]: none is running.
    pub fn iteration_end(&self) -> Result<u64, Misuse> {
        self.inner.iteration_end()
    }

    /// A whole iteration, for engines that do not tell when theirs begin and end.
    ///
    /// # Errors
    /// [`Misuse`]: one is running.
    pub fn step(&self) -> Result<u64, Misuse> {
        self.inner.step()
    }

    /// Looks at the watermarks now, and begins to copy what is above them. Each iteration's end does so.
    pub fn check_watermark(&self) {
        self.inner.check_watermark();
    }

    /// Takes note that a block of the device is used: it becomes the most recent of its tier. Whether the
    /// device has it.
    pub fn access(&self, hash: SequenceHash) -> bool {
        !self.inner.use_in_device(GroupId::FIRST, &[hash]).is_empty()
    }

    /// Tiers, sizes and the ways that bytes take, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        if self.inner.is_inherited() {
            inherited::INHERITED.to_owned()
        } else {
            describe::describe(&self.inner)
        }
    }

    /// What it has done.
    #[must_use]
    pub fn stats(&self) -> ManagerStats {
        self.inner.counts.snapshot(self.inner.elapsed())
    }

    /// The figures that an operator watches, all of them. Sums are a moment old while others go on. In a
    /// forked child: what had been counted at the fork, without the disk's figures, tenants and what waits.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        metrics::metrics(&self.inner)
    }

    /// Tells of the engine's requests what a router asks of a worker
    /// ([`WorkerMetrics`](crate::metrics::WorkerMetrics)): the manager knows blocks, not slots, nor who waits
    /// before it is asked.
    pub fn tell_requests(&self, requests: Requests) {
        self.inner.watch.tell(requests);
    }

    /// Where every block is. Exact at rest only; for tests and diagnosis.
    #[must_use]
    pub fn census(&self) -> Census {
        // In a forked child nobody knows.
        if self.inner.is_inherited() { Census::default() } else { census::census(&self.inner) }
    }

    /// What a tier's pool of the first group has counted: registrations, evictions. Nothing where there is no
    /// such tier.
    #[must_use]
    pub fn pool_stats(&self, tier: Tier) -> kvstrata_core::pool::Stats {
        self.inner
            .group(GroupId::FIRST)
            .pool(tier)
            .map_or_else(Default::default, kvstrata_core::BlockPool::stats)
    }

    /// Blocks of a tier of the first group that are free, or that nobody holds: what an allocation can have,
    /// as far as others do not take it before.
    #[must_use]
    pub fn available(&self, tier: Tier) -> usize {
        self.inner.group(GroupId::FIRST).pool(tier).map_or(0, kvstrata_core::BlockPool::available)
    }

    /// Blocks of a tier of the first group; 0 where there is none.
    #[must_use]
    pub fn capacity(&self, tier: Tier) -> usize {
        self.inner.group(GroupId::FIRST).pool(tier).map_or(0, kvstrata_core::BlockPool::capacity)
    }

    /// Ends what is under way: no more transfers begin; those that have are waited for, and so is what a
    /// caller waits for. What is not over by the deadline (`deadline.shutdown`) goes on without anybody, and
    /// owns its memory until the hardware has answered. Returns whether all was over. Then the disk tier is
    /// closed too, with the mark of a clean end, whoever still has a handle, and figures are not served any
    /// more: the next manager of the same settings may be made at once. Without a shutdown that is done when
    /// the last handle is dropped, whose thread waits for it as long.
    ///
    /// Blocks of device and host are not written to the disk for that, but for deferred copies by
    /// `offload.mode = "through"` and finds room: what is to outlive the process is
    /// [persisted](Tiers::persist) before.
    pub async fn shutdown(&self) -> bool {
        let span = info_span!("shutdown", clean = Empty);
        let clean = self.inner.shutdown().instrument(span.clone()).await;
        span.record("clean", clean);
        clean
    }
}

impl fmt::Debug for Tiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = &self.inner.tier_names;
        let tiers = self.inner.tiers().map(|tier| format!("{} {}", names.tier(tier), self.capacity(tier)));
        let tiers: Vec<String> = tiers.collect();
        write!(
            f,
            "Tiers({}; blocks of {} bytes)",
            tiers.join(", "),
            self.inner.group(GroupId::FIRST).block_bytes
        )
    }
}
