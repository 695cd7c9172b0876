// MXINT8 to bfloat16, each thread eight elements a step: 8 bytes in, 16 bytes out. The default.
//
// A warp's load is 256 contiguous bytes and its store 512, so every sector that is touched is used
// whole, and four loads are on their way before the first is needed. Per element the memory moves
// 3 bytes and a group's share of its scale; the arithmetic (5 to 8 instructions) hides below that.
//
// Shapes: mantissas (rows, columns), scales (rows, ceil(columns / group)), out (rows, columns).
// Invariants: counts are 64 bits wide; blocks lie on grid.x, which takes 2^31 of them.
// Compiles under nvcc and NVRTC alike, so it includes nothing but the decode.
#include "mxint8_decode.h"

namespace {

constexpr int kThreads = 256, kSteps = 4, kVector = 8;

struct alignas(8) Mantissas { signed char at[kVector]; };
struct alignas(16) Values { unsigned short at[kVector]; };

}  // namespace

// One row whose groups are multiples of eight elements; both pointers aligned to their vectors.
// group == kVector << shift if shift >= 0, any other multiple of eight if it is negative.
extern "C" __global__ void __launch_bounds__(256)
madl_dequantize_vector(const signed char* __restrict__ mantissas,
                       const unsigned char* __restrict__ scales,
                       unsigned short* __restrict__ out, long long count, int group, int shift) {
  using namespace madl;
  const long long whole = count / kVector;  // vectors that are not cut short
  const long long first = static_cast<long long>(blockIdx.x) * (kThreads * kSteps) + threadIdx.x;
  const auto* vectors = reinterpret_cast<const Mantissas*>(mantissas);
  auto* results = reinterpret_cast<Values*>(out);
  const int per_group = group / kVector;

  Mantissas loaded[kSteps];
  unsigned char scale[kSteps];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const long long i = first + step * kThreads;
    if (i < whole) {
      loaded[step] = vectors[i];
      scale[step] = scales[shift >= 0 ? i >> shift : i / per_group];
    }
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const long long i = first + step * kThreads;
    if (i < whole) {
      const float worth = mxint8_step(scale[step]);
      Values values;
#pragma unroll
      for (int j = 0; j < kVector; ++j) values.at[j] = mxint8_element(loaded[step].at[j], worth);
      results[i] = values;
    }
  }
  const long long tail = whole * kVector + threadIdx.x;  // fewer than kVector elements
  if (blockIdx.x == 0 && tail < count)
    out[tail] = mxint8_to_bf16(mantissas[tail], scales[tail / group]);
}

// Any group, any alignment, rows whose last group is short: an element a thread.
extern "C" __global__ void __launch_bounds__(256)
madl_dequantize_any(const signed char* __restrict__ mantissas,
                    const unsigned char* __restrict__ scales, unsigned short* __restrict__ out,
                    long long count, long long columns, int group) {
  const long long i = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const long long row = i / columns, column = i - row * columns;
  const long long groups = (columns + group - 1) / group;  // of one row
  out[i] = madl::mxint8_to_bf16(mantissas[i], scales[row * groups + column / group]);
}
