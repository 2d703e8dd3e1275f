//! Strings, arrays and outgoing values.

use crate::status::Failure;
use std::ffi::{CStr, c_char};

/// Copies a text and a NUL into a buffer, cut to its length.
///
/// # Safety
/// `buffer` is NULL or has `bytes` writable bytes.
pub(crate) unsafe fn copy_out(text: &str, buffer: *mut c_char, bytes: usize) {
    let Some(room) = bytes.checked_sub(1).filter(|_| !buffer.is_null()) else { return };
    // A character is not cut in two.
    let copied = text.floor_char_boundary(room);
    // SAFETY: `copied` is less than `bytes`, and at most the text's length; the two do not overlap.
    unsafe { text.as_ptr().copy_to_nonoverlapping(buffer.cast(), copied) };
    // SAFETY: as above.
    let end = unsafe { buffer.add(copied) };
    // SAFETY: as above.
    unsafe { end.write(0) };
}

/// Reads a string. NULL: none.
///
/// # Safety
/// C3.
pub(crate) unsafe fn string<'a>(argument: &str, text: *const c_char) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: C3.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|error| {
        Failure::invalid(format!("{argument}: not UTF-8 from byte {} on; give UTF-8", error.valid_up_to()))
    })?;
    Ok(Some(text))
}

/// Reads an array.
///
/// # Safety
/// C2, for the array `items` of `count` items.
pub(crate) unsafe fn array<'a, T>(argument: &str, items: *const T, count: usize) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    check_array(argument, items, count)?;
    // SAFETY: C2, and the checks.
    Ok(unsafe { std::slice::from_raw_parts(items, count) })
}

/// Refuses a pointer and a length that cannot be an array.
pub(crate) fn check_array<T>(argument: &str, items: *const T, count: usize) -> Result<(), Failure> {
    if items.is_null() {
        return Err(Failure::invalid(format!("{argument}: NULL; give an array of {count}")));
    }
    if !items.is_aligned() {
        let to = align_of::<T>();
        return Err(Failure::invalid(format!("{argument}: {items:p}; align it to {to} bytes")));
    }
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Failure::invalid(format!("{argument}: {count} items; check the length")));
    }
    Ok(())
}

/// Refuses an outgoing pointer that cannot be written.
pub(crate) fn check_out<T>(argument: &str, out: *mut T) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::invalid(format!("{argument}: NULL; give a place for the answer")));
    }
    check_array(argument, out, 1)
}
