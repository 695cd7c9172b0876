// MXINT8 to bfloat16 through a shared-memory tile, written in CuTe, as host-device methods.
//
// The mantissas are seen as (group, num_groups), a group being a column: element m of group k is
// the flat element k * group + m. A block copies a tile of (kBlockM, kBlockK) to shared memory, waits,
// and writes the decoded tile; each thread moves a vector of kVector elements of one group, so it
// needs one scale. `load` and `store` are all that a thread does before and after the barrier: a
// host program that calls `load` for every thread and then `store` for every thread runs the
// kernel's own code (it cannot see races).
//
// Shapes: mantissas (count), scales (ceil(count / group)), out (count); the last group may be short.
#pragma once

#include <cute/tensor.hpp>

#include "mxint8_decode.h"

namespace madl {

struct Dequantize {
  const signed char* mantissas;
  const unsigned char* scales;
  unsigned short* out;
  long long count;
  int group;
};

template <int kBlockM_, int kVector_>
struct DequantizeTile {
  static constexpr int kBlockM = kBlockM_, kVector = kVector_, kThreads = 256;
  static constexpr int kElements = kThreads * kVector, kBlockK = kElements / kBlockM;
  static_assert(kBlockM % kVector == 0 && kElements % kBlockM == 0, "whole vectors and columns");

  using TileShape = cute::Shape<cute::Int<kBlockM>, cute::Int<kBlockK>>;
  // thread t holds the vector at (kVector * (t % (kBlockM / kVector)), t / (kBlockM / kVector))
  using ThreadLayout = cute::Layout<cute::Shape<cute::Int<kBlockM / kVector>, cute::Int<kBlockK>>>;
  using ValueLayout = cute::Layout<cute::Shape<cute::Int<kVector>, cute::Int<1>>>;
  using SharedLayout = cute::Layout<TileShape>;  // column-major: a group lies in one piece

  // The bytes of one vector in one transaction; asynchronous where the machine can.
  using Word = cute::conditional_t<kVector == 8, uint64_t, uint8_t>;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  static constexpr bool kAsync = kVector == 8;  // cp.async takes 4, 8 or 16 bytes
  using CopyOperation = cute::conditional_t<kAsync, cute::SM80_CP_ASYNC_CACHEALWAYS<Word>,
                                            cute::UniversalCopy<Word>>;
#else
  static constexpr bool kAsync = false;
  using CopyOperation = cute::UniversalCopy<Word>;
#endif
  using TiledCopy = decltype(cute::make_tiled_copy(cute::Copy_Atom<CopyOperation, signed char>{},
                                                   ThreadLayout{}, ValueLayout{}));

  // Where a thread's vector lies: its first element, and how many of the kVector exist.
  struct Place {
    int m, k;             // in the tile
    long long group, at;  // its group, and its first element, of the whole array
    int exist;
  };

  CUTE_HOST_DEVICE static Place place(const Dequantize& d, int block_m, long long block_k,
                                      int thread) {
    using namespace cute;
    const auto coordinates = make_identity_tensor(TileShape{});
    const auto mine = TiledCopy{}.get_slice(thread).partition_S(coordinates)(0);  // (m, k)
    Place p;
    p.m = get<0>(mine);
    p.k = get<1>(mine);
    const int m = block_m * kBlockM + p.m;
    p.group = block_k * kBlockK + p.k;
    p.at = p.group * d.group + m;
    const long long in_group = d.group - m, in_array = d.count - p.at;
    const long long exist = in_group < in_array ? in_group : in_array;
    p.exist = static_cast<int>(exist < 0 ? 0 : exist < kVector ? exist : kVector);
    return p;
  }

  // Copies the thread's vector to shared memory and gives what a mantissa's step is worth in it.
  CUTE_HOST_DEVICE static float load(const Dequantize& d, int block_m, long long block_k,
                                     int thread, signed char* shared) {
    using namespace cute;
    const Place p = place(d, block_m, block_k, thread);
    const auto tile = make_tensor(make_smem_ptr(shared), SharedLayout{});
    if (p.exist == kVector) {
      const auto from = make_tensor(make_gmem_ptr(d.mantissas + p.at), Shape<Int<kVector>>{});
      auto to = make_tensor(make_smem_ptr(&tile(p.m, p.k)), Shape<Int<kVector>>{});
      copy(Copy_Atom<CopyOperation, signed char>{}, from, to);
    } else {
      for (int i = 0; i < p.exist; ++i) tile(p.m + i, p.k) = d.mantissas[p.at + i];
    }
    return p.exist ? mxint8_step(d.scales[p.group]) : 0.0f;
  }

  // Decodes the thread's vector out of shared memory.
  CUTE_HOST_DEVICE static void store(const Dequantize& d, int block_m, long long block_k,
                                     int thread, float step, signed char* shared) {
    using namespace cute;
    const Place p = place(d, block_m, block_k, thread);
    const auto tile = make_tensor(make_smem_ptr(shared), SharedLayout{});
    auto values = make_tensor<unsigned short>(Shape<Int<kVector>>{});
    if (p.exist == kVector) {
      auto packed = make_tensor<signed char>(Shape<Int<kVector>>{});
      copy(Copy_Atom<UniversalCopy<Word>, signed char>{},
           make_tensor(make_smem_ptr(&tile(p.m, p.k)), Shape<Int<kVector>>{}), packed);
      CUTE_UNROLL
      for (int i = 0; i < kVector; ++i) values(i) = mxint8_element(packed(i), step);
      using Result = conditional_t<kVector == 8, uint128_t, uint16_t>;
      copy(Copy_Atom<UniversalCopy<Result>, unsigned short>{}, values,
           make_tensor(make_gmem_ptr(d.out + p.at), Shape<Int<kVector>>{}));
    } else {
      for (int i = 0; i < p.exist; ++i)
        d.out[p.at + i] = mxint8_element(tile(p.m + i, p.k), step);
    }
  }
};

}  // namespace madl
