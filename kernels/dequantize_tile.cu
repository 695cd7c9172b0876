// The kernels of `dequantize_tile.h`: load, barrier, store. One for each height of a tile.
//
// A block takes kSteps tiles, whose copies are all on their way before the first is waited for:
// 8 KiB a block, 64 KiB a multiprocessor, where some 23 keep an H200's memory busy.
#include "dequantize_tile.h"

namespace {

// Until so many of the newest copies are left: the instruction takes a constant.
__device__ __forceinline__ void wait(int left) {
  if (left == 3) cute::cp_async_wait<3>();
  if (left == 2) cute::cp_async_wait<2>();
  if (left == 1) cute::cp_async_wait<1>();
  if (left == 0) cute::cp_async_wait<0>();
}

template <int kBlockM, int kVector>
__device__ __forceinline__ void dequantize(const madl::Dequantize& d) {
  using Tile = madl::DequantizeTile<kBlockM, kVector>;
  constexpr int kSteps = 4;
  alignas(16) __shared__ signed char shared[kSteps][Tile::kElements];
  const int thread = threadIdx.x;
  // groups on grid.x, which takes 2^31 blocks; grid.y takes 65,535 only
  const long long first = static_cast<long long>(blockIdx.x) * kSteps;
  float worth[kSteps];
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    worth[i] = Tile::load(d, blockIdx.y, first + i, thread, shared[i]);
    if constexpr (Tile::kAsync) cute::cp_async_fence();
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    if constexpr (Tile::kAsync) wait(kSteps - 1 - i);
    __syncthreads();
    Tile::store(d, blockIdx.y, first + i, thread, worth[i], shared[i]);
  }
}

}  // namespace

#define MADL_TILE(block_m, vector)                                                               \
  extern "C" __global__ void __launch_bounds__(256) madl_dequantize_tile_##block_m##_##vector(   \
      const signed char* mantissas, const unsigned char* scales, unsigned short* out,            \
      long long count, int group) {                                                              \
    dequantize<block_m, vector>({mantissas, scales, out, count, group});                         \
  }

MADL_TILE(8, 8)
MADL_TILE(16, 8)
MADL_TILE(32, 8)
MADL_TILE(64, 8)
MADL_TILE(128, 8)
MADL_TILE(256, 8)
MADL_TILE(512, 8)
MADL_TILE(64, 1)  // groups that are no multiple of eight
