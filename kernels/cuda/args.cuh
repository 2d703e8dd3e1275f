// The parameters of a launch, as the host wrote them: src/args.rs has the same structures, and a test
// compares sizes and places.
//
//   Walk │ bases ─► device memory: a pair of addresses for each (layer, outer) that no stride reaches
//        │ loops, the innermost first; a count of 1 for loops that a plan does not have
//   Pair │ one per block: its number at the source, and at the destination
//
// Both travel in the kernel's parameters: nothing is allocated, uploaded or waited for. The parameters of a
// launch may have 4 KiB, and from CUDA 12.1 and sm_70 on 32,764 bytes. Therefore the list has two sizes.
#pragma once

#include "divide.cuh"

struct Loop {
    Divisor count;
    u32 unused;
    u64 src_stride;
    u64 dst_stride;
};

struct Pair {
    u32 src;
    u32 dst;
};

// The work is cut into units: u = (((pair × bases + base) × turns + turn) × tiles + tile).
struct Walk {
    const void* bases;  // Pairs of addresses, source and destination; null if the next two are the only pair.
    u64 src_base;
    u64 dst_base;
    u64 src_block_stride;
    u64 dst_block_stride;
    Loop loops[4];
    Divisor tiles;      // Units per piece.
    Divisor base_count;
    u32 depth;          // The number of loops in use.
    u32 units;          // Below 2^31.
    u32 vectors;        // Vectors per piece.
    u32 lane_bits;      // Threads that share a unit, as a power of two.
    u32 scale;          // A binary32, by which converted elements are multiplied.
    u32 unused;
};

// A plan whose rows change places; see permute.cu.
struct Tile {
    Walk walk;          // loops[0]: tiles across, loops[1]: tiles along; the plan's other loops above them.
    u64 src_along;      // Bytes from one row to the next, in both directions, on both sides.
    u64 src_across;
    u64 dst_along;
    u64 dst_across;
    Divisor row;        // Vectors per row.
    u32 along;          // Rows in all.
    u32 across;
    u32 along_bits;     // Rows per tile, as powers of two.
    u32 across_bits;
    u32 pitch;          // Vectors from one line of the tile to the next.
};

// Blocks that are in one piece at the destination, and are summed on the way; see sum.cu.
struct Sum {
    Walk walk;          // A piece is a unit; `units` counts the chunks of 64 KiB of all blocks.
    u64 sums;           // The address for 8 bytes per chunk.
    Divisor piece;      // Vectors per piece.
    Divisor chunks;     // Chunks per block.
    u32 pieces;         // Pieces per block.
    u32 vectors;        // Vectors per block.
    u32 copies;         // 0 for sums without a copy.
    u32 unused;
};

constexpr u32 SMALL_BYTES = 4096;
constexpr u32 LARGE_BYTES = 32760;

template <typename Head, u32 Bytes>
struct Args {
    Head head;
    Pair pairs[(Bytes - sizeof(Head)) / sizeof(Pair)];
};

typedef Args<Walk, SMALL_BYTES> SmallWalk;
typedef Args<Walk, LARGE_BYTES> LargeWalk;
typedef Args<Tile, SMALL_BYTES> SmallTile;
typedef Args<Tile, LARGE_BYTES> LargeTile;
typedef Args<Sum, SMALL_BYTES> SmallSum;
typedef Args<Sum, LARGE_BYTES> LargeSum;

static_assert(sizeof(Loop) == 32 && sizeof(Walk) == 216 && sizeof(Tile) == 280 && sizeof(Sum) == 264, "as src/args.rs has them");
