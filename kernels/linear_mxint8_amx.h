// Rows by 32 outputs in tiles of bfloat16, for linear_mxint8_cpu.cpp: the same sums in the same
// order, so the same bits.
//
// Bfloat16 holds a mantissa and its scale, so weights and inputs are decoded to it, and products
// come out scaled. A group is 32 values, which is one product of tiles: it adds the group's sum,
// exact in float32, to the result and rounds once, as the definition does. Nothing is left to be
// done a group but to decode the weights, once for all rows.
//
// How weights are decoded, 32 at a time: a byte under 0x64 is 1024 + byte in half precision; one
// multiply-add takes 1152 from it (weights are stored as w + 128) and multiplies by the scale, both
// exactly; the bits of a half, its sign aside, moved by three, are those of a bfloat16 that is
// 2^112 times smaller. Inputs are the larger by that. Bytes 0 and 2 of a quad make one row of a
// tile, 1 and 3 the next one; inputs lie likewise.
//
// Not handled: groups of other sizes than 32; weights beyond 4, or whose group is below 2^-18, and
// inputs, or biases, by which a sum could leave float32 or be flushed, as tiles do with subnormals
// (`take`, `fits`). There the caller multiplies without tiles.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "mxint8_quantize.h"

namespace madl::amx {

constexpr int64_t kGroup = 32, kQuads = kGroup / 4, kRows = 16, kColumns = 16;
constexpr int64_t kPanel = 2 * kColumns, kQuadBytes = 4 * kPanel;
constexpr int64_t kLeastRows = 12;  // for which decoding pays
constexpr int64_t kDepth = 16;  // groups that are decoded at a time: a power of two
constexpr int64_t kFew = 4;     // the same where nothing reads them again
constexpr int64_t kSoonBytes = 1024;  // of weights, fetched into the cache

// A group of 16 rows, as bfloat16. Tiles of rows follow each other, each group by group.
struct alignas(64) Inputs {
  uint16_t values[kRows][kGroup];
};

constexpr int kFirstScale = 109, kLastScale = 128;  // of weights that are not zeros
constexpr int kFirstInput = 31, kLastInput = 151;

// The largest of each of 16 vectors.
inline __m512i largest_of_each(__m512i (&v)[16]) {
  for (int i = 0; i < 8; ++i)
    v[i] = _mm512_max_epu32(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                            _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
  for (int i = 0; i < 4; ++i)
    v[i] = _mm512_max_epu32(_mm512_unpacklo_epi64(v[2 * i], v[2 * i + 1]),
                            _mm512_unpackhi_epi64(v[2 * i], v[2 * i + 1]));
  for (int last = 2; last; --last)
    for (int i = 0; i < last; ++i)
      v[i] = _mm512_max_epu32(_mm512_shuffle_i32x4(v[2 * i], v[2 * i + 1], 0x88),
                              _mm512_shuffle_i32x4(v[2 * i], v[2 * i + 1], 0xdd));
  return v[0];
}

// Quantizes a row of `size` values, 16 groups at a time, into row `row` of tiles; returns whether
// tiles can multiply it. The definition is that of mxint8_quantize.h.
inline bool take(const float* x, int64_t size, int64_t row, Inputs* tiles) {
  alignas(64) static constexpr auto kOrder = [] {  // upper halves of 32 floats
    std::array<uint16_t, kGroup> index{};
    for (int i = 0; i < int(kGroup); ++i)
      index[i] = uint16_t(2 * (i % 4 == 1 ? i + 1 : i % 4 == 2 ? i - 1 : i) + 1);
    return index;
  }();
  const __m512i order = _mm512_load_si512(kOrder.data());
  const __m512i magnitude = _mm512_set1_epi32(int32_t(kMagnitude));
  const __m512 magic = _mm512_set1_ps(1.5f * 8388608.0f / 64.0f);
  const __m512 most = _mm512_set1_ps(127.0f / 64.0f), least = _mm512_set1_ps(-127.0f / 64.0f);
  const auto load = [&](int64_t at) {
    if (at + 16 <= size) return _mm512_loadu_ps(x + at);
    const int64_t count = std::clamp<int64_t>(size - at, 0, 16);
    return _mm512_maskz_loadu_ps(__mmask16((1u << count) - 1), x + at);
  };
  const int64_t num_groups = (size + kGroup - 1) / kGroup;
  bool fits = true;
  for (int64_t first = 0; first < num_groups; first += 16) {
    __m512i largest[16];
    for (int64_t i = 0; i < 16; ++i) {
      const int64_t at = (first + i) * kGroup;
      largest[i] = at < size ? _mm512_max_epu32(
                                   _mm512_and_si512(_mm512_castps_si512(load(at)), magnitude),
                                   _mm512_and_si512(_mm512_castps_si512(load(at + 16)), magnitude))
                             : _mm512_setzero_si512();
    }
    const __m512i each = largest_of_each(largest), scale = _mm512_srli_epi32(each, 23);
    const __mmask16 is_nan = _mm512_cmpgt_epu32_mask(each, _mm512_set1_epi32(kInfinity));
    const __mmask16 is_usual = _mm512_cmple_epu32_mask(
        _mm512_sub_epi32(scale, _mm512_set1_epi32(kFirstInput)),
        _mm512_set1_epi32(kLastInput - kFirstInput));
    fits &= (_mm512_test_epi32_mask(each, each) & ~(is_usual | is_nan)) == 0;
    // a weight is w 2^(scale - 235), so an input is 2^(scale - 31) for each step, or 1/64
    alignas(64) float inverse[16], power[16];
    _mm512_store_si512(inverse, _mm512_slli_epi32(
                                    _mm512_sub_epi32(_mm512_set1_epi32(254), scale), 23));
    _mm512_store_si512(
        power,
        _mm512_mask_blend_epi32(
            is_nan,
            _mm512_maskz_slli_epi32(
                is_usual, _mm512_add_epi32(scale, _mm512_set1_epi32(127 - 31 + 6)), 23),
            _mm512_set1_epi32(0x7fc00000)));
    for (int64_t i = 0; i < std::min<int64_t>(16, num_groups - first); ++i) {
      const auto half = [&](int64_t at) {
        const __m512 value = _mm512_mul_ps(load(at), _mm512_set1_ps(inverse[i]));
        const __m512 steps = _mm512_sub_ps(_mm512_add_ps(value, magic), magic);
        const __m512 inside = _mm512_max_ps(_mm512_min_ps(steps, most), least);
        return _mm512_castps_si512(_mm512_mul_ps(inside, _mm512_set1_ps(power[i])));
      };
      const int64_t at = (first + i) * kGroup;
      _mm512_store_si512(tiles[first + i].values[row],
                         _mm512_permutex2var_epi16(half(at), order, half(at + 16)));
    }
  }
  return fits;
}

// A panel of weights: 32 outputs, of which `width` exist.
struct Panel {
  const uint8_t *w, *scales;
  int64_t quads, num_groups, width;
  const float* bias;

  // Whether tiles can multiply it.
  bool fits() const {
    const __m256i lowest = _mm256_set1_epi8(char(kFirstScale));
    const __m256i range = _mm256_set1_epi8(char(kLastScale - kFirstScale));
    for (int64_t g = 0; g < num_groups; ++g) {
      const uint8_t* row = scales + g * kPanel;
      const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
      uint32_t others = _mm256_cmpgt_epu8_mask(_mm256_sub_epi8(all, lowest), range);
      for (; others; others &= others - 1) {
        const int n = __builtin_ctz(others);
        if (row[n] > kLastScale) return false;
        for (int64_t q = g * kQuads; q < std::min((g + 1) * kQuads, quads); ++q)
          if (std::memcmp(w + (q * kPanel + n) * 4, "\x80\x80\x80\x80", 4)) return false;
      }
    }
    for (int64_t n = 0; bias && n < width; ++n) {
      const int exponent = float_to_bits(bias[n]) >> 23 & 255;
      if (bias[n] != 0 && (exponent < 24 || exponent > 200)) return false;
    }
    return true;
  }
};

// The tile registers of a thread while this lives: 0-3 results, 4-5 inputs, 6-7 weights.
struct alignas(64) Registers {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {kRows, kRows, kRows, kRows, kRows, kRows, kRows, kRows};

  Registers() {
    asm volatile("" ::"r"(this) : "memory");  // GCC 12 thinks that only a pointer is read
    _tile_loadconfig(this);
  }
  ~Registers() { _tile_release(); }
};

// A group of a panel, decoded: two tiles of 16 outputs, each 16 rows of pairs.
struct alignas(64) Decoded {
  uint16_t values[2][kGroup / 2][kPanel];
};

inline void decode(const Panel& panel, int64_t g, Decoded& out) {
  const __m512i low = _mm512_set1_epi16(0x00ff), magic = _mm512_set1_epi16(0x6400);
  const __m512i above = _mm512_set1_epi16(0x0064), kept = _mm512_set1_epi16(int16_t(0x8fff));
  const int64_t count = std::min(kQuads, panel.quads - g * kQuads);
  for (int64_t half = 0; half < 2; ++half) {
    const __m512i scale = _mm512_cvtepu8_epi32(_mm_loadu_si128(
        reinterpret_cast<const __m128i*>(panel.scales + g * kPanel + half * kColumns)));
    const __m512i field = _mm512_max_epi32(  // those of zeros may be any
        _mm512_sub_epi32(scale, _mm512_set1_epi32(kFirstScale - 1)), _mm512_set1_epi32(1));
    const __m512h power = _mm512_castsi512_ph(
        _mm512_or_si512(_mm512_slli_epi32(field, 10), _mm512_slli_epi32(field, 26)));
    const __m512h offset = _mm512_mul_ph(power, _mm512_set1_ph(1152));
    const auto decoded = [&](__m512i x) {
      const __m512i bits =
          _mm512_castph_si512(_mm512_fmsub_ph(_mm512_castsi512_ph(x), power, offset));
      return _mm512_and_si512(_mm512_srai_epi16(bits, 3), kept);
    };
    const uint8_t* w = panel.w + g * kQuads * kQuadBytes + half * 4 * kColumns;
    for (int64_t q = 0; q < count; ++q) {
      __builtin_prefetch(w + q * kQuadBytes + kSoonBytes);
      const __m512i bytes = _mm512_loadu_si512(w + q * kQuadBytes);
      const __m512i even = _mm512_ternarylogic_epi32(bytes, low, magic, 0xea);  // a & b | c
      const __m512i odd = _mm512_shrdi_epi16(bytes, above, 8);
      _mm512_store_si512(out.values[half][2 * q], decoded(even));
      _mm512_store_si512(out.values[half][2 * q + 1], decoded(odd));
    }
    for (int64_t r = 2 * count; r < kGroup / 2; ++r)
      _mm512_store_si512(out.values[half][r], _mm512_setzero_si512());
  }
}

// Rows of x by a panel that fits. `partial`: room for as many rows of 32 floats,
// filled up to pairs of tiles. `ahead`: the next panel's weights, which are fetched meanwhile.
inline void multiply_panel(const Inputs* x, const Panel& panel, float* y, int64_t columns,
                           int64_t rows, float* partial, const uint8_t* ahead) {
  constexpr int64_t kTall = 2 * kRows;
  const int64_t num_groups = panel.num_groups;
  const int64_t depth = rows > kTall ? kDepth : num_groups;
  const int64_t mask = rows > kTall ? kDepth - 1 : kFew - 1;
  const int64_t steps = num_groups * ((rows + kTall - 1) / kTall);
  const int64_t bytes = ahead ? (panel.quads * kQuadBytes + steps - 1) / steps : 0;
  alignas(64) Decoded weights[kDepth];
  alignas(64) float start[kPanel] = {}, whole[kTall][kPanel];
  if (panel.bias) std::copy_n(panel.bias, panel.width, start);
  for (int64_t first = 0; first < num_groups; first += depth) {
    const int64_t last = std::min(first + depth, num_groups);
    for (int64_t m = 0; m < rows; m += kTall) {
      const int64_t count = std::min(rows - m, kTall);
      const bool is_tall = count > kRows;  // two tiles of rows, or one
      const bool is_last = last == num_groups;
      const bool is_whole = count == kTall && panel.width == kPanel;
      float* to = !is_last ? partial + m * kPanel : is_whole ? y + m * columns : whole[0];
      const int64_t apart = is_last && is_whole ? columns : kPanel;
      const float* from = first ? partial + m * kPanel : start;
      const int64_t stride = first ? kPanel : 0;
      asm volatile("" ::: "memory");  // GCC 12 does not know that tiles read and write memory
      _tile_loadd(0, from, stride * 4);
      _tile_loadd(1, from + kColumns, stride * 4);
      if (is_tall) {
        _tile_loadd(2, from + kRows * stride, stride * 4);
        _tile_loadd(3, from + kRows * stride + kColumns, stride * 4);
      }
      const Inputs *upper = x + m / kRows * num_groups, *lower = upper + num_groups;
      const int64_t lines = (kTall + last - first - 1) / (last - first);
      if (m == 0) decode(panel, first, weights[0]);
      for (int64_t g = first, r = 0; g < last; ++g) {
        if (m == 0 && g + 1 < last) decode(panel, g + 1, weights[(g + 1 - first) & mask]);
        for (const int64_t end = std::min(r + lines, kTall); r < end; ++r) {
          __builtin_prefetch(to + r * apart, 1);
          __builtin_prefetch(to + r * apart + kColumns, 1);
        }
        for (const uint8_t* end = ahead + bytes; ahead < end; ahead += 64)
          __builtin_prefetch(ahead, 0, 2);  // into the L2 cache
        asm volatile("" ::: "memory");
        const Decoded& w = weights[(g - first) & mask];
        _tile_loadd(6, w.values[0], 64);
        _tile_loadd(7, w.values[1], 64);
        _tile_stream_loadd(4, upper[g].values, 64);  // which leaves the L1 cache to the weights
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (is_tall) {
          _tile_stream_loadd(5, lower[g].values, 64);
          _tile_dpbf16ps(2, 5, 6);
          _tile_dpbf16ps(3, 5, 7);
        }
      }
      _tile_stored(0, to, apart * 4);
      _tile_stored(1, to + kColumns, apart * 4);
      if (is_tall) {
        _tile_stored(2, to + kRows * apart, apart * 4);
        _tile_stored(3, to + kRows * apart + kColumns, apart * 4);
      }
      asm volatile("" ::: "memory");
      if (is_last && !is_whole)
        for (int64_t r = 0; r < count; ++r)
          std::copy_n(whole[r], panel.width, y + (m + r) * columns);
    }
  }
}

}  // namespace madl::amx
