//! The images for devices, made by nvcc when this crate was built; none if there was no nvcc.

use crate::Conversion;
use core::ffi::CStr;

/// The kernels of one source file, compiled for all architectures.
#[derive(Clone, Copy)]
pub struct Image {
    /// The source's name, without its extension.
    pub name: &'static str,
    /// A fat binary, for `cuModuleLoadData`.
    pub bytes: &'static [u8],
}

impl Image {
    /// Returns the names of the image's kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &'static CStr> + use<> {
        let all: Vec<_> = match self.name {
            "convert" => Conversion::ALL.into_iter().flat_map(Conversion::kernels).collect(),
            "copy" => crate::copy::all_names().collect(),
            "permute" => crate::permute::all_names().collect(),
            "sum" => crate::sum::NAMES.to_vec(),
            _ => Vec::new(),
        };
        all.into_iter()
    }
}

include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// Returns the images.
///
/// # Errors
///
/// The reason why there are none, and the remedy, as recorded by the build.
pub fn images() -> Result<&'static [Image], &'static str> {
    match IMAGES {
        [] => Err(TOOLKIT),
        images => Ok(images),
    }
}

/// Returns the compiler of the images and their architectures, or the reason why there are none.
#[must_use]
pub fn toolkit() -> &'static str {
    TOOLKIT
}
