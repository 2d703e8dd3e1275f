//! How far looks for a tenant's victims have come.

use kvstrata_core::pool::Passed;

/// How far looks for a tenant's victims in a tier have come.
#[derive(Debug, Default)]
pub(crate) struct OwnLooks {
    pub(crate) passed: Passed,
    /// How things were when the last look for one found none; none: it found one.
    pub(crate) vain: Option<State>,
}

/// What differs from before if a tenant may have other victims in a tier; read before the look.
pub(crate) type State = [u32; 5];
