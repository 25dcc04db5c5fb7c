// Items for tests: tensors split along dim 0 as FSDP splits them.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/dcp/item.h"

namespace titan::checkpoint {

// Rank `rank` of `size` holds ceil(n / size) rows; the last ranks may hold fewer or none.
inline TensorItem shard(const std::string& fqn, const at::Tensor& whole, int rank, int size) {
  const std::int64_t rows = whole.size(0);
  const std::int64_t chunk = (rows + size - 1) / size;
  const std::int64_t begin = std::min(chunk * rank, rows);
  const std::int64_t end = std::min(begin + chunk, rows);
  dist::ShardSpec spec{whole.sizes().vec(), std::vector<std::int64_t>(static_cast<std::size_t>(whole.dim()), 0),
                       whole.sizes().vec()};
  spec.offset[0] = begin;
  spec.local_shape[0] = end - begin;
  return {fqn, {fqn}, whole.narrow(0, begin, end - begin).clone(), spec, true};
}

inline TensorItem replicate(const std::string& fqn, const at::Tensor& whole) {
  return {fqn, {fqn}, whole.clone(), dist::ShardSpec::replicated(whole.sizes().vec()), false};
}

inline ValueItem value(const std::string& fqn, Value content) { return {fqn, {fqn}, std::move(content), false}; }

// Tensors of every kind that matters, with reproducible content.
inline std::vector<std::pair<std::string, at::Tensor>> sample_tensors() {
  return {{"even", at::arange(48, at::kFloat).reshape({8, 6})},
          {"uneven", at::arange(35, at::kFloat).reshape({5, 7}) * 0.1},
          {"one_row", at::arange(3, at::kFloat).reshape({1, 3})},
          {"vector", at::arange(7, at::kDouble) / 3},
          {"bf16", (at::arange(60, at::kFloat) / 7).reshape({10, 3, 2}).to(at::kBFloat16)},
          {"half", (at::arange(12, at::kFloat) / 9).to(at::kHalf)},
          {"int64", at::arange(9, at::kLong) * 1000000007},
          {"bool", at::arange(6, at::kLong).remainder(2).to(at::kBool)},
          {"large", at::arange(300000, at::kFloat).reshape({300, 1000}).sqrt()}};
}

}  // namespace titan::checkpoint
