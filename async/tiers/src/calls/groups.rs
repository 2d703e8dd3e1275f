//! Hybrid models: groups of layers with pages and lifetimes of their own, of which a prefix is usable only
//! where each has what it needs.
//!
//! ```text
//!   tokens             0 ············································ T
//!   full attention     ███████████████████████████████████████████████      all blocks up to T
//!   window of w                                       ███████████████      those that reach w tokens back from T
//!   recurrent state                                               ███      the state that was kept at T, one block
//! ```
//!
//! So T is the largest number of tokens at which every group has its part: a boundary of each group's pages.
//! It is found from the top: what the full groups have is the first guess, and each gap in a window, or lack
//! of a state, lowers it to where that block is not needed.
//!
//! Invariants
//! - I1: what is returned covers exactly T tokens of each group, held, be it found or brought up. A block
//!   that fails lowers T for all.

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

/// A prefix over all groups, held. Dropped, it is released.
#[derive(Debug)]
pub struct GroupsMatch {
    tokens: u64,
    groups: Vec<GroupMatch>,
}

/// A group's part of it.
#[derive(Debug)]
pub struct GroupMatch {
    /// The first block of the group that is needed: those before it are out of a window's reach.
    pub first: usize,
    /// What was found, from there on.
    pub found: PrefixMatch,
}

/// A prefix in the device, over all groups.
#[derive(Debug)]
#[must_use = "dropped, the blocks are released"]
pub struct GroupsOnboarded {
    /// Tokens of the prefix that all groups have.
    pub tokens: u64,
    /// By group, each of them: the number of the first block in the sequence, and the blocks; none of an
    /// empty prefix.
    pub groups: Vec<(usize, Blocks)>,
    /// Why it is not longer, if more was found.
    pub missed: Option<Cause>,
}

/// A prefix over all groups, on its way up. Dropped, what nobody else waits for is not brought up any more,
/// unless it is under way.
#[derive(Debug)]
#[must_use = "dropped, it is cancelled"]
pub struct OnboardGroups {
    manager: Handle,
    tokens: u64,
    /// Of each group: its first block, and how many.
    parts: Vec<(usize, usize)>,
    /// Empty once it has answered.
    under_way: Vec<Onboard>,
}

impl OnboardGroups {
    /// A group's part, for its layers: [`Onboard::layer_ready`], [`Onboard::ids`]. None after the answer.
    #[must_use]
    pub fn group(&self, group: usize) -> Option<&Onboard> {
        self.under_way.get(group)
    }
}

impl Future for OnboardGroups {
    type Output = GroupsOnboarded;

    /// Ready once; what is polled after that is nothing.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<GroupsOnboarded> {
        // Each is asked, so that each tells.
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
        // Short of what was found, unless all of that is there already.
        // None is coming in a forked child.
        if self.under_way.iter().any(Onboard::is_coming) {
            self.manager.inner.missed(Cause::Cancelled);
        }
    }
}

impl GroupsMatch {
    /// Tokens of the longest prefix that all groups have.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Each group's part; of an empty prefix they are empty.
    #[must_use]
    pub fn groups(&self) -> &[GroupMatch] {
        &self.groups
    }

    /// Whether all of it is in the device.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.groups.iter().all(|group| group.found.is_ready())
    }
}

/// The tokens between two boundaries of all pages. None: more than any sequence has.
fn step(needs: &[Needs]) -> Option<u64> {
    needs.iter().try_fold(1, |step: u64, needs| {
        let (mut x, mut y) = (step, needs.page());
        while y != 0 {
            (x, y) = (y, x % y);
        }
        (step / x).checked_mul(needs.page())
    })
}

/// What is known of a group's blocks: those from `from` up to the end of the prefix are there.
struct Known<'h> {
    needs: Needs,
    hashes: &'h [SequenceHash],
    from: usize,
}

impl Known<'_> {
    /// The tokens up to which the group has what it needs for so many, or for fewer. Each block is asked for
    /// once, whatever the others lack: the prefix only becomes shorter, and so does what of it is known.
    fn usable(&mut self, tokens: u64, has: impl Fn(SequenceHash) -> bool) -> u64 {
        let wanted = self.needs.blocks(tokens);
        self.from = self.from.min(wanted.end);
        while self.from > wanted.start {
            self.from -= 1;
            if !has(self.hashes[self.from]) {
                // Shorter by what makes this block needless: it ends where the block begins.
                return self.from as u64 * self.needs.page();
            }
        }
        tokens
    }
}

impl Inner {
    /// A request of several groups has ended short, or was dropped before its end.
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
                // Gone since.
                Err(shorter) => longest = shorter,
            }
        };
        for (group, needs) in needs.iter().enumerate() {
            // One use, of what it asks for and of what it gets.
            let (asked, got) = (needs.blocks(all), needs.blocks(found.tokens));
            let held = found.groups.get(group).map(|group| &group.found);
            if let Some(held) = held {
                // A window before a shorter prefix is of no use to the whole one: found is what is of both.
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

    /// The longest prefix of at most so many tokens that every group has, as it is now.
    fn usable<'h>(&self, needs: &[Needs], of: &impl Fn(usize) -> &'h [SequenceHash], mut tokens: u64) -> u64 {
        let Some(step) = step(needs) else { return 0 };
        let has = |group: usize| move |hash| self.has(GroupId::new(group), hash);
        let mut known: Vec<Known<'_>> = Vec::with_capacity(needs.len());
        for (group, needs) in needs.iter().enumerate() {
            let mut from = usize::MAX;
            if let Needs::All { page } = needs {
                // Its leading run from the front: nothing behind is of use.
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

    /// Holds what each group needs for so many tokens; or says up to where it is there.
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
    /// The longest prefix of at most so many tokens that is covered by what is held; what it does not need is
    /// released.
    fn shorten(&self, mut tokens: u64, groups: &mut [(usize, Blocks)]) -> u64 {
        let needs: Vec<Needs> = self.groups.iter().map(|group| group.needs).collect();
        // Otherwise nothing was found.
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
    /// How many groups of layers there are.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.inner().groups.len()
    }

    /// The longest prefix that every group has, as far as it needs it, over all tiers, held. `hashes` are the
    /// sequence's, a list a group, by that group's pages: of a state, one for each that is kept.
    #[must_use]
    pub fn match_groups(&self, hashes: &[&[SequenceHash]]) -> GroupsMatch {
        self.inner().match_groups(hashes)
    }

    /// Brings a prefix up, all groups at a time. It begins at once; at a tenant's quota in one of them, when
    /// there is room at it in all.
    ///
    /// # Errors
    /// [`OnboardError`]: a group's part does not fit.
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

    /// Blocks to fill of every group, a number each: all of them or none. Waits as
    /// [`allocate`](crate::Group::allocate) does, in the queues of all groups at once; at a tenant's quota in
    /// one of them, in none until there is room at it in all.
    ///
    /// # Errors
    /// [`AllocateError`](crate::AllocateError): of the first group that has not enough.
    pub fn allocate_groups<'g>(&'g self, counts: &'g [usize]) -> AllocateGroups<'g> {
        AllocateGroups::of(self.handle(), counts)
    }
}
