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
  const uint32_t field = 254u - std::min<uint32_t>(scale, kLargestScale);
  const __m512 inverse = _mm512_set1_ps(bits_to_float(std::max(field << 23, 1u << 22)));
  const __mmask16 is_number = scale == kNanScale ? 0 : 0xffff;
  const auto half = [&](int64_t at) {  // saturated at 127 by the conversion, infinity too
    const __m512 shifted = _mm512_add_ps(_mm512_mul_ps(_mm512_loadu_ps(x + at), inverse), magic);
    return _mm512_cvtsepi32_epi8(_mm512_maskz_sub_epi32(
        is_number, _mm512_castps_si512(shifted), _mm512_castps_si512(magic)));
  };
  const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(half(0)), half(16), 1);
  const __m256i all = _mm256_max_epi8(both, _mm256_set1_epi8(-127));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), all);
  const __m256i sums = _mm256_sad_epu8(  // of code + 128
      _mm256_xor_si256(all, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
  const __m128i two =
      _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  return int32_t(_mm_cvtsi128_si64(two) + _mm_extract_epi64(two, 1)) - 32 * 128;
}
#endif

}  // namespace madl
