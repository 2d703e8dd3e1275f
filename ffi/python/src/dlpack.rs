//! DLPack: the address and shape of a tensor that has neither the buffer protocol nor `data_ptr`.
//!
//! The capsule of `__dlpack__` keeps the tensor's memory. It is kept as it is. The tensor is not taken
//! out of it, so the capsule's own end gives the memory back.
//! Source: the DLPack specification, `dlpack.h`, structures without a version.

use super::errors::refused;
use super::spans::{Region, Where};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};
use std::slice;

const NAME: &CStr = c"dltensor";

/// Devices with memory that the processor reaches by its address: kDLCPU, kDLCUDAHost, kDLROCMHost.
const HOST: [i32; 3] = [1, 3, 11];

#[repr(C)]
struct Device {
    kind: i32,
    number: i32,
}

#[repr(C)]
struct Element {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    element: Element,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// Refuses a tensor in memory that the processor cannot reach.
pub(crate) fn check_device(of: &Bound<'_, PyAny>, at: Where) -> PyResult<()> {
    let (kind, number): (i32, i32) = of.call_method0("__dlpack_device__")?.extract()?;
    if HOST.contains(&kind) {
        return Ok(());
    }
    Err(refused(format!(
        "{at}: a tensor on device {kind}:{number} (DLPack numbers); this version takes host memory only: copies \
         between a device and the store, in the order of a stream, are missing. Copy it to host memory first \
         (tensor.cpu()), pinned if it is used again"
    )))
}

/// Returns the bytes of a tensor and the capsule that keeps them.
pub(crate) fn region<'py>(of: &Bound<'py, PyAny>, at: Where) -> PyResult<(Region, Bound<'py, PyAny>)> {
    let capsule = of.call_method0("__dlpack__")?;
    // SAFETY: the object is alive and the thread holds the GIL; the name is the one that DLPack gives.
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()) }.cast::<Tensor>();
    if tensor.is_null() {
        return Err(PyErr::fetch(of.py()));
    }
    // SAFETY: a capsule of this name holds a DLManagedTensor. Its first field is the tensor, which lives as
    // long as the capsule.
    let tensor = unsafe { &*tensor };
    let dimensions = usize::try_from(tensor.dimensions).unwrap_or(0);
    let numbers = |numbers: *mut i64| match (numbers.is_null(), dimensions) {
        (true, _) | (_, 0) => None,
        // SAFETY: DLPack: one number for each dimension, valid as long as the tensor.
        _ => Some(unsafe { slice::from_raw_parts(numbers, dimensions) }),
    };
    let shape = numbers(tensor.shape).unwrap_or_default();
    if let Some(strides) = numbers(tensor.strides) {
        let mut expected = 1;
        for (length, stride) in shape.iter().zip(strides).rev() {
            if *length > 1 && *stride != expected {
                return Err(refused(format!(
                    "{at}: strided; its bytes must be contiguous: pass tensor.contiguous() for a store, and a \
                     contiguous tensor for a load"
                )));
            }
            expected *= length;
        }
    }
    let elements: i64 = shape.iter().product();
    let bits = u64::from(tensor.element.bits) * u64::from(tensor.element.lanes);
    let bytes = (u64::try_from(elements).unwrap_or(0) * bits).div_ceil(8) as usize;
    let address = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize);
    let rows = shape.first().and_then(|rows| usize::try_from(*rows).ok()).filter(|_| dimensions > 1);
    Ok((Region { address, bytes, rows }, capsule))
}
