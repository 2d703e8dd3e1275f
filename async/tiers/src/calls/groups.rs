//! Hybrid models: each group of layers has its own pages and lifetimes. A prefix is usable only at a
//! length for which each group has the blocks that it needs.
//!
//! ```text
//!   tokens             0 ············································ T
//!   full attention     ███████████████████████████████████████████████  all blocks up to T
//!   window of w                                       ███████████████  blocks at most w tokens back from T
//!   recurrent state                                               ███  the state kept at T: one block
//! ```
//!
//! So T is the largest number of tokens at which every group has its part: a boundary of each group's
//! pages. The search begins at the top, with the run that the full-attention groups have. Each missing
//! block of a window, or missing state, lowers T to where that block is not needed.
//!
//! Invariants
//! - I1: the blocks returned cover exactly T tokens of each group, and are held, whether found or
//!   onboarded. A block that fails lowers T for all groups.

use crate::calls::allocate_groups::AllocateGroups;
use crate::calls::blocks::Blocks;
use crate::calls::handle::Handle;
use crate::calls::matching::PrefixMatch;
use crate::calls::onboard::{Onboard, OnboardError};
use crate::calls::tiers::Tiers;
use crate::engine::inner::Inner;
use crate::engine::needs::Needs;
use crate::metrics::Call;
use crate::state::{GroupId, OnboardOptions};
use crate::transfer::Cause;
use kvstrata_core::SequenceHash;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A prefix over all groups, held. Dropping it releases the blocks.
#[derive(Debug)]
pub struct GroupsMatch {
    tokens: u64,
    groups: Vec<GroupMatch>,
}

/// One group's part of a prefix.
#[derive(Debug)]
pub struct GroupMatch {
    /// The first block that the group needs: earlier blocks are out of its window's reach.
    pub first: usize,
    /// The blocks found, from there on.
    pub found: PrefixMatch,
}

/// A prefix in the device, over all groups.
#[derive(Debug)]
#[must_use = "dropping it releases the blocks"]
pub struct GroupsOnboarded {
    /// Tokens of the prefix that all groups have.
    pub tokens: u64,
    /// For each group: the number of the first block in the sequence, and the blocks. An empty prefix
    /// has no blocks.
    pub groups: Vec<(usize, Blocks)>,
    /// Why the prefix is not longer, if more was found.
    pub missed: Option<Cause>,
}

/// A prefix over all groups, on its way up. Dropping it cancels the transfers that are not under way and
/// that no other request waits for.
#[derive(Debug)]
#[must_use = "dropping it cancels the onboards"]
pub struct OnboardGroups {
    manager: Handle,
    tokens: u64,
    /// For each group: its first block, and the number of blocks.
    parts: Vec<(usize, usize)>,
    /// Empty after the answer.
    under_way: Vec<Onboard>,
}

impl OnboardGroups {
    /// Returns a group's part, to wait for its layers ([`Onboard::layer_ready`], [`Onboard::ids`]). None
    /// after the answer.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn group(&self, group: usize) -> Option<&Onboard> {
        self.under_way.get(group)
    }
}

impl Future for OnboardGroups {
    type Output = GroupsOnboarded;

    /// Ready once. Polled again, it is ready with an empty answer.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<GroupsOnboarded> {
        // Each part is asked, so that each wakes this task.
        let over = self.under_way.iter().filter(|onboard| onboard.is_over(context)).count();
        if over < self.under_way.len() {
            return Poll::Pending;
        }
        let (mut tokens, mut missed) = (std::mem::take(&mut self.tokens), None);
        let mut groups = Vec::with_capacity(self.under_way.len());
        let ended = std::mem::take(&mut self.under_way);
        for (group, mut onboard) in ended.into_iter().enumerate() {
            let ((first, wanted), Some(up)) = (self.parts[group], onboard.answer()) else { continue };
            if up.blocks.len() < wanted {
                missed = missed.or(up.missed);
                let page = self.manager.inner.groups[group].needs.page();
                tokens = tokens.min((first + up.blocks.len()) as u64 * page);
            }
            groups.push((first, up.blocks));
        }
        if let Some(cause) = missed {
            self.manager.inner.missed(cause);
            tokens = self.manager.inner.shorten(tokens, &mut groups);
        }
        Poll::Ready(GroupsOnboarded { tokens, groups, missed })
    }
}

impl Drop for OnboardGroups {
    fn drop(&mut self) {
        // Dropped before the whole prefix has come. In a forked child nothing is coming.
        if self.under_way.iter().any(Onboard::is_coming) {
            self.manager.inner.missed(Cause::Cancelled);
        }
    }
}

impl GroupsMatch {
    /// Returns the tokens of the longest prefix that all groups have.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns each group's part. In an empty prefix all parts are empty.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn groups(&self) -> &[GroupMatch] {
        &self.groups
    }

    /// Returns whether the whole prefix is in the device.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.groups.iter().all(|group| group.found.is_ready())
    }
}

/// Returns the tokens between two boundaries of all pages. None: more than any sequence has.
fn step(needs: &[Needs]) -> Option<u64> {
    needs.iter().try_fold(1, |step: u64, needs| {
        let (mut x, mut y) = (step, needs.page());
        while y != 0 {
            (x, y) = (y, x % y);
        }
        (step / x).checked_mul(needs.page())
    })
}

/// The known part of a group's blocks: all from `from` to the end of the prefix are there.
struct Known<'h> {
    needs: Needs,
    hashes: &'h [SequenceHash],
    from: usize,
}

impl Known<'_> {
    /// Returns `tokens`, if the group has all blocks that it needs for so many. Otherwise returns the
    /// smaller number at which its first missing block is not needed. Each block is looked up once,
    /// whatever other groups lack: the prefix only becomes shorter, and its known part with it.
    fn usable(&mut self, tokens: u64, has: impl Fn(SequenceHash) -> bool) -> u64 {
        let wanted = self.needs.blocks(tokens);
        self.from = self.from.min(wanted.end);
        while self.from > wanted.start {
            self.from -= 1;
            if !has(self.hashes[self.from]) {
                // The prefix ends where the missing block begins.
                return self.from as u64 * self.needs.page();
            }
        }
        tokens
    }
}

impl Inner {
    /// Counts a request of several groups that has ended short, or was dropped before its end.
    fn missed(&self, cause: Cause) {
        self.counts.missed(cause);
        self.say();
    }

    /// See [`Tiers::match_groups`].
    fn match_groups(self: &Arc<Inner>, hashes: &[&[SequenceHash]]) -> GroupsMatch {
        let since = self.watch.now();
        let needs: Vec<Needs> = self.groups.iter().map(|group| group.needs).collect();
        let of = |group: usize| hashes.get(group).copied().unwrap_or_default();
        let all = needs.iter().enumerate().map(|(group, needs)| of(group).len() as u64 * needs.page());
        let all = all.min().unwrap_or(0);
        let mut longest = all;
        let found = loop {
            let tokens = self.usable(&needs, &of, longest);
            match self.hold(&needs, &of, tokens) {
                Ok(groups) => break GroupsMatch { tokens, groups },
                // A block has gone since.
                Err(shorter) => longest = shorter,
            }
        };
        for (group, needs) in needs.iter().enumerate() {
            // One use, of the blocks asked for and of those returned.
            let (asked, got) = (needs.blocks(all), needs.blocks(found.tokens));
            let held = found.groups.get(group).map(|group| &group.found);
            if let Some(held) = held {
                // The whole sequence does not need a shorter prefix's blocks before its window: only
                // blocks of both count as found.
                self.looked_up(asked.len(), held, asked.start.saturating_sub(got.start));
            }
            self.used(
                GroupId::new(group),
                [&of(group)[got.start..got.end.min(asked.start).max(got.start)], &of(group)[asked]],
                held,
            );
        }
        self.watch.answered(Call::Match, since);
        found
    }

    /// Returns the longest prefix of at most so many tokens that every group has, as of now.
    fn usable<'h>(&self, needs: &[Needs], of: &impl Fn(usize) -> &'h [SequenceHash], mut tokens: u64) -> u64 {
        let Some(step) = step(needs) else { return 0 };
        let has = |group: usize| move |hash| self.has(GroupId::new(group), hash);
        let mut known: Vec<Known<'_>> = Vec::with_capacity(needs.len());
        for (group, needs) in needs.iter().enumerate() {
            let mut from = usize::MAX;
            if let Needs::All { page } = needs {
                // This group needs a run from the front: blocks behind its first gap are of no use.
                let wanted = &of(group)[needs.blocks(tokens)];
                let run = wanted.iter().take_while(|hash| has(group)(**hash)).count();
                (from, tokens) = (0, tokens.min(run as u64 * page));
            }
            known.push(Known { needs: *needs, hashes: of(group), from });
        }
        loop {
            let before = tokens / step * step;
            tokens = before;
            for (group, known) in known.iter_mut().enumerate() {
                tokens = tokens.min(known.usable(tokens, has(group)));
            }
            if tokens == before {
                return tokens;
            }
        }
    }

    /// Holds the blocks that each group needs for so many tokens. Otherwise returns the tokens up to
    /// which they are there.
    fn hold<'h>(
        self: &Arc<Inner>,
        needs: &[Needs],
        of: &impl Fn(usize) -> &'h [SequenceHash],
        tokens: u64,
    ) -> Result<Vec<GroupMatch>, u64> {
        let mut groups = Vec::with_capacity(needs.len());
        for (group, needs) in needs.iter().enumerate() {
            let wanted = needs.blocks(tokens);
            let parent = wanted.start.checked_sub(1).map(|before| of(group)[before]);
            let found = self.match_unused(GroupId::new(group), parent, &of(group)[wanted.clone()]);
            if found.len() < wanted.len() {
                return Err((wanted.start + found.len()) as u64 * needs.page());
            }
            groups.push(GroupMatch { first: wanted.start, found });
        }
        Ok(groups)
    }
}

impl Inner {
    /// Returns the longest prefix of at most so many tokens that the held blocks cover, and releases the
    /// other blocks.
    fn shorten(&self, mut tokens: u64, groups: &mut [(usize, Blocks)]) -> u64 {
        let needs: Vec<Needs> = self.groups.iter().map(|group| group.needs).collect();
        // Without a step, nothing was found.
        let step = step(&needs).unwrap_or(u64::MAX);
        loop {
            tokens = tokens / step * step;
            let lacks = |((first, blocks), needs): &(&(usize, Blocks), &Needs)| {
                let wanted = needs.blocks(tokens);
                !wanted.is_empty() && (wanted.start < *first || wanted.end > first + blocks.len())
            };
            if tokens == 0 || !groups.iter().zip(&needs).any(|pair| lacks(&pair)) {
                break;
            }
            tokens -= step;
        }
        for ((first, blocks), needs) in groups.iter_mut().zip(&needs) {
            let wanted = needs.blocks(tokens);
            blocks.truncate(wanted.end.saturating_sub(*first));
            blocks.drop_first(wanted.start.saturating_sub(*first));
            *first = wanted.start;
        }
        tokens
    }
}

impl Tiers {
    /// Returns the number of groups of layers.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn groups(&self) -> usize {
        self.inner().groups.len()
    }

    /// Returns the longest prefix over all tiers for which every group has the blocks that it needs,
    /// held. `hashes` has a list for each group, by that group's pages; for a recurrent state, one hash
    /// for each state that is kept.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    #[must_use]
    pub fn match_groups(&self, hashes: &[&[SequenceHash]]) -> GroupsMatch {
        let mut found = self.inner().match_groups(hashes);
        for group in &mut found.groups {
            group.found.asked_by(&self.handle().tenant);
        }
        found
    }

    /// Onboards a prefix, all groups at a time. It begins at once. If a tenant is at its quota in a
    /// group, it begins when there is room in all groups.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    ///
    /// # Errors
    /// [`OnboardError`], for example if a group's part does not fit.
    pub fn onboard_groups(
        &self,
        found: GroupsMatch,
        options: OnboardOptions,
    ) -> Result<OnboardGroups, OnboardError> {
        let parts: Vec<(usize, usize)> =
            found.groups.iter().map(|group| (group.first, group.found.len())).collect();
        let runs = found.groups.into_iter().map(|group| group.found).collect();
        let under_way = Onboard::begin_all(self.inner(), runs, options)?;
        Ok(OnboardGroups { manager: self.handle().clone(), tokens: found.tokens, parts, under_way })
    }

    /// Allocates blocks to fill, `counts[i]` of group `i`: all of them or none. Waits as
    /// [`allocate`](crate::Group::allocate) does, in the queues of all groups at once. If the tenant is
    /// at its quota in a group, the call enters no queue until there is room in all groups.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    ///
    /// # Errors
    /// [`AllocateError`](crate::AllocateError), for the first group that has too few.
    pub fn allocate_groups<'g>(&'g self, counts: &'g [usize]) -> AllocateGroups<'g> {
        AllocateGroups::of(self.handle(), counts)
    }
}
