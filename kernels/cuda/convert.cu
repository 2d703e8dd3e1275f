// Copies that store elements in fewer bytes, or restore them: a tier then holds twice the blocks, at a
// bounded loss.
//
//   to          bits    error of y = x / scale                              beyond
//   bf16        8       ≤ 2^-8 |y| from 2^-126, ≤ 2^-134 below              as binary32 rounds; no scale
//   fp8 e4m3    4       ≤ 2^-4 |y| from 2^-6 to 448, ≤ 2^-10 below          ± 448; a NaN stays one
//
//   back from   error of x = y × scale
//   bf16        none
//   fp8 e4m3    to bf16: ≤ 2^-8 |x|; to fp16: ≤ 2^-11 |x| from 2^-14, ≤ 2^-25 below, and infinite from
//               65,520 on: a scale above 146 takes 448 there
//
// A scale that is a power of two adds no error; any other scale adds 2^-24 |y| for the product in
// binary32, and as much for its inverse. Rounding is to the nearest, ties to even. fp8 e4m3 is the type
// of "FP8 Formats for Deep Learning" (Micikevicius et al., 2022, table 1): it has no infinities, 0x7f and
// 0xff are NaN. Values beyond 448 become ± 448, infinities too, as with cuda_fp8's __NV_SATFINITE.
//
// The code uses only integers and IEEE products and sums, so the bits are the same on every device and on
// a CPU. NaNs that come out of a product could differ. So all NaNs become one: 0x7fc0 in bf16 and 0x7e00
// in fp16 (CUDA's own intrinsics give 0x7fff). The exception is bf16 → binary32, which moves bits.
#include "move.cuh"

KV_DEVICE u32 bits_of(float value) {
    u32 bits;
    memcpy(&bits, &value, 4);
    return bits;
}

KV_DEVICE float float_of(u32 bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

struct Binary32 {
    typedef u32 Bits;
    KV_DEVICE float value(u32 bits) { return float_of(bits); }
    KV_DEVICE u32 nearest(float value) { return bits_of(value); }
};

struct Bf16 {
    typedef u16 Bits;
    KV_DEVICE float value(u16 bits) { return float_of(u32(bits) << 16); }
    KV_DEVICE u16 nearest(float value) {
        const u32 bits = bits_of(value);
        if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
        return u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
};

struct Fp16 {
    typedef u16 Bits;
    KV_DEVICE float value(u16 bits) {
        const u32 sign = u32(bits & 0x8000) << 16, rest = u32(bits & 0x7fff) << 13;
        // Infinities and NaNs; otherwise a product moves the exponent, which makes subnormal numbers normal.
        if (rest >= 0x0f800000) return float_of(sign | rest | 0x7f800000);
        return float_of(sign | bits_of(float_of(rest) * float_of(0x77800000)));
    }
    KV_DEVICE u16 nearest(float value) {
        const u32 bits = bits_of(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
        if (rest > 0x7f800000) return 0x7e00;
        // 65520 and above round to infinity.
        if (rest >= 0x477ff000) return u16(sign | 0x7c00);
        // Below 2^-14: multiples of 2^-24, by a sum whose last place is 2^-24.
        if (rest < 0x38800000) return u16(sign | (bits_of(float_of(rest) + 0.5f) - 0x3f000000));
        return u16(sign | ((rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13));
    }
};

struct E4m3 {
    typedef u8 Bits;
    KV_DEVICE float value(u8 bits) {
        const u32 sign = u32(bits & 0x80) << 24, rest = bits & 0x7f;
        if (rest == 0x7f) return float_of(0x7fc00000);
        if (rest < 8) return float_of(sign | bits_of(float(rest) * 0x1p-9f));
        return float_of(sign | (rest + (120 << 3)) << 20);
    }
    KV_DEVICE u8 nearest(float value) {
        const u32 bits = bits_of(value), sign = bits >> 24 & 0x80, rest = bits & 0x7fffffff;
        if (rest > 0x7f800000) return 0x7f;
        // 448.
        if (rest >= 0x43e00000) return u8(sign | 0x7e);
        // Below 2^-6: multiples of 2^-9, by a sum whose last place is 2^-9.
        if (rest < 0x3c800000) return u8(sign | (bits_of(float_of(rest) + 0x1p14f) - 0x46800000));
        return u8(sign | ((rest - (120 << 23) + 0x7ffff + (rest >> 20 & 1)) >> 20));
    }
};

// A vector of elements on its way; elements are multiplied by `walk.scale`.
template <typename From, typename To, typename S, typename T>
struct Converted {
    typedef S Source;
    typedef T Target;
    static constexpr u32 COUNT = sizeof(S) / sizeof(typename From::Bits);
    // Neither side is a binary32.
    static constexpr bool SCALED = sizeof(typename From::Bits) < 4 && sizeof(typename To::Bits) < 4;
    static_assert(sizeof(T) / sizeof(typename To::Bits) == COUNT, "as many on both sides");

    KV_DEVICE T target(S source, const Walk& walk) {
        typename From::Bits from[COUNT];
        typename To::Bits to[COUNT];
        memcpy(from, &source, sizeof(S));
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
            const float value = From::value(from[i]);
            to[i] = To::nearest(SCALED ? value * float_of(walk.scale) : value);
        }
        T target;
        memcpy(&target, to, sizeof(T));
        return target;
    }
};

#define KV_CONVERT_OF(NAME, FROM, TO, S, T)                                                                          \
    KV_KERNEL(NAME##_small, SmallWalk, 4, false) { strewn<Converted<FROM, TO, S, T>>(args); }                        \
    KV_KERNEL(NAME##_large, LargeWalk, 4, false) { strewn<Converted<FROM, TO, S, T>>(args); }

// Eight elements per lane, or four of the widest; or one.
#define KV_CONVERT(FROM_NAME, FROM, S, S1, TO_NAME, TO, T, T1)                                                       \
    KV_CONVERT_OF(convert_##FROM_NAME##_##TO_NAME##_wide, FROM, TO, S, T)                                            \
    KV_CONVERT_OF(convert_##FROM_NAME##_##TO_NAME##_single, FROM, TO, S1, T1)

KV_CONVERT(f32, Binary32, uint4, u32, bf16, Bf16, uint2, u16)
KV_CONVERT(bf16, Bf16, uint2, u16, f32, Binary32, uint4, u32)
KV_CONVERT(bf16, Bf16, uint4, u16, e4m3, E4m3, uint2, u8)
KV_CONVERT(e4m3, E4m3, uint2, u8, bf16, Bf16, uint4, u16)
KV_CONVERT(fp16, Fp16, uint4, u16, e4m3, E4m3, uint2, u8)
KV_CONVERT(e4m3, E4m3, uint2, u8, fp16, Fp16, uint4, u16)
