//! One group of layers of a manager: what the manager's own calls are for the first one, for each.
//!
//! The groups of a hybrid model have blocks, tiers and hashes of their own. What is of all groups is the
//! manager's: [`match_groups`](Tiers::match_groups), iterations, statistics, shutdown.

use crate::calls::allocate::{AllocateError, AllocateOptions};
use crate::calls::blocks::{Blocks, BlocksMut};
use crate::calls::matching::PrefixMatch;
use crate::calls::offload::Offload;
use crate::calls::onboard::{Onboard, OnboardError, Onboarded};
use crate::calls::prefetch::Prefetch;
use crate::calls::tiers::Tiers;
use crate::calls::{allocate, offload};
use crate::engine::inner::Inner;
use crate::state::{GroupId, OffloadOptions, Offloaded, OnboardOptions};
use crate::tier::Tier;
use kvstrata_core::hash::{BlockHasher, Salt};
use kvstrata_core::pool::Stats;
use kvstrata_core::{BlockPool, DevicePort, SequenceHash, Token, TokenBlockSequence};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A group of layers, asked for its manager's tenant. Clones are the same.
#[derive(Clone)]
pub struct Group {
    manager: Tiers,
    group: GroupId,
}

impl Tiers {
    /// A group of layers, by its number in the configuration; none if there are not so many.
    /// [`groups`](Tiers::groups) says how many there are.
    #[must_use]
    pub fn group(&self, group: usize) -> Option<Group> {
        let group = Some(group).filter(|group| *group < self.groups()).map(GroupId::new)?;
        Some(Group { manager: self.clone(), group })
    }

    pub(crate) fn first_group(&self) -> Group {
        Group { manager: self.clone(), group: GroupId::FIRST }
    }
}

impl Group {
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.manager.inner
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
        self.manager.hasher().extend_chain(salt.to_hash(), tokens, page, &mut hashes);
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
        TokenBlockSequence::new(page, salt, self.manager.hasher().clone()).expect("a page has tokens")
    }

    /// [`Tiers::match_prefix`].
    #[must_use]
    pub fn match_prefix(&self, hashes: &[SequenceHash]) -> PrefixMatch {
        self.inner().look_up(self.group, hashes).by(&self.manager.tenant)
    }

    /// [`Tiers::match_sequence_hashes`].
    #[must_use]
    pub fn match_sequence_hashes(&self, hashes: &[SequenceHash]) -> Blocks {
        self.inner().look_up_in_device(self.group, hashes)
    }

    /// [`Tiers::access`].
    pub fn access(&self, hash: SequenceHash) -> bool {
        !self.inner().use_in_device(self.group, &[hash]).is_empty()
    }

    /// [`Tiers::onboard`].
    ///
    /// # Errors
    /// [`OnboardError`]; the run is released.
    pub fn onboard(&self, found: PrefixMatch, options: OnboardOptions) -> Result<Onboard, OnboardError> {
        self.manager.onboard(found, options)
    }

    /// [`Tiers::restore_to_gpu`].
    ///
    /// # Errors
    /// [`OnboardError`].
    pub async fn restore_to_gpu(&self, hashes: &[SequenceHash]) -> Result<Onboarded, OnboardError> {
        Ok(self.onboard(self.match_prefix(hashes), OnboardOptions::default())?.await)
    }

    /// [`Tiers::allocate`].
    ///
    /// # Errors
    /// [`AllocateError`].
    pub async fn allocate(&self, count: usize) -> Result<BlocksMut, AllocateError> {
        self.allocate_with(count, AllocateOptions::default()).await
    }

    /// [`Tiers::allocate_within`].
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

    /// [`Tiers::allocate_with`].
    ///
    /// # Errors
    /// [`AllocateError`].
    pub async fn allocate_with(
        &self,
        count: usize,
        options: AllocateOptions,
    ) -> Result<BlocksMut, AllocateError> {
        allocate::allocate(self.inner(), self.group, count, options, self.manager.tenant.id()).await
    }

    /// [`Tiers::get_mutable_block`].
    ///
    /// # Errors
    /// [`AllocateError`].
    pub async fn get_mutable_block(&self) -> Result<BlocksMut, AllocateError> {
        self.allocate(1).await
    }

    /// [`Tiers::try_allocate`].
    #[must_use]
    pub fn try_allocate(&self, count: usize) -> Option<BlocksMut> {
        allocate::try_allocate(self.inner(), self.group, count, self.manager.tenant.id())
    }

    /// [`Tiers::available`].
    #[must_use]
    pub fn available(&self, tier: Tier) -> usize {
        self.inner().group(self.group).pool(tier).map_or(0, BlockPool::available)
    }

    /// [`Tiers::offload`].
    pub fn offload(&self, blocks: &Blocks, options: OffloadOptions) -> Offload {
        self.manager.offload(blocks, options)
    }

    /// [`Tiers::persist`].
    pub async fn persist(&self, hashes: &[SequenceHash]) -> Offloaded {
        offload::persist(self.inner(), self.group, hashes).await
    }

    /// [`Tiers::prefetch`].
    pub fn prefetch(&self, hashes: &[SequenceHash]) -> Prefetch {
        Prefetch::of(self.inner(), self.group, hashes, self.manager.tenant.id())
    }

    /// [`Tiers::prefetch_tokens`].
    pub fn prefetch_tokens(&self, tokens: &[Token], salt: Salt) -> Prefetch {
        self.prefetch(&self.hashes_of(tokens, salt))
    }

    /// [`Tiers::device_port`].
    #[must_use]
    pub fn device_port(&self) -> Option<&Arc<dyn DevicePort>> {
        self.inner().group(self.group).port.as_ref()
    }

    /// [`Tiers::pool_stats`].
    #[must_use]
    pub fn pool_stats(&self, tier: Tier) -> Stats {
        self.inner().group(self.group).pool(tier).map_or_else(Default::default, BlockPool::stats)
    }

    /// [`Tiers::capacity`].
    #[must_use]
    pub fn capacity(&self, tier: Tier) -> usize {
        self.inner().group(self.group).pool(tier).map_or(0, BlockPool::capacity)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({}, of {:?})", self.name(), self.manager)
    }
}
