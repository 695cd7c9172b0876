// y = x w^T + bias for operands that bfloat16 holds exactly: bfloat16 products, float32 all else.
//
// A product of two bfloat16 is exact in float32, so against a float32 matrix product only the order
// of the summation differs. Torch's own bfloat16 linear rounds its result to bfloat16 as well; this
// one does not. Operands come as float32 and are cut to their upper 16 bits, which is exact for
// what the caller promises; anything else is truncated.
//
// Shapes: x (M, K), w (N, K), bias (N) or null, y (M, N), all dense row by row. With a `rounding`, x
// is rounded first, a row at a time.
// Not handled: subnormals, which vdpbf16ps takes as zero.

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "round_to_grid.h"

namespace {

constexpr int kRows = 6, kVectors = 4, kLanes = 16, kPanel = kVectors * kLanes;
constexpr int64_t kRowBlock = 96;  // rows of x that stay in the cache beside one panel of w

// Two neighbours along K as one 32-bit word, the first in the lower half.
inline uint32_t pair_of(const float* x, int64_t k, int64_t size) {
  uint32_t low, high = 0;
  __builtin_memcpy(&low, x + k, sizeof low);
  if (k + 1 < size) __builtin_memcpy(&high, x + k + 1, sizeof high);
  return (low >> 16) | (high & 0xffff0000u);
}

void pack_row(const float* x, uint32_t* packed, int64_t size, int64_t stride) {
  const int64_t whole = size / 2;
  for (int64_t p = 0; p < whole; ++p) packed[p * stride] = pair_of(x, 2 * p, size);
  if (size % 2) packed[whole * stride] = pair_of(x, size - 1, size);
}

// A tile of `Rows` rows by 64 columns over all of K, in registers.
template <int Rows>
void tile(const uint32_t* x, const uint32_t* w, const float* bias, float* y, int64_t pairs,
          int64_t columns, int64_t width) {
  __m512 sum[Rows][kVectors];
  __mmask16 mask[kVectors];
  for (int j = 0; j < kVectors; ++j) {
    const int64_t left = std::clamp<int64_t>(width - j * kLanes, 0, kLanes);
    mask[j] = __mmask16((1u << left) - 1);
    const __m512 start = bias ? _mm512_maskz_loadu_ps(mask[j], bias + j * kLanes)
                              : _mm512_setzero_ps();
    for (int r = 0; r < Rows; ++r) sum[r][j] = start;
  }
  for (int64_t p = 0; p < pairs; ++p) {
    __m512bh column[kVectors];
    for (int j = 0; j < kVectors; ++j)
      column[j] = (__m512bh)_mm512_loadu_si512(w + p * kPanel + j * kLanes);
    for (int r = 0; r < Rows; ++r) {
      const __m512bh row = (__m512bh)_mm512_set1_epi32(int32_t(x[r * pairs + p]));
      for (int j = 0; j < kVectors; ++j) sum[r][j] = _mm512_dpbf16_ps(sum[r][j], row, column[j]);
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int j = 0; j < kVectors; ++j)
      _mm512_mask_storeu_ps(y + r * columns + j * kLanes, mask[j], sum[r][j]);
}

using Tile = void (*)(const uint32_t*, const uint32_t*, const float*, float*, int64_t, int64_t,
                      int64_t);
constexpr Tile kTiles[kRows + 1] = {nullptr, tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>};

}  // namespace

extern "C" void madl_linear_bf16(const float* x, const float* w, const float* bias, float* y,
                                 int64_t M, int64_t N, int64_t K, const madl::Rounding* rounding,
                                 int32_t threads) {
  const int64_t pairs = (K + 1) / 2, panels = (N + kPanel - 1) / kPanel;
  const int64_t blocks = (M + kRowBlock - 1) / kRowBlock;
  const std::unique_ptr<uint32_t[]> xs(new uint32_t[M * pairs]);
  const std::unique_ptr<uint32_t[]> ws(new uint32_t[panels * pairs * kPanel]);
  if (M * N * K < (1 << 20)) threads = 1;  // waking a thread costs as much
#ifdef _OPENMP
#pragma omp parallel num_threads(threads) if (threads > 1)
#endif
  {
    const std::unique_ptr<float[]> rounded(new float[rounding ? K : 0]);
#ifdef _OPENMP
#pragma omp for schedule(dynamic) nowait
#endif
    for (int64_t b = 0; b < blocks; ++b)
      for (int64_t m = b * kRowBlock; m < std::min(M, (b + 1) * kRowBlock); ++m) {
        if (rounding) rounding->round(x + m * K, rounded.get(), 1, K, &rounding->grid, 1);
        pack_row(rounding ? rounded.get() : x + m * K, xs.get() + m * pairs, K, 1);
      }
#ifdef _OPENMP
#pragma omp for schedule(dynamic)
#endif
    for (int64_t n = 0; n < panels; ++n) {
      uint32_t* panel = ws.get() + n * pairs * kPanel;
      const int64_t width = std::min<int64_t>(kPanel, N - n * kPanel);
      if (width < kPanel) std::fill_n(panel, pairs * kPanel, 0u);
      for (int64_t c = 0; c < width; ++c) pack_row(w + (n * kPanel + c) * K, panel + c, K, kPanel);
    }
#ifdef _OPENMP
#pragma omp for schedule(dynamic)
#endif
    for (int64_t i = 0; i < panels * blocks; ++i) {
      const int64_t n = i / blocks * kPanel, first = i % blocks * kRowBlock;
      const int64_t last = std::min(M, first + kRowBlock);
      const uint32_t* panel = ws.get() + n * pairs;
      for (int64_t m = first; m < last; m += kRows)
        kTiles[std::min<int64_t>(kRows, last - m)](xs.get() + m * pairs, panel,
                                                   bias ? bias + n : nullptr, y + m * N + n, pairs,
                                                   N, std::min<int64_t>(kPanel, N - n));
    }
  }
}
