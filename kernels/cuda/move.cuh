// The two ways in which threads share the pieces of a walk. A mover decides what happens to a vector on
// its way: nothing (copy.cu), or a change of the element type (convert.cu).
//
//   tiled     a warp takes a tile of 4 × 32 vectors: for pieces of 128 vectors and more
//   strewn    1, 2, 4, … 32 lanes take up to as many vectors of a piece, 4 pieces at a time: for shorter ones
//
// A mover M has the types M::Source and M::Target, and M::target(source, walk).
//
// Four loads are in flight before the first store: 64 bytes per thread, 128 KiB per multiprocessor with
// 2,048 threads. The grid is as large as the host allows, no larger, and walks.
//
// Invariants
// - I1: a byte is written by one thread of one unit: units are disjoint, and so are lanes within one.
// - I2: nothing is read or written past `vectors` of a piece.
#pragma once

#include "walk.cuh"

template <typename M, typename A>
KV_DEVICE void tiled(const A& args) {
    typedef typename M::Source Source;
    typedef typename M::Target Target;
    const Walk& walk = args.head;
    const u32 lane = threadIdx.x & 31;
    const u32 step = gridDim.x * (blockDim.x >> 5);
    for (u32 unit = (blockIdx.x * blockDim.x + threadIdx.x) >> 5; unit < walk.units; unit += step) {
        const Place at = place(walk, args.pairs, unit);
        const u32 first = at.tile * (32 * UNROLL) + lane;
        const u64 src = at.src + u64(first) * sizeof(Source), dst = at.dst + u64(first) * sizeof(Target);
        Source held[UNROLL];
        if (first - lane + 32 * UNROLL <= walk.vectors) {
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++) held[i] = load<Source>(src + i * 32 * sizeof(Source));
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++) store(dst + i * 32 * sizeof(Target), M::target(held[i], walk));
        } else {
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++)
                if (first + i * 32 < walk.vectors) held[i] = load<Source>(src + i * 32 * sizeof(Source));
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++)
                if (first + i * 32 < walk.vectors) store(dst + i * 32 * sizeof(Target), M::target(held[i], walk));
        }
    }
}

template <typename M, typename A>
KV_DEVICE void strewn(const A& args) {
    typedef typename M::Source Source;
    typedef typename M::Target Target;
    const Walk& walk = args.head;
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    const u32 lane = thread & ((1u << walk.lane_bits) - 1);
    const u32 step = (gridDim.x * blockDim.x) >> walk.lane_bits;
    for (u32 first = thread >> walk.lane_bits; first < walk.units; first += step * UNROLL) {
        Source held[UNROLL];
        u64 dst[UNROLL];
        bool mine[UNROLL];
#pragma unroll
        for (u32 i = 0; i < UNROLL; i++) {
            const u32 unit = first + i * step;
            mine[i] = false;
            if (unit < walk.units) {
                const Place at = place(walk, args.pairs, unit);
                const u32 vector = at.tile * 32 + lane;
                mine[i] = vector < walk.vectors;
                if (mine[i]) {
                    dst[i] = at.dst + u64(vector) * sizeof(Target);
                    held[i] = load<Source>(at.src + u64(vector) * sizeof(Source));
                }
            }
        }
#pragma unroll
        for (u32 i = 0; i < UNROLL; i++)
            if (mine[i]) store(dst[i], M::target(held[i], walk));
    }
}
