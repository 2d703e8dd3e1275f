//! One group of layers: look-ups, allocations and copies of its blocks.
//!
//! The groups of a hybrid model have blocks, tiers and hashes of their own. What concerns all groups is called
//! by [`Tiers`](crate::Tiers): a prefix over all of them, iterations, statistics, shutdown.

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

/// A group of layers, called for the tenant of the [`Tiers`](crate::Tiers) that it is from. Clones are the
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

    /// Its number.
    #[must_use]
    pub fn number(&self) -> usize {
        self.group.index()
    }

    /// Its name, as the settings have it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner().group(self.group).name
    }

    /// Tokens a block; of a state, from one that is kept to the next.
    #[must_use]
    pub fn page_size(&self) -> u64 {
        self.inner().group(self.group).needs.page()
    }

    /// The hashes of a sequence's full blocks, by the group's pages: what an engine that keeps tokens only
    /// matches and registers by. One that goes on generating keeps a [`TokenBlockSequence`] instead, which
    /// makes each hash once.
    #[must_use]
    pub fn hashes_of(&self, tokens: &[Token], salt: Salt) -> Vec<SequenceHash> {
        let page = usize::try_from(self.page_size()).unwrap_or(usize::MAX);
        let mut hashes = Vec::with_capacity(tokens.len() / page.max(1));
        self.inner().hasher.extend_chain(salt.to_hash(), tokens, page, &mut hashes);
        hashes
    }

    /// An empty sequence with the group's pages and the deployment's hash function: for requests that go on
    /// generating, and for prompts with images ([`TokenBlockSequence::mark`]).
    ///
    /// # Panics
    /// Never: a group's page has tokens.
    #[must_use]
    pub fn sequence(&self, salt: Salt) -> TokenBlockSequence {
        let page = usize::try_from(self.page_size()).unwrap_or(usize::MAX).max(1);
        TokenBlockSequence::new(page, salt, self.inner().hasher.clone()).expect("a page has tokens")
    }

    /// The longest leading run of a sequence over all tiers, held.
    #[must_use]
    pub fn match_prefix(&self, hashes: &[SequenceHash]) -> PrefixMatch {
        self.inner().look_up(self.group, hashes).by(&self.handle.tenant)
    }

    /// The longest leading run that the device has, held; one use of each of its blocks.
    #[must_use]
    pub fn match_device(&self, hashes: &[SequenceHash]) -> Blocks {
        self.inner().look_up_in_device(self.group, hashes)
    }

    /// The same, for a request whose use of these blocks was noted already, by an earlier match of the same
    /// hashes.
    #[must_use]
    pub fn match_noted(&self, hashes: &[SequenceHash]) -> Blocks {
        self.inner().match_device(self.group, hashes)
    }

    /// Notes a use of a block of the device: it becomes the most recent of its tier. Whether the device has
    /// it.
    pub fn touch(&self, hash: SequenceHash) -> bool {
        !self.inner().use_in_device(self.group, &[hash]).is_empty()
    }

    /// Brings a run up to the device. It begins at once; the future ends when all of it is there, or will not
    /// be. A run knows its group, whichever group of the manager is called.
    ///
    /// The run's blocks that the device has are held meanwhile. Two requests that hold some blocks and wait
    /// for more may wait for each other, as any two that allocate while they hold blocks. Then the one whose
    /// deadline passes first gets what is there, and gives it up or computes the rest. The manager cannot tell
    /// before: it does not know that the holder of a list is the caller who allocates, and any list may be
    /// dropped at any moment.
    ///
    /// Of another tenant's blocks no more come than that one may have in the device: the next is missed, as
    /// one that is late.
    ///
    /// # Errors
    /// [`OnboardError`]; the run is released.
    pub fn onboard(&self, found: PrefixMatch, options: OnboardOptions) -> Result<Onboard, OnboardError> {
        Onboard::begin(self.inner(), found.by(&self.handle.tenant), options)
    }

    /// Blocks to fill: free ones, or those of victims, whose bytes go down first. Callers are served in the
    /// order in which they came. The call is built, and begins when it is awaited, or by `into_future`:
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
    /// [`AllocateError`](crate::AllocateError): more than the device has, or none until the deadline
    /// (`deadline.allocate`).
    pub fn allocate(&self, count: usize) -> Allocate<'_> {
        Allocate::of(&self.handle, self.group, count)
    }

    /// Blocks that are there without waiting for a transfer; none if there are fewer, or other callers wait.
    #[must_use]
    pub fn try_allocate(&self, count: usize) -> Option<BlocksMut> {
        allocate::try_allocate(self.inner(), self.group, count, self.handle.tenant.id())
    }

    /// Blocks of a tier that are free, or not held: an allocation can have so many, as far as other callers do
    /// not take them before.
    #[must_use]
    pub fn available(&self, tier: Tier) -> usize {
        self.inner().group(self.group).pool(tier).map_or(0, BlockPool::available)
    }

    /// Copies blocks to the tier below; they stay where they are. It begins at once, and goes on if the future
    /// is dropped, or answers by its deadline (`deadline.offload`). A list of blocks knows its group, whichever
    /// group of the manager is called.
    ///
    /// Within an iteration whose bytes (`iteration.bytes`) are spent a copy waits for the next iteration. So
    /// the task that begins the iterations does not await this within one, nor [`persist`](Group::persist),
    /// nor an onboarding of a class that does not hurry: it would wait until the deadline.
    pub fn offload(&self, blocks: &Blocks, options: OffloadOptions) -> Offload {
        Offload::begin(blocks, options)
    }

    /// Copies blocks to the disk tier, from whichever tier has them, so that they outlive the process. Ends
    /// when they are on the disk. Blocks for which the tier has no room, which its admission refuses, or which
    /// are in no tier, are counted as refused, and stay where they are. Blocks that are not on the disk by the
    /// deadline (`deadline.offload`) are counted as failed. A block that a pass still writes waits for the
    /// pass; about awaiting this within an iteration see [`offload`](Group::offload).
    ///
    /// Where there is a host tier, blocks come there first. Dropped, they go so far, and no further.
    pub fn persist(&self, hashes: &[SequenceHash]) -> Answer<Offloaded> {
        persist::persist(&self.handle, self.group, hashes)
    }

    /// Takes the hint that a sequence will be asked for: its blocks are brought up when no other caller needs
    /// the room more, as many at a time as `prefetch.blocks` allows. Of a sequence that is longer than the
    /// device has blocks, the leading ones that fit are remembered; the others count in
    /// [`ManagerStats::hints_cut`](crate::metrics::ManagerStats::hints_cut). Drop the answer to withdraw the
    /// hint.
    pub fn prefetch(&self, hashes: &[SequenceHash]) -> Prefetch {
        Prefetch::of(self.inner(), self.group, hashes, self.handle.tenant.id())
    }

    /// The same of tokens, as a queued request has them: their hashes are made by the group's pages, with the
    /// salt that the sequence is registered with ([`Tiers::salt`](crate::Tiers::salt)). The groups of a hybrid
    /// model have different pages: hint each group.
    pub fn prefetch_tokens(&self, tokens: &[Token], salt: Salt) -> Prefetch {
        self.prefetch(&self.hashes_of(tokens, salt))
    }

    /// Reaches the bytes of the device's blocks, if the manager has made the device or was given a port.
    #[must_use]
    pub fn device_port(&self) -> Option<&Arc<dyn DevicePort>> {
        self.inner().group(self.group).port.as_ref()
    }

    /// What the pool of a tier has counted: registrations, evictions. Nothing where there is no such tier.
    #[must_use]
    pub fn pool_stats(&self, tier: Tier) -> Stats {
        self.inner().group(self.group).pool(tier).map_or_else(Default::default, BlockPool::stats)
    }

    /// Blocks of a tier; 0 where there is none.
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
