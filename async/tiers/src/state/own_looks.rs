//! How far looks for a tenant's victims have come.

use kvstrata_core::pool::Passed;

/// How far looks for a tenant's victims in a tier have come.
#[derive(Debug, Default)]
pub(crate) struct OwnLooks {
    passed: Passed,
    /// The state in which the last look found no victim; none: it found one.
    vain: Option<State>,
}

impl OwnLooks {
    /// Returns the blocks that looks have passed.
    pub(crate) fn passed_mut(&mut self) -> &mut Passed {
        &mut self.passed
    }

    /// Whether the last look found no victim, and the state is the same.
    pub(crate) fn was_vain(&self, state: State) -> bool {
        self.vain == Some(state)
    }

    /// Notes whether a look has found a victim, and the state before it.
    pub(crate) fn note(&mut self, found: bool, state: State) {
        self.vain = (!found).then_some(state);
    }
}

/// Changes whenever a tenant may have other victims in a tier; read before the look.
pub(crate) type State = [u32; 5];
