//! Keys of an engine: bytes, text or buffers.

use super::errors::type_name;
use super::loans::Held;
use kvstrata::SequenceHash;
use kvstrata::store::Namespace;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use std::slice;

/// Returns the store's keys of a list or another iterable.
pub(crate) fn of(namespace: &Namespace, keys: &Bound<'_, PyAny>) -> PyResult<Vec<SequenceHash>> {
    if let Ok(list) = keys.cast::<PyList>() {
        return list.iter().enumerate().map(|(number, key)| one(namespace, &key, number)).collect();
    }
    if let Ok(tuple) = keys.cast::<PyTuple>() {
        return tuple.iter().enumerate().map(|(number, key)| one(namespace, &key, number)).collect();
    }
    if keys.is_instance_of::<PyBytes>() || keys.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(format!("keys: one {}; pass a list of keys", type_name(keys))));
    }
    let Ok(each) = keys.try_iter() else {
        return Err(PyTypeError::new_err(format!("keys: {}; pass a list of keys", type_name(keys))));
    };
    each.enumerate().map(|(number, key)| one(namespace, &key?, number)).collect()
}

fn one(namespace: &Namespace, key: &Bound<'_, PyAny>, number: usize) -> PyResult<SequenceHash> {
    if let Ok(bytes) = key.cast::<PyBytes>() {
        return Ok(namespace.key(bytes.as_bytes()));
    }
    if let Ok(text) = key.cast::<PyString>() {
        return Ok(namespace.key(text.to_str()?.as_bytes()));
    }
    // SAFETY: the object is alive and the thread holds the GIL.
    if unsafe { ffi::PyObject_CheckBuffer(key.as_ptr()) } == 0 {
        return Err(PyTypeError::new_err(format!(
            "keys[{number}]: {}; pass bytes, str, or an object with the buffer protocol",
            type_name(key)
        )));
    }
    let mut held = Held::with_room(1);
    let made = held.view(key, ffi::PyBUF_SIMPLE).map(|view| {
        if view.buf.is_null() || view.len <= 0 {
            return namespace.key(&[]);
        }
        // SAFETY: a simple view has `len` contiguous bytes. This thread holds the GIL until they are hashed.
        namespace.key(unsafe { slice::from_raw_parts(view.buf.cast(), view.len as usize) })
    });
    held.release(key.py());
    made
}
