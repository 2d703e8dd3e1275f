//! The secret that volumes are encrypted with, and its sources.
//!
//! Invariants
//! - I1: a key's bytes lie in one place in memory, which is wiped when the last clone is dropped. So is
//!   each buffer that they passed through. No message holds any part of them.

use crate::shown::{shown, shown_path};
use core::cmp::Ordering;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

const KEY_BYTES: usize = 32;
/// A key file is shorter: 64 digits, and the white space that an editor leaves.
const FILE_BYTES: usize = 128;

/// Why there is no key. Each message names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The system refused to open or to read the file.
    #[error("key file {}: cannot be read: {source}", shown_path(path))]
    Os {
        /// The file's path.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The path names a directory, a pipe or a device.
    #[error("key file {}: is not a regular file; name a regular file", shown_path(path))]
    NotAFile {
        /// The file's path.
        path: PathBuf,
    },
    /// Others than the file's owner may read or change it.
    #[error(
        "key file {}: its mode {mode:04o} admits users other than its owner; `chmod 600` it",
        shown_path(path)
    )]
    Mode {
        /// The file's path.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The system gives no random numbers.
    #[error("the system gives no random numbers for a new key; name a key file")]
    Random,
    /// The variable is not set.
    #[error("environment variable {}: is not set; set it to a key of 64 hexadecimal digits", shown(name))]
    NotSet {
        /// The variable's name.
        name: String,
    },
    /// The contents are not a key.
    #[error("{origin}: {found}; a key is {wanted}, for example of `openssl rand -hex 32`")]
    Form {
        /// The file or variable.
        origin: String,
        /// The contents, in words that give nothing away.
        found: &'static str,
        /// The right form.
        wanted: &'static str,
    },
}

/// The secret that volumes are encrypted with: 256 random bits. Each volume derives its own keys from it,
/// so one key serves any number of volumes. A clone is the same key in the same memory.
#[derive(Clone)]
pub struct Key(Arc<Zeroizing<[u8; KEY_BYTES]>>);

impl Key {
    /// Reads a key from a file of 64 hexadecimal digits, with white space around them allowed, or of 32
    /// raw bytes. Prefer it to [`from_variable`](Key::from_variable).
    ///
    /// # Errors
    /// If the file cannot be read, is no regular file, is open to others than its owner, or holds
    /// anything else. 32 bytes of printable text are refused too, as a password or half a key in digits.
    /// So is one byte 32 times, which nothing random gives.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Key, KeyError> {
        let path = path.as_ref();
        let os = |source| KeyError::Os { path: path.to_owned(), source };
        // A pipe without a writer would block the opening; regular files are not affected.
        let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(os)?;
        let metadata = file.metadata().map_err(os)?;
        if !metadata.is_file() {
            return Err(KeyError::NotAFile { path: path.to_owned() });
        }
        let mode = metadata.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Mode { path: path.to_owned(), mode });
        }
        let mut held = Zeroizing::new([0; FILE_BYTES]);
        let bytes = read(&mut file, held.as_mut_slice()).map_err(os)?;
        let held = &held[..bytes];
        let found = match <&[u8; KEY_BYTES]>::try_from(held) {
            Ok(raw) if is_one_byte(raw) => "holds one byte 32 times",
            Ok(raw) if !raw.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) => {
                return Ok(Key::new(|key| key.copy_from_slice(raw)));
            }
            Ok(_) => "holds 32 bytes of text",
            Err(_) => match Key::from_digits(held.trim_ascii()) {
                Ok(key) => return Ok(key),
                Err(found) => found,
            },
        };
        let origin = format!("key file {}", shown_path(path));
        Err(KeyError::Form { origin, found, wanted: "64 hexadecimal digits or 32 raw bytes" })
    }

    /// Reads a key from an environment variable of 64 hexadecimal digits. They stay in the process's
    /// environment, where any user who may debug the process can read them.
    ///
    /// # Errors
    /// If the variable is not set, or holds anything else.
    pub fn from_variable(name: &str) -> Result<Key, KeyError> {
        let value = std::env::var_os(name).ok_or_else(|| KeyError::NotSet { name: name.to_owned() })?;
        let value = Zeroizing::new(value.into_encoded_bytes());
        Key::from_digits(value.trim_ascii()).map_err(|found| {
            let origin = format!("environment variable {}", shown(name));
            KeyError::Form { origin, found, wanted: "64 hexadecimal digits" }
        })
    }

    /// The key, or what is wrong with the digits.
    fn from_digits(digits: &[u8]) -> Result<Key, &'static str> {
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err("holds characters other than hexadecimal digits");
        }
        match digits.len().cmp(&(2 * KEY_BYTES)) {
            Ordering::Less if digits.is_empty() => return Err("holds nothing"),
            Ordering::Less => return Err("holds too few digits"),
            Ordering::Greater => return Err("holds too many digits"),
            Ordering::Equal => {}
        }
        let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or_default() as u8;
        let key = Key::new(|key| {
            for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
                *byte = value(pair[0]) << 4 | value(pair[1]);
            }
        });
        if is_one_byte(key.bytes()) { Err("holds one byte 32 times") } else { Ok(key) }
    }

    /// Fills the key in its final place: moving it would leave a copy behind that is never wiped (I1).
    pub(in crate::disk) fn new(fill: impl FnOnce(&mut [u8; KEY_BYTES])) -> Key {
        let mut key = Arc::new(Zeroizing::new([0_u8; KEY_BYTES]));
        fill(&mut *Arc::make_mut(&mut key));
        Key(key)
    }

    /// A new key, from the system's random numbers.
    ///
    /// # Errors
    /// [`KeyError::Random`].
    pub fn random() -> Result<Key, KeyError> {
        let mut drawn = Ok(());
        let key = Key::new(|key| drawn = getrandom::fill(key));
        drawn.map(|()| key).map_err(|_| KeyError::Random)
    }

    /// The secret itself. A caller that copies it is responsible for the copy.
    #[must_use]
    pub fn expose(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

/// A file of zeros, or of any one byte: not a key that was ever drawn.
fn is_one_byte(key: &[u8; KEY_BYTES]) -> bool {
    key.iter().all(|byte| *byte == key[0])
}

/// Says nothing of the key.
impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

/// Reads until the file or the buffer ends; returns the number of bytes. Unlike `read_to_end`, into the
/// buffer alone.
fn read(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut bytes = 0;
    while bytes < buffer.len() {
        match file.read(&mut buffer[bytes..]) {
            Ok(0) => break,
            Ok(more) => bytes += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
