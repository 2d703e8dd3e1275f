//! Python objects that lend their bytes to a store, from the call to the end of the last transfer.
//!
//! Invariants
//! - I1: a view of [`Held`] stays where `PyObject_GetBuffer` filled it: its `shape` may point into itself.
//! - I2: views and references are released once, by a thread that holds the GIL. Those that no call
//!   releases any more stay: at the end of the interpreter nothing needs them.

use pyo3::ffi;
use pyo3::prelude::*;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Views and references that keep lent bytes valid.
#[derive(Default)]
pub(crate) struct Held {
    /// Filled views, at their final place (I1). The capacity is reserved before the first.
    views: Vec<ffi::Py_buffer>,
    /// References that this value owns.
    objects: Vec<*mut ffi::PyObject>,
}

// SAFETY: other threads only move the value, and drop it, which touches no Python object (I2).
unsafe impl Send for Held {}
// SAFETY: no method of `&Held` exists.
unsafe impl Sync for Held {}

impl Held {
    /// Makes room for so many views.
    pub(crate) fn with_room(views: usize) -> Held {
        Held { views: Vec::with_capacity(views), objects: Vec::new() }
    }

    /// Asks an object for a view of its bytes. Returns the view, if the object gives one.
    pub(crate) fn view(&mut self, of: &Bound<'_, PyAny>, flags: i32) -> PyResult<&ffi::Py_buffer> {
        if self.views.len() == self.views.capacity() {
            // I1: the filled ones must not move. This value has room for all that its maker announced.
            return Err(crate::errors::refused(
                "buffers: they changed during the call; leave them as they are",
            ));
        }
        let at = self.views.spare_capacity_mut()[0].as_mut_ptr();
        // SAFETY: the object is alive and the thread holds the GIL, as `of` shows; `at` has room for a view.
        let filled = unsafe { ffi::PyObject_GetBuffer(of.as_ptr(), at, flags) };
        if filled != 0 {
            return Err(PyErr::fetch(of.py()));
        }
        // SAFETY: the call above has filled one more view, within the capacity.
        unsafe { self.views.set_len(self.views.len() + 1) };
        Ok(&self.views[self.views.len() - 1])
    }

    /// Keeps a reference.
    pub(crate) fn keep(&mut self, object: Bound<'_, PyAny>) {
        self.objects.push(object.into_ptr());
    }

    /// Releases all views and references.
    pub(crate) fn release(mut self, _: Python<'_>) {
        for view in &mut self.views {
            // SAFETY: filled by `PyObject_GetBuffer`, not moved since (I1), and released only here; the
            // thread holds the GIL.
            unsafe { ffi::PyBuffer_Release(view) };
        }
        for object in self.objects.drain(..) {
            // SAFETY: this value owned the reference; the thread holds the GIL.
            unsafe { ffi::Py_DecRef(object) };
        }
    }
}

/// The owner of the lent memory of a batch. Its drop, on any thread, ends the loan.
pub(crate) struct Loan {
    pub(crate) held: Held,
    pub(crate) ended: Arc<Ended>,
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.ended.list().push(mem::take(&mut self.held));
    }
}

/// Loans of a store that have ended and are not released yet.
#[derive(Default)]
pub(crate) struct Ended {
    list: Mutex<Vec<Held>>,
}

/// Lists of stores that are gone, with loans that had not ended.
static PARKED: Mutex<Vec<Arc<Ended>>> = Mutex::new(Vec::new());

impl Ended {
    fn list(&self) -> MutexGuard<'_, Vec<Held>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases all loans that have ended.
    pub(crate) fn release(&self, py: Python<'_>) {
        // Taken out first: a release may run code of Python, which may call here.
        let ended = mem::take(&mut *self.list());
        ended.into_iter().for_each(|held| held.release(py));
    }
}

/// Leaves the list of a store that is gone to later calls of other stores.
pub(crate) fn park(py: Python<'_>, ended: Arc<Ended>) {
    ended.release(py);
    if Arc::strong_count(&ended) > 1 {
        PARKED.lock().unwrap_or_else(PoisonError::into_inner).push(ended);
    }
}

/// Releases the ended loans of stores that are gone.
pub(crate) fn sweep(py: Python<'_>) {
    let mut parked = PARKED.lock().unwrap_or_else(PoisonError::into_inner);
    if parked.is_empty() {
        return;
    }
    // In a forked child, a list of the parent may be locked for ever. It is left out.
    let (lists, rest) = mem::take(&mut *parked).into_iter().partition(|ended| ended.list.try_lock().is_ok());
    *parked = rest;
    drop(parked);
    let lists: Vec<Arc<Ended>> = lists;
    lists.into_iter().for_each(|ended| park(py, ended));
}
