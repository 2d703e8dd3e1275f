// Gather, scatter, and any other copy plan whose pieces are whole on both sides: vectors as wide as the
// plan's alignment allows.
#include "move.cuh"

template <typename V>
struct Copied {
    typedef V Source;
    typedef V Target;
    KV_DEVICE V target(V source, const Walk&) { return source; }
};

#define KV_COPY(BYTES, V)                                                                                            \
    KV_KERNEL(copy##BYTES##_tiled_small, SmallWalk, 6, false) { tiled<Copied<V>>(args); }                            \
    KV_KERNEL(copy##BYTES##_tiled_large, LargeWalk, 6, false) { tiled<Copied<V>>(args); }                            \
    KV_KERNEL(copy##BYTES##_strewn_small, SmallWalk, 4, false) { strewn<Copied<V>>(args); }                          \
    KV_KERNEL(copy##BYTES##_strewn_large, LargeWalk, 4, false) { strewn<Copied<V>>(args); }

KV_COPY(16, uint4)
KV_COPY(8, uint2)
KV_COPY(4, u32)
KV_COPY(2, u16)
KV_COPY(1, u8)
