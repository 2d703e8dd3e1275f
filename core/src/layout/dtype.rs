//! Element types: their bits, their scales, and their names in frameworks.
//!
//! ```text
//!   bf16        │ e0 e0 │ e1 e1 │ …                      16 bits an element
//!   fp8         │ e0 │ e1 │ …                             8
//!   nvfp4       │ e1 e0 │ e3 e2 │ …   one E4M3 scale byte for 16 elements      4, and 8 for each 16
//!   mxfp4       │ e1 e0 │ e3 e2 │ …   one E8M0 scale byte for 32 elements      4, and 8 for each 32
//! ```
//!
//! Sources: NVFP4, NVIDIA cuDNN "Block scaling"; MXFP4, OCP Microscaling Formats (MX) v1.0, section 5.

use core::fmt;
use core::str::FromStr;

/// The type of an element of the KV cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[repr(u8)]
pub enum DType {
    /// IEEE 754 binary32.
    F32 = 1,
    /// IEEE 754 binary16.
    F16 = 2,
    /// bfloat16.
    BF16 = 3,
    /// FP8 E4M3, finite values and NaN only ("fn").
    F8E4M3 = 4,
    /// FP8 E5M2.
    F8E5M2 = 5,
    /// Signed bytes.
    I8 = 6,
    /// Bytes: anything that a framework stores as such.
    U8 = 7,
    /// FP4 E2M1, two a byte, an FP8 E4M3 scale for each 16.
    NvFp4 = 8,
    /// FP4 E2M1, two a byte, an E8M0 scale for each 32.
    MxFp4 = 9,
}

/// The scales of a block-scaled type: one of `bits` bits for each `group` elements of a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Scale {
    /// Elements that share a scale.
    pub group: u32,
    /// Bits per scale.
    pub bits: u32,
}

impl DType {
    /// All types.
    pub const ALL: [DType; 9] = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::I8,
        DType::U8,
        DType::NvFp4,
        DType::MxFp4,
    ];

    /// Bits per element, without scales.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            DType::F32 => 32,
            DType::F16 | DType::BF16 => 16,
            DType::F8E4M3 | DType::F8E5M2 | DType::I8 | DType::U8 => 8,
            DType::NvFp4 | DType::MxFp4 => 4,
        }
    }

    /// Its scales, if it has any.
    #[must_use]
    pub const fn scale(self) -> Option<Scale> {
        match self {
            DType::NvFp4 => Some(Scale { group: 16, bits: 8 }),
            DType::MxFp4 => Some(Scale { group: 32, bits: 8 }),
            _ => None,
        }
    }

    /// The smallest alignment of an element, in bytes; 1 for packed types.
    #[must_use]
    pub const fn alignment(self) -> u64 {
        match self.bits() / 8 {
            0 => 1,
            bytes => bytes as u64,
        }
    }

    /// The name as torch and vLLM spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "float32",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::F8E4M3 => "float8_e4m3fn",
            DType::F8E5M2 => "float8_e5m2",
            DType::I8 => "int8",
            DType::U8 => "uint8",
            DType::NvFp4 => "nvfp4",
            DType::MxFp4 => "mxfp4",
        }
    }

    /// The type with this number, as [`DType`] casts to it.
    pub(super) fn from_code(code: u8) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| *dtype as u8 == code)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that is not a type's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownDType;

impl fmt::Display for UnknownDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown dtype: known are")?;
        for (i, dtype) in DType::ALL.into_iter().enumerate() {
            write!(f, "{} {dtype}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownDType {}

impl FromStr for DType {
    type Err = UnknownDType;

    /// Takes the names of torch (`torch.bfloat16`), vLLM (`fp8_e4m3`), safetensors (`BF16`) and
    /// common short ones, in any case.
    fn from_str(name: &str) -> Result<DType, UnknownDType> {
        const NAMES: [(DType, &[&str]); 9] = [
            (DType::F32, &["float32", "f32", "fp32", "float"]),
            (DType::F16, &["float16", "f16", "fp16", "half"]),
            (DType::BF16, &["bfloat16", "bf16"]),
            (DType::F8E4M3, &["float8_e4m3fn", "float8_e4m3", "fp8_e4m3", "f8_e4m3", "fp8"]),
            (DType::F8E5M2, &["float8_e5m2", "fp8_e5m2", "f8_e5m2"]),
            (DType::I8, &["int8", "i8"]),
            (DType::U8, &["uint8", "u8"]),
            (DType::NvFp4, &["nvfp4"]),
            (DType::MxFp4, &["mxfp4"]),
        ];
        let name = match name.split_at_checked(6) {
            Some((prefix, rest)) if prefix.eq_ignore_ascii_case("torch.") => rest,
            _ => name,
        };
        let has = |names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
        NAMES.iter().find(|(_, names)| has(names)).map(|(dtype, _)| *dtype).ok_or(UnknownDType)
    }
}
