// The CuTe tile on the host, every thread of every block, against the definition in doubles.
//
// Usage: tile_all. Prints the number of shapes and of elements that were checked; exits with 1 at
// the first element that is wrong, missing, or written out of bounds.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "../../kernels/dequantize_tile.h"

namespace {

constexpr unsigned short kUntouched = 0x7f81;  // a NaN that no code decodes to
constexpr int kGuard = 16;

double definition(signed char mantissa, unsigned char scale) {
  return scale == 255 ? NAN : std::ldexp(static_cast<double>(mantissa), scale - 133);
}

double from_bf16(unsigned short bits) {
  return madl::bits_to_float(static_cast<unsigned int>(bits) << 16);
}

bool right(unsigned short got, double expected) {
  const double value = from_bf16(got);
  if (std::isnan(expected)) return std::isnan(value) && got != kUntouched;
  if (std::abs(expected) == std::ldexp(1.0, 128)) return std::isinf(value);
  return value == expected && std::signbit(value) == std::signbit(expected);
}

long long shapes = 0, elements = 0;

template <int kBlockM, int kVector>
void check(long long count, int group) {
  using Tile = madl::DequantizeTile<kBlockM, kVector>;
  const long long groups = (count + group - 1) / group;
  // malloc aligns to 16 bytes and puts the sanitizer's guards right behind the last element
  auto* mantissas = static_cast<signed char*>(std::malloc(count));
  auto* scales = static_cast<unsigned char*>(std::malloc(groups));
  std::vector<unsigned short> out(count + kGuard, kUntouched);
  for (long long i = 0; i < count; ++i) mantissas[i] = static_cast<signed char>(i * 37 + i / 256);
  for (long long i = 0; i < groups; ++i) scales[i] = static_cast<unsigned char>(i * 101 + group);
  const madl::Dequantize d{mantissas, scales, out.data(), count, group};
  const int blocks_m = (group + kBlockM - 1) / kBlockM;
  const long long blocks_k = (groups + Tile::kBlockK - 1) / Tile::kBlockK;
  std::vector<float> steps(Tile::kThreads);
  for (long long block_k = 0; block_k < blocks_k; ++block_k)
    for (int block_m = 0; block_m < blocks_m; ++block_m) {
      auto* shared = static_cast<signed char*>(std::malloc(Tile::kElements));
      for (int thread = 0; thread < Tile::kThreads; ++thread)
        steps[thread] = Tile::load(d, block_m, block_k, thread, shared);
      for (int thread = 0; thread < Tile::kThreads; ++thread)
        Tile::store(d, block_m, block_k, thread, steps[thread], shared);
      std::free(shared);
    }
  for (long long i = 0; i < count; ++i)
    if (!right(out[i], definition(mantissas[i], scales[i / group]))) {
      std::printf("tile %d x %d, vector %d, count %lld, group %d: element %lld is %04x\n", kBlockM,
                  Tile::kBlockK, kVector, count, group, i, out[i]);
      std::exit(1);
    }
  for (int i = 0; i < kGuard; ++i)
    if (out[count + i] != kUntouched) {
      std::printf("count %lld, group %d: written beyond the end\n", count, group);
      std::exit(1);
    }
  std::free(mantissas);
  std::free(scales);
  ++shapes;
  elements += count;
}

template <int kBlockM, int kVector>
void check_group(int group) {
  const long long tile = madl::DequantizeTile<kBlockM, kVector>::kElements;
  for (long long count : {1LL, 2LL, 7LL, 8LL, 9LL, group - 1LL, group + 0LL, group + 1LL,
                          3LL * group, 3LL * group + 5, tile - 1, tile, tile + 1, 2 * tile + 3,
                          65536LL})
    if (count > 0) check<kBlockM, kVector>(count, group);
}

}  // namespace

int main() {
  check_group<8, 8>(8);
  check_group<16, 8>(16);
  check_group<32, 8>(32);
  check_group<64, 8>(64);
  check_group<128, 8>(128);
  check_group<256, 8>(256);
  check_group<512, 8>(512);
  for (int group : {24, 40, 48, 56}) check_group<64, 8>(group);
  for (int group : {72, 120}) check_group<128, 8>(group);
  for (int group : {640, 1000, 1024}) check_group<512, 8>(group);
  for (int group : {1, 2, 7, 9, 33, 63, 65, 100, 511}) check_group<64, 1>(group);
  // every pair of mantissa and scale: groups of 256 in which all mantissas appear
  check<256, 8>(256 * 256, 256);
  std::printf("%lld shapes, %lld elements\n", shapes, elements);
}
