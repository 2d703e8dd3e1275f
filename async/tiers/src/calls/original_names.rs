//! A group's calls by the names of the first descriptions of tiered KV managers, for engines written
//! against those names.

use crate::calls::allocation::Allocate;
use crate::calls::answer::Answer;
use crate::calls::blocks::Blocks;
use crate::calls::group::Group;
use crate::calls::onboard::{OnboardError, Onboarded};
use crate::state::OnboardOptions;
use kvstrata_core::SequenceHash;

/// Other names of calls of [`Group`]. Each is one or two of those calls.
pub trait OriginalNames {
    /// Calls [`Group::match_device`].
    #[must_use]
    fn match_sequence_hashes(&self, hashes: &[SequenceHash]) -> Blocks;

    /// Calls [`Group::touch`].
    fn access(&self, hash: SequenceHash) -> bool;

    /// Calls [`Group::allocate`] for one block.
    ///
    /// # Errors
    /// [`AllocateError`](crate::AllocateError), by the future, if there is no block in time.
    fn get_mutable_block(&self) -> Allocate<'_>;

    /// Calls [`Group::match_prefix`], then [`Group::onboard`] for the whole run.
    ///
    /// # Errors
    /// [`OnboardError`], if the run cannot be onboarded.
    fn restore_to_gpu(&self, hashes: &[SequenceHash]) -> Answer<Result<Onboarded, OnboardError>>;
}

impl OriginalNames for Group {
    fn match_sequence_hashes(&self, hashes: &[SequenceHash]) -> Blocks {
        self.match_device(hashes)
    }

    fn access(&self, hash: SequenceHash) -> bool {
        self.touch(hash)
    }

    fn get_mutable_block(&self) -> Allocate<'_> {
        self.allocate(1)
    }

    fn restore_to_gpu(&self, hashes: &[SequenceHash]) -> Answer<Result<Onboarded, OnboardError>> {
        match self.onboard(self.match_prefix(hashes), OnboardOptions::default()) {
            Ok(onboard) => Answer::later(async move { Ok(onboard.await) }),
            Err(refused) => Answer::now(Err(refused)),
        }
    }
}
