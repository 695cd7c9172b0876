// Tensors to MXINT8 and back: float32 to mantissas and scales, mantissas and scales to bfloat16.
//
// Plain C++ on contiguous rows, compiled once per instruction set (kernels/build.py). Both are
// limited by memory: 5 bytes a value to quantize, 3 to dequantize.
//
// Shapes: values and mantissas (rows, columns), scales (rows, ceil(columns / group)); a short last
// group of a row is a group of its own.
// Not handled: overlapping input and output.

#include <algorithm>
#include <cstdint>

#ifdef __AVX512BW__
#include <immintrin.h>
#endif

#include "mxint8_decode.h"
#include "mxint8_quantize.h"

namespace {

constexpr int64_t kChunk = 1 << 15;  // elements a thread takes at a time
// Above this size the output does not stay in the cache: writing around it saves reading it first.
constexpr int64_t kStreamFrom = 1 << 23;

template <class Work>
void in_chunks(int64_t size, int64_t chunk, int threads, const Work& work) {
  const int64_t chunks = (size + chunk - 1) / chunk;
  if (chunks < 4) threads = 1;  // waking a thread costs as much
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
#endif
  for (int64_t i = 0; i < chunks; ++i) work(i * chunk, std::min(size, (i + 1) * chunk));
  (void)threads;
}

// Calls work(offset, scale's index, size) for the groups first ... last - 1, counted along rows.
template <class Work>
inline void each_group(int64_t columns, int64_t group, int64_t first, int64_t last,
                       const Work& work) {
  const int64_t per_row = (columns + group - 1) / group;
  int64_t column = first % per_row * group, offset = first / per_row * columns + column;
  for (int64_t g = first; g < last; ++g) {
    const int64_t size = std::min(group, columns - column);
    work(offset, g, size);
    offset += size;
    column = column + size == columns ? 0 : column + size;
  }
}

template <int kSize>
inline void decode(const int8_t* __restrict m, uint16_t* __restrict y, int64_t size, float step) {
#pragma GCC unroll 1
  for (int64_t i = 0; i < (kSize ? kSize : size); ++i) y[i] = madl::mxint8_element(m[i], step);
}

#ifdef __AVX512BW__
// A group whose output starts at a multiple of 64 bytes, written around the cache.
inline void decode_streaming(const int8_t* m, uint16_t* y, int64_t size, float step) {
  const __m512 steps = _mm512_set1_ps(step);
  for (int64_t i = 0; i < size; i += 32) {
    __m256i half[2];
    for (int h = 0; h < 2; ++h) {
      const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(m + i + 16 * h));
      const __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)), steps);
      half[h] = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(value), 16));
    }
    _mm512_stream_si512(reinterpret_cast<__m512i*>(y + i),
                        _mm512_inserti64x4(_mm512_castsi256_si512(half[0]), half[1], 1));
  }
}
#endif

}  // namespace

extern "C" void madl_mxint8_quantize(const float* x, int8_t* mantissas, uint8_t* scales,
                                     int64_t rows, int64_t columns, int64_t group,
                                     int32_t threads) {
  const int64_t groups = rows * ((columns + group - 1) / group);
  in_chunks(groups, std::max<int64_t>(1, kChunk / group), threads, [&](int64_t a, int64_t b) {
    each_group(columns, group, a, b, [&](int64_t offset, int64_t g, int64_t size) {
      if (size == 32) {
        scales[g] = madl::mxint8_scale_of<32>(x + offset, size);
        madl::mxint8_round<32>(x + offset, size, scales[g], mantissas + offset);
      } else {
        scales[g] = madl::mxint8_scale_of<0>(x + offset, size);
        madl::mxint8_round<0>(x + offset, size, scales[g], mantissas + offset);
      }
    });
  });
}

extern "C" void madl_mxint8_dequantize(const int8_t* mantissas, const uint8_t* scales, uint16_t* y,
                                       int64_t rows, int64_t columns, int64_t group,
                                       int32_t threads) {
  const int64_t groups = rows * ((columns + group - 1) / group);
#ifdef __AVX512BW__
  const bool aligned = reinterpret_cast<uintptr_t>(y) % 64 == 0 && columns % 32 == 0;
  const bool streams = rows * columns >= kStreamFrom && aligned && group % 32 == 0;
#endif
  in_chunks(groups, std::max<int64_t>(1, kChunk / group), threads, [&](int64_t a, int64_t b) {
    each_group(columns, group, a, b, [&](int64_t offset, int64_t g, int64_t size) {
      const float step = madl::mxint8_step(scales[g]);
#ifdef __AVX512BW__
      if (streams) return decode_streaming(mantissas + offset, y + offset, size, step);
#endif
      if (size == 32)
        decode<32>(mantissas + offset, y + offset, size, step);
      else
        decode<0>(mantissas + offset, y + offset, size, step);
    });
#ifdef __AVX512BW__
    if (streams) _mm_sfence();
#endif
  });
}
