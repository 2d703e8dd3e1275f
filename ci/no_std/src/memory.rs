//! The memory functions that compiled code may call; a libc would have them.
//!
//! Loops with volatile accesses: the compiler would recognise a plain loop and turn it into a call of the
//! function that contains it. Slow, but fast enough for a test.

use core::ffi::c_int;

/// # Safety
/// As C's: `count` bytes at `from` are readable, at `to` writable, and they do not overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    for i in 0..count {
        // SAFETY: i < count, so by the contract the place is in the readable range.
        let at = unsafe { from.add(i) };
        // SAFETY: as above.
        let byte = unsafe { at.read_volatile() };
        // SAFETY: i < count, so by the contract the place is in the writable range.
        let at = unsafe { to.add(i) };
        // SAFETY: as above.
        unsafe { at.write_volatile(byte) }
    }
    to
}

/// # Safety
/// As C's: as [`memcpy`], but the two may overlap.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= count {
        // `to` does not begin within `from`: going up never overwrites bytes that are still to be read.
        // SAFETY: the contract is ours; `memcpy` reads each byte before it writes any later one.
        return unsafe { memcpy(to, from, count) };
    }
    for i in (0..count).rev() {
        // SAFETY: i < count, so by the contract the place is in the readable range.
        let at = unsafe { from.add(i) };
        // SAFETY: as above.
        let byte = unsafe { at.read_volatile() };
        // SAFETY: i < count, so by the contract the place is in the writable range.
        let at = unsafe { to.add(i) };
        // SAFETY: as above.
        unsafe { at.write_volatile(byte) }
    }
    to
}

/// # Safety
/// As C's: `count` bytes at `to` are writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: c_int, count: usize) -> *mut u8 {
    for i in 0..count {
        // SAFETY: i < count, so by the contract the place is in the writable range.
        let at = unsafe { to.add(i) };
        // SAFETY: as above. C converts the value to unsigned char: the low byte.
        unsafe { at.write_volatile(byte.to_le_bytes()[0]) }
    }
    to
}

/// # Safety
/// As C's: `count` bytes at each of the two are readable.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, count: usize) -> c_int {
    for i in 0..count {
        // SAFETY: i < count, so by the contract the place is in the readable range.
        let at = unsafe { a.add(i) };
        // SAFETY: as above.
        let left = unsafe { at.read_volatile() };
        // SAFETY: i < count, so by the contract the place is in the readable range.
        let at = unsafe { b.add(i) };
        // SAFETY: as above.
        let right = unsafe { at.read_volatile() };
        if left != right {
            return c_int::from(left) - c_int::from(right);
        }
    }
    0
}

/// # Safety
/// As [`memcmp`]; only zero or not zero matters.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, count: usize) -> c_int {
    // SAFETY: the contract is ours.
    unsafe { memcmp(a, b, count) }
}
