//! Blocks that are registered before their pass writes them: the handle that can still withdraw them.

use crate::engine::inner::Inner;
use crate::scheduler::Key;
use crate::transfer::Cause;
use std::fmt;
use std::sync::Arc;

/// Blocks of one list that were [registered ahead](crate::BlocksMut::register_ahead) of the iteration
/// that writes them. Dropping it changes nothing: the manager trusts that the iteration writes them.
#[must_use = "call withdraw() if the pass does not write the blocks"]
pub struct Ahead {
    inner: Arc<Inner>,
    mark: Option<Key>,
}

impl Ahead {
    /// Returns a handle without a mark.
    pub(crate) fn new(inner: &Arc<Inner>) -> Ahead {
        Ahead { inner: Arc::clone(inner), mark: None }
    }

    pub(crate) fn mark(&mut self, mark: Option<Key>) {
        self.mark = mark;
    }

    /// Tells that the iteration does not write the blocks: it has failed, or the request is not in it.
    /// Blocks that no other list is to write are withdrawn: no call finds them from now on, and no copy
    /// of them is made. So are blocks registered behind them, which are computed from them. So are
    /// blocks registered behind one that now only a later pass than their own writes. Returns how many
    /// blocks were withdrawn.
    ///
    /// The caller still has to drop its handles. If the iteration runs or comes next, the blocks' memory
    /// is kept until it is over. A request that found one of these blocks meanwhile holds a wrong block.
    /// [`Blocks::registered`](crate::Blocks::registered) tells: ask it, for blocks found before they
    /// were written, before a pass reads them.
    ///
    /// Call this before the engine tells of the iteration's last layer, or of its end. From then on the
    /// blocks count as written, and may have been copied: the call comes too late, and returns 0.
    ///
    /// [Example](https://github.com/kvstrata/kvstrata/blob/main/async/examples/layerwise.rs)
    pub fn withdraw(self) -> usize {
        let Some(mark) = self.mark.filter(|_| !self.inner.is_inherited()) else { return 0 };
        self.inner.with(|traffic| traffic.withdraw_list(&self.inner, mark, Cause::Cancelled))
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if self.inner.is_inherited() {
            self.inner.keep();
        }
    }
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ahead({:?})", self.mark)
    }
}
