// Maps the number of a unit of work to its two addresses.
#pragma once

#include "args.cuh"

// Loads of a thread in flight before its first store.
constexpr u32 UNROLL = 4;

struct Place {
    u64 src;
    u64 dst;
    u32 tile;
};

// Mixed radix, the lowest digit first: tile, loops from the innermost, base, block. A division is a
// multiplication here, and only the multiplications with strides are 64-bit.
KV_DEVICE Place place(const Walk& walk, const Pair* pairs, u32 unit) {
    Divided digit = divide(unit, walk.tiles);
    Place at = {0, 0, digit.remainder};
#pragma unroll
    for (u32 l = 0; l < 4; l++) {
        if (l < walk.depth) {
            digit = divide(digit.quotient, walk.loops[l].count);
            at.src += digit.remainder * walk.loops[l].src_stride;
            at.dst += digit.remainder * walk.loops[l].dst_stride;
        }
    }
    digit = divide(digit.quotient, walk.base_count);
    // Read by all warps: it may stay in L1.
    const ulonglong2 base = walk.bases ? __ldg(static_cast<const ulonglong2*>(walk.bases) + digit.remainder)
                                       : ulonglong2{walk.src_base, walk.dst_base};
    const Pair pair = pairs[digit.quotient];
    at.src += base.x + pair.src * walk.src_block_stride;
    at.dst += base.y + pair.dst * walk.dst_block_stride;
    return at;
}

// The bytes themselves: the caches evict them first (evict-first), so that a model keeps its lines.
template <typename V>
KV_DEVICE V load(u64 address) {
    return __ldcs(reinterpret_cast<const V*>(address));
}

template <typename V>
KV_DEVICE void store(u64 address, V value) {
    __stcs(reinterpret_cast<V*>(address), value);
}
