//! Copy costs of this machine's devices: measured by `kvstrata tune`, stored in one file per device, and
//! loaded by the programs that copy, which hand them to
//! [`CopyOptions::costs`](kvstrata_ffi::cuda::CopyOptions::costs).
//!
//! ```text
//!   $KVSTRATA_CONFIG_DIR, or $XDG_CACHE_HOME/kvstrata, or ~/.cache/kvstrata
//!     └ copy-costs-GPU-8f2b….json      complete or absent; the device's UUID is in its name
//! ```
//!
//! Costs that were measured under another driver are used, with a note. The sizes at which one route
//! becomes faster than another depend on the link and the engines; a driver changes them less than
//! another card does, and a few seconds of `kvstrata tune` measure them again. A damaged file causes a
//! note, and the shipped costs are used: it never stops a copy.

mod file;
#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use file::Grids;

use crate::files;
use core::fmt;
use kvstrata_ffi::cuda::{
    CopyCosts, CopyOptions, CostSource, CudaCopy, CudaDevice, CudaKernels, DeviceDescription,
};
use kvstrata_ffi::shown::{shown, shown_path};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why costs cannot be stored or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostStoreError {
    /// No variable names a directory for files.
    #[error(
        "KVSTRATA_CONFIG_DIR, XDG_CACHE_HOME and HOME are not set; set KVSTRATA_CONFIG_DIR to a directory"
    )]
    NoFolder,
    /// The system refuses an operation on a file.
    #[error(
        "{}: cannot be {what}: {source}; check its permissions, or set KVSTRATA_CONFIG_DIR to another directory",
        shown_path(path)
    )]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The file's contents are not valid.
    #[error("{}: {}; run `kvstrata tune` to rewrite it, or remove it", shown_path(path), shown(why))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// The costs were not measured.
    #[error("these costs are {source}; only measured costs are stored", source = of)]
    NotMeasured {
        /// The source of the costs.
        of: CostSource,
    },
}

/// A note on the costs that a lookup returned.
#[derive(Debug)]
pub enum Note {
    /// The device was never measured.
    NeverMeasured,
    /// The device was measured under a driver of another CUDA version.
    OtherDriver {
        /// Major and minor version.
        cuda: (u32, u32),
    },
    /// The device was measured by a build without kernels, and this build has kernels.
    WithoutKernels,
    /// The stored file cannot be used.
    Unusable(CostStoreError),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::NeverMeasured => f.write_str("this device was never measured: run `kvstrata tune`"),
            Note::OtherDriver { cuda: (major, minor) } => {
                write!(f, "measured under another driver, of CUDA {major}.{minor}: run `kvstrata tune` again")
            }
            Note::WithoutKernels => f.write_str(
                "measured by a build without kernels, so kernels are never used: run `kvstrata tune` again",
            ),
            Note::Unusable(error) => error.fmt(f),
        }
    }
}

/// The directory in which costs are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostStore {
    folder: PathBuf,
}

/// Returns the costs of a device, and a note. These are the device's measured costs if there are some,
/// otherwise the costs shipped for its name, otherwise those of an unknown device.
#[must_use]
pub fn costs_for(device: &DeviceDescription, cuda: (u32, u32)) -> (CopyCosts, Option<Note>) {
    match CostStore::from_environment() {
        Ok(store) => store.costs_for(device, cuda),
        Err(error) => (CopyCosts::reasoned(&device.name), Some(Note::Unusable(error))),
    }
}

/// Returns a copier for a device, with the costs of [`costs_for`].
#[must_use]
pub fn copies_for(device: &Arc<CudaDevice>) -> CudaCopy {
    let (costs, _) = costs_for(device.describe(), device.driver().describe().version);
    CudaCopy::new(device, CopyOptions::new().costs(costs))
}

/// Returns a device's UUID in the format of `nvidia-smi -L`.
#[must_use]
pub fn uuid(device: &DeviceDescription) -> String {
    let mut text = String::from("GPU");
    let mut rest = &device.uuid[..];
    for bytes in [4, 2, 2, 2, 6] {
        let (part, behind) = rest.split_at(bytes);
        text.push('-');
        part.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
        rest = behind;
    }
    text
}

impl CostStore {
    /// Returns the store in this directory, which is created when needed.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> CostStore {
        CostStore { folder: folder.into() }
    }

    /// Returns the store that the environment names.
    ///
    /// # Errors
    /// [`CostStoreError::NoFolder`], if no variable names a directory.
    pub fn from_environment() -> Result<CostStore, CostStoreError> {
        CostStore::said_by(|name| std::env::var_os(name))
    }

    fn said_by(variable: impl Fn(&str) -> Option<OsString>) -> Result<CostStore, CostStoreError> {
        let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = folder("KVSTRATA_CONFIG_DIR")
            // The specification says to ignore a relative path.
            .or_else(|| {
                folder("XDG_CACHE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("kvstrata"))
            })
            .or_else(|| folder("HOME").map(|home| home.join(".cache/kvstrata")));
        folder.map(CostStore::new).ok_or(CostStoreError::NoFolder)
    }

    /// Returns the path of a device's file.
    #[must_use]
    pub fn path(&self, device: &DeviceDescription) -> PathBuf {
        self.folder.join(format!("copy-costs-{}.json", uuid(device)))
    }

    /// Stores the measured costs of a device, in place of older ones. Returns the file's path.
    ///
    /// # Errors
    /// [`CostStoreError::File`], if the system refuses; [`CostStoreError::NotMeasured`], if the costs
    /// were not measured.
    pub fn save(&self, device: &DeviceDescription, costs: &CopyCosts) -> Result<PathBuf, CostStoreError> {
        let path = self.path(device);
        std::fs::create_dir_all(&self.folder).map_err(|source| {
            let path = self.folder.clone();
            CostStoreError::File { path, what: "made", source }
        })?;
        write(&path, device, costs)?;
        Ok(path)
    }

    /// Returns the stored costs of a device, if there are some.
    ///
    /// # Errors
    /// [`CostStoreError::File`], if the system refuses; [`CostStoreError::Damaged`], if the file is not
    /// valid.
    pub fn load(&self, device: &DeviceDescription) -> Result<Option<CopyCosts>, CostStoreError> {
        let path = self.path(device);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(CostStoreError::File { path, what: "read", source }),
        };
        file::decode(&text, &uuid(device)).map(Some).map_err(|why| CostStoreError::Damaged { path, why })
    }

    /// Like [`costs_for`], from this store.
    #[must_use]
    pub fn costs_for(&self, device: &DeviceDescription, cuda: (u32, u32)) -> (CopyCosts, Option<Note>) {
        let shipped = |note| (CopyCosts::reasoned(&device.name), Some(note));
        match self.load(device) {
            Ok(None) => shipped(Note::NeverMeasured),
            Err(error) => shipped(Note::Unusable(error)),
            Ok(Some(costs)) => match *costs.source() {
                CostSource::Measured { cuda: then, .. } if then != cuda => {
                    (costs, Some(Note::OtherDriver { cuda: then }))
                }
                _ if CudaKernels::built().is_ok()
                    && costs.directions().iter().all(|of| of.ctas.is_none()) =>
                {
                    (costs, Some(Note::WithoutKernels))
                }
                _ => (costs, None),
            },
        }
    }
}

/// Parses the text of a file: the costs of the device with this UUID.
///
/// # Errors
/// The fault in the text, in words that follow the file's name.
pub fn parse(text: &[u8], uuid: &str) -> Result<CopyCosts, String> {
    file::decode(text, uuid)
}

/// Returns the text of a file of measured costs; `None` for other costs.
#[must_use]
pub fn text(uuid: &str, costs: &CopyCosts) -> Option<Vec<u8>> {
    file::encode(uuid, costs)
}

/// Writes the measured costs of a device to a file, completely or not at all.
///
/// # Errors
/// As for [`CostStore::save`].
pub fn write(path: &Path, device: &DeviceDescription, costs: &CopyCosts) -> Result<(), CostStoreError> {
    let text = file::encode(&uuid(device), costs)
        .ok_or_else(|| CostStoreError::NotMeasured { of: costs.source().clone() })?;
    files::replace(path, &text).map_err(|source| {
        let path = path.to_owned();
        CostStoreError::File { path, what: "written", source }
    })
}
