// The arguments of round_to_grid.cpp beside the tensors.
#pragma once

#include <cstdint>

namespace madl {

enum Spacing : int32_t { kUniform = 0, kFloating = 1, kPowers = 2 };
enum ScaleKind : int32_t { kPower = 0, kE4M3 = 1, kFP16 = 2 };

// The fields of Grid and SharedScale in madl/formats/grid.py; block == 0 means no shared scale.
struct Grid {
  int32_t spacing, mantissa_bits, min_exponent, keep_inf, signed_zero, is_wide;
  int32_t block, scale_kind, top, scale_low, scale_high, carry;
  float low, high;
};

// What another kernel does to its input first: round_to_grid.cpp, with these arguments.
struct Rounding {
  int (*round)(const float* x, float* y, int64_t rows, int64_t columns, const Grid* grid,
               int32_t threads);
  Grid grid;
};

}  // namespace madl
