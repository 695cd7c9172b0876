// y = x w^T + bias in bfloat16 with weights that were packed beforehand: the product that MXINT8's is
// held against. Sums are float32; the result is rounded to bfloat16, to nearest, ties to even.
//
// How: the weight lies in panels of 64 rows, pair by pair of neighbours along K, so that a thread
// reads one stream, fetched ahead, and multiplies 64 columns by up to 6 rows of x in registers. With one
// row that stream is all there is to read. Threads take panels from a counter, are woken where that pays,
// and are looked after at the end, as in linear_mxint8_cpu.cpp.
//
// Shapes: x (M, K), w (N, K), bias (N) or null, y (M, N), all dense row by row; K is even.
// Not handled: subnormals, which vdpbf16ps takes as zero.

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace {

constexpr int kRows = 6, kVectors = 4, kLanes = 16, kPanel = kVectors * kLanes;
constexpr int64_t kAhead = 4;      // pairs of a panel, 1 KiB, fetched into the cache
constexpr int64_t kLooks = 20000;  // at the other threads before going: some 20 us

template <int Rows>
void tile(const uint32_t* x, const uint32_t* w, const float* bias, uint16_t* y, int64_t pairs,
          int64_t columns, int64_t width) {
  __m512 sum[Rows][kVectors];
  __mmask16 mask[kVectors];
  for (int j = 0; j < kVectors; ++j) {
    mask[j] = __mmask16((1u << std::clamp<int64_t>(width - j * kLanes, 0, kLanes)) - 1);
    const __m512 start =
        bias ? _mm512_maskz_loadu_ps(mask[j], bias + j * kLanes) : _mm512_setzero_ps();
    for (int r = 0; r < Rows; ++r) sum[r][j] = start;
  }
  for (int64_t p = 0; p < pairs; ++p) {
    __m512bh column[kVectors];
    for (int j = 0; j < kVectors; ++j) {
      column[j] = (__m512bh)_mm512_loadu_si512(w + p * kPanel + j * kLanes);
      _mm_prefetch(reinterpret_cast<const char*>(w + (p + kAhead) * kPanel + j * kLanes), _MM_HINT_T0);
    }
    for (int r = 0; r < Rows; ++r) {
      const __m512bh row = (__m512bh)_mm512_set1_epi32(int32_t(x[r * pairs + p]));
      for (int j = 0; j < kVectors; ++j) sum[r][j] = _mm512_dpbf16_ps(sum[r][j], row, column[j]);
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int j = 0; j < kVectors; ++j)
      _mm256_mask_storeu_epi16(y + r * columns + j * kLanes, mask[j],
                               (__m256i)_mm512_cvtneps_pbh(sum[r][j]));
}

using Tile = void (*)(const uint32_t*, const uint32_t*, const float*, uint16_t*, int64_t, int64_t,
                      int64_t);
constexpr Tile kTiles[kRows + 1] = {nullptr, tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>};

}  // namespace

// The weight in panels: (panels, K / 2, 64) words of two neighbours; rows that w has not are zeros.
extern "C" void madl_pack_bf16(const uint16_t* w, uint32_t* packed, int64_t N, int64_t K) {
  const int64_t pairs = K / 2;
  for (int64_t n = 0; n < (N + kPanel - 1) / kPanel * kPanel; ++n)
    for (int64_t p = 0; p < pairs; ++p) {
      uint32_t word = 0;
      if (n < N) std::memcpy(&word, w + n * K + 2 * p, sizeof word);
      packed[(n / kPanel * pairs + p) * kPanel + n % kPanel] = word;
    }
}

extern "C" void madl_linear_bf16_packed(const uint16_t* x, const uint32_t* packed,
                                        const float* bias, uint16_t* y, int64_t M, int64_t N,
                                        int64_t K, int32_t threads) {
  const int64_t pairs = K / 2, panels = (N + kPanel - 1) / kPanel;
  const uint32_t* rows = reinterpret_cast<const uint32_t*>(x);
  // whether one thread would take longer than some 50 microseconds, at a pace it reaches
  constexpr double kPerS = 75e9, kWeightsPerS = 20e9, kWakingS = 50e-6;
  if (double(N) * double(K) * (double(M) / kPerS + 1 / kWeightsPerS) < kWakingS) threads = 1;
  std::atomic<int64_t> next{0}, left{0};
#ifdef _OPENMP
#pragma omp parallel num_threads(threads) if (threads > 1)
#endif
  {
    for (int64_t n; (n = next.fetch_add(1)) < panels;)
      for (int64_t m = 0; m < M; m += kRows) {
        const int64_t first = n * kPanel;
        kTiles[std::min<int64_t>(kRows, M - m)](rows + m * pairs, packed + n * pairs * kPanel,
                                                bias ? bias + first : nullptr, y + m * N + first,
                                                pairs, N, std::min<int64_t>(kPanel, N - first));
      }
    left.fetch_add(1);
#ifdef _OPENMP
    if (omp_get_thread_num() == 0)  // to be woken at the end would take longer than to look
      for (int64_t looks = 0; left.load() < omp_get_num_threads() && looks < kLooks; ++looks) {
      }
#endif
  }
}
