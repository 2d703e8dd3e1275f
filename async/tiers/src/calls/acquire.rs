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

use crate::calls::allocate_error::AllocateError;
use crate::calls::allocation::Allocation;
use crate::calls::answer::Answer;
use crate::calls::blocks::{Blocks, BlocksMut};
use crate::calls::group::Group;
use crate::calls::matching::PrefixMatch;
use crate::calls::onboard::OnboardError;
use crate::state::OnboardOptions;
use crate::tier::Tier;
use crate::transfer::{Cause, Class};
use kvstrata_core::SequenceHash;
use std::fmt;
use std::future::IntoFuture;
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

/// A call for all blocks of a sequence ([`Group::acquire`]), before it begins: it begins when it is awaited, or
/// by [`into_future`](IntoFuture::into_future).
#[derive(Clone, Copy)]
#[must_use = "it begins when it is awaited, or by into_future()"]
pub struct Acquire<'a> {
    group: &'a Group,
    hashes: &'a [SequenceHash],
    more: usize,
    class: Class,
    request: u64,
    deadline: Option<Duration>,
}

impl Group {
    /// All blocks of a sequence: the leading run that some tier has, brought up to the device, and blocks for
    /// the rest. The call is built, and begins when it is awaited, or by `into_future`.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub fn acquire<'a>(&'a self, hashes: &'a [SequenceHash]) -> Acquire<'a> {
        Acquire { group: self, hashes, more: 0, class: Class::Urgent, request: 0, deadline: None }
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

    /// How long to wait at most, for all of it; none: for each part the manager's `deadline.allocate` and
    /// `deadline.onboard`.
    pub fn deadline(self, deadline: impl Into<Option<Duration>>) -> Acquire<'a> {
        Acquire { deadline: deadline.into(), ..self }
    }

    fn begin(self) -> Result<Answer<Answered>, AcquireError> {
        let Acquire { group, hashes, more, class, request, deadline } = self;
        let wanted = hashes.len().saturating_add(more);
        let capacity = group.capacity(Tier::Device);
        if wanted > capacity {
            return Err(AllocateError::TooMany { requested: wanted, capacity }.into());
        }
        let due = deadline.and_then(|deadline| group.inner().due_in(deadline));
        let asks = Asks { request, deadline, due };
        let found = group.match_prefix(hashes);
        let (run, rest) = (found.len(), wanted - found.len());
        if found.is_ready() {
            let held = PrefixMatch::into_device(found);
            let mut waits = asks.blocks(group, rest);
            return match waits.take() {
                Some(fresh) => Ok(Answer::now(Ok(Acquired { held, fresh: fresh?, missed: None }))),
                None => {
                    Ok(Answer::later(async move { Ok(Acquired { held, fresh: waits.await?, missed: None }) }))
                }
            };
        }
        let options = OnboardOptions { class, request, layers: None, deadline: asks.left(group) };
        let onboard = group.onboard(found, options)?;
        let fresh = asks.blocks(group, rest);
        let group = group.clone();
        Ok(Answer::later(async move {
            let mut fresh = fresh.await?;
            let up = onboard.await;
            let lost = run - up.blocks.len();
            if lost > 0 {
                let mut again = asks.blocks(&group, lost).await?;
                // Those at the end stay those that were asked for besides: which block is which is the
                // caller's to say.
                again.append(fresh).map_err(|_| AllocateError::Closed)?;
                fresh = again;
            }
            Ok(Acquired { held: up.blocks, fresh, missed: up.missed })
        }))
    }
}

type Answered = Result<Acquired, AcquireError>;

/// How the parts of it are asked for.
#[derive(Clone, Copy)]
struct Asks {
    request: u64,
    deadline: Option<Duration>,
    /// When all of it is late; none: as the settings say, or beyond all clocks.
    due: Option<Duration>,
}

impl Asks {
    /// How long is left. None: as the settings say.
    fn left(self, group: &Group) -> Option<Duration> {
        self.due.map(|due| due.saturating_sub(group.inner().elapsed())).or(self.deadline)
    }

    /// Blocks, at once or in the queue. A list of none is given by a manager that is shut down, too.
    fn blocks(self, group: &Group, count: usize) -> Allocation {
        match count {
            0 => Allocation::answered(group.try_allocate(0).ok_or(AllocateError::Closed)),
            _ => group.allocate(count).request(self.request).deadline(self.left(group)).into_future(),
        }
    }
}

impl IntoFuture for Acquire<'_> {
    type Output = Answered;
    type IntoFuture = Answer<Answered>;

    fn into_future(self) -> Answer<Answered> {
        self.begin().unwrap_or_else(|refused| Answer::now(Err(refused)))
    }
}

impl fmt::Debug for Acquire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Acquire({} blocks and {} more)", self.hashes.len(), self.more)
    }
}
