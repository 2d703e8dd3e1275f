// Runs a launch on the CPU; see shim.h. Part of kernels.cpp, so that no linker leaves the kernels out.
#pragma once
#include "shim.h"

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

thread_local dim3_cpu threadIdx, blockIdx, blockDim, gridDim;

namespace kvcpu {
namespace {

const Registered*& table() {
    static const Registered* first = nullptr;
    return first;
}

[[noreturn]] void die(const char* why) {
    std::fprintf(stderr, "a kernel on the CPU: %s (block %u, thread %u)\n", why, blockIdx.x, threadIdx.x);
    std::abort();
}

enum class State { Ready, WaitsForWarp, WaitsForBlock, Ended };

constexpr size_t STACK_BYTES = 64 << 10;

struct Fiber {
    ucontext_t context;
    State state;
    unsigned long long offered;
    std::unique_ptr<char[]> stack;
};

struct Block {
    std::vector<Fiber> fibers;
    ucontext_t scheduler;
    const Registered* kernel;
    const void* args;
    unsigned running;
};

thread_local Block* block = nullptr;

void start() {
    block->kernel->run(block->args);
    block->fibers[block->running].state = State::Ended;
    // The fiber's `uc_link` continues in the scheduler.
}

void resume(unsigned thread) {
    block->running = thread;
    threadIdx = {thread, 0, 0};
    swapcontext(&block->scheduler, &block->fibers[thread].context);
}

// Runs a warp until all its threads wait for the block, or have ended.
void run_warp(unsigned first, unsigned end) {
    for (;;) {
        unsigned waits_for_warp = 0, waits_for_block = 0, ended = 0;
        for (unsigned thread = first; thread < end; thread++) {
            if (block->fibers[thread].state == State::Ready) resume(thread);
        }
        for (unsigned thread = first; thread < end; thread++) {
            const State state = block->fibers[thread].state;
            waits_for_warp += state == State::WaitsForWarp;
            waits_for_block += state == State::WaitsForBlock;
            ended += state == State::Ended;
        }
        if (waits_for_warp == 0) return;
        if (waits_for_warp != end - first) die("lanes of a warp wait for some that never come");
        for (unsigned thread = first; thread < end; thread++) block->fibers[thread].state = State::Ready;
    }
}

void run_block(unsigned threads) {
    for (unsigned thread = 0; thread < threads; thread++) {
        Fiber& fiber = block->fibers[thread];
        fiber.state = State::Ready;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = STACK_BYTES;
        fiber.context.uc_link = &block->scheduler;
        makecontext(&fiber.context, start, 0);
    }
    for (;;) {
        unsigned waits = 0;
        for (unsigned first = 0; first < threads; first += 32) run_warp(first, first + 32 < threads ? first + 32 : threads);
        for (Fiber& fiber : block->fibers) waits += fiber.state == State::WaitsForBlock;
        if (waits == 0) return;
        if (waits != threads) die("threads of a block wait for some that have ended");
        for (Fiber& fiber : block->fibers) fiber.state = State::Ready;
    }
}

}  // namespace

Registered::Registered(const char* name, size_t args_bytes, bool barriers, void (*run)(const void*),
                       void (*entry)(unsigned, unsigned, const void*))
    : name(name), args_bytes(args_bytes), barriers(barriers), run(run), entry(entry), next(table()) {
    table() = this;
}

void wait(Waits for_whom) {
    Fiber& fiber = block->fibers[block->running];
    fiber.state = for_whom == Waits::Warp ? State::WaitsForWarp : State::WaitsForBlock;
    swapcontext(&fiber.context, &block->scheduler);
}

unsigned long long exchange(unsigned long long mine, unsigned with_lane) {
    const unsigned first = threadIdx.x & ~31u;
    block->fibers[block->running].offered = mine;
    wait(Waits::Warp);
    const unsigned long long theirs = block->fibers[first + with_lane].offered;
    wait(Waits::Warp);
    return theirs;
}

void launch(const Registered& kernel, unsigned grid, unsigned threads, const void* args) {
    gridDim = {grid, 1, 1};
    blockDim = {threads, 1, 1};
    Block fibers{};
    if (kernel.barriers) {
        fibers.fibers.resize(threads);
        for (Fiber& fiber : fibers.fibers) fiber.stack.reset(new char[STACK_BYTES]);
        fibers.kernel = &kernel;
        fibers.args = args;
        block = &fibers;
    }
    for (unsigned at = 0; at < grid; at++) {
        blockIdx = {at, 0, 0};
        if (kernel.barriers) {
            run_block(threads);
            continue;
        }
        for (unsigned thread = 0; thread < threads; thread++) {
            threadIdx = {thread, 0, 0};
            kernel.run(args);
        }
    }
    block = nullptr;
}

}  // namespace kvcpu

// Returns the kernel after another one, or the first for null; null after the last.
extern "C" const kvcpu::Registered* kvstrata_cpu_kernel(const kvcpu::Registered* behind) {
    return behind ? behind->next : kvcpu::table();
}

extern "C" const char* kvstrata_cpu_name(const kvcpu::Registered* kernel) { return kernel->name; }
extern "C" size_t kvstrata_cpu_args_bytes(const kvcpu::Registered* kernel) { return kernel->args_bytes; }

// Runs a whole launch to its end, in the calling thread.
extern "C" auto kvstrata_cpu_entry(const kvcpu::Registered* kernel) -> void (*)(unsigned, unsigned, const void*) {
    return kernel->entry;
}
