#include "train/guests/tensor_checksum.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace titan::train {
namespace {

// Elements hashed at once: their 8-byte integers stay in the cache of a core, and take little of a GPU's memory.
constexpr std::int64_t kElementsAtOnce = std::int64_t{1} << 20;

constexpr auto kOfBits = static_cast<std::int64_t>(0x9E3779B97F4A7C15U);
constexpr auto kOfIndex = static_cast<std::int64_t>(0xD1B54A32D192ED03U);
constexpr auto kFirst = static_cast<std::int64_t>(0xBF58476D1CE4E5B9U);
constexpr auto kSecond = static_cast<std::int64_t>(0x94D049BB133111EBU);

at::ScalarType integer_of(std::int64_t bytes) {
  return bytes == 1 ? at::kChar : bytes == 2 ? at::kShort : bytes == 4 ? at::kInt : at::kLong;
}

// ATen's right shift of signed integers copies the sign bit, so the upper bits are masked.
at::Tensor logical_right_shift(const at::Tensor& x, std::int64_t bits) {
  return at::bitwise_right_shift(x, bits).bitwise_and_((std::int64_t{1} << (64 - bits)) - 1);
}

// x ^= x >>> bits, in place.
void fold(at::Tensor& x, std::int64_t bits) { x.bitwise_xor_(logical_right_shift(x, bits)); }

at::Tensor hash_sum(const at::Tensor& bits, const at::Tensor& index) {
  at::Tensor x = (bits + 1).mul_(kOfBits).bitwise_xor_((index + 1).mul_(kOfIndex));
  fold(x, 30);
  x.mul_(kFirst);
  fold(x, 27);
  x.mul_(kSecond);
  fold(x, 31);
  return x.sum();
}

// Returns the index of each local element within its row of the full tensor: [1, elements per local row].
at::Tensor index_within_row(const dist::ShardSpec& spec, const at::TensorOptions& options) {
  at::Tensor index = at::zeros({1}, options);
  std::int64_t stride = 1;
  for (std::size_t d = spec.global_shape.size(); d-- > 1;) {
    const auto along = at::arange(spec.offset[d], spec.offset[d] + spec.local_shape[d], options).mul_(stride);
    index = (along.unsqueeze(1) + index.unsqueeze(0)).reshape({-1});
    stride *= spec.global_shape[d];
  }
  return index.unsqueeze(0);
}

}  // namespace

at::Tensor tensor_checksum(const at::Tensor& local, const dist::ShardSpec& spec, at::Device device) {
  const at::NoGradGuard no_grad;
  if (!local.defined() || local.numel() == 0) return at::zeros({}, at::TensorOptions().dtype(at::kLong).device(device));
  const auto options = at::TensorOptions().dtype(at::kLong).device(local.device());
  at::Tensor sum = at::zeros({}, options);
  const bool is_scalar = spec.global_shape.empty();
  const std::int64_t num_rows = is_scalar ? 1 : spec.local_shape[0];
  const std::int64_t row_size = local.numel() / num_rows;
  std::int64_t row_stride = 1;
  for (std::size_t d = 1; d < spec.global_shape.size(); ++d) row_stride *= spec.global_shape[d];
  const std::int64_t first_row = is_scalar ? 0 : spec.offset[0];
  const auto bits = local.detach().contiguous().view(integer_of(local.element_size())).reshape({num_rows, row_size});
  const auto within = index_within_row(spec, options);
  const std::int64_t rows_at_once = std::max<std::int64_t>(kElementsAtOnce / row_size, 1);
  for (std::int64_t begin = 0; begin < num_rows; begin += rows_at_once) {
    const std::int64_t end = std::min(begin + rows_at_once, num_rows);
    const auto rows = at::arange(first_row + begin, first_row + end, options).mul_(row_stride).unsqueeze(1);
    sum += hash_sum(bits.narrow(0, begin, end - begin).to(at::kLong), rows + within);
  }
  return sum.to(device, /*non_blocking=*/true);
}

}  // namespace titan::train
