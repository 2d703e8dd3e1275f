//! Versions.

use std::ffi::{CStr, c_char};

/// The version of this header's binary interface. It changes if a program that was compiled with an older
/// header would not work with a newer library, and at no other time.
pub const KVS_ABI_VERSION: u32 = 1;

const TEXT: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => panic!("a version has no NUL"),
};

/// Returns the library's KVS_ABI_VERSION. Compare it with the header's, before any other call.
#[unsafe(no_mangle)]
pub extern "C" fn kvs_abi_version() -> u32 {
    KVS_ABI_VERSION
}

/// Returns the library's version, for example "0.1.0". It is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn kvs_version_text() -> *const c_char {
    TEXT.as_ptr()
}
