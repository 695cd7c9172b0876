// y = a b^T + bias on AMX, where bfloat16 holds b exactly, and a too or as a sum of three parts.
//
// A product of two bfloat16 is exact in float32, so against a float32 matrix product only the order
// of the summation differs. Operands come as float32. One part is the upper 16 bits of a value,
// which is exact for what the caller promises; anything else is truncated. Three parts hold all 24
// significant bits of any float32, as hi + mid + lo, cut and not rounded (`cut`).
//
// How: both operands become tiles of 16 rows by 16 pairs of neighbours along K, those of b turned
// over as the instruction wants them. b is packed whole; a block of a's rows is packed by the
// thread that multiplies it, and stays in its cache. 2 x 2 tiles of y stay in registers.
//
// Shapes: a (M, K), b (N, K), bias (N) or null, y (M, N) dense row by row; of the two strides of a
// (and of b) one is 1, so that a transposed matrix needs no copy.
// Not handled: subnormals, which the instruction takes as zero; so are parts below 2^-126.

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

#include "round_to_grid.h"

namespace {

using madl::Rounding;

constexpr int64_t kTile = 16, kDepth = 32;  // rows or columns of a tile; its share of K
constexpr int64_t kWords = kTile * kTile;   // pairs of bfloat16 in a tile
constexpr int64_t kBlockBytes = 1 << 19;    // of a's rows that are packed at a time

using Words = uint32_t;

struct Matrix {
  const float* at;
  int64_t rows, depth, row_stride, depth_stride;
};

struct Free {
  void operator()(Words* p) const { ::operator delete[](p, std::align_val_t(64)); }
};
using Buffer = std::unique_ptr<Words[], Free>;

Buffer allocate(int64_t words) {
  return Buffer(static_cast<Words*>(
      ::operator new[](size_t(words) * sizeof(Words), std::align_val_t(64))));
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline __mmask16 first(int64_t count) {
  return __mmask16((1u << std::clamp<int64_t>(count, 0, kTile)) - 1);
}

// The upper halves of x as floats; what is left stays in x.
inline __m512 cut(__m512& x) {
  const __m512i top = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(int(0xffff0000)));
  // nothing is left of infinity and NaN; a NaN of low bits alone stays one
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512 part = _mm512_castsi512_ps(
      _mm512_mask_or_epi32(top, is_nan, top, _mm512_set1_epi32(0x00400000)));
  const __mmask16 is_special = _mm512_fpclass_ps_mask(x, 0x81 | 0x18);
  x = _mm512_maskz_sub_ps(__mmask16(~is_special), x, part);
  return part;
}

// For every part: 16 vectors of pairs. Neighbours along K lie side by side (a vector is a row) or
// in two rows of memory (a vector is a pair of every row).
template <int Parts, bool kSideBySide>
inline void load(const Matrix& m, int64_t row, int64_t depth, __m512i (*out)[kTile]) {
  static const __m512i kUpper = [] {  // of each 32 bits of two vectors, the upper 16
    alignas(64) uint16_t index[32];
    for (int i = 0; i < 32; ++i) index[i] = uint16_t(2 * i + 1);
    return _mm512_load_si512(index);
  }();
  const __m512i upper = kUpper;
  for (int64_t i = 0; i < kTile; ++i) {
    __m512 low, high;
    if constexpr (kSideBySide) {
      const bool exists = row + i < m.rows;
      const float* from = m.at + (row + i) * m.row_stride + depth;
      low = _mm512_maskz_loadu_ps(exists ? first(m.depth - depth) : __mmask16(0), from);
      high = _mm512_maskz_loadu_ps(exists ? first(m.depth - depth - kTile) : __mmask16(0),
                                   from + kTile);
    } else {
      const int64_t k = depth + 2 * i;
      const float* from = m.at + k * m.depth_stride + row;
      const __mmask16 wanted = first(m.rows - row);
      low = _mm512_maskz_loadu_ps(k < m.depth ? wanted : __mmask16(0), from);
      high = _mm512_maskz_loadu_ps(k + 1 < m.depth ? wanted : __mmask16(0), from + m.depth_stride);
    }
    for (int p = 0; p < Parts; ++p) {
      const __m512 l = Parts > 1 ? cut(low) : low, h = Parts > 1 ? cut(high) : high;
      const __m512i lows = _mm512_castps_si512(l), highs = _mm512_castps_si512(h);
      if constexpr (kSideBySide)
        out[p][i] = _mm512_permutex2var_epi16(lows, upper, highs);
      else
        out[p][i] = _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(lows, 16), highs);
    }
  }
}

inline void transpose(__m512i (&v)[kTile]) {
  __m512i t[kTile], u[kTile];
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
  }
  for (int i = 0; i < 4; ++i) {
    u[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    u[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    u[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    u[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int c = 0; c < 4; ++c) {  // u[4 i + c]: columns c, 4 + c, 8 + c, 12 + c of rows 4 i ...
    const __m512i even_low = _mm512_shuffle_i32x4(u[c], u[4 + c], 0x88);
    const __m512i even_high = _mm512_shuffle_i32x4(u[8 + c], u[12 + c], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(u[c], u[4 + c], 0xdd);
    const __m512i odd_high = _mm512_shuffle_i32x4(u[8 + c], u[12 + c], 0xdd);
    v[c] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    v[8 + c] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    v[4 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    v[12 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
}

// Tiles (K, parts) of 16 rows: a row of words for each of them, or for each pair (`kTurned`).
template <int Parts, bool kTurned, bool kSideBySide>
void pack_rows(const Matrix& m, int64_t row, Words* out) {
  for (int64_t depth = 0; depth < m.depth; depth += kDepth) {
    __m512i tiles[Parts][kTile];
    load<Parts, kSideBySide>(m, row, depth, tiles);
    for (int p = 0; p < Parts; ++p, out += kWords) {
      if constexpr (kTurned == kSideBySide) transpose(tiles[p]);
      for (int64_t i = 0; i < kTile; ++i) _mm512_store_si512(out + i * kTile, tiles[p][i]);
    }
  }
}

template <int Parts, bool kTurned>
void pack(const Matrix& m, int64_t row, Words* out) {
  if (m.depth_stride == 1)
    pack_rows<Parts, kTurned, true>(m, row, out);
  else
    pack_rows<Parts, kTurned, false>(m, row, out);
}

struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// 32 x 32 of y, of which `rows` x `columns` exist.
template <int Parts>
void multiply(const Words* a, const Words* b, int64_t steps, const float* bias, float* y,
              int64_t stride, int64_t rows, int64_t columns) {
  asm volatile("" ::: "memory");  // GCC 12 does not know that a tile load reads memory
  _tile_loadd(0, bias, 0);        // the same row 16 times
  _tile_loadd(1, bias + kTile, 0);
  _tile_loadd(2, bias, 0);
  _tile_loadd(3, bias + kTile, 0);
  const Words *below = a + steps * Parts * kWords, *beside = b + steps * kWords;
  for (int64_t k = 0; k < steps; ++k) {
    _tile_loadd(6, b + k * kWords, 64);
    _tile_loadd(7, beside + k * kWords, 64);
    for (int p = Parts - 1; p >= 0; --p) {  // the smallest first
      _tile_loadd(4, a + (k * Parts + p) * kWords, 64);
      _tile_loadd(5, below + (k * Parts + p) * kWords, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  if (rows >= 2 * kTile && columns >= 2 * kTile) {
    _tile_stored(0, y, stride * 4);
    _tile_stored(1, y + kTile, stride * 4);
    _tile_stored(2, y + kTile * stride, stride * 4);
    _tile_stored(3, y + kTile * stride + kTile, stride * 4);
    return;
  }
  alignas(64) float whole[2 * kTile][2 * kTile];
  _tile_stored(0, whole[0], sizeof whole[0]);
  _tile_stored(1, whole[0] + kTile, sizeof whole[0]);
  _tile_stored(2, whole[kTile], sizeof whole[0]);
  _tile_stored(3, whole[kTile] + kTile, sizeof whole[0]);
  for (int64_t r = 0; r < std::min(rows, 2 * kTile); ++r)
    std::copy_n(whole[r], std::min(columns, 2 * kTile), y + r * stride);
}

// Tiles of 16 rows of a, after what is to be done to them.
template <int Parts>
void pack_left(const Matrix& a, int64_t row, const Rounding* rounding, float* rounded, Words* out) {
  if (!rounding || row >= a.rows) return pack<Parts, false>(a, row, out);
  const int64_t rows = std::min(kTile, a.rows - row);
  rounding->round(a.at + row * a.row_stride, rounded, rows, a.depth, &rounding->grid, 1);
  pack<Parts, false>({rounded, rows, a.depth, a.depth, 1}, 0, out);
}

template <int Parts>
void product(const Matrix& a, const Matrix& b, const float* bias, float* y,
             const Rounding* rounding, int32_t threads) {
  const int64_t M = a.rows, N = b.rows, steps = ceil_div(a.depth, kDepth), pair = 2 * kTile;
  const int64_t wide = ceil_div(N, pair);  // in pairs of tiles, as is everything below
  if (M * N * a.depth < (1 << 22)) threads = 1;  // waking a thread costs as much
  const int64_t fits = kBlockBytes / std::max<int64_t>(1, 2 * steps * Parts * kWords * 4);
  const int64_t share = ceil_div(ceil_div(M, pair), threads);
  const int64_t block = std::clamp<int64_t>(fits, 1, std::max<int64_t>(1, share));
  const int64_t blocks = ceil_div(M, block * pair);
  const int64_t chunks = std::min(wide, ceil_div(threads, blocks));  // of columns, for few rows
  const Buffer bs = allocate(wide * 2 * steps * kWords);
  const Buffer starts = allocate(wide * pair);
  float* start = reinterpret_cast<float*>(starts.get());
  std::fill_n(start, wide * pair, 0.0f);
  if (bias) std::copy_n(bias, N, start);
#ifdef _OPENMP
#pragma omp parallel num_threads(threads) if (threads > 1)
#endif
  {
#ifdef _OPENMP
#pragma omp for schedule(dynamic)
#endif
    for (int64_t n = 0; n < 2 * wide; ++n)
      pack<1, true>(b, n * kTile, bs.get() + n * steps * kWords);
    const Buffer as = allocate(block * 2 * steps * Parts * kWords);
    const std::unique_ptr<float[]> rounded(new float[rounding ? kTile * a.depth : 0]);
    int64_t packed = -1;
    const TileShapes shapes;
    _tile_loadconfig(&shapes);
#ifdef _OPENMP
#pragma omp for schedule(dynamic)
#endif
    for (int64_t task = 0; task < blocks * chunks; ++task) {
      const int64_t top = task / chunks * block, chunk = task % chunks;
      const int64_t high = std::min(block, ceil_div(M, pair) - top);
      if (packed != top)
        for (int64_t i = 0; i < 2 * high; ++i)
          pack_left<Parts>(a, top * pair + i * kTile, rounding, rounded.get(),
                           as.get() + i * steps * Parts * kWords);
      packed = top;
      for (int64_t m = 0; m < high; ++m)
        for (int64_t n = chunk * wide / chunks; n < (chunk + 1) * wide / chunks; ++n) {
          const int64_t row = (top + m) * pair, column = n * pair;
          multiply<Parts>(as.get() + m * 2 * steps * Parts * kWords,
                          bs.get() + n * 2 * steps * kWords, steps, start + column,
                          y + row * N + column, N, M - row, N - column);
        }
    }
    _tile_release();
  }
}

}  // namespace

extern "C" void madl_linear_bf16(const float* x, const float* w, const float* bias, float* y,
                                 int64_t M, int64_t N, int64_t K, const Rounding* rounding,
                                 int32_t threads) {
  if (M && N) product<1>({x, M, K, K, 1}, {w, N, K, K, 1}, bias, y, rounding, threads);
}

// y = a b^T with any float32 in a. Strides are those of a row and of K.
extern "C" void madl_product_bf16(const float* a, int64_t a_row, int64_t a_depth, const float* b,
                                  int64_t b_row, int64_t b_depth, float* y, int64_t M, int64_t N,
                                  int64_t K, int32_t threads) {
  if (M && N)
    product<3>({a, M, K, a_row, a_depth}, {b, N, K, b_row, b_depth}, nullptr, y, nullptr, threads);
}
