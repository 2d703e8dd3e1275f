//! All blocks of a sequence in one call: what some tier has is brought up, and blocks for the rest are
//! allocated.
//!
//! ```text
//!   hashes   0 1 2 3 4 5 6 7  ·        · = one block more, for tokens that fill none yet
//!            D D H K · · · ·
//!            └─held┘ └fresh┘           K fails to be read: held 0 1 2, fresh 3 4 5 6 7 ·
//! ```
//!
//! A device hit takes no place in the queue. Otherwise the run to be brought up enters the wait queue first,
//! and the rest right behind it, before anything is awaited; what turns out to be lost is asked for again
//! behind that.
//!
//! Invariants
//! - I1: `held` and `fresh` together are as many blocks as hashes were given, and those that were asked for
//!   besides.
//! - I2: dropped, or refused, it keeps nothing: the run is released, and places in the queue are left.

use crate::calls::allocate::{AllocateError, AllocateOptions};
use crate::calls::blocks::{Blocks, BlocksMut};
use crate::calls::group::Group;
use crate::calls::matching::PrefixMatch;
use crate::calls::onboard::OnboardError;
use crate::state::OnboardOptions;
use crate::transfer::{Cause, Class};
use kvstrata_core::SequenceHash;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

/// A sequence's blocks.
#[derive(Debug)]
#[must_use = "dropped, the blocks are released"]
pub struct Acquired {
    /// The leading blocks that were there, in the device now, in the order of their hashes.
    pub held: Blocks,
    /// Blocks for the others, to be filled and [registered](BlocksMut::register) behind `held`; and those
    /// that were asked for besides, last.
    pub fresh: BlocksMut,
    /// Why the first of the blocks to be filled is missing, if it was found: its transfer failed, or was
    /// late.
    pub missed: Option<Cause>,
}

/// Why nothing was acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// There are no blocks for what is to be computed.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// The run that was found cannot be brought up.
    #[error(transparent)]
    Onboard(#[from] OnboardError),
}

/// A call that begins when it is awaited.
#[must_use = "it begins when it is awaited"]
pub struct Acquire<'a> {
    group: Group,
    hashes: &'a [SequenceHash],
    more: usize,
    class: Class,
    request: u64,
    deadline: Option<Duration>,
}

impl Group {
    /// All blocks of a sequence: the leading run that some tier has, brought up to the device, and blocks for
    /// the rest.
    pub fn acquire<'a>(&self, hashes: &'a [SequenceHash]) -> Acquire<'a> {
        let (more, request, deadline) = (0, 0, None);
        Acquire { group: self.clone(), hashes, more, class: Class::Urgent, request, deadline }
    }
}

impl<'a> Acquire<'a> {
    /// So many blocks besides, for tokens that fill no block yet.
    pub fn more(self, blocks: usize) -> Acquire<'a> {
        Acquire { more: blocks, ..self }
    }

    /// How urgent the run is that is brought up; urgent unless told.
    pub fn class(self, class: Class) -> Acquire<'a> {
        Acquire { class, ..self }
    }

    /// Whose it is: requests of one class take turns, and spans name it. 0: no request's.
    pub fn request(self, request: u64) -> Acquire<'a> {
        Acquire { request, ..self }
    }

    /// How long to wait at most, for all of it; for each part the manager's `deadline.allocate` and
    /// `deadline.onboard` unless told.
    pub fn deadline(self, deadline: Duration) -> Acquire<'a> {
        Acquire { deadline: Some(deadline), ..self }
    }

    async fn run(self) -> Result<Acquired, AcquireError> {
        let Acquire { ref group, hashes, more, class, request, deadline } = self;
        let due = deadline.and_then(|deadline| group.inner().elapsed().checked_add(deadline));
        let left = || due.map(|due| due.saturating_sub(group.inner().elapsed())).or(deadline);
        let allocate = async |count: usize| match count {
            0 => group.try_allocate(0).ok_or(AllocateError::Closed),
            _ => group.allocate_with(count, AllocateOptions { request, deadline: left() }).await,
        };
        let (wanted, capacity) =
            (hashes.len().saturating_add(more), group.capacity(crate::tier::Tier::Device));
        if wanted > capacity {
            return Err(AllocateError::TooMany { requested: wanted, capacity }.into());
        }
        let found = group.match_prefix(hashes);
        let (run, rest) = (found.len(), wanted - found.len());
        if found.is_ready() {
            let held = PrefixMatch::into_device(found);
            return Ok(Acquired { held, fresh: allocate(rest).await?, missed: None });
        }
        let options = OnboardOptions { class, request, layers: None, deadline: left() };
        let onboard = group.onboard(found, options)?;
        let mut fresh = allocate(rest).await?;
        let up = onboard.await;
        let lost = run - up.blocks.len();
        if lost > 0 {
            let mut more = allocate(lost).await?;
            // Those at the end stay those that were asked for besides: which block is which is the caller's
            // to say.
            more.append(fresh).map_err(|_| AllocateError::Closed)?;
            fresh = more;
        }
        Ok(Acquired { held: up.blocks, fresh, missed: up.missed })
    }
}

impl<'a> IntoFuture for Acquire<'a> {
    type Output = Result<Acquired, AcquireError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for Acquire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Acquire({} blocks and {} more)", self.hashes.len(), self.more)
    }
}
