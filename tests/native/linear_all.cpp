// The weight-only linear on the host: every thread's own code, and mma.m16n8k16 as PTX defines it.
//
// With bfloat16 x every sum is exact in float32, so the result must be right to the bit; float32 x
// takes all its bits, and leaves the rounding of float32 sums.
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <vector>

#include "../../kernels/linear_tile.h"

namespace {

float bf16(unsigned int bits) { return madl::bits_to_float(bits << 16); }

// D = A · B + C for one warp; registers as in the PTX ISA, "Matrix fragments for mma.m16n8k16".
void multiply(float (*c)[4], const unsigned int (*a)[4], const unsigned int (*b)[2]) {
  float left[16][16], right[16][8];
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 8; ++i) {
      const int row = lane / 4 + (i % 4 >= 2 ? 8 : 0), column = lane % 4 * 2 + i % 2 + (i >= 4 ? 8 : 0);
      left[row][column] = bf16(a[lane][i / 2] >> (i % 2 * 16) & 0xffffu);
    }
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i)
      right[lane % 4 * 2 + i % 2 + (i >= 2 ? 8 : 0)][lane / 4] =
          bf16(b[lane][i / 2] >> (i % 2 * 16) & 0xffffu);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i)
      for (int k = 0; k < 16; ++k)
        c[lane][i] += left[lane / 4 + (i >= 2 ? 8 : 0)][k] * right[k][lane % 4 * 2 + i % 2];
}

template <int kTiles, class Result>
void run(const madl::Linear& p) {
  using Tile = madl::LinearTile<kTiles>;
  const int chunks = (p.num_in + Tile::kChunk - 1) / Tile::kChunk;
  for (int block = 0; block < (p.num_out + Tile::kOut - 1) / Tile::kOut; ++block) {
    std::vector<float> partials(Tile::kPartials, NAN);
    for (int warp = 0; warp < Tile::kWarps; ++warp) {
      float sums[kTiles][32][4] = {};
      for (int chunk = warp; chunk < chunks; chunk += Tile::kWarps) {
        unsigned int a[4][32][4], b[kTiles][4][32][2];
        for (int lane = 0; lane < 32; ++lane) {
          const auto raw = Tile::fetch(p, block, chunk, lane);
          const float worth[2] = {madl::mxint8_step(raw.scale[0]), madl::mxint8_step(raw.scale[1])};
          for (int step = 0; step < 4; ++step) Tile::weight_operand(raw, worth, step, a[step][lane]);
          for (int tile = 0; tile < kTiles; ++tile) {
            unsigned int all[8];
            Tile::x_operand(p, chunk, lane, tile, all);
            for (int i = 0; i < 8; ++i) b[tile][i / 2][lane][i % 2] = all[i];
          }
        }
        for (int tile = 0; tile < kTiles; ++tile)
          for (int step = 0; step < 4; ++step) multiply(sums[tile], a[step], b[tile][step]);
      }
      for (int tile = 0; tile < kTiles; ++tile)
        for (int lane = 0; lane < 32; ++lane)
          Tile::leave(sums[tile][lane], warp, lane, tile, partials.data());
    }
    for (int thread = 0; thread < Tile::kThreads; ++thread)
      Tile::template finish<Result>(p, block, thread, partials.data());
  }
}

template <class T>
T* aligned(size_t count) {
  return static_cast<T*>(std::aligned_alloc(16, (count * sizeof(T) + 15) / 16 * 16));
}

int random(int from, int to) { return from + std::rand() % (to - from + 1); }

template <int kTiles>
void check(int rows, int parts, int num_in, int num_out, int group, bool with_bias) {
  auto* weight = aligned<signed char>(num_in * num_out);
  auto* scales = aligned<unsigned char>(num_in / group * num_out);
  auto* x = aligned<unsigned short>(parts * rows * num_in);
  auto* bias = aligned<float>(num_out);
  auto* y = aligned<float>(rows * num_out);
  std::vector<float> plain(rows * num_in);
  for (int i = 0; i < num_in * num_out; ++i) weight[i] = static_cast<signed char>(random(-128, 127));
  for (int i = 0; i < num_in / group * num_out; ++i) scales[i] = random(131, 134);  // steps 1/4 ... 2
  for (int i = 0; i < num_out; ++i) bias[i] = random(-50, 50);
  for (int i = 0; i < rows * num_in; ++i) {
    plain[i] = parts == 1 ? random(-15, 15) : random(-8388607, 8388607) / 8192.0f;
    unsigned short split[3];
    madl::split_float(plain[i], split);
    float whole = 0;
    for (int part = 0; part < 3; ++part) whole += bf16(split[part]);
    if (whole != plain[i] || (parts == 1 && (split[1] || split[2]))) std::exit(3);
    for (int part = 0; part < parts; ++part) x[(part * rows * num_in) + i] = split[part];
  }
  const madl::Linear p{x, weight, scales, with_bias ? bias : nullptr, y, rows, parts, num_in, num_out, group,
                       group & (group - 1) ? -1 : __builtin_ctz(group)};
  run<kTiles, float>(p);
  for (int row = 0; row < rows; ++row)
    for (int out = 0; out < num_out; ++out) {
      double sum = with_bias ? bias[out] : 0.0, terms = 0.0;
      for (int k = 0; k < num_in; ++k) {
        const int scale = scales[out * (num_in / group) + k / group];
        const double term = plain[row * num_in + k] * std::ldexp(weight[out * num_in + k], scale - 133);
        sum += term, terms += std::abs(term);
      }
      const double allowed = parts == 1 ? 0.0 : 1e-6 * terms;
      if (!(std::abs(y[row * num_out + out] - sum) <= allowed)) {
        std::printf("tiles %d rows %d parts %d in %d out %d group %d: y[%d, %d] is %g, not %g\n", kTiles,
                    rows, parts, num_in, num_out, group, row, out, y[row * num_out + out], sum);
        std::exit(1);
      }
    }
  std::vector<float> exact(y, y + rows * num_out);
  run<kTiles, unsigned short>(p);  // the same, rounded to bfloat16
  for (int i = 0; i < rows * num_out; ++i) {
    const float rounded = bf16(reinterpret_cast<unsigned short*>(y)[i]);
    if (std::abs(rounded - exact[i]) > std::ldexp(std::abs(exact[i]), -8)) std::exit(4);
  }
  std::free(weight), std::free(scales), std::free(x), std::free(bias), std::free(y);
}

}  // namespace

int main() {
  int shapes = 0;
  for (int num_in : {16, 48, 64, 176, 640})
    for (int group : {16, 48, 64, 176})
      if (num_in % group == 0)
        for (int num_out : {1, 16, 23, 40}) {
          for (int rows : {1, 5, 8}) check<1>(rows, 1, num_in, num_out, group, rows == 5), ++shapes;
          for (int rows : {9, 16}) check<2>(rows, 1, num_in, num_out, group, true), ++shapes;
          check<4>(31, 1, num_in, num_out, group, false), check<8>(64, 1, num_in, num_out, group, true);
          for (int rows : {1, 2}) check<1>(rows, 3, num_in, num_out, group, true), ++shapes;
          check<8>(21, 3, num_in, num_out, group, false), shapes += 3;
        }
  std::printf("%d shapes\n", shapes);
}
