//! The functions of libcuda that kvstrata calls: signatures as in `cuda.h` of 13.0.
//!
//! Each has the contract of its page in the driver API's manual. Every pointer is the caller's, valid for
//! the bytes that the manual says are read or written there. Handles are numbers of the world's; they are
//! looked up, never followed.

mod context;
mod copies;
mod ipc;
mod memory;
mod modules;
mod streams;

use core::ffi::c_void;

pub(crate) fn handle_of(pointer: *mut c_void) -> u64 {
    pointer.addr() as u64
}

pub(crate) fn pointer_of(handle: u64) -> *mut c_void {
    core::ptr::without_provenance_mut(handle as usize)
}

/// Writes an answer to the caller's place.
///
/// # Safety
/// `place` is the caller's, for one `T`.
pub(crate) unsafe fn answer<T>(place: *mut T, value: T) -> Result<(), i32> {
    if place.is_null() {
        return Err(crate::world::code::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller's (the function's contract).
    unsafe { place.write(value) };
    Ok(())
}
