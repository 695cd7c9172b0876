// The torch operators that C++ computes on a CPU: a call costs some 3 us beside its kernel, a quarter
// of what it would cost in Python.
//
// The kernels know nothing of torch. They are built one by one for this CPU, and kernels/build.py
// gives the one to take to `madl_use`, which registers the operator. An operator checks its
// arguments by one condition; the Python beside it, which also traces, says what is wrong with them.
//
// Source: the stable C++ interface of torch, the same in every version since 2.10.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "round_to_grid.h"

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using MaybeTensor = std::optional<Tensor>;
using Shape = std::vector<int64_t>;

decltype(madl::Rounding::round) round_to_grid_kernel;
void (*linear_bf16_kernel)(const float* x, const float* w, const float* bias, float* y, int64_t M,
                           int64_t N, int64_t K, const madl::Rounding* rounding, int32_t threads);
void (*product_bf16_kernel)(const float* a, int64_t a_row, int64_t a_depth, const float* b,
                            int64_t b_row, int64_t b_depth, float* y, int64_t M, int64_t N,
                            int64_t K, int32_t threads);
void (*mxint8_quantize_kernel)(const float* x, int8_t* mantissas, uint8_t* scales, int64_t rows,
                               int64_t columns, int64_t group, int32_t threads);
void (*mxint8_dequantize_kernel)(const int8_t* mantissas, const uint8_t* scales, uint16_t* y,
                                 int64_t rows, int64_t columns, int64_t group, int32_t threads);
void (*linear_mxint8_kernel)(const float* x, const uint8_t* w, const uint8_t* scales,
                             const float* bias, float* y, int64_t M, int64_t N, int64_t K,
                             int64_t group, int32_t threads);

Shape shape_of(const Tensor& x) { return Shape(x.sizes().begin(), x.sizes().end()); }

bool has(const Tensor& x, ScalarType type, std::initializer_list<int64_t> shape) {
  const auto sizes = x.sizes();
  return x.is_cpu() && x.scalar_type() == type &&
         std::equal(sizes.begin(), sizes.end(), shape.begin(), shape.end());
}

Tensor dense(const Tensor& x) { return x.is_contiguous() ? x : torch::stable::contiguous(x); }

MaybeTensor dense(const MaybeTensor& x) { return x ? MaybeTensor(dense(*x)) : x; }

const float* floats(const Tensor& x) { return static_cast<const float*>(x.const_data_ptr()); }

const float* floats(const MaybeTensor& x) { return x ? floats(*x) : nullptr; }

const uint8_t* bytes(const Tensor& x) { return static_cast<const uint8_t*>(x.const_data_ptr()); }

// A large new tensor's memory in pages of 2 MiB instead of 4 KiB, where Linux grants them: having its
// pages made costs more than writing it.
void ask_for_large_pages(const Tensor& y) {
#ifdef __linux__
  constexpr uintptr_t kPage = 4096, kLarge = 4 << 20;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(y.data_ptr());
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  const uintptr_t end = (begin + y.numel() * y.element_size()) / kPage * kPage;
  if (end >= first + kLarge) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#endif
}

// A new contiguous tensor on the CPU. By the shim, since torch::stable::new_empty looks an operator
// up by its name, which takes 1 us.
Tensor empty(const Shape& shape, int32_t dtype) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  AtenTensorHandle handle;
  STABLE_TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(int64_t(shape.size()), shape.data(), strides.data(), dtype,
                               aoti_torch_device_type_cpu(), 0, &handle));
  const Tensor y(handle);
  ask_for_large_pages(y);
  return y;
}

Tensor empty_floats(const Shape& shape) { return empty(shape, aoti_torch_dtype_float32()); }

// The shape of x with another last dimension.
Shape with_columns(const Tensor& x, int64_t columns) {
  Shape shape = shape_of(x);
  shape.back() = columns;
  return shape;
}

int64_t rows_of(const Tensor& x) {
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < x.dim(); ++i) rows *= x.size(i);
  return rows;
}

int32_t threads() { return int32_t(torch::stable::get_num_threads()); }

madl::Grid grid_of(int64_t spacing, int64_t mantissa_bits, int64_t min_exponent, double low,
                   double high, bool keep_inf, bool signed_zero, bool is_wide, int64_t block,
                   int64_t scale_kind, int64_t top, int64_t scale_low, int64_t scale_high,
                   int64_t carry) {
  return {int32_t(spacing),   int32_t(mantissa_bits), int32_t(min_exponent), keep_inf,
          signed_zero,        is_wide,                int32_t(block),        int32_t(scale_kind),
          int32_t(top),       int32_t(scale_low),     int32_t(scale_high),   int32_t(carry),
          float(low),         float(high)};
}

Tensor round_to_grid(const Tensor& x, int64_t spacing, int64_t mantissa_bits, int64_t min_exponent,
                     double low, double high, bool keep_inf, bool signed_zero, bool is_wide,
                     int64_t block, int64_t scale_kind, int64_t top, int64_t scale_low,
                     int64_t scale_high, int64_t carry) {
  STD_TORCH_CHECK(x.scalar_type() == ScalarType::Float,
                  "madl::round_to_grid takes float32; cast first");
  const madl::Grid grid =
      grid_of(spacing, mantissa_bits, min_exponent, low, high, keep_inf, signed_zero, is_wide,
              block, scale_kind, top, scale_low, scale_high, carry);
  const Tensor from = dense(x);
  const Tensor y = empty_floats(shape_of(x));
  const int64_t count = x.numel(), columns = x.dim() ? x.size(-1) : 1;
  if (count == 0) return y;
  const int unknown = round_to_grid_kernel(floats(from), static_cast<float*>(y.data_ptr()),
                                           count / columns, columns, &grid, threads());
  STD_TORCH_CHECK(!unknown, "madl::round_to_grid knows no spacing ", spacing);
  return y;
}

// A negative spacing leaves x as it is.
Tensor linear_bf16(const Tensor& x, const Tensor& weight, const MaybeTensor& bias, int64_t spacing,
                   int64_t mantissa_bits, int64_t min_exponent, double low, double high,
                   bool keep_inf, bool signed_zero, bool is_wide, int64_t block,
                   int64_t scale_kind, int64_t top, int64_t scale_low, int64_t scale_high,
                   int64_t carry) {
  STD_TORCH_CHECK(x.dim() > 0 && weight.dim() == 2 && x.scalar_type() == ScalarType::Float &&
                      has(weight, ScalarType::Float, {weight.size(0), x.size(-1)}),
                  "madl::linear_bf16: x and weight must be float32 and agree in the last dimension");
  const int64_t num_out = weight.size(0);
  STD_TORCH_CHECK(!bias || has(*bias, ScalarType::Float, {num_out}),
                  "madl::linear_bf16: bias must be float32, one for each of the ", num_out,
                  " outputs");
  STD_TORCH_CHECK(spacing < 0 || round_to_grid_kernel,
                  "madl::linear_bf16 rounds by madl::round_to_grid, which has no C++");
  const madl::Rounding rounding{
      round_to_grid_kernel,
      grid_of(spacing, mantissa_bits, min_exponent, low, high, keep_inf, signed_zero, is_wide,
              block, scale_kind, top, scale_low, scale_high, carry)};
  const Tensor rows = dense(x), w = dense(weight);
  const MaybeTensor b = dense(bias);
  const Tensor y = empty_floats(with_columns(x, num_out));
  linear_bf16_kernel(floats(rows), floats(w), floats(b), static_cast<float*>(y.data_ptr()),
                     rows_of(x), num_out, x.size(-1), spacing < 0 ? nullptr : &rounding, threads());
  return y;
}

// One of its two strides is 1: a transposed matrix stays what it is.
Tensor dense_either_way(const Tensor& x) {
  return x.stride(0) == 1 || x.stride(1) == 1 ? x : torch::stable::contiguous(x);
}

Tensor product_bf16(const Tensor& a, const Tensor& b) {
  STD_TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.scalar_type() == ScalarType::Float &&
                      has(b, ScalarType::Float, {a.size(1), b.size(1)}),
                  "madl::product_bf16: a and b must be float32 matrices that fit together");
  const Tensor left = dense_either_way(a), right = dense_either_way(b);
  const Tensor y = empty_floats({a.size(0), b.size(1)});
  product_bf16_kernel(floats(left), left.stride(0), left.stride(1), floats(right), right.stride(1),
                      right.stride(0), static_cast<float*>(y.data_ptr()), a.size(0), b.size(1),
                      a.size(1), threads());
  return y;
}

// ---- MXINT8: kernels/mxint8.py says which shapes and groups there are ----

int64_t groups_of(int64_t size, int64_t group) { return (size + group - 1) / group; }

bool is_group(int64_t group) { return group >= 4 && group <= 512 && group % 4 == 0; }

bool is_half(const Tensor& x) { return x.scalar_type() == ScalarType::BFloat16; }

// Whether x has a dimension for groups to lie on, of values that can be quantized.
bool has_values(const Tensor& x) {
  return x.dim() > 0 && (is_half(x) || x.scalar_type() == ScalarType::Float);
}

Tensor dense_floats(const Tensor& x) {
  return dense(is_half(x) ? torch::stable::to(x, ScalarType::Float) : x);
}

std::tuple<Tensor, Tensor> mxint8_quantize(const Tensor& x, int64_t group) {
  STD_TORCH_CHECK(is_group(group) && has_values(x),
                  "madl::mxint8_quantize: arguments that do not fit together");
  const int64_t columns = x.size(-1);
  const Tensor mantissas = empty(shape_of(x), aoti_torch_dtype_int8());
  const Tensor scales =
      empty(with_columns(x, groups_of(columns, group)), aoti_torch_dtype_uint8());
  const Tensor values = dense_floats(x);
  if (x.numel())
    mxint8_quantize_kernel(floats(values), static_cast<int8_t*>(mantissas.data_ptr()),
                           static_cast<uint8_t*>(scales.data_ptr()), rows_of(x), columns, group,
                           threads());
  return {mantissas, scales};
}

Tensor mxint8_dequantize(const Tensor& mantissas, const Tensor& scales, int64_t group) {
  const int64_t columns = mantissas.dim() ? mantissas.size(-1) : 0;
  STD_TORCH_CHECK(is_group(group) && mantissas.dim() > 0 &&
                      mantissas.scalar_type() == ScalarType::Char && scales.is_cpu() &&
                      scales.scalar_type() == ScalarType::Byte &&
                      shape_of(scales) == with_columns(mantissas, groups_of(columns, group)),
                  "madl::mxint8_dequantize: arguments that do not fit together");
  const Tensor y = empty(shape_of(mantissas), aoti_torch_dtype_bfloat16());
  const Tensor m = dense(mantissas), s = dense(scales);
  if (y.numel())
    mxint8_dequantize_kernel(static_cast<const int8_t*>(m.const_data_ptr()), bytes(s),
                             static_cast<uint16_t*>(y.data_ptr()), rows_of(y), columns, group,
                             threads());
  return y;
}

Tensor linear_mxint8(const Tensor& x, const Tensor& panels, const Tensor& panel_scales,
                     const MaybeTensor& bias, int64_t num_out, int64_t group) {
  constexpr int64_t kPanel = 32, kQuad = 4;
  const int64_t num_in = x.dim() ? x.size(-1) : 0, num_panels = groups_of(num_out, kPanel);
  STD_TORCH_CHECK(
      is_group(group) && has_values(x) &&
          has(panels, ScalarType::Byte, {num_panels, groups_of(num_in, kQuad), kPanel, kQuad}) &&
          has(panel_scales, ScalarType::Byte, {num_panels, groups_of(num_in, group), kPanel}) &&
          (!bias || has(*bias, ScalarType::Float, {num_out})),
      "madl::linear_mxint8: arguments that do not fit together");
  const Tensor rows = dense_floats(x);
  const Tensor w = dense(panels), scales = dense(panel_scales);
  const MaybeTensor b = dense(bias);
  const Tensor y = empty_floats(with_columns(x, num_out));
  linear_mxint8_kernel(floats(rows), bytes(w), bytes(scales), floats(b),
                       static_cast<float*>(y.data_ptr()), rows_of(x), num_out, num_in, group,
                       threads());
  return is_half(x) ? torch::stable::to(y, ScalarType::BFloat16) : y;
}

using Library = torch::stable::detail::StableLibrary;

struct Operator {
  const char* name;
  void (*call)(StableIValue*, uint64_t, uint64_t);
  void* kernel;  // points to the pointer above
  std::unique_ptr<Library> registration;
};

Operator operators[] = {
    {"round_to_grid", TORCH_BOX(&round_to_grid), &round_to_grid_kernel, nullptr},
    {"linear_bf16", TORCH_BOX(&linear_bf16), &linear_bf16_kernel, nullptr},
    {"product_bf16", TORCH_BOX(&product_bf16), &product_bf16_kernel, nullptr},
    {"mxint8_quantize", TORCH_BOX(&mxint8_quantize), &mxint8_quantize_kernel, nullptr},
    {"mxint8_dequantize", TORCH_BOX(&mxint8_dequantize), &mxint8_dequantize_kernel, nullptr},
    {"linear_mxint8", TORCH_BOX(&linear_mxint8), &linear_mxint8_kernel, nullptr},
};

}  // namespace

// Have the operator compute with this kernel from now on; without one, as it did before. Returns
// whether there is an operator of that name.
extern "C" bool madl_use(const char* name, void* kernel) {
  for (Operator& o : operators) {
    if (std::strcmp(o.name, name)) continue;
    o.registration.reset();
    std::memcpy(o.kernel, &kernel, sizeof kernel);
    if (kernel) {
      o.registration =
          std::make_unique<Library>(Library::Kind::IMPL, "madl", "CPU", __FILE__, __LINE__);
      o.registration->impl(o.name, o.call);
    }
    return true;
  }
  return false;
}
