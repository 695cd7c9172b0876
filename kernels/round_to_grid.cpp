// Fake quantization: float32 in, the nearest values of a grid out, in one pass over memory.
//
// The definition is madl/formats/rounding.py, in plain torch; this must equal it bit for bit, so no
// -ffast-math, no fused multiply-add (-ffp-contract=off), and comparisons written so that NaN
// passes. The loops are plain C++: compiled once per instruction set (kernels/build.py), they are
// vectorised by the compiler, and one text serves AVX-512, AVX2, NEON and the rest.
//
// How: adding and subtracting 1.5 * 2^23 steps lets the adder round to a multiple of the step, ties
// to even, and returns +0 for what becomes zero.
//
// Not handled: flush-to-zero mode; x and y must not overlap.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "round_to_grid.h"

namespace {

using madl::Grid;
using madl::kFloating;
using madl::kPowers;
using madl::kUniform;

constexpr int kMantissa = 23, kBias = 127;
constexpr int32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;

// Bits by __builtin_memcpy: a pointer cast breaks strict aliasing.
template <class To, class From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "only between types of one size");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

// 2^exponent for -127 ... 127; the first is a subnormal, half of the smallest normal.
inline float power_of_two(int32_t exponent) {
  return bits_as<float>(std::max((exponent + kBias) << kMantissa, 1 << (kMantissa - 1)));
}

inline float clamp(float x, float low, float high) {  // NaN passes
  x = x > high ? high : x;
  return x < low ? low : x;
}

// Any power of two that float32 holds, subnormals too.
inline float any_power_of_two(int exponent) { return __builtin_ldexpf(1.0f, exponent); }

struct Uniform {
  float low, high, magic;
  explicit Uniform(const Grid& g)
      : low(g.low), high(g.high), magic(1.5f * 8388608.0f * any_power_of_two(g.min_exponent)) {}
  float operator()(float x) const { return (clamp(x, low, high) + magic) - magic; }
};

// More codes than the adder's trick can hold: round in units of the step.
struct UniformManyCodes {
  float low, high, step, inverse;
  explicit UniformManyCodes(const Grid& g)
      : step(any_power_of_two(g.min_exponent)), inverse(any_power_of_two(-g.min_exponent)) {
    low = g.low / step;
    high = g.high / step;
  }
  float operator()(float x) const {
    return clamp(__builtin_rintf(x * inverse), low, high) * step + 0.0f;  // -0 becomes +0
  }
};

struct Floating {
  float low, high;
  int32_t min_exponent_bits, to_magic;
  explicit Floating(const Grid& g)
      : low(g.low),
        high(g.high),
        min_exponent_bits((g.min_exponent + kBias) << kMantissa),
        to_magic(((kMantissa - g.mantissa_bits) << kMantissa) + (1 << (kMantissa - 1))) {}
  float operator()(float x) const {
    const float y = clamp(x, low, high);
    const int32_t exponent = std::max(bits_as<int32_t>(y) & kInfinity, min_exponent_bits);
    // 1.5 * 2^23 steps at y; unsigned, as NaN overflows
    const float magic = bits_as<float>(uint32_t(exponent) + uint32_t(to_magic));
    return (y + magic) - magic;
  }
};

// Values so large that 1.5 * 2^23 steps overflow float32: the same in float64.
struct FloatingWide {
  double low, high;
  int64_t min_exponent_bits, to_magic;
  explicit FloatingWide(const Grid& g)
      : low(g.low),
        high(g.high),
        min_exponent_bits(int64_t(g.min_exponent + 1023) << 52),
        to_magic((int64_t(52 - g.mantissa_bits) << 52) + (int64_t(1) << 51)) {}
  float operator()(float x) const {
    double y = x;
    y = y > high ? high : y;
    y = y < low ? low : y;
    const int64_t field = bits_as<int64_t>(y) & 0x7ff0000000000000;
    const uint64_t exponent = uint64_t(std::max(field, min_exponent_bits));
    const double magic = bits_as<double>(exponent + uint64_t(to_magic));
    return float((y + magic) - magic);
  }
};

struct Powers {
  float low, high;
  int32_t smallest, half_of_smallest, parity;
  explicit Powers(const Grid& g)
      : low(g.low),
        high(g.high),
        smallest((g.min_exponent + kBias) << kMantissa),
        half_of_smallest(bits_as<int32_t>(any_power_of_two(g.min_exponent - 1))),
        parity(g.min_exponent & 1) {}
  float operator()(float x) const {
    const float y = clamp(x, low, high);
    const int32_t bits = bits_as<int32_t>(y), magnitude = bits & kMagnitude;
    const int32_t odd = ((magnitude >> kMantissa) ^ parity) & 1;  // of the code below: ties to even
    const uint32_t sum = uint32_t(magnitude) + ((1u << (kMantissa - 1)) - 1) + uint32_t(odd);
    const int32_t nearest = int32_t(sum & uint32_t(kInfinity));
    const int32_t power = std::max(nearest, smallest) | (bits & ~kMagnitude);
    const float rounded = bits_as<float>(magnitude <= half_of_smallest ? 0 : power);
    return magnitude > kInfinity ? x : rounded;
  }
};

// A format that has -0: what rounds to zero keeps its sign.
template <class Round>
struct KeepSign {
  Round round;
  explicit KeepSign(const Grid& g) : round(g) {}
  float operator()(float x) const {
    return bits_as<float>(bits_as<int32_t>(round(x)) | (bits_as<int32_t>(x) & ~kMagnitude));
  }
};

template <class Round>
struct KeepInfinity {
  Round round;
  explicit KeepInfinity(const Grid& g) : round(g) {}
  float operator()(float x) const {
    const float y = round(x);
    return (bits_as<int32_t>(x) & kMagnitude) == kInfinity ? x : y;
  }
};

template <class Round>
void round_elements(const float* __restrict x, float* __restrict y, int64_t size, Round round) {
  for (int64_t i = 0; i < size; ++i) y[i] = round(x[i]);
}

struct Scale {
  float inverse, scale;
};

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The scale of a block from the bits of its largest magnitude, by the kind of scale.
struct PowerScale {
  Grid g;
  PowerScale(const Grid& grid, float) : g(grid) {}
  Scale operator()(int32_t largest) const {
    const int32_t field = int32_t((uint32_t(largest) + uint32_t(g.carry)) >> kMantissa);
    const int32_t exponent = std::min(std::max(field - kBias - g.top, g.scale_low), g.scale_high);
    return {power_of_two(-exponent), largest > kInfinity ? kNaN : power_of_two(exponent)};
  }
};

Grid floats_of(int32_t mantissa_bits, int32_t min_exponent, float high) {
  Grid g{};
  g.mantissa_bits = mantissa_bits;
  g.min_exponent = min_exponent;
  g.high = high;
  return g;
}

inline float over(int32_t largest, float high) {  // infinity counts as the largest float32
  return bits_as<float>(std::min(largest, kInfinity - 1)) / high;
}

// Under the scale of the whole tensor, in torchao's order of operations.
struct E4M3Scale {
  float high, of_tensor, inverse;
  Floating round;
  E4M3Scale(const Grid& g, float tensor)
      : high(g.high), of_tensor(tensor), inverse(1.0f / tensor), round(floats_of(3, -6, 448.0f)) {}
  Scale operator()(int32_t largest) const {
    const float scale = round(std::max(over(largest, high) / of_tensor, 0.015625f));
    return {inverse / scale, largest > kInfinity ? kNaN : scale * of_tensor};
  }
};

struct FP16Scale {
  float high;
  Floating round;
  FP16Scale(const Grid& g, float) : high(g.high), round(floats_of(10, -14, 65504.0f)) {}
  Scale operator()(int32_t largest) const {
    const float scale = round(over(largest, high));
    return {scale > 0.0f ? 1.0f / scale : 0.0f, largest > kInfinity ? kNaN : scale};
  }
};

// The two loops over a block of kBlock values (0: `size`, known only at run time). Without the
// pragma, GCC unrolls a block of 16 before it vectorises, and then does not: 5 times slower.

template <int kBlock>
inline int32_t largest_of(const float* __restrict x, int64_t size) {
  int32_t largest = 0;  // as bits: integers order like magnitudes, and NaN lies above infinity
#pragma GCC unroll 1
  for (int64_t i = 0; i < (kBlock ? kBlock : size); ++i)
    largest = std::max(largest, bits_as<int32_t>(x[i]) & kMagnitude);
  return largest;
}

template <int kBlock, class Round>
inline void round_block(const float* __restrict x, float* __restrict y, int64_t size, Scale s,
                        Round round) {
#pragma GCC unroll 1
  for (int64_t i = 0; i < (kBlock ? kBlock : size); ++i) y[i] = round(x[i] * s.inverse) * s.scale;
}

// Blocks in a group: their scales are computed first, so that one does not wait for another.
constexpr int kGroup = 32;

template <int kBlock, class Round, class ScaleOf>
void round_group(const float* x, float* y, int64_t count, int64_t block, ScaleOf scale_of,
                 Round round) {
  int32_t largest[kGroup];
  Scale scales[kGroup];
  for (int64_t k = 0; k < count; ++k) largest[k] = largest_of<kBlock>(x + k * block, block);
  for (int64_t k = 0; k < count; ++k) scales[k] = scale_of(largest[k]);
  for (int64_t k = 0; k < count; ++k)
    round_block<kBlock>(x + k * block, y + k * block, block, scales[k], round);
}

// Blocks first ... last - 1, counted along the rows; the last block of a row may be short.
template <int kBlock, class Round, class ScaleOf>
void round_blocks(const float* x, float* y, int64_t columns, int64_t first, int64_t last,
                  int64_t size_of_block, const ScaleOf scale_of, const Round round) {
  const int64_t block = kBlock ? kBlock : size_of_block;
  const int64_t per_row = (columns + block - 1) / block;
  int64_t column = first % per_row * block;
  int64_t offset = first / per_row * columns + column;
  while (first < last) {
    const int64_t whole = (columns - column) / block;
    const int64_t count = std::min({int64_t(kGroup), last - first, std::max<int64_t>(whole, 1)});
    const int64_t size = whole ? count * block : columns - column;
    if (whole)
      round_group<kBlock>(x + offset, y + offset, count, block, scale_of, round);
    else
      round_group<0>(x + offset, y + offset, 1, size, scale_of, round);
    first += count;
    offset += size;
    column = column + size == columns ? 0 : column + size;
  }
}

// Elements a thread takes at a time: 64 KiB in, 64 KiB out. Of a tensor that is so large that its
// memory is new, a large page, or two threads that write to one page have the system clear two.
constexpr int64_t kChunk = 1 << 14, kPage = 1 << 19, kNew = 1 << 23;

int64_t chunk_of(int64_t elements) { return elements < kNew ? kChunk : kPage; }

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

template <class Round, class ScaleOf>
void run_blocks(const float* x, float* y, int64_t rows, int64_t columns, const Grid& g, int threads,
                const Round& round, const ScaleOf& scale_of) {
  const int64_t blocks = rows * ((columns + g.block - 1) / g.block);
  const int64_t chunk = std::max<int64_t>(1, chunk_of(rows * columns) / g.block);
  in_chunks(blocks, chunk, threads, [&](int64_t first, int64_t last) {
    if (g.block == 16)
      round_blocks<16>(x, y, columns, first, last, g.block, scale_of, round);
    else if (g.block == 32)
      round_blocks<32>(x, y, columns, first, last, g.block, scale_of, round);
    else
      round_blocks<0>(x, y, columns, first, last, g.block, scale_of, round);
  });
}

// By this the largest scale of a block is E4M3's largest. What is not finite does not count.
float tensor_scale(const float* x, int64_t size, const Grid& g, int threads) {
  int32_t largest = 0;
#ifdef _OPENMP
#pragma omp parallel for reduction(max : largest) num_threads(threads) if (size > 1 << 16)
#endif
  for (int64_t i = 0; i < size; ++i) {
    const int32_t magnitude = bits_as<int32_t>(x[i]) & kMagnitude;
    largest = std::max(largest, magnitude < kInfinity ? magnitude : 0);
  }
  (void)threads;
  return std::max(bits_as<float>(largest) / (448.0f * g.high), any_power_of_two(-120));
}

template <class Round>
void run(const float* x, float* y, int64_t rows, int64_t columns, const Grid& g, int threads) {
  const Round round(g);
  if (g.block == 0)
    in_chunks(rows * columns, chunk_of(rows * columns), threads, [&](int64_t first, int64_t last) {
      round_elements(x + first, y + first, last - first, round);
    });
  else if (g.scale_kind == madl::kE4M3)
    run_blocks(x, y, rows, columns, g, threads, round,
               E4M3Scale(g, tensor_scale(x, rows * columns, g, threads)));
  else if (g.scale_kind == madl::kFP16)
    run_blocks(x, y, rows, columns, g, threads, round, FP16Scale(g, 0.0f));
  else
    run_blocks(x, y, rows, columns, g, threads, round, PowerScale(g, 0.0f));
}

}  // namespace

// Returns 0, or 1 for a spacing it does not know.
extern "C" int madl_round_to_grid(const float* x, float* y, int64_t rows, int64_t columns,
                                  const Grid* grid, int32_t threads) {
  const Grid& g = *grid;
  switch (g.spacing) {
    case kUniform: {
      const bool many = std::max(-g.low, g.high) > any_power_of_two(g.min_exponent) * 4194304.0f;
      (many ? run<UniformManyCodes> : run<Uniform>)(x, y, rows, columns, g, threads);
      return 0;
    }
    case kFloating:
      if (g.keep_inf)
        (g.is_wide ? run<KeepInfinity<KeepSign<FloatingWide>>>
                   : run<KeepInfinity<KeepSign<Floating>>>)(x, y, rows, columns, g, threads);
      else
        (g.is_wide ? run<KeepSign<FloatingWide>> : run<KeepSign<Floating>>)(x, y, rows, columns, g,
                                                                            threads);
      return 0;
    case kPowers:
      (g.keep_inf ? run<KeepInfinity<Powers>> : run<Powers>)(x, y, rows, columns, g, threads);
      return 0;
  }
  return 1;
}
