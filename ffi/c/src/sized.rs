//! Structs that begin with their size, so that caller and library may be of different versions.
//!
//! ```text
//!   caller older     ├─ size, fields ─┤                      the fields behind are 0: the defaults
//!   this library     ├─ size, fields ────────┤
//!   caller newer     ├─ size, fields ────────┼── 0 ──┤       refused, if a byte behind is not 0
//! ```
//!
//! Invariants
//! - I1: a field is a number or a pointer; 0 and NULL are its default. So zeroed memory is a valid struct.
//! - I2: fields fill the struct without padding, in units of 8 bytes; no field crosses a unit. So a size in
//!   units cuts no field.

use crate::status::Failure;
use std::mem::MaybeUninit;

/// A struct that begins with its size.
///
/// # Safety
/// The struct is `repr(C)`, begins with a `u32` size, and I1 and I2 hold.
pub(crate) unsafe trait SizeFirst: Copy {
    /// The name in the header.
    const NAME: &'static str;
}

/// Fields come in units of this many bytes (I2).
const UNIT: usize = 8;
/// No struct grows to this size: a larger one is a size that was never set.
const MOST: usize = 4096;

/// Reads a struct of the caller's version. NULL: the defaults.
///
/// # Safety
/// C2: `given` is NULL or points to as many bytes as its size says.
pub(crate) unsafe fn read<T: SizeFirst>(argument: &str, given: *const T) -> Result<T, Failure> {
    let mut read = MaybeUninit::<T>::zeroed();
    if !given.is_null() {
        // SAFETY: as this function's.
        let bytes = unsafe { bytes(argument, given) }?;
        let (known, unknown) = bytes.split_at(bytes.len().min(size_of::<T>()));
        if let Some(at) = unknown.iter().position(|byte| *byte != 0) {
            return Err(Failure::invalid(format!(
                "{argument}: byte {} of {} is set, and version {} of the library knows {} bytes; leave newer \
                 fields 0, or use a newer library",
                known.len() + at,
                T::NAME,
                env!("CARGO_PKG_VERSION"),
                known.len(),
            )));
        }
        // SAFETY: `known` is at most as long as T, and a new value does not overlap the caller's.
        unsafe { known.as_ptr().copy_to_nonoverlapping(read.as_mut_ptr().cast(), known.len()) };
    }
    // SAFETY: I1: zeroes are valid, and so are numbers and pointers of any bits, which are cut nowhere (I2).
    Ok(unsafe { read.assume_init() })
}

/// Writes a struct into one of the caller's version: no byte past its size, zeroes where the caller's is
/// longer, and the size stays as it is.
///
/// # Safety
/// C2: `given` is NULL or points to as many writable bytes as its size says.
pub(crate) unsafe fn write<T: SizeFirst>(argument: &str, given: *mut T, value: &T) -> Result<(), Failure> {
    // SAFETY: as this function's.
    let size = unsafe { bytes(argument, given.cast_const()) }?.len();
    let (head, both) = (size_of::<u32>(), size.min(size_of::<T>()));
    let (from, to) = (std::ptr::from_ref(value).cast::<u8>(), given.cast::<u8>());
    // SAFETY: `head` is less than `both`, which is at most the length of either struct.
    let (from, field) = (unsafe { from.add(head) }, unsafe { to.add(head) });
    // SAFETY: as above; the library's own value and the caller's memory do not overlap.
    unsafe { from.copy_to_nonoverlapping(field, both - head) };
    // SAFETY: `both` is at most `size`.
    let rest = unsafe { to.add(both) };
    // SAFETY: the caller's struct has `size` bytes.
    unsafe { rest.write_bytes(0, size - both) };
    Ok(())
}

/// # Safety
/// As of `read`; the bytes are used only during the call.
unsafe fn bytes<'a, T: SizeFirst>(argument: &str, given: *const T) -> Result<&'a [u8], Failure> {
    if given.is_null() {
        return Err(Failure::invalid(format!("{argument}: NULL; give a {}", T::NAME)));
    }
    // SAFETY: C2: the size is there. A caller's pointer may have any alignment.
    let size = unsafe { given.cast::<u32>().read_unaligned() } as usize;
    if size < UNIT || !size.is_multiple_of(UNIT) || size > MOST {
        return Err(Failure::invalid(format!("{argument}->size: {size}; set it to sizeof({})", T::NAME)));
    }
    // SAFETY: C2: the struct has as many bytes as its size says. Fields without padding are initialised.
    Ok(unsafe { std::slice::from_raw_parts(given.cast(), size) })
}
