// The arguments of round_to_grid.cpp beside the tensors.
#pragma once

#include <cstdint>

namespace madl {

enum Spacing : int32_t { kUniform = 0, kFloating = 1, kPowers = 2 };

// The fields of Grid and SharedScale in madl/formats/grid.py; block == 0 means no shared scale.
struct Grid {
  int32_t spacing, mantissa_bits, min_exponent, keep_inf, is_wide;
  int32_t block, top, scale_low, scale_high, nearest_power;
  float low, high;
};

}  // namespace madl
