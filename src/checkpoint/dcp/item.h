// Items that a rank passes to a save or a load.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <variant>
#include <vector>

#include "base/value.h"
#include "checkpoint/dcp/metadata.h"
#include "facts/shard_spec.h"

namespace titan::checkpoint {

// A tensor; this rank holds one box of it.
struct TensorItem {
  std::string fqn;
  StatePath path;
  at::Tensor local;      // CPU or CUDA, of shape spec.local_shape; a load fills it in place and casts to its dtype
  dist::ShardSpec spec;  // replicated: offset zero, local shape = global shape
  bool sharded = false;  // false: every rank that has the item holds the same full tensor
};

// An item that is not a tensor. Ranks with the same key hold the same value; a per-rank value has the rank in its key.
struct ValueItem {
  std::string fqn;
  StatePath path;
  Value value;            // a load ignores it and returns what was saved
  bool optional = false;  // a load does not fail if it is missing
};

using Item = std::variant<TensorItem, ValueItem>;

inline const std::string& item_fqn(const Item& item) {
  return std::visit([](const auto& each) -> const std::string& { return each.fqn; }, item);
}

inline const StatePath& item_path(const Item& item) {
  return std::visit([](const auto& each) -> const StatePath& { return each.path; }, item);
}

}  // namespace titan::checkpoint
