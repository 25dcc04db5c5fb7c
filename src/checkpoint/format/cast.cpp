#include "checkpoint/format/cast.h"

#include <ATen/ATen.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "checkpoint/format/dtype.h"

namespace titan::checkpoint {
namespace {

constexpr std::int64_t kChunk = 1 << 16;  // elements checked at once, so that the checks take little memory

bool changes_range(const at::Tensor& from, c10::ScalarType dtype) {
  return from.scalar_type() != dtype && from.is_floating_point() && c10::isFloatingType(dtype) && from.numel() > 0;
}

std::vector<at::Tensor> chunks_of(const at::Tensor& tensor) { return tensor.flatten().split(kChunk); }

bool has_nan(const at::Tensor& tensor) {
  return std::ranges::any_of(chunks_of(tensor),
                             [](const at::Tensor& chunk) { return chunk.isnan().any().item<bool>(); });
}

}  // namespace

at::Tensor cast(const at::Tensor& from, c10::ScalarType dtype) {
  at::Tensor to = from.to(dtype);
  if (!changes_range(from, dtype) || !has_nan(from)) return to;
  // Sets the sign bit directly: arithmetic may replace one NaN by another.
  const auto integers = to.element_size() == 2 ? at::kShort : to.element_size() == 4 ? at::kInt : at::kLong;
  const std::int64_t sign = std::numeric_limits<std::int64_t>::min() >> (64 - 8 * to.element_size());
  const at::Tensor bits = to.view(integers), without = bits.bitwise_and(at::Scalar(~sign));
  const at::Tensor with = without.bitwise_or(at::Scalar(sign));
  return at::where(from.isnan(), at::where(from.signbit(), with, without), bits).view(dtype);
}

std::string overflow_text(const at::Tensor& from, c10::ScalarType dtype) {
  if (!changes_range(from, dtype)) return "";
  std::int64_t count = 0;
  double largest = 0;
  for (const at::Tensor& chunk : chunks_of(from)) {
    const at::Tensor is_infinite = chunk.to(dtype).isinf();
    if (!is_infinite.any().item<bool>()) continue;
    const at::Tensor lost = chunk.masked_select(is_infinite.logical_and(chunk.isfinite())).to(at::kDouble);
    if (lost.numel() == 0) continue;
    count += lost.numel();
    const auto candidate = lost[lost.abs().argmax()].item<double>();
    if (std::abs(candidate) > std::abs(largest)) largest = candidate;
  }
  if (count == 0) return "";
  return fmt::format("{} beyond the range of {}, the largest of them {:g}", counted(count, "number"), dtype_name(dtype),
                     largest);
}

}  // namespace titan::checkpoint
