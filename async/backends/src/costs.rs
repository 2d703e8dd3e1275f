//! What copies cost on this machine's devices: measured by `kvstrata tune`, stored in a file a device, found
//! again by whoever copies and hands it to [`CopyOptions::costs`](kvstrata_ffi::cuda::CopyOptions::costs).
//!
//! ```text
//!   $KVSTRATA_CONFIG_DIR, or $XDG_CACHE_HOME/kvstrata, or ~/.cache/kvstrata
//!     └ copy-costs-GPU-8f2b….json      whole or not there; another device's never fits, since its name has the device's UUID
//! ```
//!
//! What is measured under another driver is used, with a note: where routes meet is the matter of the link
//! and the engines, which a driver changes less than another card does, and a few seconds of `kvstrata tune`
//! settle it. A file that is damaged costs a note, and what is shipped is used: it is never fatal to whoever
//! copies.

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

/// Why costs cannot be stored, or not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CostStoreError {
    /// Nothing says where files go.
    #[error(
        "KVSTRATA_CONFIG_DIR, XDG_CACHE_HOME and HOME are not set; set KVSTRATA_CONFIG_DIR to a directory"
    )]
    NoFolder,
    /// The system refuses.
    #[error(
        "{}: cannot be {what}: {source}; check its permissions, or set KVSTRATA_CONFIG_DIR to another directory",
        shown_path(path)
    )]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A file that does not have what it should.
    #[error("{}: {}; run `kvstrata tune` to rewrite it, or remove it", shown_path(path), shown(why))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Costs that nobody has measured.
    #[error("these costs are {source}; only measured costs are stored", source = of)]
    NotMeasured {
        /// What they are.
        of: CostSource,
    },
}

/// What there is to know about costs that were looked for.
#[derive(Debug)]
pub enum Note {
    /// The device was never measured.
    NeverMeasured,
    /// It was, under a driver of this CUDA.
    OtherDriver {
        /// Major and minor.
        cuda: (u32, u32),
    },
    /// It was, by a build without kernels, and this one has some.
    WithoutKernels,
    /// It was perhaps, and the file cannot be used.
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

/// Where costs are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostStore {
    folder: PathBuf,
}

/// The costs of a device, and what to know about them: measured ones of this device if there are some, otherwise those that are shipped for
/// its name, otherwise those of an unknown device.
#[must_use]
pub fn costs_for(device: &DeviceDescription, cuda: (u32, u32)) -> (CopyCosts, Option<Note>) {
    match CostStore::from_environment() {
        Ok(store) => store.costs_for(device, cuda),
        Err(error) => (CopyCosts::reasoned(&device.name), Some(Note::Unusable(error))),
    }
}

/// Copies of a device by [`costs_for`] it.
#[must_use]
pub fn copies_for(device: &Arc<CudaDevice>) -> CudaCopy {
    let (costs, _) = costs_for(device.describe(), device.driver().describe().version);
    CudaCopy::new(device, CopyOptions::new().costs(costs))
}

/// A device's UUID as `nvidia-smi -L` prints it.
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
    /// In this directory, which is made when it is needed.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> CostStore {
        CostStore { folder: folder.into() }
    }

    /// Where the environment says.
    ///
    /// # Errors
    /// [`CostStoreError::NoFolder`].
    pub fn from_environment() -> Result<CostStore, CostStoreError> {
        CostStore::said_by(|name| std::env::var_os(name))
    }

    fn said_by(variable: impl Fn(&str) -> Option<OsString>) -> Result<CostStore, CostStoreError> {
        let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = folder("KVSTRATA_CONFIG_DIR")
            // A relative one is to be ignored, says the specification.
            .or_else(|| {
                folder("XDG_CACHE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("kvstrata"))
            })
            .or_else(|| folder("HOME").map(|home| home.join(".cache/kvstrata")));
        folder.map(CostStore::new).ok_or(CostStoreError::NoFolder)
    }

    /// The file of a device.
    #[must_use]
    pub fn path(&self, device: &DeviceDescription) -> PathBuf {
        self.folder.join(format!("copy-costs-{}.json", uuid(device)))
    }

    /// Stores measured costs of a device, in place of what was there; the file.
    ///
    /// # Errors
    /// [`CostStoreError::File`], [`CostStoreError::NotMeasured`].
    pub fn save(&self, device: &DeviceDescription, costs: &CopyCosts) -> Result<PathBuf, CostStoreError> {
        let path = self.path(device);
        std::fs::create_dir_all(&self.folder).map_err(|source| {
            let path = self.folder.clone();
            CostStoreError::File { path, what: "made", source }
        })?;
        write(&path, device, costs)?;
        Ok(path)
    }

    /// What is stored of a device, if there is something.
    ///
    /// # Errors
    /// [`CostStoreError::File`], [`CostStoreError::Damaged`].
    pub fn load(&self, device: &DeviceDescription) -> Result<Option<CopyCosts>, CostStoreError> {
        let path = self.path(device);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(CostStoreError::File { path, what: "read", source }),
        };
        file::decode(&text, &uuid(device)).map(Some).map_err(|why| CostStoreError::Damaged { path, why })
    }

    /// As [`costs_for`], from here.
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

/// The costs in a stored file's text, of the device of this UUID.
///
/// # Errors
/// What is wrong with the text, in words that follow the file's name.
pub fn parse(text: &[u8], uuid: &str) -> Result<CopyCosts, String> {
    file::decode(text, uuid)
}

/// The text of a file of measured costs; none of others.
#[must_use]
pub fn text(uuid: &str, costs: &CopyCosts) -> Option<Vec<u8>> {
    file::encode(uuid, costs)
}

/// Writes measured costs of a device to a file, whole or not at all.
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
