// The kernels of `dequantize_tile.h`: load, barrier, store. One for each height of a tile.
#include "dequantize_tile.h"

namespace {

template <int kBlockM, int kVector>
__device__ __forceinline__ void dequantize(const madl::Dequantize& d) {
  using Tile = madl::DequantizeTile<kBlockM, kVector>;
  alignas(16) __shared__ signed char shared[Tile::kElements];
  const int thread = threadIdx.x;
  // groups on grid.x, which takes 2^31 blocks; grid.y takes 65,535 only
  const float step = Tile::load(d, blockIdx.y, blockIdx.x, thread, shared);
  if constexpr (Tile::kAsync) {
    cute::cp_async_fence();
    cute::cp_async_wait<0>();
  }
  __syncthreads();
  Tile::store(d, blockIdx.y, blockIdx.x, thread, step, shared);
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
