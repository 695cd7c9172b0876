// Which thread touches which element: the mappings of the dequantize kernels, from CuTe itself.
//
// Usage: tile_map GROUP NUM_GROUPS BLOCK_M BLOCK_K, for the mantissas seen as (GROUP, NUM_GROUPS), a
// group being a column, and one thread block of that grid. Prints JSON: for every kernel its tile,
// thread layout and number of slots of shared memory that are filled, and for each (thread, value)
// the element (m, k) of the tile, whether it exists, its place in global and in shared memory.
//
// Kernels: "lab" has one thread an element, as the coursework's; "lab, transposed" differs in the
// order of its threads; "lab, fewer threads" has a thread layout a quarter as large, while
// shared memory is still partitioned by the old one; "tile" is `dequantize_tile.h`.
#include <cstdio>
#include <cstdlib>
#include <set>

#include "dequantize_tile.h"

namespace {

using namespace cute;

struct Block {
  int group, num_groups, m, k;
};

class Values {
 public:
  void add(int thread, int value, int m, int k, bool exists, long long global, int shared) {
    std::printf("%s[%d,%d,%d,%d,%d,%lld,%d]", first_ ? "" : ",", thread, value, m, k, exists,
                global, shared);
    first_ = false;
    if (shared >= 0) filled_.insert(shared);
  }
  int filled() const { return static_cast<int>(filled_.size()); }

 private:
  bool first_ = true;
  std::set<int> filled_;
};

template <class ThreadLayout>
void open(const char* name, int block_m, int block_k, int bytes, const ThreadLayout& threads) {
  std::printf("{\"kernel\":\"%s\",\"tile\":[%d,%d],\"bytes\":%d,\"threads\":%d,\"layout\":\"", name,
              block_m, block_k, bytes, static_cast<int>(size(threads)));
  print(threads);
  std::printf("\",\"values\":[");
}

void close(const Values& values, bool last = false) {
  std::printf("],\"filled\":%d}%s\n", values.filled(), last ? "" : ",");
}

// [partition]
// The coursework's partition: the global tile by `threads`, the shared one by `shared_threads`.
template <class Tile, class ThreadLayout, class SharedThreadLayout>
void lab(const char* name, const Block& b, Tile tile, ThreadLayout threads,
         SharedThreadLayout shared_threads) {
  const auto shape = make_shape(b.group, b.num_groups);
  const auto whole = make_tensor(counting_iterator<int>(0), make_layout(shape));  // its own offsets
  const auto elements = local_tile(whole, tile, make_coord(b.m, b.k));            // gX
  const auto slots = make_tensor(counting_iterator<int>(0), make_layout(tile));   // sX
  const auto coordinates = make_identity_tensor(tile);                            // cX
  open(name, size<0>(tile), size<1>(tile), 1, threads);
  Values values;
  for (int thread = 0; thread < size(threads); ++thread) {
    const auto from = local_partition(elements, threads, thread);
    const auto to = local_partition(slots, shared_threads, thread);
    const auto at = local_partition(coordinates, threads, thread);
    for (int i = 0; i < size(from); ++i) {
      const int m = get<0>(at(i)), k = get<1>(at(i));
      const bool exists = b.m * size<0>(tile) + m < b.group && b.k * size<1>(tile) + k < b.num_groups;
      values.add(thread, i, m, k, exists, from(i), i < size(to) ? to(i) : -1);
    }
  }
  close(values);
}
// [/partition]

// [tilers]
template <int kBlockM, int kBlockK>
void lab_kernels(const Block& b) {
  const auto tile = make_shape(Int<kBlockM>{}, Int<kBlockK>{});
  const auto threads = make_layout(tile);
  lab("lab", b, tile, threads, threads);
  const auto transposed = make_layout(tile, LayoutRight{});
  lab("lab, transposed", b, tile, transposed, transposed);
  lab("lab, fewer threads", b, tile, make_layout(make_shape(Int<kBlockM>{}, Int<kBlockK / 4>{})),
      threads);
}
// [/tilers]

template <int kBlockM>
void tile_kernel(const Block& b) {
  using Tile = madl::DequantizeTile<kBlockM, 8>;
  const long long count = static_cast<long long>(b.group) * b.num_groups;
  const madl::Dequantize d{nullptr, nullptr, nullptr, count, b.group};
  const typename Tile::SharedLayout shared;
  open("tile", Tile::kBlockM, Tile::kBlockK, 8, typename Tile::ThreadLayout{});
  Values values;
  for (int thread = 0; thread < Tile::kThreads; ++thread) {
    const auto p = Tile::place(d, b.m, b.k, thread);
    for (int i = 0; i < Tile::kVector; ++i)
      values.add(thread, i, p.m + i, p.k, i < p.exist, p.at + i, shared(p.m + i, p.k));
  }
  close(values, true);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s GROUP NUM_GROUPS BLOCK_M BLOCK_K\n", argv[0]);
    return 2;
  }
  const Block b{std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4])};
  std::printf("[");
  switch (b.group) {
    case 8: lab_kernels<8, 128>(b), tile_kernel<8>(b); break;
    case 16: lab_kernels<16, 64>(b), tile_kernel<16>(b); break;
    case 32: lab_kernels<32, 32>(b), tile_kernel<32>(b); break;
    case 64: lab_kernels<64, 16>(b), tile_kernel<64>(b); break;
    case 128: lab_kernels<128, 8>(b), tile_kernel<128>(b); break;
    case 256: lab_kernels<128, 8>(b), tile_kernel<256>(b); break;
    case 512: lab_kernels<128, 8>(b), tile_kernel<512>(b); break;
    default:
      std::fprintf(stderr, "GROUP is 8, 16, 32 ... 512, got %d\n", b.group);
      return 2;
  }
  std::printf("]\n");
}
