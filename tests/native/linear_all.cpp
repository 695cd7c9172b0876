// The weight-only linear on the host: every thread's own code, and mma.m16n8k16 as PTX defines it.
//
// With bfloat16 x every sum is exact in float32, so the result must be right to the bit; float32 x
// takes all its bits, and leaves the rounding of float32 sums. Shared memory begins as NaN, and the
// ring of stages is filled and read in the kernel's order, so that what was never written, or
// written too late, is seen. Pairs are decoded as the kernel does, all 65,536 codes of them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../../kernels/linear_tile.h"

namespace {

using madl::Words;

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

// The copies of one step of x, as every thread asks for them.
template <class Tile>
void send_x(const madl::Linear& p, int first, int end, int steps, Words* stage) {
  for (int thread = 0; thread < Tile::kThreads; ++thread) {
    const auto of = Tile::copies_of(p, first, end, thread);
    Tile::send(of, steps, [stage](int to, const unsigned short* from, int bytes) {
      if (to < 0 || to >= Tile::kStageUnits) std::exit(5);
      stage[to] = Words{};
      if (bytes) std::memcpy(&stage[to], from, bytes);
    });
  }
}

template <class Tile>
void run_block(const madl::Linear& p, int block, int split, float* partials) {
  constexpr int kTiles = Tile::kTiles, kAhead = Tile::kAhead;
  const Words nans{{~0u, ~0u, ~0u, ~0u}};
  std::vector<Words> stages(Tile::kAhead * Tile::kStageUnits, nans);
  const int first = split * p.steps, end = Tile::end_of(p, split);
  const unsigned int above = madl::above_mantissas();
  std::vector<float> sums(Tile::kWarps * kTiles * 32 * 4);
  if (Tile::kStaged)
    for (int i = 0; i < kAhead - 1; ++i)
      send_x<Tile>(p, first, end, i, stages.data() + i * Tile::kStageUnits);
  for (int step = first; step < end; ++step) {
    const int i = (step - first) % kAhead;
    if (Tile::kStaged)
      send_x<Tile>(p, first, end, step - first + kAhead - 1,
                   stages.data() + (i + kAhead - 1) % kAhead * Tile::kStageUnits);
    for (int warp = 0; warp < Tile::kWarps; ++warp) {
      const bool has_columns = block * Tile::kOut + warp % Tile::kWide * 16 < p.num_out;
      if (!has_columns && p.num_in > 64) continue;  // to save time: it stores nothing
      unsigned int a[4][32][4], b[kTiles][4][32][2];
      for (int lane = 0; lane < 32; ++lane) {
        auto at = Tile::lane_of(p, block, first, end, warp, lane);
        int steps = step - first;
        for (; steps >= kAhead; steps -= kAhead) Tile::advance(at);
        typename Tile::Raw raw;  // left over from another step: the largest there is
        std::memset(static_cast<void*>(&raw), 0x7f, sizeof raw);
        raw.scale[0] = raw.scale[1] = 254;
        Tile::fetch(p, at, steps, raw);
        const unsigned int worth[2] = {madl::negative_step_pair(raw.scale[0]),
                                       madl::negative_step_pair(raw.scale[1])};
        for (int quarter = 0; quarter < 4; ++quarter)
          Tile::weight_operand(raw, above, worth, quarter, a[quarter][lane]);
        for (int tile = 0; tile < kTiles; ++tile)
          for (int half = 0; half < 2; ++half) {
            const Words words =
                Tile::kStaged
                    ? Tile::x_operand(stages.data() + i * Tile::kStageUnits, warp, lane, tile, half)
                    : Tile::x_operand(at, steps, half);
            for (int j = 0; j < 4; ++j) b[tile][2 * half + j / 2][lane][j % 2] = words.at[j];
          }
      }
      for (int tile = 0; tile < kTiles; ++tile)
        for (int quarter = 0; quarter < 4; ++quarter)
          multiply(reinterpret_cast<float(*)[4]>(&sums[(warp * kTiles + tile) * 128]), a[quarter],
                   b[tile][quarter]);
    }
  }
  for (int warp = 0; warp < Tile::kWarps; ++warp)
    for (int tile = 0; tile < kTiles; ++tile)
      for (int lane = 0; lane < 32; ++lane)
        Tile::leave(*reinterpret_cast<float(*)[4]>(&sums[((warp * kTiles + tile) * 32 + lane) * 4]),
                    warp, lane, tile, partials);
}

// In splits that a second pass adds up, or that are a cluster.
template <int kTiles, int kWide, class Result>
void run(madl::Linear p, int splits, bool in_cluster) {
  using Tile = madl::LinearTile<kTiles, kWide>;
  const int all = Tile::all_steps(p);
  p.steps = (all + splits - 1) / splits;
  splits = (all + p.steps - 1) / p.steps;
  in_cluster &= splits > 1 && splits <= Tile::kMaxCluster;
  std::vector<float> between(static_cast<size_t>(splits) * p.rows * p.num_out, NAN);
  p.partials = splits > 1 && !in_cluster ? between.data() : nullptr;
  for (int block = 0; block < (p.num_out + Tile::kOut - 1) / Tile::kOut; ++block) {
    std::vector<std::vector<float>> shared(splits, std::vector<float>(Tile::kPartialBytes / 4, NAN));
    for (int split = 0; split < splits; ++split) {
      run_block<Tile>(p, block, split, shared[split].data());
      for (int thread = 0; thread < Tile::kThreads; ++thread)
        if (in_cluster)
          Tile::fold(p, thread, shared[split].data());
        else
          Tile::template finish<Result>(p, block, split, thread, shared[split].data());
    }
    for (int split = 0; in_cluster && split < splits; ++split)
      for (int thread = 0; thread < Tile::kThreads; ++thread)
        Tile::template finish_cluster<Result>(
            p, block, split, splits, thread,
            [&shared](int other, int at) {
              const float* of = shared.at(other).data();
              return madl::Floats{of[at], of[at + 1], of[at + 2], of[at + 3]};
            });
  }
  if (p.partials)
    for (int row = 0; row < p.rows; ++row)
      for (int column = 0; column < p.num_out + 3; ++column)
        Tile::template add_splits<Result>(p, splits, row, column);
}

template <class T>
T* aligned(size_t count) {
  return static_cast<T*>(std::aligned_alloc(16, (count * sizeof(T) + 15) / 16 * 16));
}

int random(int from, int to) { return from + std::rand() % (to - from + 1); }

int shapes = 0;

template <int kTiles, int kWide>
void check(int rows, int parts, int num_in, int num_out, int group, bool with_bias, int splits = 1) {
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
  const madl::Linear p{x, weight, scales, with_bias ? bias : nullptr, y, nullptr, rows, parts, num_in,
                       num_out, __builtin_ctz(group), 0};
  run<kTiles, kWide, float>(p, splits, false);
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
        std::printf("tiles %d rows %d parts %d in %d out %d group %d splits %d: y[%d, %d] is %g, not %g\n",
                    kTiles, rows, parts, num_in, num_out, group, splits, row, out,
                    y[row * num_out + out], sum);
        std::exit(1);
      }
    }
  std::vector<float> exact(y, y + rows * num_out);
  if (splits > 1) {
    std::fill(y, y + rows * num_out, NAN);
    run<kTiles, kWide, float>(p, splits, true);
    if (std::memcmp(y, exact.data(), exact.size() * sizeof(float))) std::exit(7);
  }
  run<kTiles, kWide, unsigned short>(p, splits, rows % 2);  // the same, rounded to bfloat16
  for (int i = 0; i < rows * num_out; ++i) {
    const float rounded = bf16(reinterpret_cast<unsigned short*>(y)[i]);
    if (std::abs(rounded - exact[i]) > std::ldexp(std::abs(exact[i]), -8)) std::exit(4);
  }
  std::free(weight), std::free(scales), std::free(x), std::free(bias), std::free(y);
  ++shapes;
}

// Every code in each of a word's four places, next to codes of either sign.
void check_pairs() {
  for (int scale = 0; scale < 256; ++scale)
    for (int mantissa = 0; mantissa < 256; ++mantissa)
      for (int at = 0; at < 4; ++at) {
        const unsigned int word = (mantissa % 2 ? 0x80ff7f01u : 0x01807fffu) & ~(0xffu << 8 * at);
        const auto s = static_cast<unsigned char>(scale);
        const unsigned int above = madl::above_mantissas(), step = madl::negative_step_pair(s);
        const unsigned int pair =
            madl::decode_pair(word | unsigned(mantissa) << 8 * at, at / 2 * 2, above, step);
        const unsigned int got = pair >> (at % 2 * 16) & 0xffffu;
        const unsigned int wanted = madl::mxint8_to_bf16(static_cast<signed char>(mantissa), s);
        if (got != wanted && !(std::isnan(bf16(got)) && std::isnan(bf16(wanted)))) {
          std::printf("mantissa %d, scale %d in place %d: %04x, not %04x\n", mantissa, scale, at, got, wanted);
          std::exit(2);
        }
      }
}

// A warp's reads of x from a stage: each eight lanes meet all banks.
template <int kTiles, int kWide>
void check_banks() {
  using Tile = madl::LinearTile<kTiles, kWide>;
  for (int warp = 0; warp < Tile::kWarps; ++warp)
    for (int tile = 0; tile < kTiles; ++tile)
      for (int half = 0; half < 2; ++half)
        for (int eight = 0; eight < 4; ++eight) {
          unsigned int met = 0;
          for (int lane = 8 * eight; lane < 8 * eight + 8; ++lane)
            met |= 1u << Tile::place(warp / kWide, 8 * tile + lane / 4, lane % 4 * 2 + half) % 8;
          if (met != 0xffu) std::exit(6);
        }
}

}  // namespace

int main() {
  check_pairs();
  check_banks<2, 4>(), check_banks<4, 8>(), check_banks<8, 8>();
#if defined(__SANITIZE_ADDRESS__)
  constexpr bool kAll = false;  // ten times slower
#else
  constexpr bool kAll = true;
#endif
  for (int num_in : {16, 48, 64, 176, 256, 640})
    for (int group : {16, 32, 64, 256})
      if (num_in % group == 0 && (kAll || num_in == 48 || num_in == 256))
        for (int num_out : {1, 16, 23, 40, 130}) {
          if (num_out == 130 && num_in > 64 && group != 64) continue;
          if (!kAll && num_out % 2 == 0) continue;
          for (int rows : {1, 5, 8}) check<1, 1>(rows, 1, num_in, num_out, group, rows == 5);
          for (int rows : {9, 16}) check<2, 4>(rows, 1, num_in, num_out, group, true);
          check<4, 8>(31, 1, num_in, num_out, group, false), check<8, 8>(64, 1, num_in, num_out, group, true);
          for (int rows : {1, 2}) check<1, 1>(rows, 3, num_in, num_out, group, true);
          check<2, 4>(5, 3, num_in, num_out, group, true);
          check<8, 8>(21, 3, num_in, num_out, group, false);
        }
  // several rounds of the ring, whole and in splits: even ones, uneven ones, more than there are steps
  for (int splits : {1, 2, 3, 5, 40}) {
    if (!kAll && splits % 2 == 1) continue;
    check<1, 1>(3, 1, 4640, 17, 32, true, splits), check<1, 1>(2, 3, 2608, 16, 16, false, splits);
    check<2, 4>(16, 1, 1200, 65, 16, true, splits), check<4, 8>(32, 1, 1184, 30, 32, false, splits);
    check<4, 8>(9, 3, 1152, 20, 64, true, splits), check<8, 8>(64, 1, 720, 129, 16, true, splits);
  }
  std::printf("%d shapes\n", shapes);
}
