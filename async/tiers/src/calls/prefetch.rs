//! Hints that blocks will be asked for.

use crate::engine::inner::Inner;
use crate::state::GroupId;
use kvstrata_core::{SequenceHash, TenantId};
use std::sync::Arc;

/// A hint that blocks will be asked for. Dropping it cancels the transfers that have not begun;
/// [`detach`](Prefetch::detach) keeps them.
#[derive(Debug)]
#[must_use = "dropping it withdraws the hint"]
pub struct Prefetch {
    pub(crate) inner: Option<Arc<Inner>>,
    pub(crate) number: u64,
}

impl Prefetch {
    pub(crate) fn of(
        inner: &Arc<Inner>,
        group: GroupId,
        hashes: &[SequenceHash],
        tenant: TenantId,
    ) -> Prefetch {
        if inner.is_inherited() {
            return Prefetch { inner: None, number: 0 };
        }
        let number = inner.with(|traffic| traffic.hint(inner, group, hashes, tenant));
        Prefetch { inner: Some(Arc::clone(inner)), number }
    }

    /// Keeps the hint without its guard.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/tour.rs)
    pub fn detach(mut self) {
        self.inner = None;
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            if inner.is_inherited() {
                return inner.keep();
            }
            inner.with(|traffic| traffic.withdraw_hint(&inner, self.number));
        }
    }
}
