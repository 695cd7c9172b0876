// A Linear layer with MXINT8 weights for few rows of x: the weight is read once and never written.
//
// Few rows means that reading the weight is all the time it takes: 8.25 bits a value against 16 or
// 32, so the limit is 1.94 times a bfloat16 product and 3.88 times a float32 one. Decoding takes
// some 3 instructions a weight, about half of what an H200 can issue at its memory's speed.
//
// Compiles under nvcc and NVRTC alike. Tensor-core products of bfloat16 start with sm_80; before
// that, and for shapes that `linear_tile.h` does not take, `madl_linear_any` does it plainly.
#include "linear_tile.h"

namespace {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned int (&a)[4],
                                         unsigned int b0, unsigned int b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int kTiles, class Result>
__device__ __forceinline__ void linear(const madl::Linear& p) {
  using Tile = madl::LinearTile<kTiles>;
  __shared__ float partials[Tile::kPartials];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, block = blockIdx.x;
  const int chunks = (p.num_in + Tile::kChunk - 1) / Tile::kChunk;
  float sums[kTiles][4] = {};
  auto next = Tile::fetch(p, block, warp, lane);
  for (int chunk = warp; chunk < chunks; chunk += Tile::kWarps) {
    const auto raw = next;
    next = Tile::fetch(p, block, chunk + Tile::kWarps, lane);
    const float worth[2] = {madl::mxint8_step(raw.scale[0]), madl::mxint8_step(raw.scale[1])};
    unsigned int a[4][4];
#pragma unroll
    for (int step = 0; step < 4; ++step) Tile::weight_operand(raw, worth, step, a[step]);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      unsigned int b[8];
      Tile::x_operand(p, chunk, lane, tile, b);
#pragma unroll
      for (int step = 0; step < 4; ++step)
        multiply(sums[tile], a[step], b[2 * step], b[2 * step + 1]);
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) Tile::leave(sums[tile], warp, lane, tile, partials);
  __syncthreads();
  Tile::template finish<Result>(p, block, threadIdx.x, partials);
}
#else
template <int kTiles, class Result>
__device__ __forceinline__ void linear(const madl::Linear&) {}  // never launched
#endif

__device__ __forceinline__ float as_float(float x) { return x; }
__device__ __forceinline__ float as_float(unsigned short x) {
  return madl::bits_to_float(static_cast<unsigned int>(x) << 16);
}

// A warp a column of y, eight rows of x at a time; scales (num_out, ceil(num_in / group)).
template <class Value>
__device__ __forceinline__ void linear_any(const Value* x, const signed char* weight,
                                           const unsigned char* scales, const float* bias,
                                           Value* y, int rows, int num_in, int num_out,
                                           int group) {
  constexpr int kRows = 8;
  const long long out = (static_cast<long long>(blockIdx.x) * 256 + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32, groups = (num_in + group - 1) / group;
  if (out >= num_out) return;
  for (int first = 0; first < rows; first += kRows) {
    float sums[kRows] = {};
    for (int k = lane; k < num_in; k += 32) {
      const float step = madl::mxint8_step(scales[out * groups + k / group]);
      const float w = madl::mxint8_value(weight[out * num_in + k], step);
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        if (first + i < rows)
          sums[i] += w * as_float(x[static_cast<long long>(first + i) * num_in + k]);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      for (int offset = 16; offset; offset /= 2)
        sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], offset);
      const float sum = sums[i] + (bias ? bias[out] : 0.0f);
      if (lane == 0 && first + i < rows) {
        const long long at = static_cast<long long>(first + i) * num_out + out;
        if constexpr (sizeof(Value) == 2)
          y[at] = madl::round_to_bf16(sum);
        else
          y[at] = sum;
      }
    }
  }
}

}  // namespace

#define MADL_LINEAR(tiles, type, name)                                                            \
  extern "C" __global__ void __launch_bounds__(256) madl_linear_##name##_##tiles(                 \
      const unsigned short* x, const signed char* weight, const unsigned char* scales,            \
      const float* bias, void* y, int rows, int parts, int num_in, int num_out, int group,       \
      int shift) {                                                                                \
    linear<tiles, type>(                                                                          \
        {x, weight, scales, bias, y, rows, parts, num_in, num_out, group, shift});                \
  }

MADL_LINEAR(1, unsigned short, bf16)
MADL_LINEAR(2, unsigned short, bf16)
MADL_LINEAR(4, unsigned short, bf16)
MADL_LINEAR(8, unsigned short, bf16)
MADL_LINEAR(1, float, fp32)
MADL_LINEAR(2, float, fp32)
MADL_LINEAR(4, float, fp32)
MADL_LINEAR(8, float, fp32)

extern "C" __global__ void __launch_bounds__(256)
madl_linear_any_bf16(const unsigned short* x, const signed char* weight,
                     const unsigned char* scales, const float* bias, unsigned short* y, int rows,
                     int num_in, int num_out, int group) {
  linear_any(x, weight, scales, bias, y, rows, num_in, num_out, group);
}

extern "C" __global__ void __launch_bounds__(256)
madl_linear_any_fp32(const float* x, const signed char* weight, const unsigned char* scales,
                     const float* bias, float* y, int rows, int num_in, int num_out, int group) {
  linear_any(x, weight, scales, bias, y, rows, num_in, num_out, group);
}

// x (count) float32 to its three parts (3, count).
extern "C" __global__ void __launch_bounds__(256)
madl_split_float(const float* x, unsigned short* parts, int count) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= count) return;
  unsigned short split[3];
  madl::split_float(x[i], split);
  for (int part = 0; part < 3; ++part)
    parts[static_cast<long long>(part) * count + i] = split[part];
}
