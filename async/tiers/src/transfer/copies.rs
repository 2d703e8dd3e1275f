//! What a device mover is given: blocks, or layers of them, between device and host memory, or of the device to be overwritten.
//!
//! Invariants
//! - I1: each list of copies is answered, once: dropping it is the answer. A copy whose outcome nobody has set has failed.
//! - I2: the guards of host memory are in the list, so that memory is not used for anything else before the answer. A mover whose
//!   hardware reads or writes it keeps the guards until the hardware has answered; where it never will, for ever ([`HostSide::Kept`]).

use super::failure::{Cause, Failure};
use super::landing::{Landed, Landing, Token};
use kvstrata_core::BlockId;
use kvstrata_ffi::arena::{BlockRead, BlockWrite};
use std::ops::Range;

/// The host's side of a copy, which says which way it goes.
#[derive(Debug)]
pub enum HostSide {
    /// Host memory is read: onboard.
    Read(BlockRead),
    /// Host memory is written: offload.
    Write(BlockWrite),
    /// No host memory: the device's block is overwritten with zeros.
    Zeros,
    /// A mover has the guard, while the copy is under way. In an answer: a device keeps it that has failed, and may still reach the
    /// blocks of both sides, which are not to be used any more.
    Kept {
        /// Whether the device's block was to be written.
        up: bool,
    },
}

impl HostSide {
    /// Whether the copy goes towards the device.
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self, HostSide::Read(_) | HostSide::Zeros | HostSide::Kept { up: true })
    }

    /// Takes the guard, if there is one.
    pub fn take(&mut self) -> HostSide {
        let up = self.is_up();
        std::mem::replace(self, HostSide::Kept { up })
    }
}

/// One block, or some layers of it.
#[derive(Debug)]
pub struct Copy {
    /// The manager's.
    pub token: Token,
    /// The device's block. Nobody else touches these layers of it until the answer.
    pub device: BlockId,
    /// The host's.
    pub host: HostSide,
    /// Which layers.
    pub layers: Range<u32>,
    /// Onboard: whether the sums of what is read are compared with the memory's. Offload always makes them.
    pub verify: bool,
    /// To be set by the mover.
    pub outcome: Result<(), Failure>,
}

impl Copy {
    /// A copy that has not happened.
    #[must_use]
    pub fn new(token: Token, device: BlockId, host: HostSide, layers: Range<u32>, verify: bool) -> Copy {
        Copy { token, device, host, layers, verify, outcome: Err(Failure::of(Cause::Abandoned)) }
    }
}

/// Copies of one direction, to be started together.
#[derive(Debug)]
#[must_use = "dropped, all of them have failed"]
pub struct Copies {
    list: Vec<Copy>,
    landing: Landing,
}

impl Copies {
    /// Copies that are answered at `landing`.
    pub fn new(list: Vec<Copy>, landing: Landing) -> Copies {
        Copies { list, landing }
    }

    /// The copies.
    #[must_use]
    pub fn list(&self) -> &[Copy] {
        &self.list
    }

    /// The same, for their outcomes and their bytes.
    pub fn list_mut(&mut self) -> &mut [Copy] {
        &mut self.list
    }

    /// Takes a copy out and leaves a failed one in its place, without its guard: whoever does not put it back ([`list_mut`](Copies::list_mut))
    /// keeps the memory from being used again.
    ///
    /// # Panics
    /// There is none at `at`.
    pub fn lend(&mut self, at: usize) -> Copy {
        let copy = &mut self.list[at];
        let (token, device, layers, verify) = (copy.token, copy.device, copy.layers.clone(), copy.verify);
        let left = Copy::new(token, device, HostSide::Kept { up: copy.host.is_up() }, layers, verify);
        std::mem::replace(copy, left)
    }

    /// Gives all that have none an outcome, and answers.
    pub fn end(mut self, outcome: Result<(), Failure>) {
        self.list.iter_mut().for_each(|copy| copy.outcome = outcome);
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.landing.land(Landed::Copies(std::mem::take(&mut self.list)));
    }
}
