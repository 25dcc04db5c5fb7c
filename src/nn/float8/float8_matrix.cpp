#include "nn/float8/float8_matrix.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <limits>
#include <optional>

namespace titan::nn {
namespace {

// Keeps the scale of zeros finite; torchao's value.
constexpr double kSmallestMaximum = 1e-12;
// The bits of a float32's sign and exponent.
constexpr std::int64_t kWithoutMantissa = 0xFF800000;
constexpr std::int64_t kAlignment = 16;  // of rows that GPUs multiply, in values

double largest_of(at::ScalarType dtype) {
  return dtype == at::kFloat8_e5m2 ? static_cast<double>(std::numeric_limits<at::Float8_e5m2>::max())
                                   : static_cast<double>(std::numeric_limits<at::Float8_e4m3fn>::max());
}

// The magnitudes themselves would be another tensor of the size of `x`.
at::Tensor largest_magnitudes(const at::Tensor& x, Float8Scaling scaling) {
  std::optional<std::int64_t> dim;
  if (scaling != Float8Scaling::kTensor) dim = scaling == Float8Scaling::kRows ? 1 : 0;
  const auto [least, most] = at::aminmax(x, dim, /*keepdim=*/dim.has_value());
  return at::maximum(most, least.neg());
}

at::Tensor as_float(const Float8Matrix& matrix) { return matrix.values.to(at::kFloat).div_(matrix.scale); }

// Pads the dimension that both share with zeros, which add nothing.
at::Tensor padded(const at::Tensor& values, std::int64_t dim) {
  const std::int64_t missing = (kAlignment - values.size(dim) % kAlignment) % kAlignment;
  if (missing == 0) return values;
  auto sizes = values.sizes().vec();
  sizes[static_cast<std::size_t>(dim)] = missing;
  // Float8 has few operators; bytes of zero are zeros of it.
  const at::Tensor bytes = values.view(at::kByte);
  return at::cat({bytes, at::zeros(sizes, bytes.options())}, dim).view(values.scalar_type());
}

at::Tensor scaled_product(const Float8Matrix& a, const Float8Matrix& b, at::ScalarType dtype, bool fast) {
  const bool by_rows = a.scale.dim() == 2;
  const at::Tensor rows = padded(a.values, 1).contiguous();
  const at::Tensor columns = padded(b.values, 0).t().contiguous().t();
  const at::Tensor of_a = a.scale.reciprocal(), of_b = b.scale.reciprocal();
  // PyTorch's kernel for scales of rows has no other type of result, and is slow without fast sums.
  if (!by_rows) return at::_scaled_mm(rows, columns, of_a, of_b, {}, {}, dtype, fast);
  if (fast) return at::_scaled_mm(rows, columns, of_a, of_b, {}, {}, at::kBFloat16, fast).to(dtype);
  const at::Tensor one = at::ones({}, of_a.options());
  return at::_scaled_mm(rows, columns, one, one, {}, {}, at::kBFloat16, fast).mul_(of_a * of_b).to(dtype);
}

}  // namespace

at::Tensor float8_scale(const at::Tensor& maxima, at::ScalarType dtype) {
  return at::reciprocal(maxima.to(at::kDouble).clamp_min(kSmallestMaximum)).mul_(largest_of(dtype)).to(at::kFloat);
}

at::Tensor scaled_to_float8(const at::Tensor& x, const at::Tensor& scale, at::ScalarType dtype) {
  const double largest = largest_of(dtype);
  return at::mul(x.to(at::kFloat), scale).clamp_(-largest, largest).to(dtype);
}

Float8Matrix to_float8(const at::Tensor& x, at::ScalarType dtype, Float8Scaling scaling, bool power_of_two) {
  at::Tensor scale = float8_scale(largest_magnitudes(x, scaling), dtype);
  if (power_of_two)
    scale = scale.view(at::kInt).bitwise_and(static_cast<std::int32_t>(kWithoutMantissa)).view(at::kFloat);
  return {scaled_to_float8(x, scale, dtype), scale};
}

at::Tensor float8_product(const Float8Matrix& a, const Float8Matrix& b, at::ScalarType dtype, bool fast, bool emulate) {
  if (emulate) return at::mm(as_float(a), as_float(b)).to(dtype);
  if (a.values.is_meta()) return at::empty({a.values.size(0), b.values.size(1)}, a.values.options().dtype(dtype));
  return scaled_product(a, b, dtype, fast);
}

}  // namespace titan::nn
