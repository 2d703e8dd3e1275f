// Words of a fixed width, and the declaration of device functions.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

static_assert(sizeof(u32) == 4 && sizeof(u64) == 8 && sizeof(void*) == 8, "as the host has them");

#define KV_DEVICE static __device__ __forceinline__

// A kernel that is launched by its name with one structure, read from where the launch put it. A
// multiprocessor must have room for the registers of `CTAS` CTAs. `BARRIERS`: whether the threads wait
// for each other; the CPU's launcher needs to know.
#ifdef KV_CPU
#define KV_KERNEL(NAME, ARGS, CTAS, BARRIERS)                                                                        \
    static void NAME(const ARGS& args);                                                                              \
    static const kvcpu::Registered registered_##NAME(                                                                \
        #NAME, sizeof(ARGS), BARRIERS, [](const void* args) { NAME(*static_cast<const ARGS*>(args)); },              \
        [](unsigned grid, unsigned threads, const void* args) {                                                      \
            kvcpu::launch(registered_##NAME, grid, threads, args);                                                   \
        });                                                                                                          \
    static void NAME(const ARGS& args)
#else
#define KV_KERNEL(NAME, ARGS, CTAS, BARRIERS)                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS, CTAS) NAME(const __grid_constant__ ARGS args)
#endif

constexpr u32 THREADS = 256;
