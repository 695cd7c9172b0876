// A group of float32 values to MXINT8: the scale's byte, then the mantissas.
//
// The definition is madl.formats.blocked.MXInt, and this equals it bit for bit: the scale is the
// power of two of the largest magnitude, a mantissa is rounded to nearest, ties to even, and
// saturates at 127 (-128 is never made). A NaN makes its group NaN, which is scale 255.
//
// How: adding 1.5 * 2^23 steps leaves the rounded mantissa in the low bits of the sum.
// Not handled: flushing subnormals, which turns a group below 2^-126 into zeros.
#pragma once

#ifdef __AVX512BW__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>

#include "mxint8_decode.h"

namespace madl {

constexpr uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
constexpr uint8_t kNanScale = 255, kLargestScale = 254;

// The loops over a group of kSize values (0: `size`, known only at run time). Without the pragma,
// GCC unrolls a short loop before it vectorises, and then does not.

template <int kSize>
inline uint8_t mxint8_scale_of(const float* __restrict x, int64_t size) {
  uint32_t largest = 0;  // as bits: integers order like magnitudes, and NaN lies above infinity
#pragma GCC unroll 1
  for (int64_t i = 0; i < (kSize ? kSize : size); ++i)
    largest = std::max(largest, float_to_bits(x[i]) & kMagnitude);
  if (largest > kInfinity) return kNanScale;
  return uint8_t(std::min<uint32_t>(largest >> 23, kLargestScale));
}

// Mantissas under that scale, as int8 in `codes`; returns their sum.
template <int kSize>
inline int32_t mxint8_round(const float* __restrict x, int64_t size, uint8_t scale,
                            int8_t* __restrict codes) {
  constexpr float kMagic = 1.5f * 8388608.0f / 64.0f, kTop = 127.0f / 64.0f;
  const uint32_t field = 254u - std::min<uint32_t>(scale, kLargestScale);
  const float inverse = bits_to_float(std::max(field << 23, 1u << 22));  // 2^(127 - scale)
  const int32_t is_number = scale == kNanScale ? 0 : -1;
  int32_t sum = 0;
#pragma GCC unroll 1
  for (int64_t i = 0; i < (kSize ? kSize : size); ++i) {
    float value = x[i] * inverse;
    value = value > kTop ? kTop : value;
    value = value < -kTop ? -kTop : value;
    const int32_t code =
        int32_t(float_to_bits(value + kMagic) - float_to_bits(kMagic)) & is_number;
    codes[i] = int8_t(code);
    sum += code;
  }
  return sum;
}

#ifdef __AVX512BW__
// The usual group in two registers: half the time of what the compiler makes of the loops.

template <>
inline uint8_t mxint8_scale_of<32>(const float* __restrict x, int64_t) {
  const __m512i magnitude = _mm512_set1_epi32(int32_t(kMagnitude));
  const __m512i low = _mm512_and_si512(_mm512_loadu_si512(x), magnitude);
  const __m512i high = _mm512_and_si512(_mm512_loadu_si512(x + 16), magnitude);
  const uint32_t largest = _mm512_reduce_max_epu32(_mm512_max_epu32(low, high));
  if (largest > kInfinity) return kNanScale;
  return uint8_t(std::min<uint32_t>(largest >> 23, kLargestScale));
}

template <>
inline int32_t mxint8_round<32>(const float* __restrict x, int64_t, uint8_t scale,
                                int8_t* __restrict codes) {
  const __m512 magic = _mm512_set1_ps(1.5f * 8388608.0f / 64.0f);
  const __m512 top = _mm512_set1_ps(127.0f / 64.0f), bottom = _mm512_set1_ps(-127.0f / 64.0f);
  const uint32_t field = 254u - std::min<uint32_t>(scale, kLargestScale);
  const __m512 inverse = _mm512_set1_ps(bits_to_float(std::max(field << 23, 1u << 22)));
  const __mmask16 is_number = scale == kNanScale ? 0 : 0xffff;
  __m512i sum = _mm512_setzero_si512();
  for (int half = 0; half < 2; ++half) {
    const __m512 value = _mm512_mul_ps(_mm512_loadu_ps(x + 16 * half), inverse);
    const __m512 inside = _mm512_max_ps(_mm512_min_ps(value, top), bottom);
    const __m512i shifted = _mm512_castps_si512(_mm512_add_ps(inside, magic));
    const __m512i code =
        _mm512_maskz_sub_epi32(is_number, shifted, _mm512_castps_si512(magic));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 16 * half), _mm512_cvtepi32_epi8(code));
    sum = _mm512_add_epi32(sum, code);
  }
  return _mm512_reduce_add_epi32(sum);
}
#endif

}  // namespace madl
