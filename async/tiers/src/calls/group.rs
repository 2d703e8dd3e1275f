//! One group of layers: look-ups, allocations and copies of its blocks.
//!
//! The groups of a hybrid model have their own blocks, tiers and hashes. Calls for all groups are in
//! [`Tiers`](crate::Tiers): a prefix over all of them, iterations, statistics, shutdown.

use crate::calls::allocation::Allocate;
use crate::calls::answer::Answer;
use crate::calls::blocks::{Blocks, BlocksMut};
use crate::calls::handle::Handle;
use crate::calls::matching::PrefixMatch;
use crate::calls::offload::Offload;
use crate::calls::onboard::{Onboard, OnboardError};
use crate::calls::prefetch::Prefetch;
use crate::calls::{allocate, persist};
use crate::engine::inner::Inner;
use crate::state::{GroupId, OffloadOptions, Offloaded, OnboardOptions};
use crate::tier::Tier;
use kvstrata_core::hash::{BlockHasher, Salt};
use kvstrata_core::pool::Stats;
use kvstrata_core::{BlockPool, DevicePort, SequenceHash, Token, TokenBlockSequence};
use std::fmt;
use std::sync::Arc;

/// A group of layers, called for the tenant of the [`Tiers`](crate::Tiers) that gave it. Clones are the
/// same group.
#[derive(Clone)]
pub struct Group {
    handle: Handle,
    group: GroupId,
}

impl Group {
    pub(crate) fn new(handle: Handle, group: GroupId) -> Group {
        Group { handle, group }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.handle.inner
    }

    /// Returns the group's number.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn number(&self) -> usize {
        self.group.index()
    }

    /// Returns the group's name in the settings.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner().group(self.group).name
    }

    /// Returns the tokens of a block. For a recurrent state: the tokens from one kept state to the next.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn page_size(&self) -> u64 {
        self.inner().group(self.group).needs.page()
    }

    /// Returns the hashes of a sequence's full blocks, by the group's pages. For engines that keep only
    /// tokens, and match and register by these hashes. An engine that goes on generating keeps a
    /// [`TokenBlockSequence`] instead, which makes each hash once.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn hashes_of(&self, tokens: &[Token], salt: Salt) -> Vec<SequenceHash> {
        let page = usize::try_from(self.page_size()).unwrap_or(usize::MAX);
        let mut hashes = Vec::with_capacity(tokens.len() / page.max(1));
        self.inner().hasher.extend_chain(salt.to_hash(), tokens, page, &mut hashes);
        hashes
    }

    /// Returns an empty sequence with the group's pages and the deployment's hash function, for requests
    /// that go on generating and for prompts with images ([`TokenBlockSequence::mark`]).
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/embed.rs)
    ///
    /// # Panics
    /// Never: a group's page has tokens.
    #[must_use]
    pub fn sequence(&self, salt: Salt) -> TokenBlockSequence {
        let page = usize::try_from(self.page_size()).unwrap_or(usize::MAX).max(1);
        TokenBlockSequence::new(page, salt, self.inner().hasher.clone()).expect("a page has tokens")
    }

    /// Returns the longest leading run of a sequence over all tiers, held.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn match_prefix(&self, hashes: &[SequenceHash]) -> PrefixMatch {
        self.inner().look_up(self.group, hashes).by(&self.handle.tenant)
    }

    /// Returns the longest leading run that the device has, held. This is one use of each of its blocks.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn match_device(&self, hashes: &[SequenceHash]) -> Blocks {
        self.inner().look_up_in_device(self.group, hashes)
    }

    /// Returns the same run without noting a use: the request's earlier match of these hashes has noted it.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn match_noted(&self, hashes: &[SequenceHash]) -> Blocks {
        self.inner().match_device(self.group, hashes)
    }

    /// Notes a use of a block of the device: the block becomes the most recent of its tier. Returns
    /// whether the device has it.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn touch(&self, hash: SequenceHash) -> bool {
        !self.inner().use_in_device(self.group, &[hash]).is_empty()
    }

    /// Onboards a run. The transfers begin at once; the future completes when each block has arrived or
    /// failed. The run knows its group, so any group of the manager may be called.
    ///
    /// The run's blocks that the device has are held meanwhile. Two requests that hold blocks and wait
    /// for more may wait for each other, like any two callers that allocate while they hold blocks. The
    /// request whose deadline passes first then gets the blocks that have come, and gives them up or
    /// computes the rest. The manager cannot detect this earlier: it does not know which caller holds a
    /// list, and any list may be dropped at any moment.
    ///
    /// Of blocks that belong to another tenant, at most as many come as that tenant may have in the
    /// device. The next one is missed ([`Cause::Quota`](crate::transfer::Cause::Quota)).
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    ///
    /// # Errors
    /// [`OnboardError`], if the run cannot be onboarded; it is released.
    pub fn onboard(&self, found: PrefixMatch, options: OnboardOptions) -> Result<Onboard, OnboardError> {
        Onboard::begin(self.inner(), found.by(&self.handle.tenant), options)
    }

    /// Allocates blocks to fill: free blocks, or those of victims after their bytes have gone down. Callers
    /// are served in order of arrival. The returned call begins when it is awaited, or by `into_future`:
    ///
    /// ```
    /// # use std::time::Duration;
    /// # async fn example(group: &kvstrata_tiers::Group) -> Result<(), kvstrata_tiers::AllocateError> {
    /// let blocks = group.allocate(4).deadline(Duration::from_millis(20)).request(7).await?;
    /// let place = group.allocate(2).into_future(); // in the queue from here on
    /// # drop((blocks, place.await?));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AllocateError`](crate::AllocateError), for example if the device has fewer blocks, or none came
    /// before the deadline (`deadline.allocate`).
    pub fn allocate(&self, count: usize) -> Allocate<'_> {
        Allocate::of(&self.handle, self.group, count)
    }

    /// Allocates blocks that need no wait for a transfer. None if there are fewer, or if other callers wait.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/engine.rs)
    #[must_use]
    pub fn try_allocate(&self, count: usize) -> Option<BlocksMut> {
        allocate::try_allocate(self.inner(), self.group, count, self.handle.tenant.id())
    }

    /// Returns how many blocks of a tier are free or not held. An allocation can get so many, unless
    /// other callers take them first.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn available(&self, tier: Tier) -> usize {
        self.inner().group(self.group).pool(tier).map_or(0, BlockPool::available)
    }

    /// Copies blocks to the tier below; they stay where they are. The copies begin at once. They go on
    /// if the future is dropped, or completes at its deadline (`deadline.offload`). A list of blocks
    /// knows its group, so any group of the manager may be called.
    ///
    /// A copy waits for the next iteration if the bytes of this one (`iteration.bytes`) are spent. So
    /// the task that begins the iterations must not await this call within one: it would wait until the
    /// deadline. The same holds for [`persist`](Group::persist), and for an onboard of a class that is
    /// not urgent.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn offload(&self, blocks: &Blocks, options: OffloadOptions) -> Offload {
        Offload::begin(blocks, options)
    }

    /// Copies blocks to the disk tier, from whichever tier has them, so that they outlive the process.
    /// The answer comes when they are on the disk. A block counts as refused, and stays where it is, if
    /// the tier has no room for it, if its admission refuses it, or if no tier has it. A block that is
    /// not on the disk by the deadline (`deadline.offload`) counts as failed. A block that a pass still
    /// writes waits for the pass. For awaits within an iteration see [`offload`](Group::offload).
    ///
    /// With a host tier, blocks come there first. If the answer is dropped, they stop there.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/warm_restart.rs)
    pub fn persist(&self, hashes: &[SequenceHash]) -> Answer<Offloaded> {
        persist::persist(&self.handle, self.group, hashes)
    }

    /// Takes a hint that a sequence will be asked for. Its blocks are onboarded when no other caller
    /// needs the room more, as many at a time as `prefetch.blocks` allows. If the sequence has more
    /// blocks than the device, only the leading ones that fit are remembered. The others count in
    /// [`ManagerStats::hints_cut`](crate::metrics::ManagerStats::hints_cut). Drop the returned guard to
    /// withdraw the hint.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn prefetch(&self, hashes: &[SequenceHash]) -> Prefetch {
        Prefetch::of(self.inner(), self.group, hashes, self.handle.tenant.id())
    }

    /// Takes the same hint by tokens, as a queued request has them. Their hashes are made by the group's
    /// pages, with the salt that the sequence is registered with ([`Tiers::salt`](crate::Tiers::salt)).
    /// The groups of a hybrid model have different pages: hint each group.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn prefetch_tokens(&self, tokens: &[Token], salt: Salt) -> Prefetch {
        self.prefetch(&self.hashes_of(tokens, salt))
    }

    /// Returns the port to the bytes of the device's blocks, if the manager has made the device or was
    /// given a port.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/layerwise.rs)
    #[must_use]
    pub fn device_port(&self) -> Option<&Arc<dyn DevicePort>> {
        self.inner().group(self.group).port.as_ref()
    }

    /// Returns the counters of a tier's pool: registrations, evictions. All are 0 if there is no such tier.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn pool_stats(&self, tier: Tier) -> Stats {
        self.inner().group(self.group).pool(tier).map_or_else(Default::default, BlockPool::stats)
    }

    /// Returns the number of blocks of a tier; 0 if there is no such tier.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn capacity(&self, tier: Tier) -> usize {
        self.inner().group(self.group).pool(tier).map_or(0, BlockPool::capacity)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (inner, mut tiers) = (self.inner(), Vec::new());
        for tier in inner.tiers() {
            tiers.push(format!("{} {}", inner.tier_names.tier(tier), self.capacity(tier)));
        }
        let bytes = inner.group(self.group).block_bytes;
        write!(f, "Group({}: {}; blocks of {bytes} bytes)", self.name(), tiers.join(", "))
    }
}
