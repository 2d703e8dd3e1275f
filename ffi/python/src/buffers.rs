//! Memory of Python objects as an arena: block i for key i.
//!
//! | argument `buffers` | block i |
//! |---|---|
//! | a list or another iterable | object i: a buffer, a tensor in host memory, or (address, bytes) |
//! | one view of several dimensions | row i of its first dimension |
//! | one view, and `rows` | row `rows[i]` |

use super::dlpack;
use super::errors::{refused, type_name};
use super::loans::{Ended, Held, Loan};
use super::spans::{Region, Where, check_apart};
use kvstrata::backend::{HostArena, Span};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::ffi::CStr;
use std::sync::Arc;

/// The direction of a transfer, seen from the buffers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Lends the buffers of a batch of so many keys.
pub(crate) fn lend(
    buffers: &Bound<'_, PyAny>,
    rows: Option<&Bound<'_, PyAny>>,
    keys: usize,
    access: Access,
    ended: &Arc<Ended>,
) -> PyResult<Arc<HostArena>> {
    let mut borrowing = Borrowing { loan: Loan { held: Held::default(), ended: Arc::clone(ended) }, access };
    let spans = borrowing.spans(buffers, rows, keys)?;
    if spans.len() != keys {
        let list = if rows.is_some() { "rows" } else { "buffers" };
        return Err(refused(format!("{list}: {}, keys: {keys}; give one for each key", spans.len())));
    }
    if access == Access::Write {
        check_apart(&spans)?;
    }
    // SAFETY: the loan holds each object's view, or a reference to it, until the arena drops it, so the spans
    // stay mapped; they are writable where a load asks for it, and distinct. That no other code touches them
    // before the completion is the duty that the documentation of each call states, as for any transfer
    // into or out of memory of a Python object: (address, bytes) pairs rest on it alone.
    let arena = unsafe { HostArena::lent(spans, Box::new(borrowing.loan)) };
    arena.map_err(|error| refused(format!("buffers: {error}")))
}

struct Borrowing {
    loan: Loan,
    access: Access,
}

impl Borrowing {
    fn spans(
        &mut self,
        buffers: &Bound<'_, PyAny>,
        rows: Option<&Bound<'_, PyAny>>,
        keys: usize,
    ) -> PyResult<Vec<Span>> {
        if let Some(rows) = rows {
            let region = self.view_of_rows(buffers)?;
            let mut spans = Vec::with_capacity(keys);
            each_number(rows, |row| {
                spans.push(region.row(row, spans.len())?);
                Ok(())
            })?;
            return Ok(spans);
        }
        if let Ok(list) = buffers.cast::<PyList>() {
            return self.each(list.iter(), list.len());
        }
        if let Ok(tuple) = buffers.cast::<PyTuple>() {
            return self.each(tuple.iter(), tuple.len());
        }
        if has_bytes(buffers)? {
            let region = self.view_of_rows(buffers)?;
            return (0..region.rows.unwrap_or(0)).map(|row| region.row(row as i64, row)).collect();
        }
        let Ok(objects) = buffers.try_iter() else {
            return Err(PyTypeError::new_err(format!(
                "buffers: {}; pass a list of buffers, or a view of several dimensions",
                type_name(buffers)
            )));
        };
        let objects = objects.collect::<PyResult<Vec<_>>>()?;
        let length = objects.len();
        self.each(objects.into_iter(), length)
    }

    fn each<'py>(
        &mut self,
        objects: impl Iterator<Item = Bound<'py, PyAny>>,
        length: usize,
    ) -> PyResult<Vec<Span>> {
        self.loan.held = Held::with_room(length);
        let mut spans = Vec::with_capacity(length);
        for (number, object) in objects.enumerate() {
            let at = Where::Buffer(number);
            spans.push(self.region(&object, at)?.span(at)?);
        }
        Ok(spans)
    }

    fn view_of_rows(&mut self, buffers: &Bound<'_, PyAny>) -> PyResult<Region> {
        self.loan.held = Held::with_room(1);
        let region = self.region(buffers, Where::Buffers)?;
        if region.rows.is_some() {
            return Ok(region);
        }
        Err(refused(format!(
            "buffers: {} of one dimension; pass a list of buffers, or a view of several dimensions with a row for \
             each key",
            type_name(buffers)
        )))
    }

    /// Returns the bytes of an object, and keeps them valid.
    fn region(&mut self, of: &Bound<'_, PyAny>, at: Where) -> PyResult<Region> {
        // SAFETY: the object is alive and the thread holds the GIL.
        if unsafe { ffi::PyObject_CheckBuffer(of.as_ptr()) } == 1 {
            return self.buffer(of, at);
        }
        let py = of.py();
        if let Ok(pair) = of.cast::<PyTuple>() {
            let (address, bytes): (usize, usize) = pair.extract().map_err(|_| {
                PyTypeError::new_err(format!("{at}: a tuple other than (address, bytes); pass two integers"))
            })?;
            self.loan.held.keep(of.clone());
            return Ok(Region { address: std::ptr::with_exposed_provenance_mut(address), bytes, rows: None });
        }
        if let Some(address) = of.getattr_opt(intern!(py, "data_ptr"))? {
            return self.tensor(of, &address, at);
        }
        if of.hasattr(intern!(py, "__dlpack_device__"))? {
            dlpack::check_device(of, at)?;
            let (region, capsule) = dlpack::region(of, at)?;
            self.loan.held.keep(capsule);
            return Ok(region);
        }
        Err(PyTypeError::new_err(format!(
            "{at}: {}; pass an object with the buffer protocol (bytes, bytearray, memoryview, numpy array), a tensor \
             in host memory, or a tuple (address, bytes)",
            type_name(of)
        )))
    }

    fn buffer(&mut self, of: &Bound<'_, PyAny>, at: Where) -> PyResult<Region> {
        let access = self.access;
        let view = self.loan.held.view(of, ffi::PyBUF_FULL_RO)?;
        if access == Access::Write && view.readonly != 0 {
            return Err(refused(format!(
                "{at}: {} is read-only; a load writes into it: pass a writable buffer (bytearray, numpy array, a \
                 memoryview of one)",
                type_name(of)
            )));
        }
        // SAFETY: the view is filled, and the thread holds the GIL.
        if unsafe { ffi::PyBuffer_IsContiguous(view, b'C' as std::ffi::c_char) } == 0 {
            return Err(refused(format!(
                "{at}: {} is strided; its bytes must be contiguous in C order: pass each contiguous part as a buffer \
                 of its own, or a contiguous copy",
                type_name(of)
            )));
        }
        if !view.format.is_null() {
            // SAFETY: the exporter's format is a string that ends with 0, valid as long as the view.
            let format = unsafe { CStr::from_ptr(view.format) };
            if format.to_bytes().contains(&b'O') {
                return Err(refused(format!(
                    "{at}: {} has elements that are Python objects; pass a buffer of numbers or bytes",
                    type_name(of)
                )));
            }
        }
        let rows = (view.ndim > 1 && !view.shape.is_null()).then(|| {
            // SAFETY: a view of two or more dimensions has a shape of as many numbers.
            unsafe { *view.shape }
        });
        Ok(Region {
            address: view.buf.cast(),
            bytes: usize::try_from(view.len).unwrap_or(0),
            rows: rows.and_then(|rows| usize::try_from(rows).ok()),
        })
    }

    /// A tensor that tells its address, such as torch's.
    fn tensor(&mut self, of: &Bound<'_, PyAny>, address: &Bound<'_, PyAny>, at: Where) -> PyResult<Region> {
        let py = of.py();
        if let Some(contiguous) = of.getattr_opt(intern!(py, "is_contiguous"))?
            && !contiguous.call0()?.is_truthy()?
        {
            return Err(refused(format!(
                "{at}: {} is strided; its bytes must be contiguous: pass tensor.contiguous() for a store, and a \
                 contiguous tensor for a load",
                type_name(of)
            )));
        }
        let device = of.getattr_opt(intern!(py, "device"))?;
        let kind = device.map(|device| device.getattr_opt(intern!(py, "type"))).transpose()?.flatten();
        match kind {
            Some(kind) if !kind.eq("cpu")? => {
                return Err(refused(format!(
                    "{at}: a tensor on {kind}; this version takes host memory only: copies between a device and the \
                     store, in the order of a stream, are missing. Copy it to host memory first (tensor.cpu()), \
                     pinned if it is used again"
                )));
            }
            None if of.hasattr(intern!(py, "__dlpack_device__"))? => dlpack::check_device(of, at)?,
            _ => {}
        }
        let address: usize = address.call0()?.extract()?;
        let bytes: usize = of.getattr(intern!(py, "nbytes"))?.extract()?;
        let rows = match of.getattr_opt(intern!(py, "shape"))? {
            Some(shape) if shape.len()? > 1 => Some(shape.get_item(0)?.extract()?),
            _ => None,
        };
        self.loan.held.keep(of.clone());
        Ok(Region { address: std::ptr::with_exposed_provenance_mut(address), bytes, rows })
    }
}

fn has_bytes(of: &Bound<'_, PyAny>) -> PyResult<bool> {
    // SAFETY: the object is alive and the thread holds the GIL.
    let has_buffer = unsafe { ffi::PyObject_CheckBuffer(of.as_ptr()) } == 1;
    Ok(has_buffer
        || of.hasattr(intern!(of.py(), "data_ptr"))?
        || of.hasattr(intern!(of.py(), "__dlpack__"))?)
}

/// Calls with each integer of an array of 4 or 8 bytes an element, or of an iterable.
fn each_number(of: &Bound<'_, PyAny>, mut with: impl FnMut(i64) -> PyResult<()>) -> PyResult<()> {
    // SAFETY: the object is alive and the thread holds the GIL.
    if unsafe { ffi::PyObject_CheckBuffer(of.as_ptr()) } == 0 {
        for number in of.try_iter()? {
            with(number?.extract()?)?;
        }
        return Ok(());
    }
    let mut held = Held::with_room(1);
    let numbers = held.view(of, ffi::PyBUF_FULL_RO).and_then(numbers);
    held.release(of.py());
    numbers?.into_iter().try_for_each(with)
}

/// Copies the numbers of a view.
fn numbers(view: &ffi::Py_buffer) -> PyResult<Vec<i64>> {
    let wrong =
        || refused("rows: not integers of 4 or 8 bytes in one dimension; pass such an array, or a list");
    if view.format.is_null() || view.ndim != 1 || view.shape.is_null() || view.strides.is_null() {
        return Err(wrong());
    }
    if !view.suboffsets.is_null() {
        return Err(wrong());
    }
    // SAFETY: the exporter's format is a string that ends with 0.
    let format = unsafe { CStr::from_ptr(view.format) }.to_bytes();
    let kind = *format
        .strip_prefix(b"@")
        .or(format.strip_prefix(b"<"))
        .or(format.strip_prefix(b"="))
        .unwrap_or(format)
        .first()
        .unwrap_or(&0);
    // SAFETY: a view of one dimension has one length, and one stride.
    let length = usize::try_from(unsafe { *view.shape }).unwrap_or(0);
    // SAFETY: as above.
    let stride = unsafe { *view.strides };
    let at = |number: usize| view.buf.cast::<u8>().wrapping_offset(number as isize * stride);
    let read: fn(*const u8) -> i64 = match (kind, view.itemsize) {
        // SAFETY: `at` of a number below `length` is an element of `itemsize` bytes of the view.
        (b'i' | b'l', 4) => |at| i64::from(unsafe { at.cast::<i32>().read_unaligned() }),
        // SAFETY: as above.
        (b'I' | b'L', 4) => |at| i64::from(unsafe { at.cast::<u32>().read_unaligned() }),
        // SAFETY: as above.
        (b'l' | b'q' | b'n', 8) => |at| unsafe { at.cast::<i64>().read_unaligned() },
        // SAFETY: as above; a number that is too large becomes negative, and is refused.
        (b'L' | b'Q' | b'N', 8) => |at| unsafe { at.cast::<i64>().read_unaligned() },
        _ => return Err(wrong()),
    };
    Ok((0..length).map(|number| read(at(number))).collect())
}
