//! Floating-point numbers by the definitions of their types: the reference for conversions, here and
//! on a device.

use kvstrata_core::layout::DType;

/// Returns the value of a pattern of bits, by the definition of its type.
pub fn value(of: DType, bits: u32) -> f64 {
    let (exponent_bits, fraction_bits) = match of {
        DType::F32 => (8, 23),
        DType::BF16 => (8, 7),
        DType::F16 => (5, 10),
        _ => (4, 3),
    };
    let sign = if bits >> (exponent_bits + fraction_bits) & 1 == 1 { -1.0 } else { 1.0 };
    let exponent = (bits >> fraction_bits & ((1 << exponent_bits) - 1)) as i32;
    let fraction = f64::from(bits & ((1 << fraction_bits) - 1)) / f64::from(1 << fraction_bits);
    let bias = (1 << (exponent_bits - 1)) - 1;
    let highest = exponent == (1 << exponent_bits) - 1;
    match of {
        DType::F8E4M3 if bits & 0x7f == 0x7f => return f64::NAN,
        DType::F8E4M3 => {}
        _ if highest && fraction == 0.0 => return sign * f64::INFINITY,
        _ if highest => return f64::NAN,
        _ => {}
    }
    match exponent {
        0 => sign * fraction * 2_f64.powi(1 - bias),
        _ => sign * (1.0 + fraction) * 2_f64.powi(exponent - bias),
    }
}

/// Returns the pattern nearest to a number, ties to even, by a search in the ordered patterns of its sign.
pub fn nearest(of: DType, number: f64) -> Option<u32> {
    let (bits, last) = match of {
        DType::F8E4M3 => (8, 0x7e),
        DType::F16 => (16, 0x7bff),
        _ => (16, 0x7f7f),
    };
    if number.is_nan() {
        return None;
    }
    let sign = u32::from(number.is_sign_negative()) << (bits - 1);
    let size = number.abs();
    // The last pattern that is not above the number.
    let (mut low, mut high) = (0, last + 1);
    while high - low > 1 {
        let middle = u32::midpoint(low, high);
        if value(of, middle) <= size { low = middle } else { high = middle }
    }
    if low == last {
        let beyond = value(of, last) + (value(of, last) - value(of, last - 1)) / 2.0;
        let saturates = of == DType::F8E4M3 || size < beyond;
        return Some(sign | if saturates { last } else { last + 1 });
    }
    let (down, up) = (size - value(of, low), value(of, low + 1) - size);
    let takes_up = up < down || (up == down && low % 2 == 1);
    Some(sign | (low + u32::from(takes_up)))
}
