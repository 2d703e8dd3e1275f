//! The work of a device mover: whole blocks or layers to copy between device and host memory, and device
//! blocks to overwrite.
//!
//! Invariants
//! - I1: each list of copies is answered, once: dropping it is the answer. A copy without an
//!   outcome has failed.
//! - I2: the guards of host memory are in the list, so the memory has no other use before the answer. A
//!   mover keeps the guards of memory that its hardware reads or writes until the hardware has answered;
//!   if it never does, for ever ([`HostSide::Kept`]).

use super::failure::{Cause, Failure};
use super::landing::{Landed, Landing, Token};
use kvstrata_core::BlockId;
use kvstrata_ffi::arena::{BlockRead, BlockWrite};
use std::ops::Range;

/// The host's side of a copy. It gives the direction.
#[derive(Debug)]
pub enum HostSide {
    /// Host memory is read: onboard.
    Read(BlockRead),
    /// Host memory is written: offload.
    Write(BlockWrite),
    /// No host memory: the device's block is overwritten with zeros.
    Zeros,
    /// The mover has the guard while the copy is under way. In an answer: a failed device keeps the
    /// guard, and may still reach the blocks of both sides, which must not be used any more.
    Kept {
        /// Whether the device's block was to be written.
        up: bool,
    },
}

impl HostSide {
    /// Returns whether the copy goes towards the device.
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
    /// The engine's number of the transfer.
    pub token: Token,
    /// The device's block. Nothing else touches these layers of it until the answer.
    pub device: BlockId,
    /// The host's side.
    pub host: HostSide,
    /// The layers to copy.
    pub layers: Range<u32>,
    /// For an onboard: whether the sums of the bytes read are compared with those in host memory. An
    /// offload always makes the sums.
    pub verify: bool,
    /// The outcome, set by the mover.
    pub outcome: Result<(), Failure>,
}

impl Copy {
    /// Returns a copy that has not happened.
    #[must_use]
    pub fn new(token: Token, device: BlockId, host: HostSide, layers: Range<u32>, verify: bool) -> Copy {
        Copy { token, device, host, layers, verify, outcome: Err(Failure::of(Cause::Abandoned)) }
    }
}

/// Copies of one direction, to be started together.
#[derive(Debug)]
#[must_use = "dropping it fails all copies"]
pub struct Copies {
    list: Vec<Copy>,
    landing: Landing,
}

impl Copies {
    /// Returns a list of copies that is answered at `landing`.
    pub fn new(list: Vec<Copy>, landing: Landing) -> Copies {
        Copies { list, landing }
    }

    /// Returns the copies.
    #[must_use]
    pub fn list(&self) -> &[Copy] {
        &self.list
    }

    /// Returns the copies, to set their outcomes and to reach their bytes.
    pub fn list_mut(&mut self) -> &mut [Copy] {
        &mut self.list
    }

    /// Takes a copy out and leaves a failed one in its place, without its guard. A mover that does not
    /// put the copy back ([`list_mut`](Copies::list_mut)) keeps its memory from being used again.
    ///
    /// # Panics
    /// If there is no copy at `at`.
    pub fn lend(&mut self, at: usize) -> Copy {
        let copy = &mut self.list[at];
        let (token, device, layers, verify) = (copy.token, copy.device, copy.layers.clone(), copy.verify);
        let left = Copy::new(token, device, HostSide::Kept { up: copy.host.is_up() }, layers, verify);
        std::mem::replace(copy, left)
    }

    /// Gives all copies this outcome, and answers.
    pub fn end(mut self, outcome: Result<(), Failure>) {
        self.list.iter_mut().for_each(|copy| copy.outcome = outcome);
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.landing.land(Landed::Copies(std::mem::take(&mut self.list)));
    }
}
