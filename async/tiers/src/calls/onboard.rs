//! Onboarding of a run: it begins at once, and is awaited as a whole or layer by layer.

use crate::calls::blocks::Blocks;
use crate::calls::matching::PrefixMatch;
use crate::engine::inherited::INHERITED;
use crate::engine::inner::Inner;
use crate::engine::request_span::RequestSpan;
use crate::state::{OnboardOptions, OnboardingId, Progress, Traffic, Wants};
use crate::transfer::Cause;
use kvstrata_core::BlockId;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The result of an onboarding: the run, and why it is not longer.
#[derive(Debug)]
#[must_use = "dropping it releases the blocks"]
pub struct Onboarded {
    /// The leading blocks, held, including those that were in the device before.
    pub blocks: Blocks,
    /// Why the next block of the run is missing, if one is. It must be computed, like those behind it.
    pub missed: Option<Cause>,
}

/// Why an onboarding does not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OnboardError {
    /// The run does not fit.
    #[error("the run has {blocks} blocks, but the device has {capacity}; onboard a shorter run")]
    TooLarge {
        /// Blocks of the run.
        blocks: usize,
        /// Blocks of the device.
        capacity: usize,
    },
    /// The run has more blocks than the tenant's quota.
    #[error(
        "run of {blocks}, but the tenant's quota is {quota} of {capacity} device blocks; {}", crate::engine::tenants::more_room(*.quota)
    )]
    Quota {
        /// Blocks of the run.
        blocks: usize,
        /// The tenant's quota.
        quota: usize,
        /// Blocks of the device.
        capacity: usize,
    },
    /// The manager has been shut down.
    #[error("the manager is shut down")]
    Closed,
    /// This process was forked from the manager's.
    #[error("{INHERITED}")]
    Inherited,
    /// The run was found by another manager.
    #[error("another manager matched the run; match it with this one")]
    Foreign,
}

/// A run on its way up. Dropping it cancels the transfers that are not under way and that no other
/// request waits for.
#[must_use = "dropping it cancels the onboard"]
pub struct Onboard {
    inner: Arc<Inner>,
    /// None: the whole run was there.
    key: Option<OnboardingId>,
    /// None: the onboarding has ended.
    device: Option<Blocks>,
    span: RequestSpan,
}

impl Onboard {
    pub(crate) fn begin(
        inner: &Arc<Inner>,
        mut found: PrefixMatch,
        options: OnboardOptions,
    ) -> Result<Onboard, OnboardError> {
        check(inner, &found)?;
        let span = RequestSpan::onboard(
            inner,
            found.device.group_id(),
            (found.device.len(), &found.beyond),
            options,
        );
        // If the whole run is there, nothing is awaited and no lock is taken.
        let key = match found.is_ready() {
            true => None,
            false => Some(inner.with(|traffic| {
                let mut wants = Wants::default();
                let key = begin(traffic, inner, &mut found, options, &mut wants);
                traffic.enter_queues(inner, wants, None);
                key
            })?),
        };
        Ok(Onboard { inner: Arc::clone(inner), key, device: Some(found.into_device()), span })
    }

    /// Begins runs of several groups at once, in the queues of all groups: see
    /// [`allocate_groups`](crate::calls::allocate::allocate_groups).
    pub(crate) fn begin_all(
        inner: &Arc<Inner>,
        mut found: Vec<PrefixMatch>,
        options: OnboardOptions,
    ) -> Result<Vec<Onboard>, OnboardError> {
        found.iter().try_for_each(|found| check(inner, found))?;
        let mut timed = false;
        let ask = |found: &PrefixMatch| {
            let span = RequestSpan::onboard(
                inner,
                found.device.group_id(),
                (found.device.len(), &found.beyond),
                options,
            );
            // The runs are answered together, so only the first one that is not all there is timed.
            let span = if timed { span.untimed() } else { span };
            timed |= !found.is_ready();
            span
        };
        let span: Vec<RequestSpan> = found.iter().map(ask).collect();
        let keys: Vec<_> = inner.with(|traffic| {
            let mut wants = Wants::default();
            let mut begin_one = |found| {
                let key = begin(traffic, inner, found, options, &mut wants);
                key.inspect(|key| traffic.onboardings[*key].becomes_part())
            };
            let keys = found.iter_mut().map(&mut begin_one).collect();
            traffic.enter_queues(inner, wants, None);
            keys
        });
        // If one is refused, the others end with the blocks that they have.
        let begun = keys.into_iter().zip(found).zip(span).map(|((key, found), span)| {
            let device = Some(found.into_device());
            key.map(|key| Onboard { inner: Arc::clone(inner), key: Some(key), device, span })
        });
        begun.collect::<Vec<_>>().into_iter().collect()
    }

    /// Waits until a layer, and those before it, is there for all blocks of the run, at most until the
    /// onboarding's deadline. A block comes as a whole if others have asked for it as a whole and its
    /// copy is queued already.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/layerwise.rs)
    ///
    /// # Errors
    /// The cause, if a block has failed or is late: compute that block and those behind it.
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
            let Some(of) = traffic.onboardings.get_mut(key) else {
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

    /// Returns the run's blocks in the device, once all of them have a place: from the first layer on.
    /// In an onboarding by layers these ids are final. Otherwise one may change, if another request
    /// registers the same hash meanwhile.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/layerwise.rs)
    #[must_use]
    pub fn ids(&self) -> Option<Vec<BlockId>> {
        let mut ids: Vec<BlockId> = self.device.as_ref()?.ids().collect();
        let Some(key) = self.key.filter(|_| !self.inner.is_inherited()) else { return Some(ids) };
        let traffic = self.inner.look();
        for progress in traffic.onboardings.get(key)?.progress() {
            ids.push(match progress {
                Progress::Here(block) => block.id,
                Progress::Coming(transfer) => traffic.ups.get(transfer)?.device()?,
                Progress::Failed(_) => break,
            });
        }
        Some(ids)
    }

    /// Returns whether no part of it is under way any more. If one is, the task is woken when it ends.
    pub(crate) fn is_over(&self, context: &mut Context<'_>) -> bool {
        // No block comes to a forked child.
        let Some(key) = self.key.filter(|_| !self.inner.is_inherited()) else { return true };
        let waker = context.waker().clone();
        let mut traffic = self.inner.look();
        let Some(of) = traffic.onboardings.get_mut(key).filter(|of| !of.is_done()) else {
            return true;
        };
        let spare = of.tell(0, waker);
        drop(traffic);
        drop(spare);
        false
    }

    /// Returns whether some block has neither come nor failed.
    pub(crate) fn is_coming(&self) -> bool {
        let of = |key: OnboardingId| self.inner.look().onboardings.get(key).is_some_and(|of| !of.is_done());
        self.key.is_some_and(|key| !self.inner.is_inherited() && of(key))
    }

    /// Takes the blocks that have come, for a caller that has waited for them.
    pub(crate) fn answer(&mut self) -> Option<Onboarded> {
        self.end().inspect(|answer| self.span.onboarded(&self.inner, answer.blocks.refs(), answer.missed))
    }

    /// Takes the blocks that have come; once.
    fn end(&mut self) -> Option<Onboarded> {
        let mut blocks = self.device.take()?;
        let Some(key) = self.key.take() else { return Some(Onboarded { blocks, missed: None }) };
        if self.inner.is_inherited() {
            return Some(Onboarded { blocks, missed: Some(Cause::Abandoned) });
        }
        let ended = self.inner.with(|traffic| traffic.end_onboarding(&self.inner, key));
        let rest = Blocks::new(Arc::clone(&self.inner), blocks.group_id(), ended.run);
        // The same manager and group.
        let _ = blocks.append(rest);
        Some(Onboarded { blocks, missed: ended.failed })
    }
}

impl Future for Onboard {
    type Output = Onboarded;

    /// Ready once. Polled again, it stays pending.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Onboarded> {
        if !self.is_over(context) {
            return Poll::Pending;
        }
        self.answer().map_or(Poll::Pending, Poll::Ready)
    }
}

/// A future that waits for a layer. Dropping it drops its waker.
struct Waiter<'o> {
    of: &'o Onboard,
    /// None: it has not waited yet.
    number: Option<u32>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let (Some(number), Some(key)) = (self.number, self.of.key) else { return };
        if self.of.inner.is_inherited() {
            return;
        }
        let mut traffic = self.of.inner.look();
        let spare = traffic.onboardings.get_mut(key).and_then(|of| of.quit(number));
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

fn begin(
    traffic: &mut Traffic,
    inner: &Inner,
    found: &mut PrefixMatch,
    options: OnboardOptions,
    wants: &mut Wants,
) -> Result<OnboardingId, OnboardError> {
    let beyond = std::mem::take(&mut found.beyond);
    let whose = (found.device.group_id(), found.tenant.id());
    let begun = traffic.begin_onboarding(inner, whose, (found.device.refs(), beyond), options, wants);
    begun.ok_or(OnboardError::Closed)
}

/// Refuses a run that can never fit, and one of another manager.
fn check(inner: &Arc<Inner>, found: &PrefixMatch) -> Result<(), OnboardError> {
    if inner.is_inherited() {
        return Err(OnboardError::Inherited);
    }
    if !Arc::ptr_eq(found.device.inner(), inner) {
        return Err(OnboardError::Foreign);
    }
    let device = &inner.group(found.device.group_id()).device;
    let (blocks, capacity) = (found.len(), device.pool().capacity());
    if blocks > capacity {
        return Err(OnboardError::TooLarge { blocks, capacity });
    }
    match device.owners().limit(found.tenant.id()).filter(|quota| blocks > *quota) {
        Some(quota) => Err(OnboardError::Quota { blocks, quota, capacity }),
        None => Ok(()),
    }
}
