//! Reused cells: in steady state, and with at most [`MOST`] requests under way, a request
//! allocates no cell.
//!
//! ```text
//!   front ─► the cell handed out longest ago ─ … ─ the most recent one ◄─ back
//!            (a cell stays in this queue while a request and a Pending hold it)
//! ```
//!
//! Invariants
//! - I1: a cell is handed out again only when no request and no [`Pending`](super::pending::Pending)
//!   holds it. [`Arc::get_mut`] checks this, and orders their accesses before ours.
//! - I2: at most [`MOST`] cells are kept, however many requests are under way.

use super::error::IoFailure;
use super::pending::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// More than a queue and a ring hold. A cell has about 100 bytes.
const MOST: usize = 1024;

#[derive(Debug)]
pub(super) struct Cells<B, E = IoFailure>(Mutex<VecDeque<Arc<Cell<B, E>>>>);

impl<B, E> Cells<B, E> {
    pub(super) const fn new() -> Cells<B, E> {
        Cells(Mutex::new(VecDeque::new()))
    }

    /// A cell for a request.
    pub(super) fn take(&self) -> Arc<Cell<B, E>> {
        let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let front = cells.pop_front();
        let kept = cells.len() + usize::from(front.is_some());
        if let Some(mut first) = front {
            let is_free = Arc::get_mut(&mut first).map(Cell::renew).is_some();
            cells.push_back(Arc::clone(&first));
            if is_free {
                return first;
            }
        }
        let new = Cell::new();
        if kept < MOST {
            // At the back, so that cells handed out earlier are tried first.
            cells.push_back(Arc::clone(&new));
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Pending;

    #[test]
    fn cell_is_reused_only_after_both_ends_drop_it() {
        let cells = Cells::<u8>::new();
        let first = cells.take();
        let pending = Pending::new(Arc::clone(&first));
        let second = cells.take();
        assert!(!Arc::ptr_eq(&first, &second));
        drop(first.complete(Ok(7)));
        assert_eq!(pending.wait(), Ok(7));
        let address = Arc::as_ptr(&first);
        drop((first, second));
        let again = [cells.take(), cells.take()];
        assert!(again.iter().any(|cell| Arc::as_ptr(cell) == address));
        // The reused cell behaves as a new one.
        drop(again[0].complete(Ok(8)));
        assert_eq!(Pending::new(Arc::clone(&again[0])).wait(), Ok(8));
        let more: Vec<_> = (0..3 * MOST).map(|_| cells.take()).collect();
        assert!(more.iter().all(|cell| Arc::strong_count(cell) <= 2));
        assert!(cells.0.lock().expect("no panic").len() <= MOST, "bounded");
    }
}
