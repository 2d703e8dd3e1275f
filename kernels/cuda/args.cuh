// What a launch is told, as the host wrote it: src/args.rs has the same structures, and a test compares sizes and places.
//
//   Walk │ bases ─► device memory: a pair of addresses for each (layer, outer) that no stride reaches
//        │ loops, the innermost first; a count of 1 for those that a plan has not
//   Pair │ one a block: its number at the source, and at the destination
//
// Both travel in the kernel's parameters: nothing is allocated, uploaded or waited for. Parameters of a launch may have 4 KiB, and
// from CUDA 12.1 and sm_70 on 32,764 bytes: hence two sizes of the list.
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
    const void* bases;  // Pairs of addresses, source and destination; none where the next two are the only one.
    u64 src_base;
    u64 dst_base;
    u64 src_block_stride;
    u64 dst_block_stride;
    Loop loops[4];
    Divisor tiles;      // Units that a piece is cut into.
    Divisor base_count;
    u32 depth;          // Loops that turn.
    u32 units;          // Below 2^31.
    u32 vectors;        // Of a piece.
    u32 lane_bits;      // Threads that share a unit, as a power of two.
    u32 scale;          // A binary32: what converted elements are multiplied by.
    u32 unused;
};

// A plan whose rows change places, see permute.cu.
struct Tile {
    Walk walk;          // loops[0]: tiles across, loops[1]: tiles along; what is left of a plan's loops above them.
    u64 src_along;      // Bytes from a row to the next, in both directions, at both sides.
    u64 src_across;
    u64 dst_along;
    u64 dst_across;
    Divisor row;        // Vectors of a row.
    u32 along;          // Rows in all.
    u32 across;
    u32 along_bits;     // Rows of a tile, as powers of two.
    u32 across_bits;
    u32 pitch;          // Vectors from a line of the tile to the next.
};

// Blocks that lie in one piece at the destination, and are summed on the way, see sum.cu.
struct Sum {
    Walk walk;          // A piece is a unit; `units` are chunks of 64 KiB, of all blocks.
    u64 sums;           // Where 8 bytes a unit go.
    Divisor piece;      // Vectors of a piece.
    Divisor chunks;     // Of a block.
    u32 pieces;         // Of a block.
    u32 vectors;        // Of a block.
    u32 copies;         // 0: only sums.
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
