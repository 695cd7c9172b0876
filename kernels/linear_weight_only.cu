// A Linear layer with MXINT8 weights for few rows of x: the weight is read once and never written.
//
// Few rows means that reading the weight is all the time it takes: 8.25 bits a value against 16 or
// 32, so the limit is 1.94 times a bfloat16 product and 3.88 times a float32 one. Decoding takes
// some 2.5 instructions a weight, none of them a conversion: those run at a quarter of the rate or
// less, so that 16 a cycle and multiprocessor would be the limit before an H200's memory is.
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

__device__ __forceinline__ void copy_ahead(const unsigned short* from, madl::Words* to, int bytes) {
  const auto address = static_cast<unsigned int>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes)
               : "memory");
}

// A step's rows of x on their way to their stage: one group of copies.
template <class Tile>
__device__ __forceinline__ void send_x(const typename Tile::Copies& of, int steps,
                                       madl::Words* stage) {
  Tile::send(of, steps, [stage](int to, const unsigned short* from, int bytes) {
    copy_ahead(from, stage + to, bytes);
  });
  asm volatile("cp.async.commit_group;" ::: "memory");
}

#if __CUDA_ARCH__ >= 900
// All threads of a cluster's blocks wait here; what they wrote to shared memory before is seen behind.
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.arrive.release;\n"
               "barrier.cluster.wait.acquire;" ::: "memory");
}

// What another block of the cluster has at the place of `own` in its shared memory.
__device__ __forceinline__ madl::Floats shared_of(unsigned int block, const float* own) {
  const auto address = static_cast<unsigned int>(__cvta_generic_to_shared(own));
  madl::Floats found;
  asm volatile("{.reg .u32 theirs; mapa.shared::cluster.u32 theirs, %4, %5;\n"
               "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [theirs];}"
               : "=f"(found.at[0]), "=f"(found.at[1]), "=f"(found.at[2]), "=f"(found.at[3])
               : "r"(address), "r"(block));
  return found;
}
#endif

template <int kTiles, int kWide, class Result>
__device__ __forceinline__ void linear(const madl::Linear& p) {
  using Tile = madl::LinearTile<kTiles, kWide>;
  constexpr int kAhead = Tile::kAhead;
  alignas(16) __shared__ unsigned char shared[Tile::kSharedBytes];
  auto* stages = reinterpret_cast<madl::Words*>(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int block = blockIdx.x, split = blockIdx.y;
  const int first = split * p.steps, end = Tile::end_of(p, split);
  float sums[kTiles][4] = {};

  const unsigned int above = madl::above_mantissas();
  auto at = Tile::lane_of(p, block, first, end, warp, lane);
  typename Tile::Raw ahead[kAhead] = {};
#pragma unroll
  for (int i = 0; i < kAhead; ++i) Tile::fetch(p, at, i, ahead[i]);
  auto copies = Tile::copies_of(p, first, end, threadIdx.x);
  madl::Words next[2];  // of x, where it comes straight from memory
  if constexpr (Tile::kStaged) {
#pragma unroll
    for (int i = 0; i < kAhead - 1; ++i)
      send_x<Tile>(copies, i, stages + i * Tile::kStageUnits);
  } else {
    for (int half = 0; half < 2; ++half) next[half] = Tile::x_operand(at, 0, half);
  }

  for (int left = end - first; left > 0; left -= kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (i >= left) break;  // for all threads of the block alike
      const unsigned int worth[2] = {madl::negative_step_pair(ahead[i].scale[0]),
                                     madl::negative_step_pair(ahead[i].scale[1])};
      if constexpr (Tile::kStaged) {
        asm volatile("cp.async.wait_group %0;" ::"n"(kAhead - 2) : "memory");
        __syncthreads();  // the stage is there for all, and all have done with the one before it
        send_x<Tile>(copies, i + kAhead - 1,
                     stages + (i + kAhead - 1) % kAhead * Tile::kStageUnits);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        unsigned int a[2][4];
        for (int j = 0; j < 2; ++j)
          Tile::weight_operand(ahead[i], above, worth, 2 * half + j, a[j]);
        if (half == 1) Tile::fetch(p, at, i + kAhead, ahead[i]);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          madl::Words b;
          if constexpr (Tile::kStaged) {
            b = Tile::x_operand(stages + i * Tile::kStageUnits, warp, lane, tile, half);
          } else {
            b = next[half];
            next[half] = Tile::x_operand(at, i + 1, half);
          }
          for (int j = 0; j < 2; ++j) multiply(sums[tile], a[j], b.at[2 * j], b.at[2 * j + 1]);
        }
      }
    }
    Tile::advance(at);
    Tile::advance(copies);
  }
  if constexpr (Tile::kStaged) {  // the sums take the stages' place
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
  }
  auto* partials = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) Tile::leave(sums[tile], warp, lane, tile, partials);
  __syncthreads();
#if __CUDA_ARCH__ >= 900
  const int splits = gridDim.y;
  if (splits > 1 && !p.partials) {  // they are one cluster
    Tile::fold(p, threadIdx.x, partials);
    wait_for_cluster();
    Tile::template finish_cluster<Result>(
        p, block, split, splits, threadIdx.x,
        [partials](int other, int at) { return shared_of(other, partials + at); });
    wait_for_cluster();  // nobody leaves while its memory is read
    return;
  }
#endif
  Tile::template finish<Result>(p, block, split, threadIdx.x, partials);
}
#else
template <int kTiles, int kWide, class Result>
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

#define MADL_LINEAR(tiles, wide, type, name)                                                      \
  extern "C" __global__ void                                                                      \
  __launch_bounds__(256, madl::LinearTile<tiles, wide>::kResident) madl_linear_##name##_##tiles(  \
      const unsigned short* x, const signed char* weight, const unsigned char* scales,            \
      const float* bias, void* y, float* partials, int rows, int parts, int num_in, int num_out,  \
      int shift, int steps) {                                                                     \
    linear<tiles, wide, type>({x, weight, scales, bias, y, partials, rows, parts, num_in,         \
                               num_out, shift, steps});                                           \
  }

// tiles of eight rows of x, and warps side by side over columns
MADL_LINEAR(1, 1, unsigned short, bf16)
MADL_LINEAR(2, 4, unsigned short, bf16)
MADL_LINEAR(4, 8, unsigned short, bf16)
MADL_LINEAR(8, 8, unsigned short, bf16)
MADL_LINEAR(1, 1, float, fp32)
MADL_LINEAR(2, 4, float, fp32)
MADL_LINEAR(4, 8, float, fp32)
MADL_LINEAR(8, 8, float, fp32)

#define MADL_SPLITS(type, name)                                                                   \
  extern "C" __global__ void __launch_bounds__(256) madl_linear_splits_##name(                    \
      float* partials, const float* bias, void* y, int splits, int rows, int num_out) {           \
    madl::Linear p{};                                                                             \
    p.bias = bias, p.y = y, p.partials = partials, p.rows = rows, p.num_out = num_out;            \
    const int column = blockIdx.x * 256 + threadIdx.x;                                            \
    madl::LinearTile<1, 1>::add_splits<type>(p, splits, blockIdx.y, column);                      \
  }

MADL_SPLITS(unsigned short, bf16)
MADL_SPLITS(float, fp32)

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
