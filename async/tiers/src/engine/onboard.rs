//! Bringing a run up: begun at once, waited for as a future, or layer by layer.
//! Past 500 lines because what a run wants, of one group or of several, is decided in one change under the lock.

use super::asked::Asked;
use super::blocks::Blocks;
use super::deadlines::Waits;
use super::inner::{INHERITED, Inner};
use super::line::{Want, Wants, Whose};
use super::matching::{Found, Place, PrefixMatch};
use super::notices::{About, Notice};
use super::onboarding::{Onboarding, State};
use super::tenants::{Shares, TenantId};
use super::traffic::Traffic;
use super::up::{Source, Up};
use crate::tier::Tier;
use crate::transfer::{Cause, Class};
use kvstrata_core::{BlockId, SequenceHash};
use kvstrata_ffi::disk::Name;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How a run is brought up.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct OnboardOptions {
    /// Who goes first. What somebody waits for is no guess: [`Class::Prefetch`] is taken as [`Class::Background`].
    pub class: Class,
    /// Whose it is: requests of one class take turns. 0: nobody's.
    pub request: u64,
    /// Layers a transfer, if the engine begins with the first while others are under way; whole blocks otherwise.
    pub layers: Option<u32>,
    /// How long to wait at most, polled or not; the manager's `deadline.onboard` unless told.
    pub deadline: Option<Duration>,
}

impl Default for OnboardOptions {
    fn default() -> OnboardOptions {
        OnboardOptions { class: Class::Urgent, request: 0, layers: None, deadline: None }
    }
}

/// What came of an onboarding: the run, and why it is not longer.
#[derive(Debug)]
#[must_use = "dropped, the blocks are released"]
pub struct Onboarded {
    /// The leading blocks, held; those that were in the device before included.
    pub blocks: Blocks,
    /// Why the next block is missing, if one that was found is: to be computed, like those behind it.
    pub missed: Option<Cause>,
}

/// Why nothing was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OnboardError {
    /// The run does not fit.
    #[error(
        "a run of {blocks} blocks was to be brought up, and the device has {capacity}; ask for a shorter one"
    )]
    TooLarge {
        /// Of the run.
        blocks: usize,
        /// Of the device.
        capacity: usize,
    },
    /// The run is more than the tenant may have.
    #[error(
        "a run of {blocks} blocks was to be brought up, and the tenant may have {quota} of the device's {capacity}; {}", super::tenants::more_room(*.quota)
    )]
    Quota {
        /// Of the run.
        blocks: usize,
        /// The tenant's.
        quota: usize,
        /// Of the device.
        capacity: usize,
    },
    /// The manager has been shut down.
    #[error("the manager is shut down")]
    Closed,
    /// This process was forked from the manager's.
    #[error("{INHERITED}")]
    Inherited,
    /// It was found by another manager.
    #[error("the run was found by another manager; match it with this one")]
    Foreign,
}

/// A run on its way up. Dropped, what nobody else waits for is not brought up any more, unless it is under way.
#[must_use = "dropped, it is cancelled"]
pub struct Onboard {
    inner: Arc<Inner>,
    /// None: all of it was there.
    key: Option<u32>,
    /// None: it has ended.
    device: Option<Blocks>,
    asked: Asked,
}

impl Onboard {
    pub(super) fn begin(
        inner: &Arc<Inner>,
        mut found: PrefixMatch,
        options: OnboardOptions,
    ) -> Result<Onboard, OnboardError> {
        check(inner, &found)?;
        let asked = Asked::onboard(inner, &found, options);
        // A run that is all there has nothing to wait for, and nothing to lock.
        let key = match found.is_ready() {
            true => None,
            false => Some(inner.with(|traffic| {
                let mut wants = Wants::default();
                let key = traffic.begin_onboarding(inner, &mut found, options, &mut wants);
                traffic.enter_lines(inner, wants, None);
                key
            })?),
        };
        Ok(Onboard { inner: Arc::clone(inner), key, device: Some(found.into_device()), asked })
    }

    /// Runs of several groups, at once, in the lines of all groups: see [`allocate_groups`](super::allocate::allocate_groups).
    pub(super) fn begin_all(
        inner: &Arc<Inner>,
        mut found: Vec<PrefixMatch>,
        options: OnboardOptions,
    ) -> Result<Vec<Onboard>, OnboardError> {
        found.iter().try_for_each(|found| check(inner, found))?;
        let mut timed = false;
        let ask = |found: &PrefixMatch| {
            let asked = Asked::onboard(inner, found, options);
            // They are answered together: the first that is not all there says when.
            let asked = if timed { asked.untimed() } else { asked };
            timed |= !found.is_ready();
            asked
        };
        let asked: Vec<Asked> = found.iter().map(ask).collect();
        let keys: Vec<_> = inner.with(|traffic| {
            let mut wants = Wants::default();
            let mut begin = |found| {
                let key = traffic.begin_onboarding(inner, found, options, &mut wants);
                key.inspect(|key| traffic.onboardings[*key as usize].is_part = true)
            };
            let keys = found.iter_mut().map(&mut begin).collect();
            traffic.enter_lines(inner, wants, None);
            keys
        });
        // Those that have begun end with what they have, if one is refused.
        let begun = keys.into_iter().zip(found).zip(asked).map(|((key, found), asked)| {
            let device = Some(found.into_device());
            key.map(|key| Onboard { inner: Arc::clone(inner), key: Some(key), device, asked })
        });
        begun.collect::<Vec<_>>().into_iter().collect()
    }

    /// Waits until a layer, and those before it, is there for all blocks of the run, and no longer than the onboarding's deadline. A block
    /// whose copy others have asked for as a whole, and that waits for its turn already, comes as a whole.
    ///
    /// # Errors
    /// The cause, if a block has failed, or is late: what follows is to be computed.
    pub async fn layer_ready(&self, layer: u32) -> Result<(), Cause> {
        let mut waiter = Waiter { of: self, number: None };
        poll_fn(|context| {
            if self.inner.is_inherited() {
                return Poll::Ready(Err(Cause::Abandoned));
            }
            let Some(key) = self.key else {
                return Poll::Ready(self.device.as_ref().map(drop).ok_or(Cause::Cancelled));
            };
            let waker = context.waker().clone();
            let mut traffic = self.inner.look();
            let Some(of) = traffic.onboardings.get_mut(key as usize) else {
                return Poll::Ready(Err(Cause::Cancelled));
            };
            match of.has_layer(layer) {
                Some(outcome) => Poll::Ready(outcome),
                None => {
                    let number = *waiter.number.get_or_insert_with(|| of.new_waiter());
                    let spare = of.tell(number, waker);
                    drop(traffic);
                    drop(spare);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The blocks of the run, in the device, once all of them have a place: from the first layer on. Of an onboarding by layers they stay
    /// those that it ends with; otherwise one may be another, if somebody else registers the same hash meanwhile.
    #[must_use]
    pub fn ids(&self) -> Option<Vec<BlockId>> {
        let mut ids: Vec<BlockId> = self.device.as_ref()?.ids().collect();
        let Some(key) = self.key.filter(|_| !self.inner.is_inherited()) else { return Some(ids) };
        let traffic = self.inner.look();
        for wanted in &traffic.onboardings.get(key as usize)?.wanted {
            ids.push(match wanted.state {
                State::Here(block) => block.id,
                State::Coming(flight) => traffic.ups.get(flight)?.device?,
                State::Failed(_) => break,
            });
        }
        Some(ids)
    }

    /// Whether nothing of it is under way any more; who asks is told of that otherwise.
    pub(super) fn is_over(&self, context: &mut Context<'_>) -> bool {
        // Nothing comes to a forked child.
        let Some(key) = self.key.filter(|_| !self.inner.is_inherited()) else { return true };
        let waker = context.waker().clone();
        let mut traffic = self.inner.look();
        let Some(of) = traffic.onboardings.get_mut(key as usize).filter(|of| !of.is_done()) else {
            return true;
        };
        let spare = of.tell(0, waker);
        drop(traffic);
        drop(spare);
        false
    }

    /// Whether something of it has not come, nor failed.
    pub(super) fn is_coming(&self) -> bool {
        let of = |key: u32| self.inner.look().onboardings.get(key as usize).is_some_and(|of| !of.is_done());
        self.key.is_some_and(|key| !self.inner.is_inherited() && of(key))
    }

    /// Takes what has come, for who has waited for it.
    pub(super) fn answer(&mut self) -> Option<Onboarded> {
        self.end().inspect(|answer| self.asked.onboarded(&self.inner, answer))
    }

    /// Takes what has come; once.
    fn end(&mut self) -> Option<Onboarded> {
        let mut blocks = self.device.take()?;
        let Some(key) = self.key.take() else { return Some(Onboarded { blocks, missed: None }) };
        if self.inner.is_inherited() {
            return Some(Onboarded { blocks, missed: Some(Cause::Abandoned) });
        }
        let ended = self.inner.with(|traffic| traffic.end_onboarding(&self.inner, key));
        let rest = Blocks::new(Arc::clone(&self.inner), blocks.stack(), ended.run);
        // The same manager and group.
        let _ = blocks.append(rest);
        Some(Onboarded { blocks, missed: ended.failed })
    }
}

impl Future for Onboard {
    type Output = Onboarded;

    /// Ready once; polled after that it stays pending.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Onboarded> {
        if !self.is_over(context) {
            return Poll::Pending;
        }
        self.answer().map_or(Poll::Pending, Poll::Ready)
    }
}

/// A future that waits for a layer: its waker goes with it.
struct Waiter<'o> {
    of: &'o Onboard,
    /// None: it has not waited.
    number: Option<u32>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let (Some(number), Some(key)) = (self.number, self.of.key) else { return };
        if self.of.inner.is_inherited() {
            return;
        }
        let mut traffic = self.of.inner.look();
        let spare = traffic.onboardings.get_mut(key as usize).and_then(|of| of.quit(number));
        drop(traffic);
        drop(spare);
    }
}

impl Drop for Onboard {
    fn drop(&mut self) {
        if self.inner.is_inherited() {
            return self.inner.keep();
        }
        drop(self.end());
    }
}

impl fmt::Debug for Onboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Onboard({:?})", self.key)
    }
}

/// Refuses what will never fit, and what is another manager's.
fn check(inner: &Arc<Inner>, found: &PrefixMatch) -> Result<(), OnboardError> {
    if inner.is_inherited() {
        return Err(OnboardError::Inherited);
    }
    if !Arc::ptr_eq(found.device.inner(), inner) {
        return Err(OnboardError::Foreign);
    }
    let device = &inner.stack(found.device.stack()).device;
    let (blocks, capacity) = (found.len(), device.pool.capacity());
    if blocks > capacity {
        return Err(OnboardError::TooLarge { blocks, capacity });
    }
    match device.owners.limit(found.tenant.id()).filter(|quota| blocks > *quota) {
        Some(quota) => Err(OnboardError::Quota { blocks, quota, capacity }),
        None => Ok(()),
    }
}

impl Traffic {
    /// Begins it but for the lines, which it is to get into for what it wants of them.
    fn begin_onboarding(
        &mut self,
        inner: &Inner,
        found: &mut PrefixMatch,
        options: OnboardOptions,
        wants: &mut Wants,
    ) -> Result<u32, OnboardError> {
        let (stack, tenant) = (found.device.stack(), found.tenant.id());
        let beyond = std::mem::take(&mut found.beyond);
        if self.phase.refuses() && !beyond.is_empty() {
            beyond.into_iter().rev().for_each(|found| self.release_found(inner, stack, found));
            return Err(OnboardError::Closed);
        }
        let there = &found.device;
        // What somebody waits for is no guess.
        let options = OnboardOptions { class: options.class.min(Class::Background), ..options };
        let due = inner.due_in(options.deadline.unwrap_or(inner.rules.onboard_deadline));
        let layers = inner.stack(stack).layers;
        let counted = if options.layers.is_some() { layers } else { 0 };
        let key = self.onboardings.insert(Onboarding::new(stack, counted, beyond.len(), due)) as u32;
        let blocks = beyond.len();
        let mut beyond = beyond.into_iter();
        let mut shares = Shares::default();
        for found in beyond.by_ref() {
            let wanted = self.want(inner, stack, key, found, options, tenant);
            if wanted.is_some() && !shares.has_room(self, inner, there, key) {
                // It would wait for blocks of its own.
                inner.counts.notices.raise(Notice::Quota, About::of(stack, tenant));
                self.cut_off(inner, key, Cause::Quota);
                break;
            }
            match wanted {
                Some(Some(flight)) => {
                    // Of one tenant: of more only where hashes are not salted.
                    let tenant = self.ups[flight].tenant;
                    let same = |of: &&mut Want| (of.stack, of.tenant) == (stack, tenant);
                    match wants.parts.iter_mut().rev().find(same) {
                        Some(Want { need, whose: Whose::Flights(flights), .. }) => {
                            flights.push_back(flight);
                            *need += 1;
                        }
                        _ => {
                            let mut flights = VecDeque::with_capacity(blocks);
                            flights.push_back(flight);
                            let whose = Whose::Flights(flights);
                            wants.parts.push(Want { stack, need: 1, tenant, got: Vec::new(), whose });
                        }
                    }
                }
                Some(None) => self.note_joined(key, wants),
                // The run is broken: what was pending has failed meanwhile.
                None => {
                    self.onboardings[key as usize].gone();
                    break;
                }
            }
        }
        for found in beyond.rev() {
            self.release_found(inner, stack, found);
        }
        if !self.onboardings[key as usize].is_done() {
            self.due(due, Waits::Onboarding(key));
        }
        Ok(key)
    }

    /// Notes which entry brings up the last block that an onboarding wants, if that waits for credits: it is to come first.
    fn note_joined(&self, key: u32, wants: &mut Wants) {
        if self.held.is_empty() {
            return;
        }
        let Some(State::Coming(flight)) = self.onboardings[key as usize].wanted.last().map(|of| of.state)
        else {
            return;
        };
        let entry = self.ups[flight].entry;
        if self.held.has(entry) && !wants.joined.contains(&entry) {
            wants.joined.push(entry);
        }
    }

    /// Wants a block: one that is there, a flight that is under way, or a new one, which is given. None: it is nowhere any more.
    fn want(
        &mut self,
        inner: &Inner,
        stack: u16,
        key: u32,
        found: Found,
        options: OnboardOptions,
        tenant: TenantId,
    ) -> Option<Option<u32>> {
        let (Name { hash, .. }, of) = (found.name, inner.stack(stack));
        let layers = of.layers;
        let source = match found.place {
            Place::Device(block) => {
                self.onboardings[key as usize].here(block);
                return Some(None);
            }
            Place::Host(block) => Some(Source::Host(block)),
            Place::Disk(block) => Some(Source::Disk(block, None)),
            Place::Pending => None,
        };
        let index = self.onboardings[key as usize].wanted.len() as u32;
        let link = super::onboarding::Link { onboarding: key, index };
        if let Some(flight) = self.ups.find((stack, hash)) {
            if self.is_purging(self.ups[flight].tenant) {
                source.into_iter().for_each(|source| self.put_down(inner, stack, source));
                return None;
            }
            self.promote(inner, flight, options.class);
            if let (Some(step), Some(up)) = (options.layers, self.ups.get_mut(flight)) {
                up.refine(step.max(1));
            }
            self.join(key, flight, layers);
            source.into_iter().for_each(|source| self.spend(link, source));
            return Some(None);
        }
        let there = of.device.pool.lookup_ref(hash).filter(|block| {
            // Bytes that are there are not exchanged for what a pass is still to write.
            let unwritten = source.is_some() && self.unwritten.iteration(stack, block.id).is_some();
            if unwritten {
                of.device.release(*block, inner.now());
            }
            !unwritten
        });
        if let Some(block) = there {
            self.onboardings[key as usize].here(block);
            source.into_iter().for_each(|source| self.spend(link, source));
            return Some(None);
        }
        let source = match source {
            Some(source) => source,
            None => match self.find_at_rest(inner, stack, hash)? {
                Place::Device(block) => {
                    self.onboardings[key as usize].here(block);
                    return Some(None);
                }
                Place::Host(block) => Source::Host(block),
                Place::Disk(block) => Source::Disk(block, None),
                Place::Pending => return None,
            },
        };
        let tenant = self.owner_of(inner, stack, source, tenant);
        if self.is_purging(tenant) {
            self.put_down(inner, stack, source);
            return None;
        }
        let step = options.layers.unwrap_or(layers).max(1);
        let mut up = Up::new(stack, found.name, source, options.class, options.request, step);
        up.tenant = tenant;
        up.serial = self.serial();
        let flight = self.ups.insert(up);
        inner.entered(1);
        self.join(key, flight, layers);
        Some(Some(flight))
    }

    /// Whose a block is that comes up: its owner's below; one of nobody's is from now on of who asks for it.
    pub(super) fn owner_of(&self, inner: &Inner, stack: u16, source: Source, asks: TenantId) -> TenantId {
        let (tier, block) = match source {
            Source::Host(block) => (Tier::Host, block),
            Source::Disk(block, _) => (Tier::Disk, block),
        };
        let Some(owners) = inner.stack(stack).owners(tier) else { return asks };
        // Who is being purged gets nothing more.
        if !self.is_purging(asks) {
            owners.claim(block.id, asks);
        }
        match owners.owner(block.id) {
            TenantId::NOBODY => asks,
            owner => owner,
        }
    }

    /// Makes a flight more urgent, if it is less so.
    pub(super) fn promote(&mut self, inner: &Inner, flight: u32, class: Class) {
        let Some(up) = self.ups.get_mut(flight) else { return };
        if class < up.class {
            let before = std::mem::replace(&mut up.class, class);
            let (at, aside, stack) = (up.at, up.is_aside(), up.stack);
            // What hurries may have left it out as a guess.
            self.lines[stack as usize].news = true;
            self.guess_over(before, flight);
            self.wait_no_more(flight);
            if let super::traffic::At::Queued(path, ticket) = at {
                self.queues[path as usize].promote(ticket, class);
            } else if aside {
                self.queue_or_aside(inner, flight);
            }
        }
    }

    fn find_at_rest(&mut self, inner: &Inner, stack: u16, hash: SequenceHash) -> Option<Place> {
        self.find_going_down(inner, stack, hash).or_else(|| inner.stack(stack).find_below(hash))
    }

    /// A block that is on its way down, turned back.
    pub(super) fn find_going_down(&mut self, inner: &Inner, stack: u16, hash: SequenceHash) -> Option<Place> {
        let flight = self.downs.find((stack, hash))?;
        match self.turn_back(inner, flight)? {
            (Tier::Device, block) => Some(Place::Device(block)),
            (_, block) => Some(Place::Host(block)),
        }
    }

    fn release_found(&mut self, inner: &Inner, stack: u16, found: Found) {
        match found.place {
            Place::Device(block) => inner.stack(stack).device.release(block, inner.now()),
            Place::Host(block) => self.put_down(inner, stack, Source::Host(block)),
            Place::Disk(block) => self.put_down(inner, stack, Source::Disk(block, None)),
            Place::Pending => {}
        }
    }
}
