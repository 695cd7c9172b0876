// Sixteen rows by sixteen outputs at a time, for linear_mxint8_cpu.cpp: the same integers, scales
// and order, so the same bits.
//
// The limit, for a group of 32 inputs, in cycles of a Xeon's core. The product takes 16, as many as
// of 64 inputs; tiles are loaded and stored in 9 + 5 + 17, no two at once: 31. Sixteen times a
// conversion and two multiply-adds for the scales are 48, for while tiles are in use a core does
// one instruction of 512 bits a cycle, not two. So 48 is the limit, where VNNI's 128 products and
// 64 instructions for the scales take 96. In bfloat16, which holds a mantissa and its scale,
// products would come out scaled, and 16 additions be left; but weights would have to be decoded.
//
// How: signed by unsigned bytes, as weights are stored as w + 128. A sum S of them becomes
// (S - 128 sum(x)) 2^ex in one multiply-add, exactly, and is added to the result, times 2^ew, in a
// second one, which rounds once. A sum is stored two groups after its product and read one group
// later: to wait for it would cost as much again. Results that miss the cache would hold up the
// tiles' own stores, so the next ones are fetched meanwhile.
//
// Not handled: groups of other sizes than 32, and scales so far from 1 that these powers of two
// would leave float32 (`is_usual`). There the caller multiplies without tiles.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "mxint8_quantize.h"

namespace madl::amx {

constexpr int64_t kGroup = 32, kQuads = kGroup / 4, kRows = 16, kColumns = 16;
constexpr int64_t kPanel = 2 * kColumns, kGroupBytes = kGroup * kPanel;
constexpr int64_t kLeastRows = 12;  // of 16; AVX-512 multiplies fewer sooner

// The first rows, which are multiplied in tiles; the last tile may be filled up.
inline int64_t rows_in_tiles(int64_t rows) {
  return rows % kRows < kLeastRows ? rows - rows % kRows : rows;
}

// Of a group of inputs: 2^ex, and -128 sum(x) 2^ex. NaN for the NaN scale.
struct Factor {
  float power, offset;
};

// A group of 16 rows. Tiles of rows follow each other, each group by group.
struct alignas(64) Inputs {
  int8_t codes[kRows][kGroup];
  Factor factors[kRows];
};

// Two such exponents and a sum below 2^20 stay far inside float32.
constexpr uint8_t kLowest = 59, kHighest = 186;
inline bool is_usual(uint8_t scale) { return scale >= kLowest && scale <= kHighest; }

// Takes a row's group; returns whether tiles can multiply it. Zeros they can, whatever the scale.
inline bool take(const int8_t* codes, uint8_t scale, int32_t start, int64_t row, Inputs& inputs) {
  std::memcpy(inputs.codes[row], codes, kGroup);
  const float power = scale == kNanScale ? bits_to_float(0x7fc00000u)
                      : is_usual(scale)  ? bits_to_float(uint32_t(scale - 12) << 23)
                                         : 0.0f;
  inputs.factors[row] = {power, float(start) * power};
  return power != 0 || std::all_of(codes, codes + kGroup, [](int8_t code) { return code == 0; });
}

// A panel of weights: 32 outputs.
struct Panel {
  const uint8_t *w, *scales;
  int64_t quads, num_groups, width;
  const float* bias;

  // Whether its scales are usual ones, or of zeros.
  bool fits() const {
    const __m256i lowest = _mm256_set1_epi8(char(kLowest));
    const __m256i range = _mm256_set1_epi8(char(kHighest - kLowest));
    for (int64_t g = 0; g < num_groups; ++g) {
      const uint8_t* row = scales + g * kPanel;
      const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
      uint32_t others = _mm256_cmpgt_epu8_mask(_mm256_sub_epi8(all, lowest), range);
      for (; others; others &= others - 1) {
        const int n = __builtin_ctz(others);
        if (row[n]) return false;
        for (int64_t q = g * kQuads; q < std::min((g + 1) * kQuads, quads); ++q)
          if (std::memcmp(w + (q * kPanel + n) * 4, "\x80\x80\x80\x80", 4)) return false;
      }
    }
    return true;
  }
};

// The tile registers of a thread while this lives: 0-3 results, 4-5 inputs, 6-7 weights.
struct alignas(64) Registers {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, kGroup, kGroup, 64, 64};
  uint8_t rows[16] = {kRows, kRows, kRows, kRows, kRows, kRows, kQuads, kQuads};

  Registers() {
    asm volatile("" ::"r"(this) : "memory");  // GCC 12 thinks that only a pointer is read
    _tile_loadconfig(this);
  }
  ~Registers() { _tile_release(); }
};

// Weights of 16 outputs; `last` is their last group, filled up with zeros.
struct Weights {
  const uint8_t *w, *last, *scales;
  int64_t num_groups;
  __m512 start;
  __mmask16 exists;
};

// 16 x 16 results, of which `rows` exist.
struct Results {
  float* y;
  int64_t rows;
};

// `next` are those whose memory will be needed then.
inline void multiply_tile(const Inputs* x, const Weights& weights, const Results& results,
                          const Results& next, int64_t columns) {
  const int64_t num_groups = weights.num_groups;
  alignas(64) int32_t sums[4][kRows][kColumns];
  const auto multiply = [&](int64_t g) {
    const uint8_t* w = g + 1 < num_groups ? weights.w + g * kGroupBytes : weights.last;
#define MADL_MULTIPLY(result, left, right) \
  _tile_zero(result);                      \
  _tile_loadd(left, x[g].codes, kGroup);   \
  _tile_loadd(right, w, 4 * kPanel);       \
  _tile_dpbsud(result, left, right);       \
  break
    switch (g % 4) {
      case 0: MADL_MULTIPLY(0, 4, 6);
      case 1: MADL_MULTIPLY(1, 5, 7);
      case 2: MADL_MULTIPLY(2, 4, 6);
      case 3: MADL_MULTIPLY(3, 5, 7);
    }
#undef MADL_MULTIPLY
  };
  const auto store = [&](int64_t g) {
    switch (g % 4) {
      case 0: _tile_stored(0, sums[0], sizeof sums[0][0]); break;
      case 1: _tile_stored(1, sums[1], sizeof sums[0][0]); break;
      case 2: _tile_stored(2, sums[2], sizeof sums[0][0]); break;
      case 3: _tile_stored(3, sums[3], sizeof sums[0][0]); break;
    }
  };
  __m512 total[kRows];
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r) total[r] = weights.start;
  for (int64_t g = 0; g < num_groups + 3; ++g) {
    asm volatile("" ::: "memory");  // GCC 12 does not know that tiles read and write memory
    if (g < num_groups) multiply(g);
    if (g >= 2 && g < num_groups + 2) store(g - 2);
    asm volatile("" ::: "memory");
    for (int64_t r = 2 * g; r < std::min(2 * g + 2, next.rows); ++r)
      __builtin_prefetch(next.y + r * columns, 1);
    if (g < 3) continue;
    const __m512 power = _mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_cvtepu8_epi32(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights.scales + (g - 3) * kPanel))),
        23));
#pragma GCC unroll 16
    for (int64_t r = 0; r < kRows; ++r) {
      const Factor& factor = x[g - 3].factors[r];
      const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums[(g - 3) % 4][r]));
      const __m512 part =
          _mm512_fmadd_ps(sum, _mm512_set1_ps(factor.power), _mm512_set1_ps(factor.offset));
      total[r] = _mm512_fmadd_ps(part, power, total[r]);
    }
  }
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r)
    if (r < results.rows)
      _mm512_mask_storeu_ps(results.y + r * columns, weights.exists, total[r]);
}

// The first `rows` rows of x by a panel that fits.
inline void multiply_panel(const Inputs* x, const Panel& panel, float* y, int64_t columns,
                           int64_t rows) {
  const int64_t before = (panel.num_groups - 1) * kQuads;
  const uint8_t* last = panel.w + before * 4 * kPanel;
  alignas(64) uint8_t filled[kGroupBytes];
  if (panel.quads - before < kQuads) {
    std::memset(filled, 0, sizeof filled);
    std::memcpy(filled, last, (panel.quads - before) * 4 * kPanel);
    last = filled;
  }
  for (int64_t m = 0; m < rows; m += kRows)
    for (int64_t n = 0; n < panel.width; n += kColumns) {
      const __mmask16 exists = __mmask16((1u << std::min(kColumns, panel.width - n)) - 1);
      const __m512 start =
          panel.bias ? _mm512_maskz_loadu_ps(exists, panel.bias + n) : _mm512_setzero_ps();
      const auto results = [&](int64_t row, int64_t column) {
        return Results{y + row * columns + column, std::min(rows - row, kRows)};
      };
      multiply_tile(
          x + m / kRows * panel.num_groups,
          {panel.w + 4 * n, last + 4 * n, panel.scales + n, panel.num_groups, start, exists},
          results(m, n),
          n + kColumns < panel.width ? results(m, n + kColumns) : results(m + kRows, 0), columns);
    }
}

}  // namespace madl::amx
