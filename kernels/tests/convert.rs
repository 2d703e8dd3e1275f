//! Elements that change their type on the way: every value of two bytes, random ones of four, and layouts
//! beside the oracle.
#![cfg(all(unix, not(miri)))]

mod numbers;

use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, DType, HeadOrder, Layout, LayoutConfig, Region};
use kvstrata_core::plan::{CopyPlan, naive};
use kvstrata_kernels::{CannotConvert, Conversion, CopyKernel, Parameters, cpu};
use numbers::{nearest, value};
use std::cell::Cell;

fn bytes(of: DType) -> usize {
    of.bits() as usize / 8
}

fn region(memory: &[u128], bytes: usize) -> Region {
    Region::system(memory.as_ptr().expose_provenance() as u64, bytes as u64)
}

fn run(plan: &CopyPlan, conversion: Conversion, scale: f32) -> Vec<String> {
    let kernel = CopyKernel::converting(plan, conversion, scale).expect("a small block");
    let bases: Vec<_> =
        kernel.bases().chunks(16).map(|pair| u128::from_ne_bytes(pair.try_into().expect("pairs"))).collect();
    let address = bases.as_ptr().expose_provenance() as u64;
    let mut names = Vec::new();
    let launched = kernel.launches(plan.runs(), address, 3, &mut Parameters::default(), |launch| {
        names.push(launch.kernel.to_str().expect("ASCII").to_owned());
        // SAFETY: the plan's regions are the test's own, and so are the bases.
        if unsafe { cpu::launch(&launch) } { Ok(()) } else { Err(launch.kernel) }
    });
    assert_eq!(launched, Ok(()));
    names
}

/// Converts the elements of one row.
fn convert(conversion: Conversion, scale: f32, elements: &[u32]) -> Vec<u32> {
    let [from, to] = conversion.types();
    let row = |dtype: DType| {
        LayoutConfig::new()
            .num_layers(1)
            .outer_dim(1)
            .page_size(1)
            .heads(1, elements.len() as u32)
            .dtype(dtype)
            .num_blocks(1)
            .alignment(16)
    };
    let mut memory: Vec<u8> =
        elements.iter().flat_map(|bits| bits.to_le_bytes()[..bytes(from)].to_vec()).collect();
    memory.resize(memory.len().next_multiple_of(64), 0);
    let src: Vec<u128> =
        memory.chunks(16).map(|word| u128::from_le_bytes(word.try_into().expect("16"))).collect();
    let dst = vec![0_u128; src.len() * 2 + 1];
    let layout = |dtype, memory: &[u128]| {
        let config = row(dtype);
        let bytes = Arrangement::FullyContiguous.needs(&config).expect("small").bytes;
        Layout::fully_contiguous(config, region(memory, bytes as usize)).expect("as much as it needs")
    };
    let [from_layout, to_layout] =
        conversion.stand_ins(&layout(from, &src), &layout(to, &dst)).expect("alike");
    let plan = CopyPlan::new(&from_layout, &[BlockId(0)], &to_layout, &[BlockId(0)], .., ..).expect("alike");
    run(&plan, conversion, scale);
    let written: Vec<u8> = dst.iter().flat_map(|word| word.to_le_bytes()).collect();
    let element = |bytes: &[u8]| bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u32::from(*byte));
    written.chunks(bytes(to)).take(elements.len()).map(element).collect()
}

/// Every number of two bytes or one, and many of four; values around each border first.
fn elements(of: DType) -> Vec<u32> {
    match of {
        DType::F8E4M3 => (0..=0xff).collect(),
        DType::F32 => {
            let any = (0..60_000_u32).map(|at| at.wrapping_mul(0x9e37_79b9));
            let borders = (0..=0xffff_u32)
                .step_by(7)
                .flat_map(|high| [0x7fff, 0x8000, 0x8001].map(|low| high << 16 | low));
            any.chain(borders).collect()
        }
        _ => (0..=0xffff).collect(),
    }
}

#[test]
fn each_value_becomes_the_nearest() {
    for conversion in Conversion::ALL {
        let [from, to] = conversion.types();
        let elements = elements(from);
        let converted = convert(conversion, 1.0, &elements);
        for (bits, found) in elements.iter().zip(converted) {
            let number = value(from, *bits);
            let wanted = match to {
                DType::F32 => {
                    value(from, *bits).is_nan().then_some(0).or(Some(bits << 16)).filter(|_| !number.is_nan())
                }
                _ => nearest(to, number),
            };
            match wanted {
                Some(wanted) => assert_eq!(found, wanted, "{conversion:?} of {bits:#x}, which is {number}"),
                None => assert!(value(to, found).is_nan(), "{conversion:?} of {bits:#x}, not a number"),
            }
        }
    }
}

#[test]
fn scale_moves_the_range_and_bounds_hold() {
    for scale in [0.25_f32, 1.0, 4.0, 0.3] {
        let numbers: Vec<u32> = (0..=0xffff).filter(|bits| value(DType::BF16, *bits).is_finite()).collect();
        let narrow = convert(Conversion::Bf16ToE4m3, scale, &numbers);
        let back = convert(Conversion::E4m3ToBf16, scale, &narrow);
        for (bits, came) in numbers.iter().zip(back) {
            let (number, came) = (value(DType::BF16, *bits), value(DType::BF16, came));
            let (size, scale) = (number.abs(), f64::from(scale));
            // A scale that is not a power of two costs a rounding of binary32 on the way down, and one of
            // bf16 on the way up.
            let slack = if scale.log2().fract() == 0.0 { 0.0 } else { 2_f64.powi(-7) * size };
            let y = size / scale;
            let bound = if y >= 2_f64.powi(-6) { y / 16.0 } else { 2_f64.powi(-10) } * scale + slack;
            if y <= 448.0 {
                assert!((number - came).abs() <= bound, "{number} came back as {came}, scale {scale}");
            } else {
                assert!(
                    (came.abs() - 448.0 * scale).abs() <= slack.max(0.0) + scale,
                    "{number} is saturated: {came}"
                );
            }
        }
    }
}

/// Results in the subnormal range of binary16, and beyond its range.
#[test]
fn value_converted_back_is_rounded_once() {
    let eights: Vec<u32> = (0..=0xff).collect();
    for conversion in [Conversion::E4m3ToF16, Conversion::E4m3ToBf16] {
        let [from, to] = conversion.types();
        for scale in [1.0, 146.0, 146.22, 146.25, 200.0, 2_f32.powi(-12), 1.7e-5, 3.0] {
            for (bits, found) in eights.iter().zip(convert(conversion, scale, &eights)) {
                let product = value(from, *bits) as f32 * scale;
                match nearest(to, f64::from(product)) {
                    Some(wanted) => assert_eq!(found, wanted, "{conversion:?} of {bits:#x} × {scale}"),
                    None => assert!(value(to, found).is_nan()),
                }
            }
        }
    }
}

#[test]
fn invalid_scale_is_refused() {
    let config =
        LayoutConfig::new().num_layers(1).outer_dim(1).page_size(1).heads(1, 8).num_blocks(1).alignment(16);
    let memory = [0_u128; 2];
    let layout =
        |dtype| Layout::fully_contiguous(config.dtype(dtype), region(&memory[..1], 16)).expect("16 bytes");
    let (src, dst) = (
        layout(DType::BF16),
        Layout::fully_contiguous(config.dtype(DType::F8E4M3), region(&memory[1..], 16)).expect("16 bytes"),
    );
    let [from, to] = Conversion::Bf16ToE4m3.stand_ins(&src, &dst).expect("alike");
    let plan = CopyPlan::new(&from, &[BlockId(0)], &to, &[BlockId(0)], .., ..).expect("alike");
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e-42] {
        let refused = CopyKernel::converting(&plan, Conversion::Bf16ToE4m3, scale).map(drop);
        assert!(matches!(refused, Err(CannotConvert::Scale(_))), "{scale}");
    }
    assert!(Conversion::between(DType::BF16, DType::I8).is_err());
    assert!(matches!(Conversion::F16ToE4m3.stand_ins(&src, &dst), Err(CannotConvert::Types { .. })));
}

/// Layouts of either kind, both orders of heads, sizes that vectors divide and sizes that they do not:
/// each element is where the oracle puts it, and nothing else is written.
#[test]
fn elements_go_where_the_oracle_has_them() {
    let mut kernels = std::collections::BTreeSet::new();
    for conversion in Conversion::ALL {
        for (heads, elements, tokens) in [(2, 32, 4), (3, 5, 3), (1, 64, 16), (4, 12, 1)] {
            for (hnd, separated) in [(false, false), (false, true), (true, false), (true, true)] {
                let [from, to] = conversion.types();
                let config = LayoutConfig::new()
                    .num_layers(3)
                    .outer_dim(2)
                    .page_size(tokens)
                    .heads(heads, elements)
                    .num_blocks(4);
                let arrangements = match separated {
                    true => [Arrangement::OuterFirst, Arrangement::FullyContiguous],
                    false => [Arrangement::FullyContiguous, Arrangement::OuterFirst],
                };
                let order = |side: usize| if hnd && side == 1 { HeadOrder::Hnd } else { HeadOrder::Nhd };
                let sides = [from, to].into_iter().enumerate().map(|(side, dtype)| {
                    let config = config
                        .dtype(dtype)
                        .head_order(order(side))
                        .alignment(dtype.alignment() * [4, 1][side]);
                    let need = arrangements[side].needs(&config).expect("small");
                    let words = (need.bytes as usize).div_ceil(16);
                    let memory: Vec<Vec<u128>> = (0..need.count)
                        .map(|of| {
                            (0..words as u128)
                                .map(|at| {
                                    (at + 1 + u128::from(of))
                                        .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
                                })
                                .collect()
                        })
                        .collect();
                    let regions: Vec<_> =
                        memory.iter().map(|memory| region(memory, need.bytes as usize)).collect();
                    (Layout::new(config, arrangements[side], &regions).expect("as it needs"), memory)
                });
                let [(src, from_memory), (dst, to_memory)] =
                    <[_; 2]>::try_from(sides.collect::<Vec<_>>()).expect("two");
                let [from_layout, to_layout] = conversion.stand_ins(&src, &dst).expect("alike");
                let (of, into) = ([BlockId(3), BlockId(0), BlockId(1)], [BlockId(1), BlockId(3), BlockId(0)]);
                let plan = CopyPlan::new(&from_layout, &of, &to_layout, &into, 1..3, ..).expect("alike");

                let flat = |memory: &[Vec<u128>]| {
                    memory
                        .iter()
                        .map(|region| region.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
                        .collect::<Vec<_>>()
                };
                let (source, mut wanted) = (flat(&from_memory), flat(&to_memory));
                let place = |memory: &[Vec<u128>], address: u64| {
                    memory
                        .iter()
                        .enumerate()
                        .find_map(|(number, region)| {
                            let at = address.checked_sub(region.as_ptr().addr() as u64)? as usize;
                            (at < region.len() * 16).then_some((number, at))
                        })
                        .expect("an address of a region")
                };
                let wide = bytes(from).max(bytes(to)) as u64;
                let times = [wide / bytes(from) as u64, wide / bytes(to) as u64];
                let asked = Cell::new(0);
                let read = |address| {
                    asked.set(address);
                    0
                };
                let write = |address: u64, _| {
                    if !address.is_multiple_of(wide) {
                        return;
                    }
                    let (number, at) = place(&from_memory, asked.get() / times[0]);
                    let element = source[number][at..][..bytes(from)]
                        .iter()
                        .rev()
                        .fold(0, |bits, byte| bits << 8 | u32::from(*byte));
                    let converted = convert_alone(conversion, element);
                    let (number, at) = place(&to_memory, address / times[1]);
                    wanted[number][at..][..bytes(to)].copy_from_slice(&converted.to_le_bytes()[..bytes(to)]);
                };
                naive::copy((&from_layout, &of), (&to_layout, &into), 1..3, .., read, write);
                kernels.extend(run(&plan, conversion, 1.0));
                assert!(
                    flat(&to_memory) == wanted,
                    "{conversion:?}, {heads} heads of {elements}, {tokens} tokens, {hnd} {separated}"
                );
            }
        }
    }
    assert_eq!(kernels.len(), 12, "each conversion, wide and single: {kernels:?}");
}

/// Converts one element by the tables of [`each_value_becomes_the_nearest`]; a NaN as the kernels make it.
fn convert_alone(conversion: Conversion, bits: u32) -> u32 {
    let [from, to] = conversion.types();
    let number = value(from, bits);
    match to {
        DType::F32 => bits << 16,
        _ => nearest(to, number).unwrap_or_else(|| convert(conversion, 1.0, &[bits])[0]),
    }
}
