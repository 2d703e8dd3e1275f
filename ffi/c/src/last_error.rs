//! The text of a thread's last error.

use crate::text::copy_out;
use std::cell::RefCell;
use std::ffi::c_char;

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the message for this thread.
pub(crate) fn remember(message: String) {
    // While a thread ends, its message may be gone already.
    let _ = LAST.try_with(|last| last.replace(message));
}

/// Copies the message of the last call of this thread that did not answer KVS_OK. It names the argument or
/// the setting, its value, and a remedy. Calls that answer KVS_OK leave it as it is.
///
/// buffer, bytes: where to write at most bytes - 1 bytes and a NUL. NULL with 0 asks for the length alone.
/// Returns the length of the whole message, without the NUL; 0 if no call has failed. It is UTF-8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_last_error(buffer: *mut c_char, bytes: usize) -> usize {
    // Copied first: I1 holds without a catch, since nothing below panics.
    let message = LAST.try_with(|last| last.try_borrow().map(|last| last.clone()).unwrap_or_default());
    let message = message.unwrap_or_default();
    // SAFETY: C2: the buffer has that many writable bytes.
    unsafe { copy_out(&message, buffer, bytes) };
    message.len()
}
