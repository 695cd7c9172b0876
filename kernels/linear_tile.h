// y = x · weight^T with MXINT8 weights that are decoded in registers, as host-device methods.
//
// A block makes 16 columns of y (rows of the weight). Its warps share out the input features in
// chunks of 64; each lane decodes 16 consecutive weights of two rows, exactly, to the bfloat16
// operands of tensor-core products (mma.m16n8k16: weights are A, x is B), and the warps' float32
// sums meet in shared memory. The weight is read once, 8.25 bits a value, for up to 64 rows of x.
//
// The four lanes of a quad hold features 16 t ... 16 t + 15 of a chunk, where the instruction
// expects 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of 16: the order of a sum's terms is free as long as A
// and B agree on it, and this one loads 16 bytes at once.
//
// Shapes: x (parts * rows, num_in) bfloat16, weight (num_out, num_in), scales (num_out, num_in /
// group), bias (num_out) or null, y (rows, num_out). `parts` is 1, or 3 where a float32 x is given
// as the sum of three bfloat16 (`split_float`), which holds all its bits.
// Invariants: num_in and group are multiples of 16; parts * rows <= 8 * kTiles; all 16-aligned.
// A host program that runs `fetch`, `operands` and `finish` for every thread, and multiplies the
// fragments as PTX lays them out, runs all of the kernel but the instruction.
#pragma once

#include "mxint8_decode.h"

namespace madl {

struct Linear {
  const unsigned short* x;
  const signed char* weight;
  const unsigned char* scales;
  const float* bias;
  void* y;
  int rows, parts, num_in, num_out, group;
  int shift;  // group == 1 << shift, or negative: a division less for every 32 weights
};

// x as hi + mid + lo, each a bfloat16, without loss: 24 significant bits are three times 8.
MADL_HOST_DEVICE void split_float(float x, unsigned short parts[3]) {
  const unsigned int bits = float_to_bits(x);
  parts[1] = parts[2] = 0;
  if ((bits & 0x7f800000u) == 0x7f800000u) {  // infinite or NaN: nothing is left to split
    parts[0] = static_cast<unsigned short>((bits & 0x007fffffu) ? 0x7fc0u : bits >> 16);
    return;
  }
  float rest = x;
  for (int i = 0; i < 3; ++i) {  // cut, not rounded: rounding up could overflow
    const unsigned int top = float_to_bits(rest) & 0xffff0000u;
    parts[i] = static_cast<unsigned short>(top >> 16);
    rest -= bits_to_float(top);
  }
}

// The bfloat16 nearest to a float, ties to even.
MADL_HOST_DEVICE unsigned short round_to_bf16(float x) {
  const unsigned int bits = float_to_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;
  return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// Two floats that are bfloat16 already, side by side: one instruction on the device.
MADL_HOST_DEVICE unsigned int upper_halves(float low, float high) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(float_to_bits(low), float_to_bits(high), 0x7632);
#else
  return float_to_bits(low) >> 16 | (float_to_bits(high) & 0xffff0000u);
#endif
}

template <int kTiles_>
struct LinearTile {
  static constexpr int kTiles = kTiles_;  // of 8 rows of x
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr int kOut = 16, kChunk = 64, kLane = 16, kRows = 8 * kTiles;
  static constexpr int kPartials = kWarps * kOut * kRows;  // floats of shared memory

  struct alignas(16) Words { unsigned int at[4]; };  // 16 mantissas, or eight bfloat16

  // What a lane reads of the weight for one chunk, far ahead of its use.
  struct Raw {
    Words weight[2];
    unsigned char scale[2];
  };

  MADL_HOST_DEVICE static Raw fetch(const Linear& p, int block, int chunk, int lane) {
    Raw raw;
    const int k = chunk * kChunk + lane % 4 * kLane;
    const int group = p.shift >= 0 ? k >> p.shift : k / p.group;
    const int groups = p.shift >= 0 ? p.num_in >> p.shift : p.num_in / p.group;  // of a row
    for (int half = 0; half < 2; ++half) {
      const int wanted = block * kOut + lane / 4 + 8 * half;
      const long long row = wanted < p.num_out ? wanted : p.num_out - 1;  // not stored in the end
      raw.weight[half] = Words{};
      raw.scale[half] = 0;
      if (k < p.num_in) {
        raw.weight[half] = *reinterpret_cast<const Words*>(p.weight + row * p.num_in + k);
        raw.scale[half] = p.scales[row * groups + group];
      }
    }
    return raw;
  }

  // A of the chunk's step 0 ... 3: rows of the weight, decoded.
  MADL_HOST_DEVICE static void weight_operand(const Raw& raw, const float (&worth)[2], int step,
                                              unsigned int (&a)[4]) {
    for (int i = 0; i < 4; ++i) {
      const unsigned int four = raw.weight[i % 2].at[step];
      const int at = 16 * (i / 2);
      const float low = mxint8_value(static_cast<signed char>(four >> at), worth[i % 2]);
      const float high = mxint8_value(static_cast<signed char>(four >> (at + 8)), worth[i % 2]);
      a[i] = upper_halves(low, high);
    }
  }

  // B of all four steps for one tile of eight rows of x: b[2 * step] and b[2 * step + 1].
  MADL_HOST_DEVICE static void x_operand(const Linear& p, int chunk, int lane, int tile,
                                         unsigned int (&b)[8]) {
    const int k = chunk * kChunk + lane % 4 * kLane, row = 8 * tile + lane / 4;
    const bool exists = row < p.parts * p.rows && k < p.num_in;
    for (int half = 0; half < 2; ++half) {
      Words words{};
      if (exists)
        words = *reinterpret_cast<const Words*>(p.x + static_cast<long long>(row) * p.num_in + k +
                                                8 * half);
      for (int i = 0; i < 4; ++i) b[4 * half + i] = words.at[i];
    }
  }

  // The lane's sums of one tile to shared memory: partials (warp, row of x, column of y).
  MADL_HOST_DEVICE static void leave(const float (&c)[4], int warp, int lane, int tile,
                                     float* partials) {
    for (int i = 0; i < 4; ++i) {
      const int out = lane / 4 + 8 * (i / 2), row = 8 * tile + 2 * (lane % 4) + i % 2;
      partials[(warp * kRows + row) * kOut + out] = c[i];
    }
  }

  // Adds up the warps and the parts of x, and writes the block's columns of y.
  template <class Result>
  MADL_HOST_DEVICE static void finish(const Linear& p, int block, int thread,
                                      const float* partials) {
    for (int i = thread; i < p.rows * kOut; i += kThreads) {
      const int row = i / kOut, out = block * kOut + i % kOut;
      if (out >= p.num_out) continue;
      float sum = 0.0f;
      for (int part = p.parts - 1; part >= 0; --part)  // the smallest first
        for (int warp = 0; warp < kWarps; ++warp)
          sum += partials[(warp * kRows + part * p.rows + row) * kOut + i % kOut];
      if (p.bias) sum += p.bias[out];
      const long long at = static_cast<long long>(row) * p.num_out + out;
      if constexpr (sizeof(Result) == 2)
        static_cast<unsigned short*>(p.y)[at] = round_to_bf16(sum);
      else
        static_cast<float*>(p.y)[at] = sum;
    }
  }
};

}  // namespace madl
