// y = x w^T + bias with MXINT8 on both sides: integer dot products within a group, floats between.
//
// The input is quantized here, a group at a time; the weight comes quantized and rearranged
// (kernels/mxint8.py). The dot product of two groups is an exact integer, at most 2^24 in
// magnitude, so its float32 is exact, and so is its product with the two scales, powers of two. The
// groups are then added in their order, whatever the tile, the thread or the instruction set:
// every path here gives the same bits. Where the CPU has AMX, that multiplies all but a few rows
// (linear_mxint8_amx.h); few rows, and scales far from others, take AVX-512.
//
// AVX-512 adds the exponents of the scales and shifts each sum by them (vscalefps): only that one
// instruction a group shares the ports of the products, where two multiplications would.
//
// How: the instruction vpdpbusd multiplies unsigned by signed bytes, so weights are stored as
// w + 128, and each sum starts at -128 times the sum of the group's inputs. A CPU without it gets
// what the compiler makes of plain loops.
//
// Shapes: x (M, K), bias (N) or null, y (M, N); w: panels of 32 outputs, each (quads of K, 32, 4);
// scales: per panel (groups, 32). A quad that K fills only partly is padded with anything; the
// inputs are padded with zeros.
// Not handled: |x| |w| beyond float32 makes infinity or NaN; results below 2^-126 may lose bits.

// Every CPU that has AMX's tiles has these, too.
#if defined(__AMX_TILE__)
#pragma GCC target("avx512vnni,avx512vbmi2,avx512fp16")
#endif
#if defined(__AVX512VNNI__) || defined(__AMX_TILE__)
#define HAS_VNNI
#endif

#ifdef HAS_VNNI
#include <immintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "mxint8_quantize.h"

#ifdef __AMX_TILE__
#include <optional>

#include "linear_mxint8_amx.h"
#endif

namespace {

constexpr int kPanel = 32;
constexpr int64_t kQuadBytes = 4 * kPanel;
constexpr int64_t kBlockBytes = 1 << 21;  // of quantized inputs at a time
constexpr int64_t kTilesBytes = 1 << 19;  // of them as tiles
constexpr int64_t kSoonBytes = 1024;      // of weights, fetched into the cache
constexpr int64_t kLooks = 20000;         // before a waiting thread lets others run: some 20 us

// A group's inputs: what their scale and all biases and fraction bits add to the exponent of a
// weight's scale, NaN for the NaN scale; and -128 times their sum, where the integer sums start.
struct Group {
  float exponent;
  int32_t start;
};

struct Input {
  const int8_t* codes;   // rows, each `stride` bytes after the last
  const Group* groups;   // rows, each `num_groups` after the last
  int64_t stride, num_groups, quads, quads_per_group;
};

constexpr float kBiases = 127 + 6 + 127 + 6;

inline float exponent_of(uint8_t scale) {
  return scale == madl::kNanScale ? madl::bits_to_float(0x7fc00000u) : float(scale) - kBiases;
}

template <int kSize>
void quantize_groups(const float* x, int8_t* codes, Group* groups, int64_t K, int64_t group) {
  const int64_t whole = kSize ? K / kSize : 0;
  for (int64_t g = 0; g < whole; ++g) {
    const uint8_t scale = madl::mxint8_scale_of<kSize>(x + g * kSize, kSize);
    const int32_t sum = madl::mxint8_round<kSize>(x + g * kSize, kSize, scale, codes + g * kSize);
    groups[g] = {exponent_of(scale), -128 * sum};
  }
  for (int64_t k = whole * group, g = whole; k < K; k += group, ++g) {
    const int64_t size = std::min(group, K - k);
    const uint8_t scale = madl::mxint8_scale_of<0>(x + k, size);
    const int32_t sum = madl::mxint8_round<0>(x + k, size, scale, codes + k);
    groups[g] = {exponent_of(scale), -128 * sum};
  }
}

void quantize_row(const float* x, int8_t* codes, Group* groups, int64_t K, int64_t group) {
  if (group == 32)
    quantize_groups<32>(x, codes, groups, K, group);
  else
    quantize_groups<0>(x, codes, groups, K, group);
  for (int64_t k = K; k % 32; ++k) codes[k] = 0;  // a quad, or the depth of a tile
}

inline int32_t quad_at(const int8_t* codes) {
  int32_t quad;
  __builtin_memcpy(&quad, codes, sizeof quad);
  return quad;
}

#ifdef HAS_VNNI

constexpr int kRows = 6, kVectors = 2, kLanes = 16;

template <int Rows>
inline void multiply_quad(__m512i (&sum)[Rows][kVectors], const int8_t* codes, int64_t stride,
                          const uint8_t* w) {
  for (int j = 0; j < kVectors; ++j) __builtin_prefetch(w + kSoonBytes + 64 * j);
  const __m512i column[kVectors] = {_mm512_loadu_si512(w), _mm512_loadu_si512(w + 64)};
  for (int r = 0; r < Rows; ++r) {
    const __m512i row = _mm512_set1_epi32(quad_at(codes + r * stride));
    for (int j = 0; j < kVectors; ++j) sum[r][j] = _mm512_dpbusd_epi32(sum[r][j], column[j], row);
  }
}

// A tile of `Rows` rows by one panel, in registers; kQuads per group, 0 if known only here.
template <int Rows, int kQuads>
void tile(const Input& x, int64_t m, const uint8_t* w, const uint8_t* scales, const float* bias,
          float* y, int64_t columns, int64_t width) {
  __m512 total[Rows][kVectors];
  __mmask16 mask[kVectors];
  for (int j = 0; j < kVectors; ++j) {
    mask[j] = __mmask16((1u << std::clamp<int64_t>(width - j * kLanes, 0, kLanes)) - 1);
    const __m512 start =
        bias ? _mm512_maskz_loadu_ps(mask[j], bias + j * kLanes) : _mm512_setzero_ps();
    for (int r = 0; r < Rows; ++r) total[r][j] = start;
  }
  const int8_t* codes = x.codes + m * x.stride;
  const Group* groups = x.groups + m * x.num_groups;
  // [group]
  for (int64_t g = 0; g < x.num_groups; ++g) {
    __m512i sum[Rows][kVectors];
    for (int r = 0; r < Rows; ++r)
      for (int j = 0; j < kVectors; ++j)
        sum[r][j] = _mm512_set1_epi32(groups[r * x.num_groups + g].start);
    const int64_t first = g * x.quads_per_group;
    if (kQuads && first + kQuads <= x.quads) {
#pragma GCC unroll 8
      for (int q = 0; q < kQuads; ++q)
        multiply_quad<Rows>(sum, codes + 4 * (first + q), x.stride, w + (first + q) * kQuadBytes);
    } else {
      for (int64_t q = first; q < std::min(first + x.quads_per_group, x.quads); ++q)
        multiply_quad<Rows>(sum, codes + 4 * q, x.stride, w + q * kQuadBytes);
    }
    for (int j = 0; j < kVectors; ++j) {
      const __m512 exponent = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(
          reinterpret_cast<const __m128i*>(scales + g * kPanel + j * kLanes))));
      for (int r = 0; r < Rows; ++r) {
        const __m512 both =
            _mm512_add_ps(exponent, _mm512_set1_ps(groups[r * x.num_groups + g].exponent));
        const __m512 scaled = _mm512_scalef_ps(_mm512_cvtepi32_ps(sum[r][j]), both);
        total[r][j] = _mm512_add_ps(total[r][j], scaled);
      }
    }
  }
  // [/group]
  for (int r = 0; r < Rows; ++r)
    for (int j = 0; j < kVectors; ++j)
      _mm512_mask_storeu_ps(y + (m + r) * columns + j * kLanes, mask[j], total[r][j]);
}

#else

// The two scales as factors that float32 holds: 2^(scale - 127), and what is left.
inline float weight_scale(uint8_t scale) {
  return madl::bits_to_float(std::max(uint32_t(scale) << 23, 1u << 22));
}

inline float input_scale(const Group& group) {
  if (group.exponent != group.exponent) return group.exponent;
  const int32_t e = int32_t(group.exponent) + 2 * 127;
  return madl::bits_to_float(e > 0 ? uint32_t(e) << 23 : 1u << (22 + e));
}

constexpr int kRows = 1;

template <int Rows, int kQuads>
void tile(const Input& x, int64_t m, const uint8_t* w, const uint8_t* scales, const float* bias,
          float* y, int64_t columns, int64_t width) {
  float total[kPanel];
  for (int64_t n = 0; n < kPanel; ++n) total[n] = bias && n < width ? bias[n] : 0.0f;
  const int8_t* codes = x.codes + m * x.stride;
  for (int64_t g = 0; g < x.num_groups; ++g) {
    const Group& group = x.groups[m * x.num_groups + g];
    int32_t sum[kPanel];
    std::fill_n(sum, kPanel, group.start);
    const int64_t first = g * x.quads_per_group;
    for (int64_t q = first; q < std::min(first + x.quads_per_group, x.quads); ++q)
      for (int n = 0; n < kPanel; ++n)
        for (int i = 0; i < 4; ++i)
          sum[n] += int32_t(codes[4 * q + i]) * int32_t(w[q * kQuadBytes + 4 * n + i]);
    for (int n = 0; n < kPanel; ++n)
      total[n] += float(sum[n]) * (weight_scale(scales[g * kPanel + n]) * input_scale(group));
  }
  std::copy_n(total, width, y + m * columns);
}

#endif

using Tile = void (*)(const Input&, int64_t, const uint8_t*, const uint8_t*, const float*, float*,
                      int64_t, int64_t);

template <int kQuads>
Tile tile_of(int64_t rows) {
#ifdef HAS_VNNI
  constexpr Tile kTiles[] = {tile<1, kQuads>, tile<2, kQuads>, tile<3, kQuads>,
                             tile<4, kQuads>, tile<5, kQuads>, tile<6, kQuads>};
#else
  constexpr Tile kTiles[] = {tile<1, kQuads>};
#endif
  return kTiles[rows - 1];
}

// Memory that a thread keeps from call to call: fresh pages would cost as much as a small product.
template <class T, int kUse>
T* scratch(int64_t size) {
  static thread_local std::unique_ptr<T[]> kept;
  static thread_local int64_t capacity = 0;
  if (size > capacity) {
    kept.reset(new T[size]);
    capacity = size;
  }
  return kept.get();
}

// Everything that the threads of one product share. They take work from two counters: waking a
// thread that sleeps takes tens of microseconds, and whoever is awake goes on alone.
struct Product {
  Input x;
  const float* source;
  int64_t rows, size, group;
  const uint8_t *w, *scales;
  const float* bias;
  float* y;
  int64_t columns;
  std::atomic<int64_t> next_rows{0}, rows_done{0}, next_panel{0}, left{0};
#ifdef __AMX_TILE__
  madl::amx::Inputs* tiles = nullptr;  // instead of x, where AMX multiplies
  std::atomic<bool> fits_tiles{true};
#endif
};

constexpr int64_t kRowsAtATime = 8;

void quantize(const Product& p, int64_t first, int64_t last, const Input& x) {
  for (int64_t r = first; r < last; ++r)
    quantize_row(p.source + r * p.size, const_cast<int8_t*>(x.codes) + r * x.stride,
                 const_cast<Group*>(x.groups) + r * x.num_groups, p.size, p.group);
}

// Inputs in memory that this thread keeps.
Input with_room(Input x, int64_t rows) {
  x.codes = scratch<int8_t, 0>(rows * x.stride);
  x.groups = scratch<Group, 1>(rows * x.num_groups);
  return x;
}

#ifdef __AMX_TILE__

void take_tiles(Product& p) {
  constexpr int64_t kRows = madl::amx::kRows;
  const int64_t num_tiles = (p.rows + kRows - 1) / kRows;
  p.tiles = scratch<madl::amx::Inputs, 2>(num_tiles * p.x.num_groups);
  if (p.rows % kRows)  // to be filled up
    std::fill_n(p.tiles + (num_tiles - 1) * p.x.num_groups, p.x.num_groups, madl::amx::Inputs{});
}

// All rows by 32 outputs; returns whether tiles can. `ahead`: the next weights.
bool multiply_in_tiles(const Product& p, const uint8_t* w, const uint8_t* scales, int64_t first,
                       int64_t width, const uint8_t* ahead) {
  const Input& x = p.x;
  const float* bias = p.bias ? p.bias + first : nullptr;
  const madl::amx::Panel panel{w, scales, x.quads, x.num_groups, width, bias};
  if (!p.tiles || !p.fits_tiles || !panel.fits()) return false;
  float* partial = scratch<float, 3>((p.rows + 31) / 32 * 32 * kPanel);
  madl::amx::multiply_panel(p.tiles, panel, p.y + first, p.columns, p.rows, partial, ahead);
  return true;
}

#endif

void quantize_rows(Product& p) {
  for (int64_t m; (m = p.next_rows.fetch_add(kRowsAtATime)) < p.rows;) {
    const int64_t last = std::min(m + kRowsAtATime, p.rows);
#ifdef __AMX_TILE__
    for (int64_t r = m; p.tiles && r < last; ++r)
      if (!madl::amx::take(p.source + r * p.size, p.size, r % madl::amx::kRows,
                           p.tiles + r / madl::amx::kRows * p.x.num_groups))
        p.fits_tiles = false;
    if (!p.tiles)
#endif
      quantize(p, m, last, p.x);
    p.rows_done.fetch_add(last - m);
  }
}

// A NaN among the scales of an output's weights makes all its results NaN.
void spread_nan(const Product& p, const uint8_t* scales, int64_t first, int64_t width) {
  if (!std::memchr(scales, madl::kNanScale, p.x.num_groups * kPanel)) return;
  for (int64_t g = 0; g < p.x.num_groups; ++g)
    for (int64_t n = 0; n < width; ++n)
      if (scales[g * kPanel + n] == madl::kNanScale)
        for (int64_t m = 0; m < p.rows; ++m)
          p.y[m * p.columns + first + n] = madl::bits_to_float(0x7fc00000u);
}

void multiply_panels(Product& p) {
  Input x = p.x;
  const int64_t panels = (p.columns + kPanel - 1) / kPanel;
#ifdef __AMX_TILE__
  std::optional<madl::amx::Registers> registers;
  if (p.tiles) registers.emplace();
#endif
  for (int64_t n = p.next_panel.fetch_add(1), next; n < panels; n = next) {
    next = p.next_panel.fetch_add(1);
    const uint8_t* w = p.w + n * x.quads * kQuadBytes;
    const uint8_t* scales = p.scales + n * x.num_groups * kPanel;
    const int64_t first = n * kPanel, width = std::min<int64_t>(kPanel, p.columns - first);
    bool is_done = false;
#ifdef __AMX_TILE__
    const uint8_t* ahead = next < panels ? p.w + next * x.quads * kQuadBytes : nullptr;
    is_done = multiply_in_tiles(p, w, scales, first, width, ahead);
    if (!is_done && !x.codes) quantize(p, 0, p.rows, x = with_room(x, p.rows));
#endif
    for (int64_t m = 0; m < p.rows && !is_done; m += kRows) {
      const int64_t left = std::min<int64_t>(kRows, p.rows - m);
      const Tile work = x.quads_per_group == 8 ? tile_of<8>(left) : tile_of<0>(left);
      work(x, m, w, scales, p.bias ? p.bias + first : nullptr, p.y + first, p.columns, width);
    }
    spread_nan(p, scales, first, width);
  }
}

// Looks again and again for a while, then lets others run in between (or, at the end, gives up).
template <class Done>
void wait_until(const Done& done, bool give_up) {
  for (int64_t looks = 0; !done(); ++looks) {
    if (looks < kLooks) continue;
    if (give_up) return;
    std::this_thread::yield();
  }
}

void run(Product& p, int threads) {
#ifdef _OPENMP
#pragma omp parallel num_threads(threads) if (threads > 1)
#endif
  {
    quantize_rows(p);
    wait_until([&] { return p.rows_done.load() == p.rows; }, false);
    multiply_panels(p);
    p.left.fetch_add(1);
#ifdef _OPENMP
    // the thread that sleeps at the end of the region has to be woken: better to see the others go
    if (omp_get_thread_num() == 0)
      wait_until([&] { return p.left.load() == omp_get_num_threads(); }, true);
#endif
  }
  (void)threads;
}

// Whether one thread would take longer than some 50 microseconds, at a pace it reaches.
bool is_worth_a_thread(const Product& p) {
  double per_s = 150e9;
#ifdef __AMX_TILE__
  if (p.tiles) per_s = 500e9;
#endif
  constexpr double kBytesPerS = 40e9, kWakingS = 50e-6;
  return double(p.columns) * double(p.size) * (double(p.rows) / per_s + 1 / kBytesPerS) > kWakingS;
}

bool is_for_tiles(int64_t rows, int64_t size, int64_t group) {
#ifdef __AMX_TILE__
  return group == madl::amx::kGroup && size && rows >= madl::amx::kLeastRows;
#else
  return false;
#endif
}

// How many rows are multiplied at a time: whole tiles, and about as many each time.
int64_t block_of(int64_t rows, int64_t size, bool in_tiles) {
  const int64_t fit = in_tiles ? kTilesBytes / (2 * size) : kBlockBytes / (size + 128);
  const int64_t blocks = rows / std::max<int64_t>(fit, 1) + 1;
  return rows / blocks / 32 * 32 + 32;
}

}  // namespace

extern "C" void madl_linear_mxint8(const float* x, const uint8_t* w, const uint8_t* scales,
                                   const float* bias, float* y, int64_t M, int64_t N, int64_t K,
                                   int64_t group, int32_t threads) {
  const int64_t quads = (K + 3) / 4, num_groups = (K + group - 1) / group;
  const int64_t stride = (4 * quads + 63) / 64 * 64 + 64;  // rows of 4096 bytes would share a set
  const bool in_tiles = is_for_tiles(M, K, group);
  const int64_t block = block_of(M, K, in_tiles);
  for (int64_t from = 0; from < M; from += block) {
    Product product;
    product.x = {nullptr, nullptr, stride, num_groups, quads, group / 4};
    product.source = x + from * K;
    product.rows = std::min(block, M - from);
    product.size = K;
    product.group = group;
    product.w = w;
    product.scales = scales;
    product.bias = bias;
    product.y = y + from * N;
    product.columns = N;
#ifdef __AMX_TILE__
    if (in_tiles) take_tiles(product);
#endif
    if (!in_tiles) product.x = with_room(product.x, product.rows);
    run(product, is_worth_a_thread(product) ? threads : 1);
  }
}
