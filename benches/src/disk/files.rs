//! The folder for files: one of our own, on a file system with room, removed at the end.

use super::Failure;
use crate::inputs::mix;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The folder; removed with all its contents.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a new folder in `parent`, on a file system with `bytes` left.
    ///
    /// # Errors
    /// There is less room, or the folder cannot be made.
    pub fn new(parent: &Path, bytes: u64) -> Result<Folder, Failure> {
        fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
        let left = available(parent)?;
        if left < bytes {
            return Err(format!(
                "{}: {} GiB needed, {} GiB left; free some, name another folder with --disk-dir, or lower --footprint",
                parent.display(),
                bytes.div_ceil(1 << 30),
                left >> 30
            )
            .into());
        }
        let path = parent.join(format!("kvstrata-bench-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Folder(path))
    }

    /// Returns the path of a file in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the folder itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the bytes that an unprivileged user can still write.
fn available(folder: &Path) -> Result<u64, Failure> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: all-zero bytes are a valid `statvfs`: it is made of integers.
    let mut facts: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero byte, and `facts` is ours.
    match unsafe { libc::statvfs(path.as_ptr(), &raw mut facts) } {
        0 => Ok(facts.f_bavail.saturating_mul(facts.f_frsize)),
        _ => Err(format!("{}: {}", folder.display(), std::io::Error::last_os_error()).into()),
    }
}

/// Writes a file of `bytes` bytes that no compression shrinks, through and out of the page cache.
///
/// # Errors
/// An error of the system.
pub fn written(path: &Path, bytes: u64) -> Result<(), Failure> {
    let noise: Vec<u8> = (0..(4 << 20) / 8).flat_map(|i| mix(i).to_le_bytes()).collect();
    let mut file = File::create_new(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut left = bytes;
    while left > 0 {
        let step = left.min(noise.len() as u64);
        file.write_all(&noise[..step as usize])?;
        left -= step;
    }
    file.sync_all()?;
    // SAFETY: takes an open descriptor and numbers. It is advice: a refusal costs nothing.
    let _ = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    Ok(())
}

/// Returns the processor time of this process so far, all threads, user and kernel, in seconds.
#[must_use]
pub fn cpu_seconds() -> f64 {
    // SAFETY: all-zero bytes are a valid `rusage`: it is made of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is ours; a failure, which the manual does not mention, would leave zeros.
    let _ = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
