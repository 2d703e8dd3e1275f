// CUDA's vocabulary for a host compiler, so that the kernels' own source runs on a CPU, under its
// sanitizers and beside an oracle.
//
// A launch runs its CTAs one after the other. Threads of a kernel without barriers are calls in a loop.
// Threads of a kernel with barriers are fibers, which run until they wait: for their warp (a shuffle) or
// for the whole CTA. A wait that other threads never reach ends the process: on a device it would never
// end, or worse.
//
// Device addresses may carry a tag in their upper 16 bits, which no address of this CPU has. A driver's
// test double hands out such addresses, so that host code that follows one faults. Loads and stores
// remove the tag.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#define KV_CPU
#define __device__
#define __forceinline__ inline
#define __shared__ static thread_local
#define __constant__ static const
#define __restrict__

struct dim3_cpu {
    unsigned x, y, z;
};
extern thread_local dim3_cpu threadIdx, blockIdx, blockDim, gridDim;

using std::memcpy;

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};

namespace kvcpu {
// A kernel in the table in which a launch finds it.
struct Registered {
    const char* name;
    size_t args_bytes;
    bool barriers;
    // Runs one thread of it; runs a whole launch.
    void (*run)(const void* args);
    void (*entry)(unsigned grid, unsigned threads, const void* args);
    const Registered* next;
    Registered(const char* name, size_t args_bytes, bool barriers, void (*run)(const void*),
               void (*entry)(unsigned, unsigned, const void*));
};
void launch(const Registered& kernel, unsigned grid, unsigned threads, const void* args);

enum class Waits { Warp, Block };
void wait(Waits for_whom);
unsigned long long exchange(unsigned long long mine, unsigned with_lane);

template <typename T>
T* host(const T* address) {
    return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(address) & 0x0000'ffff'ffff'ffffull);
}
}  // namespace kvcpu

inline void __syncthreads() { kvcpu::wait(kvcpu::Waits::Block); }

template <typename T>
T __shfl_xor_sync(unsigned, T mine, int mask) {
    return static_cast<T>(kvcpu::exchange(static_cast<unsigned long long>(mine), (threadIdx.x & 31) ^ unsigned(mask)));
}

template <typename T>
T __ldcs(const T* address) {
    return *kvcpu::host(address);
}
template <typename T>
T __ldg(const T* address) {
    return *kvcpu::host(address);
}
template <typename T>
void __stcs(T* address, T value) {
    *kvcpu::host(address) = value;
}
template <typename T>
T atomicAdd(T* address, T value) {
    T* at = kvcpu::host(address);
    T before = *at;
    *at = before + value;
    return before;
}

inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((static_cast<unsigned long long>(a) * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
