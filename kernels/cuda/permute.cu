// Rows that change their order on the way, NHD ↔ HND: through shared memory, so that both sides are read
// and written in runs.
//
//   source        token 0: head 0, head 1, …     runs of `across` rows     loads, in the source's order
//                 token 1: head 0, head 1, …
//                             │
//   shared memory   [along][across rows, and room for one more]         neighbouring lanes hit other banks,
//                             │                                         both ways
//   destination   head 0: token 0, token 1, …    runs of `along` rows      stores, in the destination's order
//
// A CTA takes a tile of at most 16 KiB. Without tiles, a lane's neighbour would write elsewhere after each
// row. That is as good for rows of 128 bytes or more; below, it wastes half or more of each transaction.
//
// Invariants
// - I1: between the barriers all threads write a tile, then all read it; the next tile begins after the
//   second barrier.
// - I2: rows past the edge of a tile are neither loaded nor stored.
#include "walk.cuh"

constexpr u32 TILE_BYTES = 16384;
constexpr u32 ROOM_BYTES = TILE_BYTES + TILE_BYTES / 8;

template <typename V, typename A>
KV_DEVICE void permute(const A& args) {
    __shared__ V room[ROOM_BYTES / sizeof(V)];
    const Tile& tile = args.head;
    const Walk& walk = tile.walk;
    const u32 vectors = tile.row.divisor << (tile.along_bits + tile.across_bits);
    for (u32 unit = blockIdx.x; unit < walk.units; unit += gridDim.x) {
        const Place at = place(walk, args.pairs, unit);
        const u32 turn = divide(unit, walk.tiles).quotient;
        const Divided digits = divide(turn, walk.loops[0].count);
        const u32 across = min(tile.across - (digits.remainder << tile.across_bits), 1u << tile.across_bits);
        const u32 down = divide(digits.quotient, walk.loops[1].count).remainder;
        const u32 along = min(tile.along - (down << tile.along_bits), 1u << tile.along_bits);

        for (u32 first = threadIdx.x; first < vectors; first += THREADS * UNROLL) {
            V held[UNROLL];
            u32 where[UNROLL];
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++) {
                const Divided part = divide(first + i * THREADS, tile.row);
                const u32 a = part.quotient & ((1u << tile.across_bits) - 1), t = part.quotient >> tile.across_bits;
                where[i] = t < along && a < across ? t * tile.pitch + a * tile.row.divisor + part.remainder : ~0u;
                if (where[i] != ~0u)
                    held[i] = load<V>(at.src + t * tile.src_along + a * tile.src_across + u64(part.remainder) * sizeof(V));
            }
#pragma unroll
            for (u32 i = 0; i < UNROLL; i++)
                if (where[i] != ~0u) room[where[i]] = held[i];
        }
        __syncthreads();
        for (u32 index = threadIdx.x; index < vectors; index += THREADS) {
            const Divided part = divide(index, tile.row);
            const u32 t = part.quotient & ((1u << tile.along_bits) - 1), a = part.quotient >> tile.along_bits;
            if (t < along && a < across)
                store<V>(at.dst + t * tile.dst_along + a * tile.dst_across + u64(part.remainder) * sizeof(V),
                         room[t * tile.pitch + a * tile.row.divisor + part.remainder]);
        }
        __syncthreads();
    }
}

#define KV_PERMUTE(BYTES, V)                                                                                         \
    KV_KERNEL(permute##BYTES##_small, SmallTile, 5, true) { permute<V>(args); }                                      \
    KV_KERNEL(permute##BYTES##_large, LargeTile, 5, true) { permute<V>(args); }

KV_PERMUTE(16, uint4)
KV_PERMUTE(8, uint2)
KV_PERMUTE(4, u32)
KV_PERMUTE(2, u16)
KV_PERMUTE(1, u8)
