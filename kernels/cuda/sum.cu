// Copies blocks and sums them on the way as the disk tier does, so that sealing a payload for the disk
// needs no second read. The sum of each chunk of 64 KiB of a block is XXH3-64, seeded with the chunk's
// number (docs/disk-format.md, "Seals", kind 1). The kernels can also sum without a copy.
//
//   chunk    ├ KiB 0 ┼ KiB 1 ┼ … ┼ KiB 63 ┤       one CTA per chunk, one warp for every eighth KiB
//   KiB      16 stripes of 8 words               their addends to the 8 accumulators do not depend on these:
//                                                summed in any order, by shuffles, to shared `added[KiB][8]`
//   then     accumulators: + added[0], scramble, + added[1], scramble, …    one warp, 8 lanes, 63 steps
//
// XXH3: github.com/Cyan4973/xxHash, doc/xxhash_spec.md, "XXH3 Algorithm (for long input)"; long is more
// than 240 bytes.
//
// Invariants
// - I1: a chunk has more than 240 bytes, and a block is whole vectors of 16: the host checks this.
// - I2: all warps write `added` before the first barrier, and the first warp reads it before the second.
#include "walk.cuh"

__constant__ u64 SECRET[24] = {
    0xbe4ba423396cfeb8ull, 0x1cad21f72c81017cull, 0xdb979083e96dd4deull, 0x1f67b3b7a4a44072ull,
    0x78e5c0cc4ee679cbull, 0x2172ffcc7dd05a82ull, 0x8e2443f7744608b8ull, 0x4c263a81e69035e0ull,
    0xcb00c391bb52283cull, 0xa32e531b8b65d088ull, 0x4ef90da297486471ull, 0xd8acdea946ef1938ull,
    0x3f349ce33f76faa8ull, 0x1d4f0bc7c7bbdcf9ull, 0x3159b4cd4be0518aull, 0x647378d9c97e9fc8ull,
    0xc3ebd33483acc5eaull, 0xeb6313faffa081c5ull, 0x49daf0b751dd0d17ull, 0x9e68d429265516d3ull,
    0xfca1477d58be162bull, 0xce31d07ad1b8f88full, 0x280416958f3acb45ull, 0x7e404bbbcafbd7afull,
};

constexpr u64 PRIME32_1 = 0x9e3779b1, PRIME32_2 = 0x85ebca77, PRIME32_3 = 0xc2b2ae3d;
constexpr u64 PRIME64_1 = 0x9e3779b185ebca87ull, PRIME64_2 = 0xc2b2ae3d27d4eb4full, PRIME64_3 = 0x165667b19e3779f9ull,
              PRIME64_4 = 0x85ebca77c2b2ae63ull, PRIME64_5 = 0x27d4eb2f165667c5ull;
__constant__ u64 START[8] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};

constexpr u32 CHUNK_VECTORS = 65536 / 16;
constexpr u32 KIB_VECTORS = 1024 / 16;
constexpr u32 WARPS = THREADS / 32;

// A word of the seeded secret: the seed is added to even words, and subtracted from odd ones.
KV_DEVICE u64 secret(u64 seed, u32 word) { return word & 1 ? SECRET[word] - seed : SECRET[word] + seed; }

// The same, for the 8 bytes from a byte on that is not the start of a word.
KV_DEVICE u64 secret_at(u64 seed, u32 byte) {
    const u32 word = byte / 8, bits = byte % 8 * 8;
    return secret(seed, word) >> bits | secret(seed, word + 1) << (64 - bits);
}

KV_DEVICE u64 product_of_halves(u64 of) { return u64(u32(of)) * (of >> 32); }

KV_DEVICE u64 folded_product(u64 a, u64 b) { return a * b ^ __umul64hi(a, b); }

KV_DEVICE u64 avalanche(u64 h) {
    h = (h ^ h >> 37) * 0x165667919e3779f9ull;
    return h ^ h >> 32;
}

// The place of a block's vector, counted in the order of the destination.
KV_DEVICE Place vector_place(const Sum& sum, const Pair* pairs, u32 pair, u32 vector) {
    const Divided in_piece = divide(vector, sum.piece);
    Place at = place(sum.walk, pairs, pair * sum.pieces + in_piece.quotient);
    at.src += u64(in_piece.remainder) * 16;
    at.dst += u64(in_piece.remainder) * 16;
    return at;
}

// The hash of a chunk of `length` bytes, from the addends of its KiBs. Each lane has accumulator `i` =
// lane % 8; all lanes return the same hash.
KV_DEVICE u64 hash(const u64 (*added)[8], u64 seed, u32 length, u32 i, u64 last_word) {
    u64 acc = START[i];
    const u32 whole = (length - 1) / 1024;
    for (u32 kib = 0; kib < whole; kib++) {
        acc += added[kib][i];
        acc = (acc ^ acc >> 47 ^ secret(seed, 16 + i)) * PRIME32_1;
    }
    acc += added[whole][i];
    // The last 64 bytes, even if some of them belonged to a stripe before.
    acc += product_of_halves(last_word ^ secret_at(seed, 121 + 8 * i)) + __shfl_xor_sync(~0u, last_word, 1);

    const u64 keyed = acc ^ secret_at(seed, 11 + 8 * i);
    u64 sum = folded_product(keyed, __shfl_xor_sync(~0u, keyed, 1));
    sum += __shfl_xor_sync(~0u, sum, 2);
    sum += __shfl_xor_sync(~0u, sum, 4);
    return avalanche(length * PRIME64_1 + sum);
}

template <typename A>
KV_DEVICE void summed(const A& args) {
    __shared__ u64 added[64][8];
    const Sum& sum = args.head;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (u32 unit = blockIdx.x; unit < sum.walk.units; unit += gridDim.x) {
        const Divided which = divide(unit, sum.chunks);
        const u32 pair = which.quotient, chunk = which.remainder, first = chunk * CHUNK_VECTORS;
        const u32 vectors = min(sum.vectors - first, CHUNK_VECTORS), length = vectors * 16;
        const u64 seed = chunk;
        // A vector is two words of a stripe; its lane needs the same words of the secret in each KiB.
        const u32 word = lane % 4 * 2;
        u64 keys[2][2];
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            keys[half][0] = secret(seed, half * 8 + lane / 4 + word);
            keys[half][1] = secret(seed, half * 8 + lane / 4 + word + 1);
        }
        for (u32 kib = warp; kib * KIB_VECTORS < vectors; kib += WARPS) {
            ulonglong2 held[2];
            Place at[2];
            bool mine[2];
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                const u32 vector = kib * KIB_VECTORS + half * 32 + lane;
                mine[half] = vector < vectors;
                if (mine[half]) {
                    at[half] = vector_place(sum, args.pairs, pair, first + vector);
                    held[half] = load<ulonglong2>(at[half].src);
                }
            }
            u64 a = 0, b = 0;
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                if (mine[half] && sum.copies) store<ulonglong2>(at[half].dst, held[half]);
                // A stripe that ends at the chunk's end counts only as the last 64 bytes.
                const u32 stripe = kib * 16 + half * 8 + lane / 4;
                if ((stripe + 1) * 64 < length) {
                    a += held[half].y + product_of_halves(held[half].x ^ keys[half][0]);
                    b += held[half].x + product_of_halves(held[half].y ^ keys[half][1]);
                }
            }
#pragma unroll
            for (u32 apart = 4; apart < 32; apart *= 2) {
                a += __shfl_xor_sync(~0u, a, apart);
                b += __shfl_xor_sync(~0u, b, apart);
            }
            if (lane < 4) {
                added[kib][word] = a;
                added[kib][word + 1] = b;
            }
        }
        __syncthreads();
        if (warp == 0) {
            const u32 i = lane % 8;
            const Place at = vector_place(sum, args.pairs, pair, first + vectors - 4 + i / 2);
            const u64 last_word = load<u64>(at.src + i % 2 * 8);
            const u64 value = hash(added, seed, length, i, last_word);
            if (lane == 0) store<u64>(sum.sums + u64(unit) * 8, value);
        }
        __syncthreads();
    }
}

KV_KERNEL(summed_small, SmallSum, 4, true) { summed(args); }
KV_KERNEL(summed_large, LargeSum, 4, true) { summed(args); }
