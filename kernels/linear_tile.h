// y = x · weight^T with MXINT8 weights that are decoded in registers, as host-device methods.
//
// A block has eight warps and takes 16 * kWide columns of y (rows of the weight): kWide warps lie
// side by side over columns, and kSlices = 8 / kWide of them share out the input features in chunks
// of 64. Every step of a block is one chunk for each slice. A lane decodes 16 consecutive weights of
// two rows, exactly, to the bfloat16 operands of tensor-core products (mma.m16n8k16: weights are A,
// x is B). The weight is read once, 8.25 bits a value, for up to 64 rows of x.
//
// What decides the speed is how many bytes are on their way. The weights of the next kAhead steps
// are in registers or coming: 4 KiB a warp, 32 KiB a block. x comes from the L2 cache: up to eight
// rows straight into registers, one step ahead; more rows through shared memory, kAhead - 1 steps
// ahead, so that 64 or 128 columns share one copy. Where columns alone make too few blocks, `splits`
// blocks share a column's features, and their float32 sums are added in order: from sm_90 on by the
// blocks themselves, a cluster that reads each other's shared memory; else by a second kernel.
//
// The four lanes of a quad hold features 16 t ... 16 t + 15 of a chunk, where the instruction
// expects 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of 16: the order of a sum's terms is free as long as A
// and B agree on it, and this one loads 16 bytes at once.
//
// Shapes: x (parts * rows, num_in) bfloat16, weight (num_out, num_in), scales (num_out, num_in >>
// shift), bias (num_out) or null, y (rows, num_out), partials (splits, rows, num_out) or null.
// `parts` is 1, or 3 where a float32 x is given as the sum of three bfloat16 (`split_float`), which
// holds all its bits.
// Invariants: num_in is a multiple of 16 and of the group, a power of two from 16 on; parts * rows
// <= 8 * kTiles; all 16-aligned; the order of every sum follows from the shapes and `steps` alone.
// A host program that runs these for every thread, and multiplies the fragments as PTX lays them
// out, runs all of the kernel but that instruction and the waiting.
#pragma once

#include "mxint8_decode.h"

namespace madl {

struct Linear {
  const unsigned short* x;
  const signed char* weight;
  const unsigned char* scales;
  const float* bias;
  void* y;
  float* partials;  // null where one block, or a cluster of them, sums all of a column's features
  int rows, parts, num_in, num_out;
  int shift;  // a group is 1 << shift values
  int steps;  // of each split
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

// a * b + c of two bfloat16 side by side, each rounded once. The device has it from sm_80 on.
MADL_HOST_DEVICE unsigned int fma_pair(unsigned int a, unsigned int b, unsigned int c) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned int d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
#else
  unsigned int d = 0;
  for (int at = 0; at < 32; at += 16) {  // products of bfloat16 are exact in float32
    const float product = bits_to_float(a >> at << 16) * bits_to_float(b >> at << 16);
    const float sum = product + bits_to_float(c >> at << 16);
    d |= static_cast<unsigned int>(round_to_bf16(sum)) << at;
  }
  return d;
#endif
}

// Bytes `at` and `at + 1` of a word, each below a byte 0xc3, of which `above` has four.
MADL_HOST_DEVICE unsigned int under(unsigned int above, unsigned int word, int at) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(word, above, at ? 0x4342 : 0x4140);
#else
  const unsigned int two = word >> (8 * at);
  return (above & 0xff00ff00u) | (two & 0xffu) | (two & 0xff00u) << 8;
#endif
}

// 0xc3 four times, in a register: as constants, a byte permutation's operands cost a move each.
MADL_HOST_DEVICE unsigned int above_mantissas() {
  unsigned int above = 0xc3c3c3c3u;
#if defined(__CUDA_ARCH__)
  above += threadIdx.z;  // which is 0
#endif
  return above;
}

// A mantissa's step, 2^(scale - 133) as `mxint8_step` has it, less than zero, as a bfloat16 and twice.
//
// As the exponent of a float32 it is 2^(scale - 127), but for 0, which is 2^-127; low bits make a NaN
// of 255, and are cut from others.
MADL_HOST_DEVICE unsigned int negative_step_pair(unsigned int scale) {
  const unsigned int power = scale * 0x00800001u, least = 0x00400000u;
  const unsigned int step = float_to_bits(bits_to_float(power > least ? power : least) * -0.015625f);
#if defined(__CUDA_ARCH__)
  return __byte_perm(step, 0, 0x3232);
#else
  return (step >> 16) * 0x10001u;
#endif
}

// Mantissas `at` and `at + 1` (at is 0 or 2) of four in a word, times their step, as two bfloat16.
//
// Without a conversion, of which a multiprocessor has few: the low seven bits of a mantissa under
// 0xc300 are -(128 + low bits), its sign bit there is 128 or 256, and their sum is less the mantissa.
// All of it is exact. Source of the idea: the integer-to-half conversions of FasterTransformer.
MADL_HOST_DEVICE unsigned int decode_pair(unsigned int word, int at, unsigned int above,
                                          unsigned int negative_step) {
  constexpr unsigned int kOnes = 0x3f803f80u;
  const unsigned int raw = under(above, word, at);
  const unsigned int low = raw & 0xff7fff7fu;   // -(128 + low seven bits)
  const unsigned int more = raw & 0x43804380u;  // 128, or 256 under a sign
  return fma_pair(fma_pair(low, kOnes, more), negative_step, 0);  // zeros are positive
}

struct alignas(16) Words { unsigned int at[4]; };  // 16 mantissas, or eight bfloat16
struct alignas(16) Floats { float at[4]; };

// 16 bytes that nobody reads again, so they leave the L1 cache to x. Unwanted ones stay as they were,
// which costs no instruction where a branch or zeros would. Volatile, so that it is issued where it
// stands, steps ahead of its use.
MADL_HOST_DEVICE void read_once(Words& words, const void* from, bool wanted) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("{.reg .pred wanted; setp.ne.s32 wanted, %5, 0;\n"
      "@wanted ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];}"
      : "+r"(words.at[0]), "+r"(words.at[1]), "+r"(words.at[2]), "+r"(words.at[3])
      : "l"(from), "r"(static_cast<int>(wanted)));
#else
  if (wanted) words = *static_cast<const Words*>(from);
#endif
}

// The same of one byte, for a scale, whose neighbours are read by other lanes.
MADL_HOST_DEVICE void read_byte(unsigned int& byte, const unsigned char* from, bool wanted) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("{.reg .pred wanted; setp.ne.s32 wanted, %2, 0;\n"
      "@wanted ld.global.nc.u8 %0, [%1];}"
      : "+r"(byte) : "l"(from), "r"(static_cast<int>(wanted)));
#else
  if (wanted) byte = *from;
#endif
}

// 16 bytes, or zeros.
MADL_HOST_DEVICE Words read_or_zeros(const void* from, bool wanted) {
  Words words;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("{.reg .pred wanted; setp.ne.s32 wanted, %5, 0;\n"
      "mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;\n"
      "@wanted ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];}"
      : "=&r"(words.at[0]), "=&r"(words.at[1]), "=&r"(words.at[2]), "=&r"(words.at[3])
      : "l"(from), "r"(static_cast<int>(wanted)));
#else
  words = wanted ? *static_cast<const Words*>(from) : Words{};
#endif
  return words;
}

template <int kTiles_, int kWide_>
struct LinearTile {
  static constexpr int kTiles = kTiles_;  // of 8 rows of x
  static constexpr int kWide = kWide_;
  static constexpr int kThreads = 256, kWarps = kThreads / 32, kSlices = kWarps / kWide;
  static constexpr int kOut = 16 * kWide, kChunk = 64, kLane = 16, kRows = 8 * kTiles;
  static constexpr int kFeatures = kChunk * kSlices;  // of a step
  static constexpr int kAhead = 4;                      // steps of the weight on their way
  static constexpr int kResident = kTiles < 8 ? 2 : 1;  // blocks that a multiprocessor's registers hold
  static constexpr int kMaxCluster = 8;                 // blocks, on every GPU that has clusters
  static constexpr bool kStaged = kWide > 1;  // x through shared memory
  static constexpr int kUnit = 8;            // bfloat16 in 16 bytes
  static constexpr int kRowUnits = kChunk / kUnit;
  static constexpr int kStageUnits = kStaged ? kSlices * kRows * kRowUnits : 0;
  static constexpr int kCopies = kStaged ? kStageUnits / kThreads : 1;
  static constexpr int kCopyRows = kThreads / kRowUnits;
  static constexpr int kStride = kOut + 4;  // of the partial sums: no two lanes in one bank, 16 bytes
  static constexpr int kPartialBytes = kSlices * kRows * kStride * 4;
  static constexpr int kStagesBytes = kAhead * kStageUnits * 16;
  static constexpr int kSharedBytes = kPartialBytes > kStagesBytes ? kPartialBytes : kStagesBytes;
  static_assert(kSharedBytes <= 48 << 10 && kStageUnits % kThreads == 0, "a block's memory, shared");

  MADL_HOST_DEVICE static int all_steps(const Linear& p) {
    return (p.num_in + kFeatures - 1) / kFeatures;
  }

  // Behind the last step of a split.
  MADL_HOST_DEVICE static int end_of(const Linear& p, int split) {
    const int end = (split + 1) * p.steps, all = all_steps(p);
    return end < all ? end : all;
  }

  // Where a lane reads, at the cursor's step: its two rows of the weight and its row of x; its first
  // feature, and the features that exist (none in a row that does not). Where a row of the weight
  // does not exist, the last is read in its place: the sums are nobody's.
  struct Lane {
    const signed char* weight[2];
    const unsigned char* scales[2];  // of the row's first feature
    const unsigned short* x;
    int k, exist, left_x;  // what x has left from k on
  };

  MADL_HOST_DEVICE static Lane lane_of(const Linear& p, int block, int first, int end, int warp,
                                       int lane) {
    const int column = block * kOut + warp % kWide * 16;
    const int exist = end * kFeatures < p.num_in ? end * kFeatures : p.num_in;
    Lane at;
    at.k = first * kFeatures + warp / kWide * kChunk + lane % 4 * kLane;
    for (int half = 0; half < 2; ++half) {
      const int row = column + lane / 4 + 8 * half;
      const long long existing = row < p.num_out ? row : p.num_out - 1;
      at.weight[half] = p.weight + existing * p.num_in + at.k;
      at.scales[half] = p.scales + existing * (p.num_in >> p.shift);
    }
    at.x = p.x + static_cast<long long>(lane / 4) * p.num_in + at.k;
    at.exist = column < p.num_out ? exist : 0;
    at.left_x = lane / 4 < p.parts * p.rows ? exist - at.k : 0;
    return at;
  }

  // The cursor, kAhead steps on.
  MADL_HOST_DEVICE static void advance(Lane& at) {
    for (int half = 0; half < 2; ++half) at.weight[half] += kAhead * kFeatures;
    at.x += kAhead * kFeatures;
    at.k += kAhead * kFeatures, at.left_x -= kAhead * kFeatures;
  }

  // What a lane reads of the weight for one chunk, far ahead of its use. Where there is nothing to
  // read it stays what it was, codes of the same row or zeros: x is zero there.
  struct Raw {
    Words weight[2];
    unsigned int scale[2];
  };

  MADL_HOST_DEVICE static void fetch(const Linear& p, const Lane& at, int steps, Raw& raw) {
    const int k = at.k + steps * kFeatures;
    const bool exists = k < at.exist;
    for (int half = 0; half < 2; ++half) {
      read_once(raw.weight[half], at.weight[half] + steps * kFeatures, exists);
      read_byte(raw.scale[half], at.scales[half] + (static_cast<unsigned int>(k) >> p.shift), exists);
    }
  }

  // A of the chunk's quarter 0 ... 3: rows of the weight, decoded.
  MADL_HOST_DEVICE static void weight_operand(const Raw& raw, unsigned int above,
                                              const unsigned int (&worth)[2], int quarter,
                                              unsigned int (&a)[4]) {
    for (int i = 0; i < 4; ++i)
      a[i] = decode_pair(raw.weight[i % 2].at[quarter], i / 2 * 2, above, worth[i % 2]);
  }

  // ---- x, straight from memory: B of two quarters of a chunk, for the one tile of eight rows -------

  MADL_HOST_DEVICE static Words x_operand(const Lane& at, int steps, int half) {
    const int ahead = steps * kFeatures;
    return read_or_zeros(at.x + ahead + kUnit * half, ahead < at.left_x);
  }

  // ---- x by way of shared memory: (slice, row, unit), units of 16 bytes --------------------------

  // Where a unit lies in a stage: odd rows swap neighbours, so that eight lanes reading every
  // second unit of two rows meet all banks.
  MADL_HOST_DEVICE static int place(int slice, int row, int unit) {
    return (slice * kRows + row) * kRowUnits + (unit ^ (row & 1));
  }

  // A thread's copies, at the cursor's step: units of 16 bytes, kCopyRows rows apart. `left` is how
  // many features its row has from its own on, and `rows` how many rows x has.
  struct Copies {
    const unsigned short* from[kCopies];
    int to, left, rows;
  };

  MADL_HOST_DEVICE static Copies copies_of(const Linear& p, int first, int end, int thread) {
    const int unit = thread % kRowUnits, row = thread / kRowUnits % kRows;
    const int slice = thread / (kRowUnits * kRows);
    const int k = first * kFeatures + slice * kChunk + kUnit * unit;
    const int exist = end * kFeatures < p.num_in ? end * kFeatures : p.num_in;
    Copies of{{}, place(slice, row, unit), exist - k, p.parts * p.rows - row};
    for (int i = 0; i < kCopies; ++i)
      of.from[i] = p.x + static_cast<long long>(row + i * kCopyRows) * p.num_in + k;
    return of;
  }

  MADL_HOST_DEVICE static void advance(Copies& of) {
    for (int i = 0; i < kCopies; ++i) of.from[i] += kAhead * kFeatures;
    of.left -= kAhead * kFeatures;
  }

  // One step's: `copy(to, from, bytes)`, bytes being 16, or 0 for zeros. Rows that x has not are not
  // copied; features beyond the last are zeros.
  template <class To>
  MADL_HOST_DEVICE static void send(const Copies& of, int steps, const To& copy) {
    for (int i = 0; i < kCopies; ++i)
      if (i * kCopyRows < of.rows)
        copy(of.to + i * kThreads, of.from[i] + steps * kFeatures,
             steps * kFeatures < of.left ? 16 : 0);
  }

  MADL_HOST_DEVICE static Words x_operand(const Words* stage, int warp, int lane, int tile,
                                          int half) {
    return stage[place(warp / kWide, 8 * tile + lane / 4, lane % 4 * 2 + half)];
  }

  // ---- the sums ----------------------------------------------------------------------------------

  // The lane's sums of one tile to shared memory: (slice, row of x, column of y).
  MADL_HOST_DEVICE static void leave(const float (&c)[4], int warp, int lane, int tile,
                                     float* partials) {
    for (int i = 0; i < 4; ++i) {
      const int out = warp % kWide * 16 + lane / 4 + 8 * (i / 2);
      const int row = 8 * tile + 2 * (lane % 4) + i % 2;
      partials[(warp / kWide * kRows + row) * kStride + out] = c[i];
    }
  }

  // Element i of the block's part of y: its sum over the slices and the parts of x, the smallest first.
  MADL_HOST_DEVICE static float block_sum(const Linear& p, int i, const float* partials) {
    float sum = 0.0f;
    for (int part = p.parts - 1; part >= 0; --part)
      for (int slice = 0; slice < kSlices; ++slice)
        sum += partials[(slice * kRows + part * p.rows + i / kOut) * kStride + i % kOut];
    return sum;
  }

  // Writes the block's columns of y, or of its split.
  template <class Result>
  MADL_HOST_DEVICE static void finish(const Linear& p, int block, int split, int thread,
                                      const float* partials) {
    for (int i = thread; i < p.rows * kOut; i += kThreads) {
      const int row = i / kOut, column = block * kOut + i % kOut;
      if (column >= p.num_out) continue;
      const float sum = block_sum(p, i, partials);
      if (p.partials)
        p.partials[(static_cast<long long>(split) * p.rows + row) * p.num_out + column] = sum;
      else
        write<Result>(p, row, column, sum);
    }
  }

  // A block of a cluster leaves its sums where the others find them, and then, once all have, adds
  // up its share of them: `theirs(split, at)` reads four floats of another block's partials, and
  // all of a sum's are on their way before the first is added.
  MADL_HOST_DEVICE static void fold(const Linear& p, int thread, float* partials) {
    for (int i = thread; i < p.rows * kOut; i += kThreads)
      partials[i / kOut * kStride + i % kOut] = block_sum(p, i, partials);
  }

  template <class Result, class Theirs>
  MADL_HOST_DEVICE static void finish_cluster(const Linear& p, int block, int split, int splits,
                                              int thread, const Theirs& theirs) {
    for (int i = 4 * (split * kThreads + thread); i < p.rows * kOut; i += 4 * splits * kThreads) {
      Floats found[kMaxCluster];
#pragma unroll
      for (int other = 0; other < kMaxCluster; ++other)
        if (other < splits) found[other] = theirs(other, i / kOut * kStride + i % kOut);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float sum = 0.0f;
#pragma unroll
        for (int other = 0; other < kMaxCluster; ++other)
          if (other < splits) sum += found[other].at[j];
        const int column = block * kOut + i % kOut + j;
        if (column < p.num_out) write<Result>(p, i / kOut, column, sum);
      }
    }
  }

  // An element of y: a sum, and the bias.
  template <class Result>
  MADL_HOST_DEVICE static void write(const Linear& p, int row, int column, float sum) {
    const long long at = static_cast<long long>(row) * p.num_out + column;
    if (p.bias) sum += p.bias[column];
    if constexpr (sizeof(Result) == 2)
      static_cast<unsigned short*>(p.y)[at] = round_to_bf16(sum);
    else
      static_cast<float*>(p.y)[at] = sum;
  }

  // The second pass, an element of y a thread: the splits in their order.
  template <class Result>
  MADL_HOST_DEVICE static void add_splits(const Linear& p, int splits, int row, int column) {
    if (column >= p.num_out) return;
    float sum = 0.0f;
    for (int split = 0; split < splits; ++split)
      sum += p.partials[(static_cast<long long>(split) * p.rows + row) * p.num_out + column];
    write<Result>(p, row, column, sum);
  }
};

}  // namespace madl
