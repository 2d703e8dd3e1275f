//! Copies that change the type of elements on the way: `cuda/convert.cu`, which has their error bounds.
//!
//! A copy plan moves bytes, and knows elements of one size. So the side with the narrower elements has a
//! *stand-in*: the same layout with the wider elements, where every distance is `k` times as long. The
//! plan is made with the stand-in, and the kernel divides by `k` again:
//!
//! ```text
//!   fp8    base              │ 1 byte │ 1 byte │ …     address             = (stand-in's address) / 2
//!   stand-in, as bf16        2 × base │ 2 bytes  │ 2 bytes  │ …
//! ```

use crate::copy::CopyKernel;
use crate::divide::Divisor;
use crate::launch::{Head, Shape, THREADS, UNROLL};
use crate::walk::{Bases, TooLarge, units, walk};
use core::ffi::CStr;
use kvstrata_core::layout::{DType, Layout, LayoutError, Region};
use kvstrata_core::plan::{CopyPlan, PlaneCopy};

/// Bytes of a vector on the wider side, if the alignment allows it.
const VECTOR_BYTES: u64 = 16;

/// A pair of element types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conversion {
    /// Binary32 to bfloat16, to the nearest.
    F32ToBf16,
    /// bfloat16 to binary32, exactly.
    Bf16ToF32,
    /// bfloat16 to FP8 E4M3, divided by the scale, to the nearest, saturated.
    Bf16ToE4m3,
    /// FP8 E4M3 to bfloat16, multiplied by the scale.
    E4m3ToBf16,
    /// Binary16 to FP8 E4M3, divided by the scale, to the nearest, saturated.
    F16ToE4m3,
    /// FP8 E4M3 to binary16, multiplied by the scale.
    E4m3ToF16,
}

/// The reason why elements cannot be converted.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum CannotConvert {
    /// There is no kernel for this pair of types.
    #[error("elements of {} cannot become {}; there are float32 ↔ bfloat16, and bfloat16 or float16 ↔ float8_e4m3fn", src.name(), dst.name())]
    Types {
        /// Type of the source.
        src: DType,
        /// Type of the destination.
        dst: DType,
    },
    /// A layout whose tensors lie anywhere has no stand-in.
    #[error("a layout that is described by its strides cannot be converted: give it one of the arrangements")]
    NoArrangement,
    /// The stand-in would leave the address space.
    #[error("address {0:#x} is too high to be doubled")]
    Address(u64),
    /// A scale that would make everything zero, infinite, or not a number.
    #[error("the scale is {0}; it must be above 0 and finite, and so must its inverse")]
    Scale(f32),
    /// The stand-in is no valid layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The plan has too many units of work, as for all kernels.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

impl Conversion {
    /// All conversions.
    pub const ALL: [Conversion; 6] = [
        Conversion::F32ToBf16,
        Conversion::Bf16ToF32,
        Conversion::Bf16ToE4m3,
        Conversion::E4m3ToBf16,
        Conversion::F16ToE4m3,
        Conversion::E4m3ToF16,
    ];

    /// The types of elements at the source and at the destination.
    #[must_use]
    pub const fn types(self) -> [DType; 2] {
        match self {
            Conversion::F32ToBf16 => [DType::F32, DType::BF16],
            Conversion::Bf16ToF32 => [DType::BF16, DType::F32],
            Conversion::Bf16ToE4m3 => [DType::BF16, DType::F8E4M3],
            Conversion::E4m3ToBf16 => [DType::F8E4M3, DType::BF16],
            Conversion::F16ToE4m3 => [DType::F16, DType::F8E4M3],
            Conversion::E4m3ToF16 => [DType::F8E4M3, DType::F16],
        }
    }

    /// Returns the conversion for a pair of types.
    ///
    /// # Errors
    /// [`CannotConvert::Types`].
    pub fn between(src: DType, dst: DType) -> Result<Conversion, CannotConvert> {
        let found = Conversion::ALL.into_iter().find(|one| one.types() == [src, dst]);
        found.ok_or(CannotConvert::Types { src, dst })
    }

    /// Returns the names of the conversion's kernels.
    pub(crate) fn kernels(self) -> impl Iterator<Item = &'static CStr> {
        self.names().into_iter().flatten()
    }

    /// Returns the layouts for making a plan: the source and the destination, with a stand-in for the one
    /// with the narrower elements.
    ///
    /// # Errors
    /// A layout without an arrangement, or an address that cannot be doubled.
    pub fn stand_ins(self, src: &Layout, dst: &Layout) -> Result<[Layout; 2], CannotConvert> {
        let [from, to] = self.types();
        if [src.config().dtype, dst.config().dtype] != [from, to] {
            return Err(CannotConvert::Types { src: src.config().dtype, dst: dst.config().dtype });
        }
        match from.bits() > to.bits() {
            true => Ok([src.clone(), stand_in(dst, from)?]),
            false => Ok([stand_in(src, to)?, dst.clone()]),
        }
    }

    /// Returns the factor of the elements.
    fn factor(self, scale: f32) -> Result<f32, CannotConvert> {
        let inverse = 1.0 / scale;
        if !(scale > 0.0 && scale.is_normal() && inverse.is_normal()) {
            return Err(CannotConvert::Scale(scale));
        }
        Ok(match self {
            Conversion::F32ToBf16 | Conversion::Bf16ToF32 => 1.0,
            Conversion::Bf16ToE4m3 | Conversion::F16ToE4m3 => inverse,
            Conversion::E4m3ToBf16 | Conversion::E4m3ToF16 => scale,
        })
    }

    /// Returns the kernels: eight elements at a time (four of the widest), or one; each for few blocks,
    /// and for many.
    const fn names(self) -> [[&'static CStr; 2]; 2] {
        match self {
            Conversion::F32ToBf16 => [
                [c"convert_f32_bf16_wide_small", c"convert_f32_bf16_wide_large"],
                [c"convert_f32_bf16_single_small", c"convert_f32_bf16_single_large"],
            ],
            Conversion::Bf16ToF32 => [
                [c"convert_bf16_f32_wide_small", c"convert_bf16_f32_wide_large"],
                [c"convert_bf16_f32_single_small", c"convert_bf16_f32_single_large"],
            ],
            Conversion::Bf16ToE4m3 => [
                [c"convert_bf16_e4m3_wide_small", c"convert_bf16_e4m3_wide_large"],
                [c"convert_bf16_e4m3_single_small", c"convert_bf16_e4m3_single_large"],
            ],
            Conversion::E4m3ToBf16 => [
                [c"convert_e4m3_bf16_wide_small", c"convert_e4m3_bf16_wide_large"],
                [c"convert_e4m3_bf16_single_small", c"convert_e4m3_bf16_single_large"],
            ],
            Conversion::F16ToE4m3 => [
                [c"convert_fp16_e4m3_wide_small", c"convert_fp16_e4m3_wide_large"],
                [c"convert_fp16_e4m3_single_small", c"convert_fp16_e4m3_single_large"],
            ],
            Conversion::E4m3ToF16 => [
                [c"convert_e4m3_fp16_wide_small", c"convert_e4m3_fp16_wide_large"],
                [c"convert_e4m3_fp16_single_small", c"convert_e4m3_fp16_single_large"],
            ],
        }
    }
}

/// Makes the stand-in: all distances and addresses grow by the ratio of the element sizes.
fn stand_in(layout: &Layout, wide: DType) -> Result<Layout, CannotConvert> {
    let config = layout.config();
    let times = u64::from(wide.bits() / config.dtype.bits());
    let arrangement = layout.arrangement().ok_or(CannotConvert::NoArrangement)?;
    let region = |of: &Region| match (of.address.checked_mul(times), of.size_bytes.checked_mul(times)) {
        (Some(address), Some(size_bytes)) => Ok(Region { address, size_bytes, ..*of }),
        _ => Err(CannotConvert::Address(of.address)),
    };
    let regions = layout.regions().iter().map(region).collect::<Result<Vec<_>, _>>()?;
    Ok(Layout::new(
        config.dtype(wide).alignment(config.alignment.saturating_mul(times)),
        arrangement,
        &regions,
    )?)
}

impl CopyKernel {
    /// Creates a kernel that converts on the way, for a plan between the
    /// [stand-ins](Conversion::stand_ins), and for every [`replan`](CopyPlan::replan) of it.
    ///
    /// # Errors
    /// [`CannotConvert`].
    pub fn converting(
        plan: &CopyPlan,
        conversion: Conversion,
        scale: f32,
    ) -> Result<CopyKernel, CannotConvert> {
        let scale = conversion.factor(scale)?.to_bits();
        CopyKernel::of(plan, VECTOR_BYTES, |plane, bases| shape(plane, conversion, scale, bases))
    }
}

fn shape(
    plane: &PlaneCopy,
    conversion: Conversion,
    scale: u32,
    bases: &mut Bases,
) -> Result<Shape, CannotConvert> {
    let [from, to] = conversion.types().map(|of| u64::from(of.bits() / 8));
    let wide = from.max(to);
    // The ratio of the plan's bytes to each side's own bytes.
    let [src, dst] = [wide / from, wide / to];
    // Elements that are 16 bytes on the wider side move at a time: all byte counts of the plan are
    // that side's.
    let single = crate::walk::width(plane) < VECTOR_BYTES;
    let bytes = if single { wide } else { VECTOR_BYTES };
    let mut walk = walk(plane, bytes, bases)?;
    walk.src_base /= src;
    walk.dst_base /= dst;
    walk.src_block_stride /= src;
    walk.dst_block_stride /= dst;
    for l in &mut walk.loops {
        l.src_stride /= src;
        l.dst_stride /= dst;
    }
    if walk.bases > 0 {
        let first = bases.0.len() - plane.bases().len();
        for [at_src, at_dst] in &mut bases.0[first..] {
            *at_src /= src;
            *at_dst /= dst;
        }
    }
    walk.scale = scale;
    walk.lane_bits = walk.vectors.min(32).next_power_of_two().ilog2();
    walk.tiles = Divisor::new(walk.vectors.div_ceil(32));
    let units_a_cta = (THREADS >> walk.lane_bits) * UNROLL;
    let names = conversion.names()[usize::from(single)];
    let units_a_block = units(&walk)?;
    Ok(Shape { head: Head::Walk(walk), names, units_a_block, units_a_cta })
}
