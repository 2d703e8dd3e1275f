// A matmul that keeps a GPU busy as a model does: tensor cores, shared memory, L2 and memory. C = A × B, n × n, row by row, bfloat16
// in, binary32 out; n a multiple of 128. The bench measures how much copies slow it down (`benches/src/gpu/matmul.rs`), so that
// this figure needs no library. It is not meant to be the fastest.
//
//   a CTA    128 × 128 of C, 8 warps: 2 down, 4 across, each 64 × 32
//   a step   32 of k; the next one is fetched while this one is multiplied (two stages)
#include <cuda_pipeline_primitives.h>
#include <mma.h>

using namespace nvcuda;
using bf16 = __nv_bfloat16;

struct Arguments {
    const bf16* a;
    const bf16* b;
    float* c;
    unsigned n;
    unsigned tiles;
};
static_assert(sizeof(Arguments) == 32, "as benches/src/gpu/matmul.rs has it");

constexpr unsigned TILE = 128, STEP = 32, THREADS = 256;
// Rows of a stage are 16 bytes longer than necessary, so that they begin in different banks.
constexpr unsigned A_PITCH = STEP + 8, B_PITCH = TILE + 8;

__device__ void fetch(const Arguments& args, bf16 (*a)[A_PITCH], bf16 (*b)[B_PITCH], unsigned row, unsigned column, unsigned k) {
    // 8 elements a copy: A has 4 of them a row, B 16.
    for (unsigned at = threadIdx.x; at < TILE * STEP / 8; at += THREADS) {
        const unsigned a_row = at / 4, a_column = at % 4 * 8, b_row = at / 16, b_column = at % 16 * 8;
        __pipeline_memcpy_async(&a[a_row][a_column], args.a + (size_t)(row + a_row) * args.n + k + a_column, 16);
        __pipeline_memcpy_async(&b[b_row][b_column], args.b + (size_t)(k + b_row) * args.n + column + b_column, 16);
    }
    __pipeline_commit();
}

extern "C" __global__ void __launch_bounds__(THREADS) kvstrata_bench_matmul(const __grid_constant__ Arguments args) {
    __shared__ __align__(16) bf16 a[2][TILE][A_PITCH];
    __shared__ __align__(16) bf16 b[2][STEP][B_PITCH];
    const unsigned row = blockIdx.x / args.tiles * TILE, column = blockIdx.x % args.tiles * TILE;
    const unsigned warp = threadIdx.x / 32, warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c[4][2];
    for (auto& line : c)
        for (auto& fragment : line) wmma::fill_fragment(fragment, 0.0f);

    fetch(args, a[0], b[0], row, column, 0);
    for (unsigned k = 0, stage = 0; k < args.n; k += STEP, stage ^= 1) {
        if (k + STEP < args.n) {
            fetch(args, a[stage ^ 1], b[stage ^ 1], row, column, k + STEP);
            __pipeline_wait_prior(1);
        } else {
            __pipeline_wait_prior(0);
        }
        __syncthreads();
        for (unsigned part = 0; part < STEP; part += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> of_a[4];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::row_major> of_b[2];
            for (unsigned i = 0; i < 4; i++) wmma::load_matrix_sync(of_a[i], &a[stage][warp_row + i * 16][part], A_PITCH);
            for (unsigned j = 0; j < 2; j++) wmma::load_matrix_sync(of_b[j], &b[stage][part][warp_column + j * 16], B_PITCH);
            for (unsigned i = 0; i < 4; i++)
                for (unsigned j = 0; j < 2; j++) wmma::mma_sync(c[i][j], of_a[i], of_b[j], c[i][j]);
        }
        __syncthreads();
    }
    for (unsigned i = 0; i < 4; i++)
        for (unsigned j = 0; j < 2; j++) {
            float* to = args.c + (size_t)(row + warp_row + i * 16) * args.n + column + warp_column + j * 16;
            wmma::store_matrix_sync(to, c[i][j], args.n, wmma::mem_row_major);
        }
}
