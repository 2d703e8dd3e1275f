//! Shared libraries found at run time.

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;

/// A loaded library. It is never unloaded: drivers leave threads and exit handlers behind, and their code
/// must stay.
#[derive(Debug)]
pub(crate) struct Library {
    handle: NonNull<c_void>,
}

impl Library {
    /// Loads the first of the names that the dynamic linker finds, or returns the linker's message about
    /// the last one. Runs the library's initialisers.
    pub(crate) fn open(names: &[&CStr]) -> Result<Library, String> {
        let mut error = "no name given".to_owned();
        for name in names {
            // SAFETY: the name is a C string; a system library's initialisers may run at any time.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            match NonNull::new(handle) {
                Some(handle) => return Ok(Library { handle }),
                None => error = last_error(),
            }
        }
        Err(error)
    }

    /// Returns the address of a symbol.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is of a library that is never unloaded, and the name is a C string.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }
}

fn last_error() -> String {
    // SAFETY: gives null or a C string of this thread's, valid until its next call of the dl family.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "unknown error".to_owned();
    }
    // SAFETY: not null, hence such a string; it is copied before any other such call.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}
