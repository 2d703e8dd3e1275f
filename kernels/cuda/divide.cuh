// Division by a number that only the host knows: a multiplication and a shift, prepared by the host
// (src/divide.rs).
//
//   n / d = ⌊n × multiplier / 2^(32 + shift)⌋        for n < 2^31, d ≥ 2
//
// Granlund and Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994, section 4.
#pragma once

#include "types.cuh"

struct Divisor {
    u32 divisor;
    u32 multiplier;
    u32 shift;
};

struct Divided {
    u32 quotient;
    u32 remainder;
};

KV_DEVICE Divided divide(u32 number, const Divisor& by) {
    u32 quotient = by.divisor == 1 ? number : __umulhi(number, by.multiplier) >> by.shift;
    return {quotient, number - quotient * by.divisor};
}
