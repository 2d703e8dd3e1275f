//! Blocks that are registered before their pass writes them: the list that may still be withdrawn.

use crate::engine::inner::Inner;
use crate::scheduler::Key;
use crate::transfer::Cause;
use std::fmt;
use std::sync::Arc;

/// Blocks of one list that were [registered ahead](crate::BlocksMut::register_ahead) of the iteration that
/// writes them. Dropped, nothing follows: the manager believes that it does.
#[must_use = "if the pass does not write the blocks it is to withdraw() them"]
pub struct Ahead {
    inner: Arc<Inner>,
    mark: Option<Key>,
}

impl Ahead {
    /// Before anything is marked.
    pub(crate) fn new(inner: &Arc<Inner>) -> Ahead {
        Ahead { inner: Arc::clone(inner), mark: None }
    }

    pub(crate) fn mark(&mut self, mark: Option<Key>) {
        self.mark = mark;
    }

    /// The iteration does not write them: it has failed, or the request is not in it. Blocks that no other
    /// list is to write are found by nobody from now on, and no copy of them comes to be; nor of what is
    /// registered behind them, which is computed from them, or behind blocks that only a later pass writes
    /// than theirs. How many these were. Their handles are still to be dropped, and of the iteration that
    /// runs or comes next their memory is kept until it is over. Whoever has found them meanwhile holds
    /// blocks that are wrong: [`Blocks::registered`](crate::Blocks::registered) tells, and is to be asked, of
    /// what was found while it had not been written, before a pass reads it.
    ///
    /// To be said before the engine tells of the iteration's last layer, or of its end: from then on they
    /// count as written, and may have been copied. That comes too late, and gives 0.
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
