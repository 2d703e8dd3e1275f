//! All blocks of a sequence in one call: blocks that some tier has are onboarded, and blocks for the
//! rest are allocated.
//!
//! ```text
//!   hashes   0 1 2 3 4 5 6 7  ·        · = one more block, for tokens that fill none yet
//!            D D H K · · · ·
//!            └─held┘ └fresh┘           reading K fails: held 0 1 2, fresh 3 4 5 6 7 ·
//! ```
//!
//! A device hit takes no place in the queue. Otherwise the run to onboard enters the wait queue first,
//! and the rest right behind it, before anything is awaited. Blocks that turn out to be lost are
//! requested again behind both.
//!
//! Invariants
//! - I1: `held` and `fresh` together have one block for each hash, and the additional blocks that were
//!   asked for.
//! - I2: a dropped or refused call keeps nothing: the run is released, and its places in the queue are left.

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
#[must_use = "dropping it releases the blocks"]
pub struct Acquired {
    /// The leading blocks that some tier had, now in the device, in the order of their hashes.
    pub held: Blocks,
    /// Blocks to fill and to [register](BlocksMut::register) behind `held`, for the other hashes. The
    /// additional blocks that were asked for come last.
    pub fresh: BlocksMut,
    /// Why the first block to be filled is missing although a tier had it: its transfer failed or was late.
    pub missed: Option<Cause>,
}

/// Why nothing was acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// There are no blocks for the part to be computed.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// The run that was found cannot be onboarded.
    #[error(transparent)]
    Onboard(#[from] OnboardError),
}

/// A call for all blocks of a sequence ([`Group::acquire`]) that has not begun. It begins when it is
/// awaited, or by [`into_future`](IntoFuture::into_future).
#[derive(Clone, Copy)]
#[must_use = "the call begins when it is awaited, or at into_future()"]
pub struct Acquire<'a> {
    group: &'a Group,
    hashes: &'a [SequenceHash],
    more: usize,
    class: Class,
    request: u64,
    deadline: Option<Duration>,
}

impl Group {
    /// Acquires all blocks of a sequence: onboards the leading run that some tier has, and allocates
    /// blocks for the rest. The returned call begins when it is awaited, or by `into_future`.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/embed.rs)
    ///
    /// # Errors
    /// [`AcquireError`], if the run cannot be onboarded or blocks for the rest cannot be allocated.
    pub fn acquire<'a>(&'a self, hashes: &'a [SequenceHash]) -> Acquire<'a> {
        Acquire { group: self, hashes, more: 0, class: Class::Urgent, request: 0, deadline: None }
    }
}

impl<'a> Acquire<'a> {
    /// Asks for so many additional blocks, for tokens that fill no block yet.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn more(self, blocks: usize) -> Acquire<'a> {
        Acquire { more: blocks, ..self }
    }

    /// Sets the urgency of the onboard; the default is [`Class::Urgent`].
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn class(self, class: Class) -> Acquire<'a> {
        Acquire { class, ..self }
    }

    /// Names the request: requests of one class take turns, and spans have this number. 0: no request.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn request(self, request: u64) -> Acquire<'a> {
        Acquire { request, ..self }
    }

    /// Sets the longest wait for the whole call. None: each part has the manager's `deadline.allocate`
    /// or `deadline.onboard`.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
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
                // The additional blocks stay at the end; the caller decides which block is for which hash.
                again.append(fresh).map_err(|_| AllocateError::Closed)?;
                fresh = again;
            }
            Ok(Acquired { held: up.blocks, fresh, missed: up.missed })
        }))
    }
}

type Answered = Result<Acquired, AcquireError>;

/// How the parts of a call are asked for.
#[derive(Clone, Copy)]
struct Asks {
    request: u64,
    deadline: Option<Duration>,
    /// When the whole call is late. None: the settings decide, or the time is beyond all clocks.
    due: Option<Duration>,
}

impl Asks {
    /// Returns the time left. None: the settings decide.
    fn left(self, group: &Group) -> Option<Duration> {
        self.due.map(|due| due.saturating_sub(group.inner().elapsed())).or(self.deadline)
    }

    /// Allocates blocks, at once or in the queue. An empty list comes at once, even from a manager that
    /// is shut down.
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
