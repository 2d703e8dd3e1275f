//! How far looks for a tenant's victims have come.

use kvstrata_core::pool::Passed;

/// How far looks for a tenant's victims in a tier have come.
#[derive(Debug, Default)]
pub(crate) struct OwnLooks {
    passed: Passed,
    /// How things were when the last look for one found none; none: it found one.
    vain: Option<State>,
}

impl OwnLooks {
    /// Blocks that looks have passed.
    pub(crate) fn passed_mut(&mut self) -> &mut Passed {
        &mut self.passed
    }

    /// Whether the last look found none, as things still are.
    pub(crate) fn was_vain(&self, state: State) -> bool {
        self.vain == Some(state)
    }

    /// A look has found one, or none as things are.
    pub(crate) fn note(&mut self, found: bool, state: State) {
        self.vain = (!found).then_some(state);
    }
}

/// What differs from before if a tenant may have other victims in a tier; read before the look.
pub(crate) type State = [u32; 5];
